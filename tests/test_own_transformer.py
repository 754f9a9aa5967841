"""docs/own_transformer.md: its script runs, equals PyTorch, and its tables name every key and tensor."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from edgebert.checkpoints import open_checkpoint
from edgebert.models.bert.checkpoint_names import BERT_TENSORS
from edgebert.models.seq2seq.checkpoint_names import OWN_FIELDS, SIDE_TENSORS
from tests.support.documents import DOCS, blocks, commands, run

PAGE = (DOCS / "own_transformer.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the blocks of the page as one script in an empty folder; return its names, with ``here``, the folder."""
    names: dict[str, Any] = {"here": tmp_path_factory.mktemp("own")}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(names["here"])
        for block in blocks(PAGE, "python"):
            exec(block, names)
    return names


def test_the_commands_of_the_page_run_on_the_bundles_of_its_script(script: dict[str, Any]) -> None:
    shown = commands(PAGE)
    assert len(shown) >= 3
    for command, _ in shown:
        assert run(command, script["here"])


def test_the_page_compares_with_pytorch_itself(script: dict[str, Any]) -> None:
    assert sum("assert_allclose" in block for block in blocks(PAGE, "python")) == 2
    engine, encoder = script["engine"], script["encoder"]
    ids = torch.tensor([[2, 4, 8, 3]])
    with torch.no_grad():
        expected = encoder(ids).mean(1)
    np.testing.assert_allclose(engine.embed([ids[0].tolist()]), expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_renaming_serves_pre_norm_and_gelu_too(script: dict[str, Any], tmp_path: Path, norm_first: bool) -> None:
    torch.manual_seed(1)
    model = script["NumberTranslator"](len(script["english"]), len(script["german"])).eval()
    model.transformer = torch.nn.Transformer(
        32, 4, 1, 2, 48, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first
    ).eval()
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) / 10  # no bias is zero, no norm is the identity
    rename, transformer = script["rename"], model.transformer
    tensors = {
        **rename(transformer.encoder.state_dict(), "encoder"),
        **rename(transformer.decoder.state_dict(), "decoder"),
        "model.encoder.embed_tokens.weight": model.source_embedding.weight,
        "model.decoder.embed_tokens.weight": model.target_embedding.weight,
        "model.encoder.embed_positions.weight": model.positions,
        "model.decoder.embed_positions.weight": model.positions,
        "lm_head.weight": model.generator.weight,
        "final_logits_bias": model.generator.bias[None],
    }
    save_file(
        {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}, tmp_path / "model.safetensors"
    )
    changed = {"encoder_layers": 1, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "activation_function": "gelu"}
    config = json.loads((script["here"] / "numbers" / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | changed | {"norm": "pre" if norm_first else "post"}))
    for name in ("generation_config.json", "source_tokenizer.json", "target_tokenizer.json"):
        (tmp_path / name).write_bytes((script["here"] / "numbers" / name).read_bytes())
    source, target = torch.tensor([[2, 5, 9, 4, 3], [2, 8, 3, 1, 1]]), torch.tensor([[2, 7, 4], [2, 12, 3]])
    opened: Any = open_checkpoint(tmp_path).load_model()
    with torch.no_grad():
        logits = opened.eval()(source, (source != 1).long(), target, torch.ones_like(target))
        for row in range(2):
            expected = model(source[row : row + 1, : (source[row] != 1).sum()], target[row : row + 1])
            torch.testing.assert_close(logits[row : row + 1], expected, atol=1e-5, rtol=1e-5)


def test_the_tables_name_every_key_and_tensor(script: dict[str, Any]) -> None:
    rows = re.findall(r"^\| (`.+?) \|", PAGE, flags=re.M)
    keys = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert set(OWN_FIELDS) - keys == set()
    own = {name.rpartition(".")[2] for names in SIDE_TENSORS.values() for name in names}
    assert [name for name in own if name not in PAGE] == []
    bert = {name.removeprefix("encoder.layer.{}.") for names in BERT_TENSORS.values() for name in names}
    assert [name for name in bert if name not in PAGE and name.rpartition(".")[2] not in ("key", "value")] == []
