"""Models that translate: what the two graphs take and give, against transformers, and that nothing wrong comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
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
from edgebert_exporters import export_checkpoint, verify_bundle
from edgebert_exporters.graphs.decoder_modules import TargetDecoder
from edgebert_exporters.graphs.onnx_export import render
from edgebert_exporters.graphs.signatures import Signature
from edgebert_exporters.graphs.task_models import prepare
from edgebert_runtime import Bundle
from edgebert_runtime.errors import ExportError, ParityError
from tests.support.tiny import sizes, write_checkpoint

Array = npt.NDArray[Any]
Maker = Callable[..., Path]
TARGETS = ("cpu", "portable")
GRAPHS = ("encoder", "decoder")
SIZES = sizes("marian")
LAYERS, HEADS, VOCAB = SIZES["decoder_layers"], SIZES["decoder_attention_heads"], SIZES["vocab_size"]
DIM = SIZES["hidden_size"] // HEADS
NAMES = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
CLASSES: dict[str, Any] = {
    "marian": transformers.MarianMTModel,
    "bart": transformers.BartForConditionalGeneration,
    "mbart": transformers.MBartForConditionalGeneration,
}
# Three sources of unequal lengths, and two targets for each, as beams are.
SOURCES = [[5], [7, 3, 3, 9, 11, 4, 20, 8], [2, 2, 6, 30]]
WIDTH, LENGTH = 2, 7


@pytest.fixture(scope="module")
def made(
    translator_bundle: Maker, translator_checkpoint: Maker, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], tuple[Path, Path]]:
    """Return a function from a model type and a target to a checkpoint and its bundle; only marian has all layers."""

    @cache
    def make(model_type: str, target: str) -> tuple[Path, Path]:
        if model_type == "marian":
            return translator_checkpoint(), translator_bundle(target)
        folder = tmp_path_factory.mktemp(model_type)
        options: dict[str, Any] = {"task": "translate", "encoder_layers": 1, "decoder_layers": 1}
        source = write_checkpoint(folder / "source", model_type=model_type, **options)
        return source, export_checkpoint(source, folder / "bundle", target=target).path

    return make


def open_raw(bundle: Path, name: str) -> Any:
    return ort.InferenceSession(str(bundle / f"{name}.onnx"), providers=["CPUExecutionProvider"])


def graph_of(bundle: Path, name: str) -> ir.Graph:
    return ir.load(bundle / f"{name}.onnx").graph


def padded(side: str) -> tuple[Array, Array]:
    """Return ids and mask of the sources, padded on one side with an id that would matter if it were read."""
    width = max(map(len, SOURCES))
    ids, mask = np.full((len(SOURCES), width), 33), np.zeros((len(SOURCES), width), np.int64)
    for row, source in enumerate(SOURCES):
        at = slice(0, len(source)) if side == "right" else slice(width - len(source), width)
        ids[row, at], mask[row, at] = source, 1
    return ids, mask


def targets() -> Array:
    return np.random.default_rng(5).integers(0, VOCAB, (len(SOURCES) * WIDTH, LENGTH))


def transformed(checkpoint: Path, model_type: str) -> Array:
    """Return the logits (rows, target, vocab) that transformers computes, each row by itself and without padding."""
    theirs = CLASSES[model_type].from_pretrained(checkpoint).eval()
    found = []
    for row, target in enumerate(targets()):
        with torch.no_grad():
            source = torch.tensor([SOURCES[row // WIDTH]])
            found.append(theirs(source, decoder_input_ids=torch.tensor(target[None])).logits[0].numpy())
    return np.stack(found)


def places() -> list[Array]:
    """Return where in the graph's batch each row is at each step: the rows of a source change places."""
    rng, first = np.random.default_rng(6), np.arange(0, len(SOURCES) * WIDTH, WIDTH)
    return [np.concatenate([start + rng.permutation(WIDTH) for start in first]) for _ in range(LENGTH)]


def stepwise(bundle: Path, side: str) -> tuple[Array, Array, Array]:
    """Run the graphs themselves, token by token; return logits, best ids and log-probabilities (rows, target, ...)."""
    ids, mask = padded(side)
    cross = open_raw(bundle, "encoder").run(None, {"input_ids": ids, "attention_mask": mask})
    decoder, rows, where = open_raw(bundle, "decoder"), targets(), places()
    shared = Bundle.open(bundle, verify="size").manifest.target == "cpu"
    past = [np.full((len(rows), HEADS, 9 if shared else 0, DIM), 7, np.float32) for _ in cross]
    steps = []
    for step, place in enumerate(where):
        row_at = np.argsort(place)
        feeds = {"input_ids": rows[row_at, step][:, None], "position": np.array([step]), "top_k": np.array([4])}
        feeds["encoder_attention_mask"] = mask
        if shared:
            table = np.zeros((1, len(rows), 9), np.int32)
            for earlier in range(step):
                table[0, :, earlier] = where[earlier][row_at]
            feeds["cache_indirection"] = table
        elif step:
            past = [part[where[step - 1][row_at]] for part in past]
        for name, read, old in zip(NAMES, cross, past, strict=False):
            feeds |= {f"cross_key_values.{name}": read, f"past_key_values.{name}": old}
        outputs = decoder.run(None, feeds)
        past = outputs[3:]
        assert past[0].shape == (len(rows), HEADS, 9 if shared else step + 1, DIM)
        steps.append([output[place] for output in outputs[:3]])
    logits, best, logprobs = (np.stack(columns, 1) for columns in zip(*steps, strict=True))
    return logits, best, logprobs


