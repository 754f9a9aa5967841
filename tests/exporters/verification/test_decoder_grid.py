"""The grid of a decoder, the cache of the target cpu taken apart by hand, and going on greedily."""

from __future__ import annotations

import numpy as np
import pytest

from edgebert_exporters.graphs.signatures import arguments, decoder_signature
from edgebert_exporters.inference.batch import Batch, real_outputs, row_outputs, rows_alone
from edgebert_exporters.inference.decoder_adapter import packed, spread
from edgebert_exporters.inference.greedy import continued, first_batch, next_batch, same_token_share
from edgebert_exporters.quantization.weight_discovery import Floats
from edgebert_exporters.verification.decoder_grid import MAX_COLUMNS, decoder_grid
from edgebert_exporters.verification.encoder_grid import BATCHES
from edgebert_exporters.verification.greedy_parity import check_greedy
from edgebert_runtime.bundle.manifest import GraphSpec, Limits, Manifest, Weights
from edgebert_runtime.errors import ParityError

CPU, PORTABLE = (decoder_signature(target, 50, 1, 2, 4).inputs for target in ("cpu", "portable"))
KEY, VALUE = "past_key_values.0.key", "past_key_values.0.value"


def shape(batch: Batch) -> tuple[int, int, int]:
    return len(batch.input_ids), batch.feeds[KEY].shape[2], batch.input_ids.shape[1]


def test_grid_covers_prompts_and_every_past() -> None:
    portable = [shape(batch) for batch in decoder_grid(PORTABLE, 50, 33, "portable")]
    news = {1: (0, 1, 6, 32), 2: (0, 1, 6, 31), 7: (0, 1, 6, 26), 33: (0,)}
    assert sorted(portable) == sorted((size, past, new) for new in news for past in news[new] for size in BATCHES)
    cpu = [shape(batch) for batch in decoder_grid(CPU, 50, 33, "cpu")]
    assert set(cpu) == {call for call in portable if call[1] == 0 or call[2] == 1 or call[0] == 1}
    long = [shape(batch) for batch in decoder_grid(PORTABLE, 50, 1024, "portable")]
    assert (2, 0, 1024) in long
    assert (5, 1023, 1) not in long
    assert max(size * (past + new) for size, past, new in long) <= MAX_COLUMNS
    assert {(1, 0, 1)} == {shape(batch) for batch in decoder_grid(CPU, 50, 1, "cpu") if shape(batch)[0] == 1}


def test_masks_are_those_that_a_target_takes() -> None:
    for batch in decoder_grid(CPU, 50, 33, "cpu"):
        size, past, new = shape(batch)
        assert (np.diff(batch.new_mask, axis=1) <= 0).all(), "padding stands on the right"
        assert batch.new_mask[:, 0].all(), "each row has a token"
        assert batch.new_mask.all() or past == 0
        assert batch.attention_mask.all() or size > 1 or past == 0
    masks = [batch.attention_mask for batch in decoder_grid(CPU, 50, 33, "cpu") if shape(batch) == (5, 6, 1)]
    assert len(set(masks[0].sum(1).tolist())) > 2, "pasts of unequal lengths"
    patterns = ["".join(map(str, row)) for b in decoder_grid(PORTABLE, 50, 33, "portable") for row in b.attention_mask]
    for example in ("0", "1", "01", "10"):
        assert example in patterns
    assert any("101" in pattern.strip("0") for pattern in patterns)


def test_pasts_differ_by_layer_part_and_row() -> None:
    inputs = decoder_signature("portable", 50, 3, 2, 4).inputs
    batch = next(b for b in decoder_grid(inputs, 50, 33, "portable") if b.feeds[KEY].shape[:3] == (5, 2, 6))
    blocks = [row.tobytes() for name, array in batch.feeds.items() if name.startswith("past") for row in array]
    assert len(set(blocks)) == len(blocks) == 3 * 2 * 5
    assert [key is batch.feeds[KEY] for key, _ in arguments(batch.feeds)["past"]] == [True, False, False]


def test_cache_is_packed_and_spread_by_hand() -> None:
    past = np.arange(2 * 1 * 3 * 1, dtype=np.float32).reshape(2, 1, 3, 1)
    mask = np.array([[0, 1, 1, 1], [1, 0, 0, 1]])
    cache = packed(past, mask, 5)
    assert cache[:, 0, :, 0].tolist() == [[1, 2, 7, 7, 7], [3, 7, 7, 7, 7]]
    cache[0, 0, 2], cache[1, 0, 1] = 10, 11  # where the kernel writes the new tokens
    assert spread(cache, mask)[:, 0, :, 0].tolist() == [[0, 1, 2, 10], [3, 0, 0, 11]]


