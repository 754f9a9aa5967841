"""Encoder and decoder opened as one, the batches that they are compared on, and what the comparison notices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import transformers

from edgebert_exporters.inference.batch import Batch, Reference, rows_alone
from edgebert_exporters.inference.graph_runner import bundle_signature, open_graphs
from edgebert_exporters.inference.pytorch_reference import load_reference, reference_of
from edgebert_exporters.inference.teacher_forcing import TeacherForcedSeq2Seq
from edgebert_exporters.inference.translation import translate_greedily
from edgebert_exporters.progress import silent
from edgebert_exporters.verification.beam_search_parity import check_translations, same_or_tied
from edgebert_exporters.verification.checks import batches_of
from edgebert_exporters.verification.parity import check_parity, check_rows_alone, top_k_matches_logits
from edgebert_exporters.verification.seq2seq_grid import TARGETS, target_grid
from edgebert_runtime import Bundle
from edgebert_runtime.bundle.manifest import Limits
from edgebert_runtime.decoders.seq2seq_kv_cache import Seq2SeqConcatKVCache, Seq2SeqInPlaceKVCache
from edgebert_runtime.errors import ParityError
from edgebert_runtime.generation import Hypothesis
from tests.support.tiny import sizes

Array = npt.NDArray[Any]
Maker = Callable[..., Path]
VOCAB = sizes("marian")["vocab_size"]
SOURCES = [[5], [7, 3, 3, 9, 11, 4, 20, 8], [2, 2, 6, 30]]


def opened(bundle: Path, *, with_swapped_beams: bool = False) -> TeacherForcedSeq2Seq:
    session = open_graphs(bundle, Bundle.open(bundle, verify="size").manifest, with_swapped_beams=with_swapped_beams)
    assert isinstance(session, TeacherForcedSeq2Seq)
    return session


@pytest.fixture(scope="module")
def reference(translator_checkpoint: Maker) -> Reference:
    return reference_of(load_reference(translator_checkpoint()))


def some_batch() -> Batch:
    """Return three sources, the second padded on the left, and targets of six tokens, some of them chosen."""
    rng = np.random.default_rng(3)
    mask = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 0, 1, 1, 0]])
    feeds = {
        "input_ids": rng.integers(0, VOCAB, mask.shape),
        "attention_mask": mask,
        "decoder_input_ids": rng.integers(0, VOCAB, (3, 6)),
        "logits_indices": np.array([13, 0, 5, 17, 6, 11]),
        "top_k": np.array([3]),
    }
    return Batch("some", feeds)


@pytest.mark.parametrize("with_swapped_beams", [False, True])
@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_opened_as_one_they_are_the_reference(
    target: str, with_swapped_beams: bool, translator_bundle: Maker, reference: Reference
) -> None:
    """A batch comes out as it is, whether rows change places at every step or not."""
    session, batch = opened(translator_bundle(target), with_swapped_beams=with_swapped_beams), some_batch()
    logits, ids, logprobs = session.run(None, batch.feeds)
    expected = reference(batch)
    assert (logits.shape, ids.shape, logprobs.shape) == ((6, VOCAB), (6, 3), (6, 3))
    np.testing.assert_allclose(logits, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ids, expected[1])
    np.testing.assert_allclose(logprobs, expected[2], rtol=1e-4, atol=1e-5)
    (only,) = session.run(["top_logprobs"], batch.feeds)
    np.testing.assert_array_equal(only, logprobs)


class Recorded:
    """A session that notes the tokens and, if there is one, the table of each call."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.calls = inner, list[tuple[list[int], Any]]()

    def run(self, names: Any, feeds: Mapping[str, Array]) -> list[Any]:
        table = feeds.get("cache_indirection")
        self.calls.append((feeds["input_ids"][:, 0].tolist(), None if table is None else table[0].tolist()))
        return list(self.inner.run(names, feeds))


def test_twins_change_places_at_every_step(translator_bundle: Maker) -> None:
    session = opened(translator_bundle("cpu"), with_swapped_beams=True)
    session.decoder = recorded = Recorded(session.decoder)
    feeds = {**some_batch().feeds, "decoder_input_ids": np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])}
    session.run(["logits"], {**feeds, "logits_indices": np.array([0])})
    tokens, tables = zip(*recorded.calls, strict=True)
    assert tokens == ([1, 3, 4, 6, 7, 9], [2, 2, 5, 5, 8, 8], [3, 1, 6, 4, 9, 7])
    assert tables[1] == [[1, 0, 0], [0, 0, 0], [3, 0, 0], [2, 0, 0], [5, 0, 0], [4, 0, 0]]
    assert tables[2] == [[0, 1, 0], [1, 0, 0], [2, 3, 0], [3, 2, 0], [4, 5, 0], [5, 4, 0]]


