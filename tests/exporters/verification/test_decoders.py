"""Decoders: what the graph takes and gives, against transformers, and that nothing wrong becomes a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
import transformers

import edgebert_exporters.export as export_module
from edgebert.checkpoints import open_checkpoint
from edgebert_exporters import export_checkpoint, quantize_bundle, verify_bundle
from edgebert_exporters.graphs.decoder_modules import RankedDecoder
from edgebert_exporters.graphs.onnx_export import render
from edgebert_exporters.graphs.signatures import decoder_signature
from edgebert_exporters.graphs.task_models import prepare
from edgebert_runtime import Bundle
from edgebert_runtime.errors import ExportError, ParityError
from tests.support.tiny import sizes, write_checkpoint

Array = npt.NDArray[Any]
SIZES = sizes("gpt2")
LAYERS, HEADS = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]
DIM = SIZES["hidden_size"] // HEADS
TARGETS = ("cpu", "portable")
PROMPTS = [[5], [7, 1, 3], [2, 2, 8, 9, 200, 11, 40, 3, 6], [list(range(40, 57))][0]]


@pytest.fixture(scope="module")
def published(task_checkpoint: Callable[[str], Path]) -> transformers.GPT2LMHeadModel:
    return transformers.GPT2LMHeadModel.from_pretrained(task_checkpoint("generate")).eval()


@pytest.fixture(scope="module")
def alone(published: transformers.GPT2LMHeadModel) -> list[Array]:
    """Return the logits (tokens, vocab) of each prompt by itself, as transformers computes them."""
    with torch.no_grad():
        return [published(torch.tensor([prompt])).logits[0].numpy() for prompt in PROMPTS]


def open_raw(bundle: Path) -> Any:
    return ort.InferenceSession(str(bundle / "model.onnx"), providers=["CPUExecutionProvider"])


ONE = np.ones(1, np.int64)


def pasts(batch: int, columns: int) -> dict[str, Array]:
    names = [f"past_key_values.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    return {name: np.zeros((batch, HEADS, columns, DIM), np.float32) for name in names}


def padded(rows: Sequence[Sequence[int]], side: str) -> tuple[Array, Array]:
    """Return ids and mask, with padding on one side and an id that would matter if it were read."""
    width = max(map(len, rows))
    ids, mask = np.full((len(rows), width), 99), np.zeros((len(rows), width), np.int64)
    for i, row in enumerate(rows):
        at = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        ids[i, at], mask[i, at] = row, 1
    return ids, mask


@pytest.mark.parametrize("target", TARGETS)
def test_manifest_says_what_goes_in_and_out(
    target: str, decoder_bundle: Callable[[str], Path], task_checkpoint: Callable[[str], Path]
) -> None:
    manifest = Bundle.open(decoder_bundle(target)).manifest
    graph = manifest.graphs["model"]
    old, new = ("max_sequence",) * 2 if target == "cpu" else ("past_sequence", "total_sequence")
    names = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    assert {spec.name: spec.shape for spec in graph.inputs} == {
        "input_ids": ("batch", "sequence"),
        "attention_mask": ("batch", "total_sequence"),
        "logits_indices": ("rows",),
        "top_k": (1,),
        **{f"past_key_values.{name}": ("batch", HEADS, old, DIM) for name in names},
    }
    assert {spec.name: spec.shape for spec in graph.outputs} == {
        "logits": ("rows", SIZES["vocab_size"]),
        "top_ids": ("rows", "best"),
        "top_logprobs": ("rows", "best"),
        **{f"present.{name}": ("batch", HEADS, new, DIM) for name in names},
    }
    checkpoint = open_checkpoint(task_checkpoint("generate"))
    assert (manifest.family, manifest.task, manifest.settings) == ("gpt2", "generate", {})
    assert manifest.decoding == checkpoint.decoding
    assert manifest.decoding["eos_token_id"] == SIZES["vocab_size"] - 1
    assert manifest.config == {**SIZES, **{key: manifest.config[key] for key in manifest.config.keys() - SIZES.keys()}}
    assert manifest.limits.max_tokens == manifest.limits.default_tokens == SIZES["max_position_embeddings"]
    figures = manifest.verification
    assert set(figures["outputs"]) == {spec.name for spec in graph.outputs} - {"top_ids"}
    assert 0 < figures["max_error"] < 1e-5
    assert figures["greedy"] == {"prompts": 4, "tokens": 32}
    assert ("unoptimized" in figures) == (target == "portable")
    assert len(figures["golden"]["vector"]) == 64
    domains = {node.domain for node in ir.load(decoder_bundle(target) / "model.onnx").graph.all_nodes()}
    assert domains == ({"", "com.microsoft"} if target == "cpu" else {""})


@pytest.mark.parametrize(("target", "side"), [("cpu", "right"), ("portable", "right"), ("portable", "left")])
def test_unequal_prompts_give_what_each_gives_alone(
    target: str, side: str, decoder_bundle: Callable[[str], Path], alone: list[Array]
) -> None:
    """The graph itself, without anything around it, and from step 0 on: no past is a past of length 0."""
    ids, mask = padded(PROMPTS, side)
    everything = np.arange(mask.size)
    for columns in (0, *([mask.shape[1], 64] if target == "cpu" else [])):
        feeds = {"input_ids": ids, "attention_mask": mask, "logits_indices": everything, "top_k": ONE}
        logits, _, _, *present = open_raw(decoder_bundle(target)).run(None, feeds | pasts(len(ids), columns))
        assert present[0].shape == (len(ids), HEADS, max(columns, mask.shape[1]), DIM)
        assert np.isfinite(logits).all()
        for row, expected in enumerate(alone):
            outputs = logits.reshape(*mask.shape, -1)[row, mask[row] == 1]
            np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_one_token_after_pasts_of_unequal_lengths(
    target: str, decoder_bundle: Callable[[str], Path], alone: list[Array]
) -> None:
    """Each row has its own mask: the last token of each prompt, after the others in a cache."""
    session, last = open_raw(decoder_bundle(target)), np.array([prompt[-1:] for prompt in PROMPTS])
    ids, mask = padded([prompt[:-1] for prompt in PROMPTS], "right")
    ids[0], mask[0] = 0, 1  # a row needs a token, whose keys and values are then passed over
    length = mask.shape[1] if target == "portable" else 40
    first = {"input_ids": ids, "attention_mask": mask, "logits_indices": np.array([0]), "top_k": ONE}
    _, _, _, *present = session.run(None, first | pasts(len(ids), 0 if target == "portable" else length))
    mask[0] = 0
    feeds = {"input_ids": last, "attention_mask": np.concatenate([mask, np.ones((4, 1), np.int64)], 1)}
    feeds |= {"logits_indices": np.array([2, 0, 3, 1]), "top_k": ONE}
    logits, _, _, *after = session.run(None, feeds | dict(zip(pasts(1, 1), present, strict=True)))
    for row, prompt in zip(feeds["logits_indices"], logits, strict=True):
        np.testing.assert_allclose(prompt, alone[row][-1], rtol=1e-4, atol=1e-4)
    assert after[0].shape == (4, HEADS, length + (target == "portable"), DIM)


@pytest.mark.parametrize("target", TARGETS)
def test_several_tokens_after_a_past(target: str, decoder_bundle: Callable[[str], Path], alone: list[Array]) -> None:
    session, prompt = open_raw(decoder_bundle(target)), np.array([PROMPTS[3]])
    columns = 0 if target == "portable" else 30
    past, outputs = pasts(1, columns), []
    for start, end in ((0, 5), (5, 6), (6, 17)):
        feeds = {"input_ids": prompt[:, start:end], "attention_mask": np.ones((1, end), np.int64)}
        feeds |= {"logits_indices": np.arange(end - start), "top_k": ONE}
        logits, _, _, *present = session.run(None, feeds | past)
        past = dict(zip(past, present, strict=True))
        outputs.append(logits)
    np.testing.assert_allclose(np.concatenate(outputs), alone[3], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", [*TARGETS, "int8", "int4", "channel"])
def test_verified_again_with_the_checkpoint(
    form: str, decoder_bundle: Callable[[str], Path], task_checkpoint: Callable[[str], Path]
) -> None:
    figures = verify_bundle(decoder_bundle(form), task_checkpoint("generate"))
    assert figures["golden_cosine"] == pytest.approx(1)
    assert figures["batch_invariance"]["rows"] >= 40
    if form in TARGETS:
        assert figures["reference"]["max_error"] < 1e-5
    else:
        assert 0.99 < figures["reference"]["cosine"] < 1
    if form != "channel":  # a row does not depend on its neighbours, 4 bits or 32
        assert figures["batch_invariance"]["max_difference"] < 1e-5


def test_a_wrong_graph_never_becomes_a_bundle(
    task_checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One number of the last position, which matters only to a text of full length."""

    def wrong(*args: Any) -> ir.Model:
        model = render(*args)
        value = model.graph.initializers["gpt2.position_embedding.weight"]
        assert value.const_value is not None
        array = value.const_value.numpy().copy()
        array[-1, 0] += 0.05
        value.const_value = ir.tensor(array, name=value.name)
        return model

    monkeypatch.setattr(export_module, "render", wrong)
    with pytest.raises(ParityError, match=r"the cpu graph differs from the PyTorch reference by .* at batch"):
        export_checkpoint(task_checkpoint("generate"), tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("frozen", ["input_ids", "logits_indices", "attention_mask"])
def test_a_frozen_dimension_is_found(
    frozen: str, target: str, task_checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(self: RankedDecoder, **inputs: Any) -> Any:
        extra = torch.zeros(inputs["logits_indices"].shape[0], 1) * int(inputs[frozen].shape[-1] in (4, 5, 7))
        logits, *others = real(self, **inputs)
        return logits + extra, *others

    real: Any = RankedDecoder.forward
    exported = prepare(open_checkpoint(task_checkpoint("generate")), target=target)
    monkeypatch.setattr(RankedDecoder, "forward", forward)
    signature = decoder_signature(target, SIZES["vocab_size"], LAYERS, HEADS, DIM)
    with pytest.raises(ExportError, match="could not export RankedDecoder|came out with shape"):
        render(exported.graphs["model"].module, signature, target)


def test_a_text_classifier_is_like_an_encoder(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", task="classify", model_type="gpt2")
    theirs = transformers.GPT2ForSequenceClassification.from_pretrained(source).eval()
    with torch.no_grad():
        expected = [theirs(torch.tensor([prompt])).logits[0].numpy() for prompt in PROMPTS]
    exported = export_checkpoint(source, tmp_path / "fp32")
    assert [spec.name for spec in exported.graph("model").inputs] == ["input_ids", "attention_mask"]
    settings = {"labels": ["bad", "fair", "good"], "problem_type": "single_label", "activation": "softmax"}
    assert exported.manifest.settings == settings
    assert exported.manifest.decoding == {}
    for side in ("left", "right"):
        ids, mask = padded(PROMPTS, side)
        (outputs,) = open_raw(exported.path).run(None, {"input_ids": ids, "attention_mask": mask})
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)
    small = quantize_bundle(exported.path, tmp_path / "int8")
    assert small.manifest.weights.coverage == (4 * LAYERS, 4 * LAYERS + 1)
    assert small.manifest.weights.skipped["head.weight"] == "a layer of the head, only 3 wide"
    assert verify_bundle(small.path, source)["reference"]["cosine"] > 0.99
