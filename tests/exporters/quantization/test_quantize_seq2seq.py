"""Quantization of models that translate: what becomes of each graph, what it costs, and which options there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import onnx_ir as ir
import pytest

from edgebert_exporters import quantize_bundle
from edgebert_exporters.inference import encoder_decoder
from edgebert_exporters.inference.encoder_decoder import MOST_TRANSLATIONS, PROMPTS, TARGET_TOKENS, EncoderDecoder
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import Sample, sample_rows, to_batches
from edgebert_exporters.quantization.schemes import (
    CPU_REQUIREMENTS,
    INT8_PER_CHANNEL,
    Scheme,
    WeightFormat,
    scheme_for_graph,
)
from edgebert_exporters.quantization.weight_discovery import weights
from edgebert_exporters.verification.golden_sample import check_golden
from edgebert_runtime import Bundle, Translator
from edgebert_runtime.errors import IntegrityError, QuantizationError
from edgebert_runtime.session.session import open_session
from tests.conftest import FORMS
from tests.support.tiny import sizes

Maker = Callable[..., Path]
SIZES = sizes("marian")
ENCODER, DECODER = SIZES["encoder_layers"], SIZES["decoder_layers"]
# Products with weights: the encoder's layers have four, and each layer of the decoder one for the source; the
# decoder's have six, and the head multiplies by the table.
LINEARS = {"encoder": 4 * ENCODER + DECODER, "decoder": 6 * DECODER + 1}
EVERY = sum(LINEARS.values())
TABLE = "token_embedding.weight"
POSITIONS = {f"{side}.embeddings.sinusoids": "a position embedding" for side in ("encoder", "decoder")}
TEXTS = [f"the {word} sat on a mat" for word in ("cat", "dog", "sun", "moon") * 4]


def nodes(bundle: Path, graph: str) -> list[ir.Node]:
    return list(ir.load(bundle / f"{graph}.onnx").graph)


@pytest.mark.parametrize("form", FORMS)
def test_every_product_is_quantized(form: str, translator_bundle: Maker) -> None:
    """The encoder reads many rows whatever the scheme is; the decoder's weights are as the scheme says."""
    assert {
        g: len(list(filter(lambda w: w.linears, weights_of(translator_bundle("cpu"), g)))) for g in LINEARS
    } == LINEARS
    quantized = Bundle.open(translator_bundle(form))
    encoder, decoder = (Counter(node.op_type for node in nodes(quantized.path, graph)) for graph in LINEARS)
    assert encoder["Gemm"] == encoder["MatMul"] == decoder["Gemm"] == decoder["MatMul"] == 0
    # The input of the first layer is no normalisation's.
    assert (encoder["QGemm"], encoder["QAttention"]) == (LINEARS["encoder"] - ENCODER + 1, ENCODER - 1)
    assert decoder["QGemm"] == (LINEARS["decoder"] if form == "channel" else 0)
    products = [node for node in nodes(quantized.path, "decoder") if node.op_type == "MatMulNBits"]
    bits = Counter(node.attributes.get_int("bits") for node in products)
    assert bits == {"int8": {8: LINEARS["decoder"]}, "int4": {4: LINEARS["decoder"] - 1, 8: 1}, "channel": {}}[form]
    assert decoder["DecoderMaskedMultiHeadAttention"] == decoder["MultiHeadAttention"] == DECODER
    assert quantized.manifest.weights.coverage == (EVERY, EVERY)
    assert quantized.manifest.weights.skipped == POSITIONS
    assert quantized.manifest.weights.cpu_requirements == CPU_REQUIREMENTS["channel"]  # for the sake of the encoder
    assert quantized.manifest.report["coverage"]["embeddings"] == [TABLE]
    exact = Bundle.open(translator_bundle("cpu")).manifest
    assert (quantized.manifest.graphs, quantized.manifest.decoding) == (exact.graphs, exact.decoding)
    assert (quantized.manifest.settings, quantized.manifest.limits) == (exact.settings, exact.limits)


def weights_of(bundle: Path, graph: str) -> list[Any]:
    return list(weights(ir.load(bundle / f"{graph}.onnx")).values())