def test_grid_has_every_padding_and_every_position() -> None:
    limits = Limits(50, 33, 33)
    batches = list(target_grid(limits, 900))
    assert len({batch.name for batch in batches}) == len(batches)
    shapes = {(*batch.input_ids.shape, batch.feeds["decoder_input_ids"].shape[1]) for batch in batches}
    assert {target for _, _, target in shapes} == {*TARGETS, 33}
    assert (1, 33, 33) in shapes
    assert {(size, source) for size, source, _ in shapes} == {(n, m) for n in (1, 2, 5) for m in (1, 2, 7, 33)}
    for batch in batches:
        targets, chosen = batch.feeds["decoder_input_ids"], batch.feeds["logits_indices"]
        assert set(chosen // targets.shape[1]) == set(range(len(targets))), "each target is read"
        assert chosen.max() < targets.size
        assert batch.input_ids.max() < 50
        assert f"target of {targets.shape[1]}" in batch.name
    most = max(batch.feeds["decoder_input_ids"].max() for batch in batches)
    assert 800 < most < 900, "targets have a vocabulary of their own"
    masks = ["".join(map(str, row)) for batch in batches for row in batch.attention_mask]
    assert {"0000000", "1111111", "0011111", "1111100"} <= set(masks)
    short = list(target_grid(Limits(50, 1, 1), 3))
    assert {batch.feeds["decoder_input_ids"].shape[1] for batch in short} == {1}
    assert {int(batch.feeds["top_k"][0]) for batch in short} == {3}


def test_rows_of_the_grid_alone() -> None:
    feeds = {
        "input_ids": np.array([[5, 6, 7], [8, 9, 4], [1, 2, 3]]),
        "attention_mask": np.array([[0, 1, 1], [1, 0, 1], [0, 0, 0]]),
        "decoder_input_ids": np.array([[10, 11], [12, 13], [14, 15]]),
        "logits_indices": np.array([3, 0, 4, 2]),
        "top_k": np.array([2]),
    }
    (left, first), (right, second) = rows_alone(Batch("b", feeds))  # the third has no source
    assert (left, right) == (0, 1)
    assert [first.feeds[name].tolist() for name in feeds] == [[[6, 7]], [[1, 1]], [[10, 11]], [0], [2]]
    assert [second.feeds[name].tolist() for name in feeds] == [[[8, 4]], [[1, 1]], [[12, 13]], [1, 0], [2]]


def test_rows_alone_give_what_they_give_together(translator_bundle: Maker) -> None:
    bundle = Bundle.open(translator_bundle("cpu"))
    worst = check_rows_alone(opened(bundle.path), bundle_signature(bundle.manifest).outputs, [some_batch()])
    assert worst.batches == 3
    assert set(worst.outputs) == {"logits", "top_logprobs"}
    assert 0 < worst.worst.relative < 1e-5


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch, translator_bundle: Maker) -> None:
    """Let caches ignore a new order of rows; a row that is new is a copy of the last."""
    for target in ("cpu", "portable"):
        translator_bundle(target)  # an export would be refused with such caches

    def stay(self: Seq2SeqConcatKVCache, parents: Array) -> None:
        self.past = [part[np.minimum(np.arange(len(parents)), len(part) - 1)] for part in self.past]

    monkeypatch.setattr(Seq2SeqConcatKVCache, "reorder", stay)
    monkeypatch.setattr(Seq2SeqInPlaceKVCache, "reorder", lambda self, parents: None)


@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_rows_that_stay_are_noticed(
    target: str, forgetful: None, translator_bundle: Maker, reference: Reference
) -> None:
    bundle = Bundle.open(translator_bundle(target))
    outputs, batches = bundle_signature(bundle.manifest).outputs, batches_of(bundle.manifest)[:12]
    alone = check_parity(opened(bundle.path), reference, outputs, batches, target, silent)
    assert alone.worst.relative < 1e-5, "without with_swapped_beams there is nothing to notice"
    with pytest.raises(ParityError, match=f"the {target} graph differs from the PyTorch reference"):
        check_parity(opened(bundle.path, with_swapped_beams=True), reference, outputs, batches, target, silent)
    with pytest.raises(
        ParityError, match=f"with num_beams=4 the {target} graphs translate a source of [0-9]+ tokens to"
    ):
        check_translations(opened(bundle.path), reference, bundle.manifest)


class Confused:
    """A reference with a favourite token in one step of the targets."""

    def __init__(self, inner: Reference, length: int, more: float) -> None:
        self.inner, self.length, self.more = inner, length, more

    def __call__(self, batch: Batch) -> list[Array]:
        logits, *others = self.inner(batch)
        if batch.feeds["decoder_input_ids"].shape[1] == self.length:
            logits = logits.copy()
            logits[:, 17] += self.more
        return [logits, *others]