@pytest.mark.parametrize("target", TARGETS)
def test_manifest_says_what_goes_in_and_out(
    target: str, translator_bundle: Maker, translator_checkpoint: Maker
) -> None:
    manifest = Bundle.open(translator_bundle(target)).manifest
    encoder, decoder = (manifest.graphs[name] for name in GRAPHS)
    old, new = ("max_sequence",) * 2 if target == "cpu" else ("past_sequence", "total_sequence")
    assert {spec.name: spec.shape for spec in encoder.inputs} == {
        "input_ids": ("batch", "sequence"),
        "attention_mask": ("batch", "sequence"),
    }
    assert {spec.name: spec.shape for spec in encoder.outputs} == {
        f"cross_key_values.{name}": ("batch", HEADS, "sequence", DIM) for name in NAMES
    }
    assert {spec.name: (spec.dtype, spec.shape) for spec in decoder.inputs} == {
        "input_ids": ("int64", ("rows", 1)),
        "position": ("int64", (1,)),
        "encoder_attention_mask": ("int64", ("prompts", "source")),
        "top_k": ("int64", (1,)),
        **{f"cross_key_values.{name}": ("float32", ("prompts", HEADS, "source", DIM)) for name in NAMES},
        **{f"past_key_values.{name}": ("float32", ("rows", HEADS, old, DIM)) for name in NAMES},
        **({"cache_indirection": ("int32", (1, "rows", "max_sequence"))} if target == "cpu" else {}),
    }
    assert {spec.name: spec.shape for spec in decoder.outputs} == {
        "logits": ("rows", VOCAB),
        "top_ids": ("rows", "best"),
        "top_logprobs": ("rows", "best"),
        **{f"present.{name}": ("rows", HEADS, new, DIM) for name in NAMES},
    }
    checkpoint = open_checkpoint(translator_checkpoint())
    assert (manifest.family, manifest.task, manifest.settings) == ("seq2seq", "translate", checkpoint.settings)
    assert manifest.decoding == checkpoint.decoding
    assert manifest.config == {**SIZES, **{key: manifest.config[key] for key in manifest.config.keys() - SIZES.keys()}}
    assert (manifest.limits.max_tokens, manifest.limits.vocab_size) == (SIZES["max_position_embeddings"], VOCAB)
    figures = manifest.verification
    assert set(figures["outputs"]) == {"logits", "top_logprobs"}
    assert 0 < figures["max_error"] < 1e-5
    assert figures["translations"] == {"sources": 4, "num_beams": [1, 4], "tokens": 64}
    assert ("unoptimized" in figures) == (target == "portable")
    assert len(figures["golden"]["vector"]) == 64