@pytest.mark.parametrize("form", FORMS)
def test_report_says_what_it_cost(form: str, translator_bundle: Maker) -> None:
    manifest = Bundle.open(translator_bundle(form)).manifest
    report, fidelity = manifest.report, manifest.report["fidelity"]
    assert manifest.weights.scheme == report["scheme"] == ("int4" if form == "int4" else "int8")
    expected = {"int8": ("block", 128), "int4": ("block", 64), "channel": ("channel", None)}
    assert (report["granularity"], report["block_size"]) == expected[form]
    assert report["min_fidelity"] == (0.95 if form == "int4" else 0.99)
    assert set(fidelity) == {
        *("texts", "cosine_mean", "cosine_min", "cosines"),
        *("top1_agreement", "flip_rate", "kl_mean"),
        "token_agreement",
    }
    assert fidelity["texts"] == MOST_TRANSLATIONS
    assert (0.99 if form == "int4" else 0.999) < fidelity["cosine_mean"] < 1
    assert 0.8 < fidelity["top1_agreement"] < 1
    assert 0 < fidelity["kl_mean"] < 0.01
    assert report["batch_invariance"]["cosine_min"] > 0.9999, "but for sums in another order"
    assert report["bytes"]["after"] < 0.5 * report["bytes"]["before"]
    assert [row["shape"] for row in report["speed"]] == ["1 x 32 to 1", "1 x 32 to 16", "32 x 32 to 8"]
    assert all(row["before_ms"] > 0 and row["after_ms"] > 0 for row in report["speed"])


def test_token_agreement_is_that_of_the_engines(translator_bundle: Maker) -> None:
    """What both engines write of the first texts that were measured, up to the first token that differs."""
    before, after = (Translator(Bundle.open(translator_bundle(form))) for form in ("cpu", "int4"))
    sources = sample_rows(before.bundle, None)[1::2][:PROMPTS]
    options: dict[str, Any] = {"max_new_tokens": TARGET_TOKENS}
    agreed, total = 0, 0
    for source in sources:  # alone, for a quantized encoder minds the others
        (float32_text,), (quantized_text,) = (
            engine.translate([source], num_beams=1, **options) for engine in (before, after)
        )
        differing = [a != b for a, b in zip(float32_text.tokens[:-1], quantized_text.tokens[:-1], strict=False)] + [
            True
        ]
        agreed, total = (
            agreed + differing.index(True),
            total + max(len(float32_text.tokens), len(quantized_text.tokens)) - 1,
        )
    measured = after.bundle.manifest.report["fidelity"]["token_agreement"]
    assert agreed / total == pytest.approx(measured, abs=0.1)


def test_tokens_agree_up_to_the_first_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [[9, 1, 2, 3], [9, 4, 5], [9, 6], [9]]
    after = [[9, 1, 7, 3], [9, 4, 5, 8], [9, 6], [9]]  # 1 of 3; 2 of 3; 1 of 1; nothing that could differ
    monkeypatch.setattr(encoder_decoder, "translate_greedily", lambda session, manifest, sources, most: after)
    samples, opened = [Sample([5], [0], range(len(row)), row) for row in before], MagicMock()
    share = EncoderDecoder().token_fidelity(opened, opened, samples)
    assert share == pytest.approx((1 + 2 + 1 + 1) / (3 + 3 + 1 + 1))


