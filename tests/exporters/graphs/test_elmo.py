"""An ELMo becomes a graph of standard LSTMs that gives what PyTorch gives, for every target and any padding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from click.testing import CliRunner
from tokenizers import Tokenizer
from torch import Tensor, nn

import edgebert
from edgebert.cli import main
from edgebert.models.elmo.model import BiLanguageModel, Elmo, ElmoConfig
from edgebert.models.operators import lstm
from edgebert.models.pooling import TOKEN_POOLINGS, SentenceEncoder
from edgebert.training import TrainingConfig, initialize, save_checkpoint, train
from edgebert_exporters import export_checkpoint, verify_bundle
from edgebert_exporters.graphs import onnx_export as rendering
from edgebert_exporters.graphs.onnx_export import TARGETS, render
from edgebert_exporters.graphs.signatures import Signature
from edgebert_exporters.inference.pytorch_reference import load_reference
from edgebert_exporters.verification.parity import TOLERANCE
from edgebert_runtime import Bundle
from edgebert_runtime.bundle.manifest import TensorSpec
from edgebert_runtime.errors import ParityError
from tests.models.test_elmo import sentences, two_way
from tests.models.tiny_seq2seq import words
from tests.support.tiny import randomize, sizes, write_checkpoint

Floats = npt.NDArray[np.float32]
TEXTS = ["the cat sat on a mat", "rain", "", "a dog and a cat ran in the rain. the moon, the sun", "mail ship"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("elmo") / "source", model_type="elmo")


@pytest.fixture(scope="module")
def bundle_for(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a target to a bundle."""

    @cache
    def make(target: str) -> Path:
        return export_checkpoint(source, tmp_path_factory.mktemp("elmo") / target, target=target).path

    return make


@pytest.mark.parametrize("target", TARGETS)
def test_bundle_is_dynamic_verified_and_says_what_it_is(
    bundle_for: Callable[[str], Path], source: Path, target: str
) -> None:
    bundle = bundle_for(target)
    manifest = Bundle.open(bundle).manifest
    assert (manifest.family, manifest.task, manifest.target) == ("elmo", "embed", target)
    assert manifest.config == sizes("elmo")
    assert manifest.settings == {"pooling": "mean", "normalize": True, "dim": 36}
    assert [spec.name for spec in manifest.graphs["model"].inputs] == ["input_ids", "attention_mask"]
    assert manifest.verification["batches"] >= 30
    figures = verify_bundle(bundle, source)
    assert 0 <= figures["batch_invariance"]["max_difference"] < TOLERANCE
    assert 0 < figures["reference"]["max_error"] < TOLERANCE


@pytest.mark.parametrize("target", TARGETS)
def test_lstms_are_standard_ones_whose_weights_lie_ready(bundle_for: Callable[[str], Path], target: str) -> None:
    model = ir.load(bundle_for(target) / "model.onnx")
    assert set(model.opset_imports) == {""}
    nodes = [node for node in model.graph if node.op_type == "LSTM"]
    ways = [node.attributes["direction"].as_string() for node in nodes]
    assert Counter(ways) == {"forward": 2, "reverse": 2}
    for node in nodes:
        ready = [value is not None and value.is_initializer() for value in node.inputs]
        assert ready == [False, True, True, True, False]
        shapes = [tuple(value.const_value.shape) for value in node.inputs[1:4] if value and value.const_value]
        assert shapes == [(1, 72, 18), (1, 72, 18), (1, 144)]
    stored = sum(value.const_value.size for value in model.graph.initializers.values() if value.const_value)
    assert stored < 83 * 18 + 4 * (2 * 72 * 18 + 144) + 50, "weights are there once"


