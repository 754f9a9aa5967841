"""Figures of agreement, against numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgebert_exporters.fidelity.comparison import (
    Fidelity,
    correlation,
    cosines,
    divergences,
    headline_metric,
    likelihood,
    nearest,
    vectors_of,
)
from edgebert_exporters.fidelity.histogram import BINS, histogram
from edgebert_exporters.fidelity.token_bytes import token_bytes
from edgebert_exporters.graphs.signatures import encoder_signature
from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.encoder import MASK_EVERY, mask_id
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import Sample, sample_rows, source_tokenizer, to_batches
from edgebert_exporters.verification.golden_sample import check_golden
from edgebert_exporters.verification.parity import MaxErrors
from edgebert_runtime import Bundle
from edgebert_runtime.errors import IntegrityError, ParityError


def test_cosines_by_hand() -> None:
    values = cosines(np.array([[3, 4, 0], [1, 0, 0]]), np.array([[4, 3, 0], [-2, 0, 0]]))
    np.testing.assert_allclose(values, [24 / 25, -1])
    # A number has no direction: off by 10 % of 8, and by 0.1 of what is below 1.
    np.testing.assert_allclose(cosines(np.array([[8.8], [0.2]]), np.array([[8.0], [0.1]])), [0.995, 0.995])
    np.testing.assert_allclose(cosines(np.array([[0, 0.1]]), np.array([[0, -0.1]])), [0.98])  # and not -1


def test_correlation_by_hand() -> None:
    assert correlation(np.array([1.0, 2, 3]), np.array([5.0, 7, 9])) == pytest.approx(1)
    assert correlation(np.array([1.0, 2, 3]), np.array([0.0, 1, 0])) == pytest.approx(0)
    assert correlation(np.array([2.0, 2, 2]), np.array([2.0, 2, 2.2])) == pytest.approx(1 - 0.1**2 / 2 / 3, abs=1e-3)


def test_divergences_by_hand() -> None:
    old, new = np.array([[0, math.log(3)]], np.float32), np.zeros((1, 2), np.float32)
    expected = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    np.testing.assert_allclose(divergences(old, new, multi_label=False), [expected], rtol=1e-6)
    # As two questions of yes and no, the first is answered alike.
    np.testing.assert_allclose(divergences(old, new, multi_label=True), [expected], rtol=1e-6)
    assert divergences(old + 50, old - 50, multi_label=False)[0] == pytest.approx(0, abs=1e-6)
    assert divergences(old + 50, old - 50, multi_label=True)[0] > 50


def test_nearest_by_hand() -> None:
    vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], np.float32)
    assert nearest(vectors).tolist() == [1, 0, 3, 2]


def test_agreement_by_hand() -> None:
    logits = Fidelity(embeds=False, single=False, multi_label=False)
    logits.add(np.array([[9, 0, 0], [0, 0.01, 0]], np.float32), np.array([[9, 0, 0], [0.01, 0, 0]], np.float32))
    figures = logits.figures()
    assert set(figures) == {
        *("texts", "cosine_mean", "cosine_min", "cosines", "top1_agreement", "flip_rate", "kl_mean")
    }
    assert (figures["texts"], figures["cosine_min"], figures["top1_agreement"]) == (1, figures["cosine_mean"], 0.5)
    assert figures["flip_rate"] == 1, "of the only text, one of two tokens"
    assert figures["cosines"] == {"low": figures["cosine_mean"], "high": figures["cosine_mean"], "counts": [1]}
    assert figures["cosine_mean"] > 0.999, "logits near zero weigh little"
    assert headline_metric(figures) == ("mean cosine", figures["cosine_mean"])
    logits.add(np.array([[1, 0, 0]], np.float32), np.array([[2, 0, 0]], np.float32))
    figures = logits.figures()
    assert (figures["texts"], figures["top1_agreement"], figures["flip_rate"]) == (2, pytest.approx(2 / 3), 0.5)
    assert sum(figures["cosines"]["counts"]) == 2
    assert (figures["cosine_min"], figures["cosines"]["high"]) == (figures["cosines"]["low"], 1)
    scores = Fidelity(embeds=False, single=True, multi_label=False)
    for old, new in ((1, 2), (2, 1), (3, 3)):
        scores.add(np.array([[old]], np.float32), np.array([[new]], np.float32))
    assert set(scores.figures()) == {"texts", "cosine_mean", "cosine_min", "cosines", "correlation"}
    name, value = headline_metric(scores.figures())
    assert name == "correlation"
    assert value == pytest.approx(0.5)


def test_only_the_numbers_of_a_cut_vector_count() -> None:
    old, new = np.array([[1, 0, 0, 7], [0, 1, 0, 7]], np.float32), np.array([[1, 0, 0, -7], [0, 2, 0, 1]], np.float32)
    whole, cut = (Fidelity(embeds=True, single=False, multi_label=False, dim=dim) for dim in (None, 3))
    for fidelity in (whole, cut):
        fidelity.add(old, new)
    assert cut.figures()["cosine_min"] == pytest.approx(1)
    assert whole.figures()["cosine_min"] < 0


def test_a_histogram_counts_every_number() -> None:
    numbers = np.random.default_rng(0).permutation(10_000) / 10_000
    bins = histogram(numbers.tolist())
    counts, edges = np.histogram(numbers, BINS)
    assert (bins["low"], bins["high"]) == (edges[0], edges[-1])
    assert bins["counts"] == counts.tolist()


def test_what_texts_cost_by_hand() -> None:
    surprises = [([1, 2], np.array([math.log(2), math.log(8)]), np.array([math.log(4), math.log(4)]))]
    surprises.append(([3], np.array([math.log(4)]), np.array([math.log(4)])))
    figures = likelihood(surprises, np.array([9, 1, 3, 2]))
    assert figures == pytest.approx(
        {
            **{"perplexity_before": 4, "perplexity_after": 4},  # the geometric means of 2, 8, 4 and of 4, 4, 4
            **{"bits_per_byte_before": (1 + 3 + 2) / (1 + 3 + 2), "bits_per_byte_after": 6 / 6},
        }
    )
    assert set(likelihood(surprises, None)) == {"perplexity_before", "perplexity_after"}
    assert set(likelihood(surprises, np.zeros(4, np.int64))) == {"perplexity_before", "perplexity_after"}


@pytest.mark.parametrize("text", ["the cat sat.", "naïve café \U0001f600", "  two  spaces\n", "日本 été"])
def test_bytes_of_tokens_add_up(text: str, task_bundle: Callable[[str], Path]) -> None:
    bundle = Bundle.open(task_bundle("generate"))
    sizes = token_bytes(bundle)
    assert sizes is not None
    tokenizer = source_tokenizer(bundle)
    assert sizes[tokenizer.ids(text)].sum() == len(text.encode())
    assert sizes[bundle.manifest.decoding["eos_token_id"]] == 0, "a token that is no text"
    assert len(sizes) == bundle.manifest.limits.vocab_size


def test_bytes_of_other_tokens_are_not_guessed(fp32_bundle: Path) -> None:
    assert token_bytes(Bundle.open(fp32_bundle)) is None


def test_vectors_of_one_row() -> None:
    mask = np.array([[1, 1, 0], [0, 1, 1]])
    batch = Batch("b", {"input_ids": mask, "attention_mask": mask, "logits_indices": np.array([5, 0, 4])})
    numbers = np.arange(16, dtype=np.float32)
    spans = [numbers[:6].reshape(2, 3), numbers[10:].reshape(2, 3)]
    answers = encoder_signature("answer", 2, 2).outputs
    assert vectors_of(answers, batch, spans, 1).tolist() == [[4, 5], [14, 15]]  # starts, ends
    words = encoder_signature("fill-mask", 2, 2).outputs
    assert vectors_of(words, batch, [numbers[:6].reshape(3, 2)], 1).tolist() == [[0, 1], [4, 5]]
    tags = encoder_signature("tag", 1, 2).outputs
    assert vectors_of(tags, batch, [spans[0][..., None]], 0).tolist() == [[0], [1]]
    texts = encoder_signature("classify", 2, 2).outputs
    assert vectors_of(texts, batch, [numbers[:4].reshape(2, 2)], 1).tolist() == [[2, 3]]


def test_each_output_is_measured_by_its_own_largest_number() -> None:
    worst = MaxErrors()

    def add(output: str, actual: float, expected: float, where: str) -> None:
        worst.add(output, np.array([actual], np.float32), np.array([expected], np.float32), where)

    add("small", 1.1, 1.0, "first")
    add("large", 1000.5, 1000.0, "second")
    add("small", 0.0, 0.0, "third")
    assert worst.worst.where == "first"
    assert worst.worst.relative == pytest.approx(0.1, rel=1e-5)
    add("small", 20.0, 20.0, "fourth")  # the largest number of the grid comes late
    assert worst.worst.relative == pytest.approx(0.1 / 20, rel=1e-5)
    with pytest.raises(ParityError, match=r"fifth: small has shape \(1,\), the reference \(2,\)"):
        worst.add("small", np.zeros(1, np.float32), np.zeros(2, np.float32), "fifth")


def test_samples_are_what_a_task_reads(task_bundle: Callable[[str], Path]) -> None:
    rows = [[2, 5, 6, 3], [2, 7, 3], [2, 8, 9, 10, 3]]
    pairs = OpenedBundle.open(task_bundle("rerank")).samples(rows)
    assert pairs[0] == Sample([2, 5, 6, 3, 7, 3], [0, 0, 0, 0, 1, 1])
    assert pairs[2].ids == [2, 8, 9, 10, 3, 5, 6, 3]  # the last goes with the first
    assert OpenedBundle.open(task_bundle("tag")).samples(rows)[1] == Sample([2, 7, 3], [0, 0, 0])
    opened = OpenedBundle.open(task_bundle("fill-mask"))
    assert mask_id(opened.bundle) == 4
    masked = opened.samples([*rows, list(range(5, 35)), [2], [2, 3]])
    for sample in masked:
        assert sample.chosen
        assert [i for i, token in enumerate(sample.ids) if token == 4] == list(sample.chosen)
    assert len(masked[3].chosen) == 30 // MASK_EVERY
    for indices, batch in to_batches(masked, ["input_ids", "attention_mask", "logits_indices"]):
        chosen = batch.feeds["logits_indices"]
        assert (batch.input_ids.reshape(-1)[chosen] == 4).all()
        assert len(chosen) == sum(len(masked[i].chosen) for i in indices)


def test_pairs_fit_into_the_model(task_bundle: Callable[[str], Path]) -> None:
    bundle = Bundle.open(task_bundle("answer"))
    samples = OpenedBundle(bundle).samples(sample_rows(bundle, None))
    assert max(len(sample.ids) for sample in samples) <= bundle.manifest.limits.max_tokens
    assert all(0 < sum(sample.types) < len(sample.types) == len(sample.ids) for sample in samples)


@pytest.mark.parametrize("task", ["rerank", "fill-mask", "answer"])
def test_golden_sample_of_every_kind_is_watched(task: str, task_bundle: Callable[[str], Path]) -> None:
    bundle = Bundle.open(task_bundle(task))
    golden = bundle.manifest.verification["golden"]
    assert len(golden["vector"]) == {"rerank": 1, "fill-mask": 64, "answer": 2 * len(golden["input_ids"])}[task]
    assert check_golden(OpenedBundle(bundle)) == pytest.approx(1, abs=1e-6)
    vector = [x + 0.5 * (-1) ** i for i, x in enumerate(golden["vector"])]
    manifest = dataclasses.replace(bundle.manifest, verification={"golden": {**golden, "vector": vector}})
    with pytest.raises(IntegrityError, match="the golden sample gives a vector of cosine"):
        check_golden(OpenedBundle(dataclasses.replace(bundle, manifest=manifest)))


@pytest.mark.parametrize(("task", "files"), [("tag", "2"), ("translate", "3")])
def test_a_bundle_is_verified_without_pytorch(task: str, files: str, task_bundle: Callable[[str], Path]) -> None:
    program = (
        "import sys; sys.modules.update(torch=None, onnx=None, onnx_ir=None, safetensors=None); "
        "import edgebert_exporters; print(edgebert_exporters.verify_bundle(sys.argv[1])['files'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(task_bundle(task))], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, files), done.stderr