@pytest.mark.parametrize("target", TARGETS)
def test_portable_graphs_have_standard_operators_only(target: str, translator_bundle: Maker) -> None:
    for name in GRAPHS:
        nodes = list(graph_of(translator_bundle(target), name).all_nodes())
        assert {node.domain for node in nodes} == ({"", "com.microsoft"} if target == "cpu" else {""})
        kernels = Counter(node.op_type for node in nodes if node.domain)
        expected = {"Attention": SIZES["encoder_layers"]} if name == "encoder" else {
            "DecoderMaskedMultiHeadAttention": LAYERS, "MultiHeadAttention": LAYERS
        }  # fmt: skip
        assert kernels == (expected if target == "cpu" else {})


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("model_type", "target"), [("marian", "cpu"), ("marian", "portable"), ("bart", "cpu"), ("mbart", "portable")]
)
def test_graphs_give_what_transformers_gives(
    model_type: str, target: str, side: str, made: Callable[[str, str], tuple[Path, Path]]
) -> None:
    """The graphs themselves, without anything around them, while the rows of a source change places."""
    checkpoint, bundle = made(model_type, target)
    wanted = transformed(checkpoint, model_type)
    logits, best, logprobs = stepwise(bundle, side)
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)
    likeliest = torch.from_numpy(wanted).log_softmax(-1).topk(4)
    np.testing.assert_array_equal(best, likeliest.indices.numpy())
    np.testing.assert_allclose(logprobs, likeliest.values.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", [*TARGETS, "int8", "int4", "channel"])
def test_verified_again(form: str, translator_bundle: Maker, translator_checkpoint: Maker) -> None:
    figures = verify_bundle(translator_bundle(form), translator_checkpoint())
    assert figures["golden_cosine"] == pytest.approx(1)
    assert figures["batch_invariance"]["rows"] >= 40
    if form in TARGETS:
        assert figures["batch_invariance"]["max_difference"] < 1e-5
        assert figures["reference"]["max_error"] < 1e-5
        assert figures["reference"]["translations"]["num_beams"] == [1, 4]
        alone = verify_bundle(translator_bundle(form))
        assert alone == {name: figure for name, figure in figures.items() if name != "reference"}
    else:
        assert 0.95 < figures["reference"]["cosine"] < 1


def test_another_checkpoint_is_told_apart(translator_bundle: Maker, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "other", task="translate", model_type="marian", scale_embedding=False)
    with pytest.raises(ParityError, match="the cpu graph differs from the PyTorch reference"):
        verify_bundle(translator_bundle("cpu"), other)


@pytest.fixture
def rendered(translator_bundle: Maker, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes an export find graphs in a bundle, which takes no time, and change them."""

    def use(change: Callable[[str, ir.Model], None]) -> None:
        def make(module: torch.nn.Module, signature: Signature, target: str) -> ir.Model:
            name = "decoder" if isinstance(module, TargetDecoder) else "encoder"
            model = ir.load(translator_bundle(target) / f"{name}.onnx")
            change(name, model)
            return model

        monkeypatch.setattr(export_module, "render", make)

    return use


def shift(graph: str, weight: str, place: tuple[int, ...]) -> Callable[[str, ir.Model], None]:
    """Return what changes one number of a weight of one graph."""

    def change(name: str, model: ir.Model) -> None:
        if name == graph:
            value = model.graph.initializers[weight]
            assert value.const_value is not None
            array = value.const_value.numpy().copy()
            array[place] += 0.05
            value.const_value = ir.tensor(array, name=weight)

    return change


def keep_rows(name: str, model: ir.Model) -> None:
    """Let the decoder read each row of its cache from its own place, whatever the table says."""
    if name == "encoder":
        return
    (table,) = (value for value in model.graph.inputs if value.name == "cache_indirection")
    first = next(iter(model.graph))
    ones, one = ir.node("Equal", [table, table]), ir.tensor(np.array(1, np.int32), name="one")
    constant = ir.Value(name="one", const_value=one, shape=ir.Shape(()), type=ir.TensorType(ir.DataType.INT32))
    model.graph.register_initializer(constant)
    counted = ir.node("Cast", ones.outputs, {"to": ir.DataType.INT32})
    summed = ir.node("CumSum", [counted.outputs[0], constant])
    numbers = ir.node("Sub", [summed.outputs[0], constant])
    table.replace_all_uses_with(numbers.outputs[0])
    for index in (0, 1):
        ones.replace_input_with(index, table)
    model.graph.insert_before(first, [ones, counted, summed, numbers])


WRONG = {
    "a weight of the encoder": shift("encoder", "encoder.layers.2.ffn_down.bias", (3,)),
    "the table of one of both": shift("decoder", "token_embedding.weight", (57, 11)),
    "the last position of a target": shift("decoder", "decoder.embeddings.sinusoids", (-1, 0)),
    "rows of a cache that stay": keep_rows,
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_graphs_never_become_a_bundle(
    case: str, rendered: Callable[..., None], translator_checkpoint: Maker, tmp_path: Path
) -> None:
    rendered(WRONG[case])
    with pytest.raises(ParityError, match=r"the cpu graph differs from the PyTorch reference by .* at batch"):
        export_checkpoint(translator_checkpoint(), tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("frozen", ["rows", "prompts", "source"])
def test_a_frozen_dimension_is_found(
    frozen: str, translator_checkpoint: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(self: TargetDecoder, **inputs: Any) -> Any:
        size = {
            "rows": inputs["input_ids"].shape[0],
            "prompts": inputs["encoder_attention_mask"].shape[0],
            "source": inputs["encoder_attention_mask"].shape[1],
        }[frozen]
        logits, *others = real(self, **inputs)
        return logits + int(size in (3, 6, 7)), *others

    real: Any = TargetDecoder.forward
    made = prepare(open_checkpoint(translator_checkpoint()), target="cpu").graphs["decoder"]
    monkeypatch.setattr(TargetDecoder, "forward", forward)
    with pytest.raises(ExportError, match="could not export TargetDecoder|came out with shape"):
        render(made.module, made.signature, "cpu")


def test_exporting_again_gives_the_same(made: Callable[[str, str], tuple[Path, Path]], tmp_path: Path) -> None:
    steps, (checkpoint, bundle) = [], made("bart", "cpu")
    export_checkpoint(checkpoint, tmp_path / "b", progress=lambda *call: steps.append(call))
    assert {file.name for file in bundle.iterdir()} == {f"{name}.onnx" for name in GRAPHS} | {
        "tokenizer.json",
        "edgebert.json",
    }
    for file in bundle.iterdir():
        assert (tmp_path / "b" / file.name).read_bytes() == file.read_bytes()
    assert [step for step in steps if step[0] == "render graph"] == [("render graph", n, 2) for n in range(3)]