@pytest.mark.parametrize("target", TARGETS)
def test_texts_give_the_vectors_of_pytorch(bundle_for: Callable[[str], Path], source: Path, target: str) -> None:
    bundle, reference = bundle_for(target), load_reference(source)
    tokenizer = Tokenizer.from_file(str(bundle / "tokenizer.json"))
    for text, vector in zip(TEXTS, edgebert.Embedder.load(bundle).embed(TEXTS), strict=True):
        ids = torch.tensor([tokenizer.encode(text).ids])
        np.testing.assert_allclose(vector, reference(ids, torch.ones_like(ids))[0].detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("pooling", TOKEN_POOLINGS)
def test_every_pooling(pooling: str, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", model_type="elmo", num_hidden_layers=1)
    bundle = export_checkpoint(source, tmp_path / "bundle", pooling=pooling, normalize=False).path
    rows = [[2, 7, 8, 3], [2, 9, 3], [2, 5, 6, 7, 8, 9, 10, 11, 3]]
    reference = load_reference(source, pooling, normalize=False)
    expected = [reference(torch.tensor([row]), torch.ones(1, len(row))).detach() for row in rows]
    np.testing.assert_allclose(edgebert.Embedder.load(bundle).embed(rows), torch.cat(expected), rtol=1e-4, atol=1e-6)


def test_gates_in_the_wrong_order_are_noticed(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "GATES", (0, 1, 2, 3))
    with pytest.raises(ParityError, match="the cpu graph differs from the PyTorch reference"):
        export_checkpoint(source, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


class Reader(nn.Module):
    """One LSTM by itself."""

    def __init__(self, reverse: bool) -> None:
        super().__init__()
        self.lstm, self.reverse = nn.LSTM(3, 5), reverse
        randomize(self)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return lstm(x, lengths, self.lstm, reverse=self.reverse)


def by_hand(module: Reader, tokens: Floats) -> Floats:
    """Return the states (n, 5) of a row (n, 3) as Hochreiter and Schmidhuber have them, with a gate that forgets."""
    weights = [tensor.double().numpy() for tensor in module.lstm.state_dict().values()]
    state, cell, states = np.zeros(5), np.zeros(5), []
    for token in tokens[::-1] if module.reverse else tokens:
        gates = weights[0] @ token + weights[1] @ state + weights[2] + weights[3]
        enter, forget, leave = (1 / (1 + np.exp(-gates[at : at + 5])) for at in (0, 5, 15))
        cell = forget * cell + enter * np.tanh(gates[10:15])
        state = leave * np.tanh(cell)
        states.append(state)
    return np.array(states[::-1] if module.reverse else states, np.float32)


@pytest.mark.parametrize("reverse", [False, True])
def test_states_are_those_of_the_paper(reverse: bool) -> None:
    module = Reader(reverse).eval()
    tokens = TensorSpec("x", "float32", ("seq", "batch", 3)), TensorSpec("lengths", "int32", ("batch",))
    signature = Signature(tokens, (TensorSpec("states", "float32", ("seq", "batch", 5)),))
    x = np.random.default_rng(1).standard_normal((6, 4, 3)).astype(np.float32)
    lengths = np.array([6, 1, 3, 5], np.int32)
    graph = ir.to_proto(rendered(module, signature)).SerializeToString()
    (outputs,) = ort.InferenceSession(graph, providers=["CPUExecutionProvider"]).run(None, {"x": x, "lengths": lengths})
    eager = module(torch.from_numpy(x), torch.from_numpy(lengths)).detach().numpy()
    for row, length in enumerate(lengths):
        expected = by_hand(module, x[:length, row])
        np.testing.assert_allclose(outputs[:length, row], expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(eager[:length, row], expected, rtol=1e-4, atol=1e-6)


def rendered(module: nn.Module, signature: Signature) -> ir.Model:
    """Render a module whose inputs are none that the exporter has examples for."""
    examples = {"x": torch.zeros(7, 2, 3), "lengths": torch.tensor([7, 4], dtype=torch.int32)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering, "example", lambda _: examples)
        return render(module, signature, "portable")


def test_from_training_to_an_engine(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = BiLanguageModel(Elmo(ElmoConfig(vocab_size=37, hidden_size=24, num_hidden_layers=2, max_tokens=19)))
    initialize(model, std=0.1)
    train(model, sentences(1), two_way, TrainingConfig(steps=20, learning_rate=0.05))
    config = {"architectures": ["ElmoModel"]}
    folder = tmp_path / "trained"
    save_checkpoint(folder, model.elmo, words(37), model_type="elmo", task="embed", config=config)
    engine = edgebert.Embedder.load(export_checkpoint(folder, tmp_path / "bundle", pooling="mean", normalize=True).path)
    reference = SentenceEncoder(model.elmo, "mean", normalize=True)
    ids, mask = next(sentences(2))
    with torch.no_grad():
        expected = reference(ids, mask).numpy()
    rows = [row[real.bool()].tolist() for row, real in zip(ids, mask, strict=True)]
    np.testing.assert_allclose(engine.embed(rows), expected, rtol=1e-4, atol=1e-6)


def test_commands(bundle_for: Callable[[str], Path], source: Path) -> None:
    bundle = str(bundle_for("cpu"))

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "task           embed (elmo, target cpu)" in run("info", bundle)
    assert "result     verified" in run("verify", bundle, str(source))
    vector = [float(number) for number in run("embed", bundle, TEXTS[0]).split()]
    np.testing.assert_allclose(vector, edgebert.Embedder.load(bundle).embed(TEXTS[:1])[0], rtol=1e-6)
    assert "throughput tokens per second" in run("bench", bundle, "--seconds", "0.2")
