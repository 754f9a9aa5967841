"""The grid meets every kind of padding alone and beside the others, and looks at every real token that counts."""

import numpy as np

from edgebert_exporters.inference.batch import (
    CHOSEN_TOKENS,
    PADDINGS,
    Batch,
    mask_row,
    real_outputs,
    row_outputs,
    rows_alone,
)
from edgebert_exporters.verification.encoder_grid import BATCHES, encoder_grid

INPUTS = ("input_ids", "attention_mask", "token_type_ids", "logits_indices")


def test_grid_covers_every_size_and_padding() -> None:
    batches = list(encoder_grid(INPUTS, vocab_size=50, max_tokens=33, type_vocab_size=2))
    assert {b.input_ids.shape for b in batches} == {(size, length) for size in BATCHES for length in (1, 2, 7, 33)}
    for size in BATCHES[:-1]:
        firsts = {b.name.split("padding ")[1].split("/")[0] for b in batches if b.input_ids.shape == (size, 7)}
        assert firsts == set(PADDINGS)
    assert any(not b.attention_mask.any() for b in batches)
    assert all(0 <= b.input_ids.min() <= b.input_ids.max() < 50 for b in batches)
    assert {0, 1} == {int(x) for b in batches for x in b.feeds["token_type_ids"].reshape(-1)}


def test_masks_are_what_they_are_called() -> None:
    rng = np.random.default_rng(0)
    assert mask_row("none", 6, rng).tolist() == [1] * 6
    assert mask_row("right", 6, rng).tolist() == [1, 1, 1, 1, 0, 0]
    assert mask_row("left", 6, rng).tolist() == [0, 0, 1, 1, 1, 1]
    assert mask_row("holes", 6, rng).sum() == 4
    assert mask_row("all", 6, rng).sum() == 0
    assert all(mask_row(kind, 1, rng).sum() == 1 for kind in PADDINGS if kind != "all")


def test_rows_alone_have_no_padding_and_the_same_ids() -> None:
    batch = next(b for b in encoder_grid(INPUTS, 50, 33, 2) if b.name.startswith("batch 5 x length 7"))
    alone = dict(rows_alone(batch))
    assert set(alone) == {0, 1, 2, 3}  # the fifth is all padding
    for row, single in alone.items():
        assert single.attention_mask.all()
        assert single.input_ids[0].tolist() == batch.input_ids[row][batch.attention_mask[row] == 1].tolist()


def test_batches_feed_what_the_graph_declares() -> None:
    for inputs in (INPUTS[:2], INPUTS[:3], INPUTS):
        assert {tuple(batch.feeds) for batch in encoder_grid(inputs, 50, 33, 2)} == {inputs}
        assert all(tuple(a.feeds) == inputs for b in encoder_grid(inputs, 50, 33, 2) for _, a in rows_alone(b))


def test_a_few_tokens_of_every_row_are_chosen() -> None:
    for batch in encoder_grid(INPUTS, 50, 400, 2):
        mask, chosen = batch.attention_mask, batch.feeds["logits_indices"]
        assert len(set(chosen.tolist())) == len(chosen) <= CHOSEN_TOKENS
        assert set((chosen // mask.shape[1]).tolist()) == set(range(len(mask)))
        empty = mask.sum(1)[chosen // mask.shape[1]] == 0  # only a row without real tokens gives some of its padding
        assert ((mask.reshape(-1)[chosen] == 1) | empty).all()


def test_chosen_tokens_stay_the_same_ones_when_a_row_is_alone() -> None:
    for batch in encoder_grid(INPUTS, 5000, 33, 2):
        for row, alone in rows_alone(batch):
            chosen = batch.feeds["logits_indices"][row_outputs(("rows", 9), batch, row)]
            ids = batch.input_ids.reshape(-1)[chosen]
            assert ids.tolist() == alone.input_ids[0, alone.feeds["logits_indices"]].tolist()
            assert len(ids) > 0


def test_outputs_count_where_they_mean_something() -> None:
    mask = np.array([[0, 1, 1], [0, 0, 0]])
    batch = Batch("b", {"input_ids": mask, "attention_mask": mask, "logits_indices": np.array([5, 2, 1])})
    assert real_outputs(("batch", 4), batch).tolist() == [True, True]
    assert real_outputs(("batch", "sequence", 4), batch).tolist() == [[False, True, True], [False] * 3]
    assert real_outputs(("rows", 4), batch).tolist() == [False, True, True]
    assert row_outputs(("batch", "sequence"), batch, 0).tolist() == [[False, True, True], [False] * 3]
    assert row_outputs(("batch", 4), batch, 1).tolist() == [False, True]
    assert not row_outputs(("rows", 4), batch, 1).any()
