"""The grid meets every kind of padding alone and beside the others."""

import numpy as np

from edgebert_exporters.grid import BATCHES, PADDINGS, encoder_grid, mask_row, rows_alone


def test_grid_covers_every_size_and_padding() -> None:
    batches = list(encoder_grid(vocab_size=50, max_tokens=33, type_vocab_size=2))
    assert {b.input_ids.shape for b in batches} == {(size, length) for size in BATCHES for length in (1, 2, 7, 33)}
    for size in BATCHES[:-1]:
        firsts = {b.name.split("padding ")[1].split("/")[0] for b in batches if b.input_ids.shape == (size, 7)}
        assert firsts == set(PADDINGS)
    assert any(not b.attention_mask.any() for b in batches)
    assert all(0 <= b.input_ids.min() <= b.input_ids.max() < 50 for b in batches)
    assert {0, 1} == {int(x) for b in batches for x in b.token_type_ids.reshape(-1)}


def test_masks_are_what_they_are_called() -> None:
    rng = np.random.default_rng(0)
    assert mask_row("none", 6, rng).tolist() == [1] * 6
    assert mask_row("right", 6, rng).tolist() == [1, 1, 1, 1, 0, 0]
    assert mask_row("left", 6, rng).tolist() == [0, 0, 1, 1, 1, 1]
    assert mask_row("holes", 6, rng).sum() == 4
    assert mask_row("all", 6, rng).sum() == 0
    assert all(mask_row(kind, 1, rng).sum() == 1 for kind in PADDINGS if kind != "all")


def test_rows_alone_have_no_padding_and_the_same_ids() -> None:
    batch = next(b for b in encoder_grid(50, 33, 2) if b.name.startswith("batch 5 x length 7"))
    alone = dict(rows_alone(batch))
    assert set(alone) == {0, 1, 2, 3}  # the fifth is all padding
    for row, single in alone.items():
        assert single.attention_mask.all()
        assert single.input_ids[0].tolist() == batch.input_ids[row][batch.attention_mask[row] == 1].tolist()