def test_another_translation_is_noticed(translator_bundle: Maker, reference: Reference) -> None:
    bundle = Bundle.open(translator_bundle("cpu"))
    session = opened(bundle.path)
    figures = check_translations(session, reference, bundle.manifest)
    assert figures == {"sources": 4, "num_beams": [1, 4], "tokens": 64}
    with pytest.raises(ParityError, match=r"with num_beams=1 the cpu graphs .* instead of \[.*17.*\]; please report"):
        check_translations(session, Confused(reference, 4, 50), bundle.manifest)
    check_translations(session, Confused(reference, 4, 1e-6), bundle.manifest)
    short = dataclasses.replace(bundle.manifest, limits=Limits(VOCAB, 2, 2))
    assert check_translations(session, reference, short)["tokens"] == 4 * 2 * 1


def test_equally_good_translations_are_the_same() -> None:
    first = Hypothesis((3, 4), (-0.5, -0.5), -2.0, "length")
    assert same_or_tied(first, dataclasses.replace(first, tokens=(4, 3), score=-2.0001))
    assert not same_or_tied(first, dataclasses.replace(first, tokens=(4, 3), score=-2.001))
    assert same_or_tied(first, dataclasses.replace(first, score=-7.0))


@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_translated_is_what_transformers_finds(
    target: str, translator_bundle: Maker, translator_checkpoint: Maker
) -> None:
    """Greedily and up to the end of a text; the last token is left out."""
    theirs = transformers.MarianMTModel.from_pretrained(translator_checkpoint()).eval()
    bundle = Bundle.open(translator_bundle(target))
    translations = translate_greedily(opened(bundle.path), bundle.manifest, SOURCES, 9, batch_size=2)
    end, pad = theirs.config.eos_token_id, theirs.config.pad_token_id
    for source, tokens in zip(SOURCES, translations, strict=True):
        target_ids = [theirs.config.decoder_start_token_id]
        while len(target_ids) <= 9 and target_ids[1:][-1:] != [end]:
            with torch.no_grad():
                logits = theirs(torch.tensor([source]), decoder_input_ids=torch.tensor([target_ids])).logits
            logits[:, :, pad] = -math.inf  # is never generated
            target_ids.append(int(logits[0, -1].argmax()))
        assert tokens == target_ids[:-1]


def best_of(logits: Array, count: int) -> dict[str, Array]:
    """Return what a graph with these logits should give."""
    logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    ids = np.argsort(-logprobs, axis=1, kind="stable")[:, :count]
    return {"logits": logits, "top_ids": ids, "top_logprobs": np.take_along_axis(logprobs, ids, 1)}


def test_chosen_tokens_are_judged_by_hand() -> None:
    row = [math.log(p) for p in (0.1, 0.5, 0.15, 0.25)]
    outputs = best_of(np.array([row, row[::-1]], np.float32), 2)
    assert outputs["top_ids"].tolist() == [[1, 3], [2, 0]]
    np.testing.assert_allclose(np.exp(outputs["top_logprobs"]), [[0.5, 0.25]] * 2, rtol=1e-6)
    assert top_k_matches_logits(outputs)
    assert not top_k_matches_logits({**outputs, "top_ids": np.array([[1, 3], [1, 0]])})
    assert not top_k_matches_logits({**outputs, "top_ids": outputs["top_ids"][:, ::-1]}), "in another order"
    assert not top_k_matches_logits({**outputs, "top_logprobs": outputs["top_logprobs"] + np.float32(0.001)})
    assert not top_k_matches_logits({**outputs, "top_ids": np.array([[1, 2], [2, 0]])})
    # Which of two comes first that are equally likely but for rounding says nothing.
    tied = best_of(np.array([[0.5, 0.5 + 1e-6, -1, 0.2]], np.float32), 3)
    assert top_k_matches_logits(tied)
    assert top_k_matches_logits({**tied, "top_ids": tied["top_ids"][:, [1, 0, 2]]})


class Choosing:
    """A session that names other tokens than those that its logits say."""

    def __init__(self, inner: TeacherForcedSeq2Seq) -> None:
        self.inner = inner

    def run(self, names: Any, feeds: Mapping[str, Array]) -> list[Any]:
        logits, ids, logprobs = self.inner.run(names, feeds)
        return [logits, (ids + (feeds["input_ids"].shape[1] == 7)) % VOCAB, logprobs]


def test_other_tokens_are_noticed(translator_bundle: Maker, reference: Reference) -> None:
    bundle = Bundle.open(translator_bundle("cpu"))
    outputs, batches = bundle_signature(bundle.manifest).outputs, batches_of(bundle.manifest)
    session = Choosing(opened(bundle.path))
    check_parity(session, reference, outputs, [b for b in batches if b.input_ids.shape[1] < 7], "cpu", silent)
    with pytest.raises(ParityError, match=r"length 7, .*: the cpu graph chooses other tokens than its logits say"):
        check_parity(session, reference, outputs, batches, "cpu", silent)