def test_outputs_and_rows_with_a_past() -> None:
    past = np.arange(2 * 2 * 2, dtype=np.float32).reshape(2, 1, 2, 2)
    mask = np.array([[0, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    feeds = {
        "input_ids": np.array([[5, 6, 7], [8, 9, 4]]),
        "attention_mask": mask,
        "logits_indices": np.array([3, 1, 0]),
    }
    batch = Batch("b", {**feeds, KEY: past})
    assert real_outputs(("rows", 50), batch).tolist() == [False, True, True]
    columns = real_outputs(("batch", 2, "total_sequence", 2), batch)
    assert columns.shape == (2, 2, 5)
    assert (columns == (mask == 1)[:, None]).all()
    assert row_outputs(("batch", 2, "total_sequence", 2), batch, 1).sum() == 4
    ((row, alone),) = rows_alone(batch)  # the second has no new token
    assert row == 0
    assert alone.input_ids.tolist() == [[5, 6]]
    assert alone.attention_mask.tolist() == [[1, 1, 1]]
    assert alone.feeds["logits_indices"].tolist() == [1, 0]
    assert alone.feeds[KEY].tolist() == past[:1, :, 1:].tolist()


class Counting:
    """A model of 50 words whose next one is the sum of the tokens of a row, plus ``off`` in some step."""

    def __init__(self, wrong_step: int = -1, off: float = 1.0) -> None:
        self.wrong_step, self.off, self.prompt = wrong_step, off, 0

    def __call__(self, batch: Batch) -> list[Floats]:
        past, new = batch.feeds[KEY][:, 0, :, 0], batch.input_ids
        keys = np.concatenate([past, new * batch.new_mask], 1)
        if not past.shape[1]:
            self.prompt = new.shape[1]
        step = keys.shape[1] - self.prompt
        total = (keys * batch.attention_mask).sum(1).astype(int) % 50
        logits = np.zeros((len(new), 50), np.float32)
        logits[np.arange(len(new)), total] = 10
        if step == self.wrong_step:
            logits[0, (total[0] + 1) % 50] += 10 + self.off
        present = np.repeat(np.repeat(keys[:, None, :, None], 2, 1), 4, 3).astype(np.float32)
        return [logits, present, present]


def test_going_on_by_hand() -> None:
    batch = first_batch([[3, 4], [5]], PORTABLE)
    assert batch.attention_mask.tolist() == [[1, 1], [1, 0]]
    assert batch.feeds["logits_indices"].tolist() == [1, 2]
    outputs = Counting()(batch)
    assert outputs[0].argmax(1).tolist() == [7, 5]
    after = next_batch(batch, outputs, np.array([7, 5]))
    assert after.attention_mask.tolist() == [[1, 1, 1], [1, 0, 1]]
    assert after.feeds[KEY].shape == (2, 2, 2, 4)
    tokens = np.stack([logits.argmax(1) for logits in continued(Counting(), [[3, 4], [5]], PORTABLE, 4)], 1)
    assert tokens.tolist() == [[7, 14, 28, 6], [5, 10, 20, 40]]
    forced = np.array([[1, 1, 1], [2, 2, 2]])
    tokens = np.stack([x.argmax(1) for x in continued(Counting(), [[3, 4], [5]], PORTABLE, 4, forced)], 1)
    assert tokens.tolist() == [[7, 8, 9, 10], [5, 7, 9, 11]]


def test_token_agreement_counts_up_to_the_first_that_differs() -> None:
    prompts = [[3, 4], [5]]
    assert same_token_share(Counting(), Counting(), prompts, PORTABLE, 4) == 1
    assert same_token_share(Counting(), Counting(wrong_step=1), prompts, PORTABLE, 4) == (1 + 4) / 8


def test_another_token_is_found_and_a_tie_is_none() -> None:
    graphs, weights = {"model": GraphSpec("model.onnx", PORTABLE, ())}, Weights("fp32", 0)
    manifest = Manifest("0", "gpt2", "generate", "portable", {}, graphs, {}, Limits(50, 40, 40), weights, {})
    assert check_greedy(Counting(), Counting(), manifest, 1e-4) == {"prompts": 4, "tokens": 32}
    with pytest.raises(
        ParityError, match=r"goes on with token \d+ instead of \d+ at step 3 after a prompt of 1 tokens"
    ):
        check_greedy(Counting(wrong_step=2), Counting(), manifest, 1e-4)
    # Two tokens that the reference itself can hardly tell apart.
    check_greedy(Counting(wrong_step=2, off=1e-4), Counting(wrong_step=2, off=-1e-4), manifest, 1e-4)
