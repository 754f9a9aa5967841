"""Float16 graphs against the float32 ones that they were made of, on every kind of bundle."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from edgebert_exporters import export_checkpoint
from edgebert_exporters.bundles.bundle_files import list_files, write_manifest
from edgebert_exporters.graphs.onnx_export import TARGETS
from edgebert_exporters.graphs.signatures import Signature
from edgebert_exporters.inference.batch import real_outputs
from edgebert_exporters.inference.graph_runner import bundle_signature, open_graphs
from edgebert_exporters.quantization.float16 import FLOAT16, FLOAT32, KV_CACHE, float16_signature, to_float16
from edgebert_exporters.verification.checks import batches_of
from edgebert_exporters.verification.parity import TOP_IDS, not_finite
from edgebert_runtime import GenerationOptions, Generator, Translator
from edgebert_runtime.bundle.manifest import GraphSpec
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import QuantizationError
from edgebert_runtime.session.session import open_session
from tests.support.tiny import write_checkpoint

KINDS = ("embed", "classify", "fill-mask", "generate", "translate")


def halved(path: Path, folder: Path, change: Callable[[ir.Model], None] = lambda _: None) -> Bundle:
    """Write a copy of a bundle in float16, of graphs that were changed before."""
    bundle = Bundle.open(path)
    shutil.copytree(path, folder)
    specs = {}
    for name, spec in bundle.manifest.graphs.items():
        model = ir.external_data.load_to_model(ir.load(path / spec.file))
        change(model)
        to_float16(model)
        ir.save(model, folder / spec.file)
        signature = float16_signature(Signature(spec.inputs, spec.outputs))
        specs[name] = GraphSpec(spec.file, signature.inputs, signature.outputs)
    (folder / "weights.bin").unlink(missing_ok=True)
    write_manifest(folder, dataclasses.replace(bundle.manifest, graphs=specs, files=list_files(folder)))
    return Bundle.open(folder)


def constants(model: ir.Model) -> dict[str, npt.NDArray[Any]]:
    return {name: v.const_value.numpy() for name, v in model.graph.initializers.items() if v.const_value is not None}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("task", KINDS)
def test_results_are_those_of_float32(task: str, target: str, task_bundle: Callable[..., Path], tmp_path: Path) -> None:
    """On the whole grid: finite, close, and of logits that are not nearly equal the same one is the largest."""
    source = Bundle.open(task_bundle(task, target))
    half = halved(source.path, tmp_path / "half")
    before, after = (open_graphs(b.path, b.manifest) for b in (source, half))
    outputs = bundle_signature(source.manifest).outputs
    for batch in batches_of(source.manifest):
        old, new = before.run(None, batch.feeds), after.run(None, batch.feeds)
        assert not not_finite(outputs, new), batch.name
        for spec, expected, output in zip(outputs, old, new, strict=True):
            if spec.name == TOP_IDS:
                continue
            real = real_outputs(spec.shape, batch)
            largest = max(float(np.abs(expected[real]).max(initial=0)), 1)
            assert np.abs(output[real] - expected[real]).max(initial=0) < 0.02 * largest, (batch.name, spec.name)
            if spec.name == "logits":
                rows, others = (
                    expected[real].reshape(-1, expected.shape[-1]),
                    output[real].reshape(-1, output.shape[-1]),
                )
                two = np.sort(rows, 1)[:, -2:]
                clear = two[:, 1] - two[:, 0] > 0.03 * largest
                np.testing.assert_array_equal(rows.argmax(1)[clear], others.argmax(1)[clear])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("task", KINDS)
def test_what_is_float16(task: str, target: str, task_bundle: Callable[..., Path], tmp_path: Path) -> None:
    """Every weight and what is remembered, and nothing beside that which goes in or comes out."""
    source = Bundle.open(task_bundle(task, target))
    half = halved(source.path, tmp_path / "half")
    for name, spec in half.manifest.graphs.items():
        model = ir.load(half.path / spec.file)
        for value in [*model.graph.inputs, *model.graph.outputs]:
            assert value.dtype != (FLOAT32 if (value.name or "").startswith(KV_CACHE) else FLOAT16), value.name
        arrays = constants(model)
        assert not [key for key, array in arrays.items() if array.dtype == np.float32 and array.size > 1]
        assert all(np.isfinite(array).all() for array in arrays.values())
        old = constants(ir.load(source.path / source.manifest.graphs[name].file))
        assert sum(a.nbytes for a in arrays.values()) < 0.55 * sum(a.nbytes for a in old.values())
        assert ({node.domain for node in model.graph} == {""}) == (target == "portable")
        assert ("com.microsoft" in model.opset_imports) == (target == "cpu")
        for node in model.graph:
            if node.op_type in ("Softmax", "LogSoftmax", "ReduceSum"):
                assert node.inputs[0] is not None
                assert node.inputs[0].dtype != FLOAT16, node.op_type


def test_caches_are_not_converted_between_steps(task_bundle: Callable[..., Path], tmp_path: Path) -> None:
    """What a decoder remembers goes through no Cast: a kernel that writes in place does so still."""
    half = halved(task_bundle("generate", "cpu"), tmp_path / "half")
    graph = ir.load(half.path / "model.onnx").graph
    for value in graph.inputs:
        if (value.name or "").startswith(KV_CACHE):
            assert {use.node.op_type for use in value.uses()} <= {"GroupQueryAttention", "Shape"}
    for value in graph.outputs:
        if (value.name or "").startswith(KV_CACHE):
            assert "Cast" not in {node.op_type for node in [value.producer()] if node is not None}


@pytest.mark.parametrize("target", TARGETS)
def test_a_generator_writes_what_it_wrote(target: str, task_bundle: Callable[..., Path], tmp_path: Path) -> None:
    source, half = task_bundle("generate", target), halved(task_bundle("generate", target), tmp_path / "half")
    engines = [Generator.load(path) for path in (source, half.path)]
    options: GenerationOptions = {"max_new_tokens": 8, "do_sample": False}
    old, new = (engine.generate(["the cat", "sun moon farm"], **options) for engine in engines)
    assert [result.tokens for result in new] == [result.tokens for result in old]
    np.testing.assert_allclose([r.score for r in new], [r.score for r in old], rtol=0.01, atol=0.02)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("beams", [1, 3])
def test_a_translator_writes_what_it_wrote(
    beams: int, target: str, task_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    source, half = task_bundle("translate", target), halved(task_bundle("translate", target), tmp_path / "half")
    engines = [Translator.load(path) for path in (source, half.path)]
    options: GenerationOptions = {"max_new_tokens": 8, "num_beams": beams}
    old, new = (engine.translate(["the cat", "sun moon farm"], **options) for engine in engines)
    assert [result.tokens for result in new] == [result.tokens for result in old]


def sharper(factor: float) -> Callable[[ir.Model], None]:
    """Return what makes the scores of attention larger, by the weights and biases of queries and keys."""

    def change(model: ir.Model) -> None:
        for name, value in model.graph.initializers.items():
            if "qkv" in name and value.const_value is not None:
                array = value.const_value.numpy().copy()
                axis = int(np.argmax(array.shape))  # of queries, keys and values, side by side
                third = array.shape[axis] // 3
                array[(slice(None),) * axis + (slice(0, 2 * third),)] *= np.float32(np.sqrt(factor))
                value.const_value = ir.tensor(array, name=name)

    return change


@pytest.mark.parametrize("factor", [50, 1e6])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("task", ["embed", "generate", "translate"])
def test_large_scores_give_numbers(
    task: str, target: str, factor: float, task_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    """Of 50 times the size, and so large that float16 could not hold them; rows of padding alone included."""
    half = halved(task_bundle(task, target), tmp_path / "half", sharper(factor))
    session, outputs = open_graphs(half.path, half.manifest), bundle_signature(half.manifest).outputs
    for batch in batches_of(half.manifest)[:12]:
        assert not not_finite(outputs, session.run(None, batch.feeds)), batch.name


def test_a_mask_outweighs_the_largest_score(task_bundle: Callable[..., Path], tmp_path: Path) -> None:
    """A row alone and in a padded batch give the same, where scores go into the tens of thousands."""
    for target in TARGETS:
        half = halved(task_bundle("embed", target), tmp_path / target, sharper(3e4))
        session = open_graphs(half.path, half.manifest)
        ids = np.array([[2, 6, 7, 3, 0, 0, 0, 0], [2, 9, 8, 7, 6, 5, 10, 3]])
        mask = (ids != 0).astype(np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        together = session.run(None, feeds)[0]
        alone = session.run(None, {name: array[:1, :4] for name, array in feeds.items()})[0]
        np.testing.assert_allclose(together[0], alone[0], atol=2e-3)


def test_weights_that_do_not_fit_are_refused(task_bundle: Callable[..., Path]) -> None:
    path = task_bundle("embed", "cpu")
    name = next(iter(Counter(v for v in ir.load(path / "model.onnx").graph.initializers if "ffn_up.weight" in v)))

    def large() -> ir.Model:
        model = ir.external_data.load_to_model(ir.load(path / "model.onnx"))
        array = constants(model)[name].copy()
        array.flat[3] = -70000
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
        return model

    with pytest.raises(QuantizationError, match=rf"{name} holds -7e\+04, and float16 ends at 65504; leave it in"):
        to_float16(large())
    model = large()
    to_float16(model, [name])
    assert constants(model)[name].dtype == np.float32
    assert constants(model)[name.replace("ffn_up", "ffn_down") + ".float16"].dtype == np.float16


def test_other_encoders_too(tmp_path: Path) -> None:
    for model_type in ("albert", "electra", "roberta"):
        source = write_checkpoint(tmp_path / model_type, model_type=model_type)
        before = export_checkpoint(source, tmp_path / f"{model_type}.fp32")
        after = halved(before.path, tmp_path / f"{model_type}.fp16")
        sessions = [open_graphs(b.path, b.manifest) for b in (before, after)]
        for batch in batches_of(before.manifest)[:9]:
            old, new = (session.run(None, batch.feeds)[0] for session in sessions)
            np.testing.assert_allclose(new, old, atol=5e-3)


@pytest.mark.parametrize("factor", [1, 50, 1e6])
@pytest.mark.parametrize("task", ["embed", "classify"])
def test_arithmetic_in_float16_is_close(
    task: str, factor: float, task_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    """NumPy really computes in float16, where ONNX Runtime on a CPU does so in float32 behind the scenes."""
    source = Bundle.open(task_bundle(task, "portable"))
    model = ir.external_data.load_to_model(ir.load(source.path / "model.onnx"))
    sharper(factor)(model)
    sides = [ReferenceEvaluator(ir.to_proto(model))]
    to_float16(model)
    sides.append(ReferenceEvaluator(ir.to_proto(model)))
    for batch in batches_of(source.manifest)[1:12:5]:
        results: list[Any] = [side.run(None, batch.feeds) for side in sides]
        (old,), (new,) = results
        assert new.dtype == np.float32
        assert np.isfinite(new).all()
        if factor < 1e6:  # beyond that, attention is a choice of one token, and rounding may choose another
            assert np.abs(new - old).max() < 0.03 * max(float(np.abs(old).max()), 1)
            np.testing.assert_array_equal(new.argmax(1), old.argmax(1))


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["embed", "classify", "fill-mask"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_gpu_computes_the_same(task: str, target: str, task_bundle: Callable[..., Path], tmp_path: Path) -> None:
    assert "CUDAExecutionProvider" in ort.get_available_providers(), "run without -m gpu where there is none"
    source = Bundle.open(task_bundle(task, target))
    half = halved(source.path, tmp_path / "half", sharper(50))
    graph = half.path / half.manifest.graphs["model"].file
    sessions = [open_session(graph, device=device) for device in ("cpu", "cuda")]
    outputs = bundle_signature(half.manifest).outputs
    for batch in batches_of(half.manifest):
        old, new = (session.run(None, batch.feeds) for session in sessions)
        assert not not_finite(outputs, new), batch.name
        for spec, expected, output in zip(outputs, old, new, strict=True):
            real = real_outputs(spec.shape, batch)
            assert np.abs(output[real] - expected[real]).max(initial=0) < 0.02 * np.abs(expected).max() + 0.02, (
                batch.name
            )