def test_samples_are_translations_of_the_float32_model(translator_bundle: Maker) -> None:
    bundle = Bundle.open(translator_bundle("cpu"))
    sources = [[7, 3, 0], [2, 9, 4, 1, 0], [5, 0]] * 20
    samples = OpenedBundle(bundle).samples(sources)
    assert [list(sample.ids) for sample in samples] == sources[:MOST_TRANSLATIONS]
    engine = Translator(bundle)
    options: dict[str, Any] = {"max_new_tokens": TARGET_TOKENS}
    for sample, translation in zip(samples, engine.translate(sources[:3], num_beams=1, **options), strict=False):
        assert list(sample.target) == [bundle.manifest.decoding["decoder_start_token_id"], *translation.tokens[:-1]]
        assert list(sample.chosen) == list(range(len(sample.target)))
    ((indices, batch),) = to_batches(
        samples[:3], ["input_ids", "attention_mask", "decoder_input_ids", "logits_indices"]
    )
    targets, length = batch.feeds["decoder_input_ids"], max(len(sample.target) for sample in samples[:3])
    assert batch.attention_mask.sum(1).tolist() == [len(samples[i].ids) for i in indices]
    assert targets.shape == (3, length)
    read = np.split(batch.feeds["logits_indices"], np.cumsum([len(samples[i].target) for i in indices])[:-1])
    for row, (at, places) in enumerate(zip(indices, read, strict=True)):
        assert targets.reshape(-1)[places].tolist() == list(samples[at].target)
        assert (places // length == row).all()


def test_excluded_weights_stay_in_both_graphs(translator_bundle: Maker, tmp_path: Path) -> None:
    patterns = [TABLE, "decoder.layers.*.cross_attention_key_value.weight", "decoder.layers.1.ffn_up.weight"]
    quantized = quantize_bundle(translator_bundle("cpu"), tmp_path / "q", exclude=patterns, calibration=TEXTS)
    left = {TABLE, "decoder.layers.1.ffn_up.weight"}
    left |= {f"decoder.layers.{layer}.cross_attention_key_value.weight" for layer in range(DECODER)}
    assert quantized.manifest.weights.skipped == POSITIONS | dict.fromkeys(left, "excluded by the user")
    assert quantized.manifest.weights.coverage == (EVERY - len(left), EVERY)
    assert quantized.manifest.report["coverage"]["embeddings"] == []
    floats = [{weight.name for weight in weights_of(quantized.path, graph)} for graph in LINEARS]
    assert set.union(*floats) == left | POSITIONS.keys()
    assert all(TABLE in names for names in floats)
    with pytest.raises(QuantizationError, match=r"exclude='heads\.\*' matches none of the weights decoder\.embeddings"):
        quantize_bundle(translator_bundle("cpu"), tmp_path / "r", exclude=["heads.*"], calibration=TEXTS)
    with pytest.raises(QuantizationError, match=f"nothing to quantize: {EVERY} matrix products with weights, all left"):
        quantize_bundle(translator_bundle("cpu"), tmp_path / "r", exclude=["*"], calibration=TEXTS)
    assert [path.name for path in tmp_path.iterdir()] == ["q"]


def test_a_block_size_is_for_the_decoder(translator_bundle: Maker, tmp_path: Path) -> None:
    quantized = quantize_bundle(translator_bundle("cpu"), tmp_path / "q", block_size=16, calibration=TEXTS)
    products = [node for node in nodes(quantized.path, "decoder") if node.op_type == "MatMulNBits"]
    assert {node.attributes.get_int("block_size") for node in products} == {16}
    few = Scheme("int4", "block", WeightFormat(4, 32))
    assert scheme_for_graph("encoder", few) == Scheme("int8", "channel", INT8_PER_CHANNEL)
    assert scheme_for_graph("decoder", few) == few


def test_falling_short_leaves_nothing(translator_bundle: Maker, tmp_path: Path) -> None:
    with pytest.raises(QuantizationError, match=r"mean cosine of 0\.\d{4} to float32, less than 0\.9999;"):
        quantize_bundle(translator_bundle("cpu"), tmp_path / "q", scheme="int4", min_fidelity=0.9999, calibration=TEXTS)
    with pytest.raises(QuantizationError, match=r"target portable, and int8 uses .*export for the target cpu"):
        quantize_bundle(translator_bundle("portable"), tmp_path / "q")
    with pytest.raises(QuantizationError, match=r"is quantized already \(int8\)"):
        quantize_bundle(translator_bundle("channel"), tmp_path / "q")
    assert not list(tmp_path.iterdir())


class Rolled:
    """A session whose first output is in disorder if its file is the ``wrong`` one."""

    def __init__(self, wrong: str, file: Path) -> None:
        self.inner, self.wrong = open_session(file), file.stem == wrong

    def run(self, output_names: Any, feeds: Any) -> list[Any]:
        first, *others = self.inner.run(output_names, feeds)
        return [np.roll(first, 1, -1) if self.wrong else first, *others]


@pytest.mark.parametrize("form", FORMS)
def test_golden_sample_watches_both_graphs(form: str, translator_bundle: Maker) -> None:
    """Of the quantized graphs, not of those that they were made from."""
    bundle, exact = Bundle.open(translator_bundle(form)), Bundle.open(translator_bundle("cpu"))
    golden, before = (opened.manifest.verification["golden"]["vector"] for opened in (bundle, exact))
    assert 1e-4 < np.abs(np.subtract(golden, before)).max() < 0.5
    assert check_golden(OpenedBundle(bundle)) == pytest.approx(1, abs=1e-6)
    for graph in LINEARS:
        with pytest.raises(IntegrityError, match="the golden sample gives a vector of cosine"):
            check_golden(OpenedBundle(bundle, partial(Rolled, graph)))
