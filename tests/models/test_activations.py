"""Every activation of transformers is computed, or refused by name."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from edgebert.checkpoints import open_checkpoint
from edgebert.models.activations import ACTIVATIONS
from edgebert_runtime.bundle.operator_allowlist import ALLOWED_OPERATORS
from edgebert_runtime.errors import CheckpointError
from tests.support.tiny import write_checkpoint

# Those with parameters, which no family of ours has in its files.
LEARNED = {"prelu", "xielu"}
VALUES = torch.cat([torch.linspace(-12, 12, 193), torch.randn(64, generator=torch.Generator().manual_seed(5))])


def test_every_name_of_transformers() -> None:
    assert set(ACTIVATIONS) == set(ACT2FN) - LEARNED


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values(name: str) -> None:
    torch.testing.assert_close(ACTIVATIONS[name](VALUES), ACT2FN[name](VALUES), atol=2e-6, rtol=1e-5)


class EveryActivation(nn.Module):
    """Stack the results of all activations."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (n,) to (activations, n)."""
        return torch.stack([function(x) for function in ACTIVATIONS.values()])


def test_graphs_may_have_them() -> None:
    program = torch.onnx.export(EveryActivation().eval(), (VALUES,), dynamo=True, verbose=False)
    assert program is not None
    model = program.model_proto
    assert {(node.domain, node.op_type) for node in model.graph.node} <= ALLOWED_OPERATORS
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (actual,) = session.run(None, {session.get_inputs()[0].name: VALUES.numpy()})
    torch.testing.assert_close(torch.from_numpy(actual), EveryActivation()(VALUES), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(LEARNED))
def test_others_are_refused(tmp_path: Path, name: str) -> None:
    folder = write_checkpoint(tmp_path, settings={"hidden_act": name})
    with pytest.raises(CheckpointError, match=f"config.json: hidden_act='{name}' is not one of gelu, .*, quick_gelu"):
        open_checkpoint(folder)
