"""Tables of embeddings and heads that config.json and the files contradict are those that transformers takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgebert.checkpoints import open_checkpoint
from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert_runtime.errors import CheckpointError
from tests.models import tiny_bert, tiny_gpt2, tiny_seq2seq
from tests.support.tiny import CLASSES

Tensors = dict[str, Tensor]
ENCODERS = [kind for kind in MODEL_TYPES if MODEL_TYPES[kind].family == "bert"]
KINDS = [*ENCODERS, "gpt2"]
IDS = torch.tensor([[5, 9, 30, 12, 7, 21]])


def classes(kind: str) -> Any:
    ending = "LMHeadModel" if kind == "gpt2" else "ForMaskedLM"
    return getattr(transformers, f"{CLASSES[kind]}{ending}")


def random_like(tensor: Tensor, seed: int) -> Tensor:
    return torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed)) * 0.3


def head_of(kind: str) -> str:
    """Return the published name of the head over the vocabulary."""
    return HEADS[kind]["generate" if kind == "gpt2" else "fill-mask"][0].out


HEAD_LAYOUTS: dict[str, Callable[[Tensors, str, str], object]] = {
    "own": lambda tensors, head, table: tensors.update({head: random_like(tensors[table], 1)}),
    "a copy": lambda tensors, head, table: tensors.update({head: tensors[table].clone()}),
    "the head alone": lambda tensors, head, table: tensors.update({head: tensors.pop(table)}),
    "the table alone": lambda tensors, head, table: None,
}
# Tied, and the layouts of the file: with one of the tensors missing, transformers takes random ones for it.
SETTINGS = [*product([True], HEAD_LAYOUTS), (False, "own"), (False, "a copy")]


def write_head(folder: Path, kind: str, tied: bool, layout: str) -> Path:
    """Write a model whose file has the head and the table of a layout."""
    tiny = tiny_gpt2.randomized() if kind == "gpt2" else tiny_bert.randomized(classes(kind))
    tiny_bert.save(tiny, folder)
    tiny_seq2seq.configure(folder, tie_word_embeddings=tied)
    tensors = load_file(folder / "model.safetensors")
    table = next(name for name in tensors if name.endswith(("word_embeddings.weight", "wte.weight")))
    HEAD_LAYOUTS[layout](tensors, f"{head_of(kind)}.weight", table)
    for name in [name for name in tensors if name.endswith("bias") and len(tensors[name]) == 53 and not tied]:
        tensors.setdefault(f"{head_of(kind)}.bias", tensors[name].clone())
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def logits_of(folder: Path, kind: str) -> tuple[Tensor, Tensor]:
    """Return the logits (tokens, vocab) of edgebert and of transformers."""
    checkpoint = open_checkpoint(folder)
    assert not any(head_of(kind) in note for note in checkpoint.notes)
    model: Any = checkpoint.load_model()
    mask, every = torch.ones_like(IDS), torch.arange(IDS.numel())
    with torch.no_grad():
        ours = model(IDS, mask, every, model.gpt2.empty_past(1))[0] if kind == "gpt2" else model(IDS, mask, None, every)
        return ours, classes(kind).from_pretrained(folder).eval()(input_ids=IDS, attention_mask=mask).logits[0]


@pytest.mark.parametrize("kind", KINDS)
def test_heads(tmp_path: Path, kind: str) -> None:
    for tied, layout in SETTINGS:
        folder = write_head(tmp_path / f"{tied} {layout}", kind, tied, layout)
        ours, theirs = logits_of(folder, kind)
        assert tiny_bert.relative(ours, theirs) < 1e-5, (tied, layout)
        head = open_checkpoint(folder).head
        assert head is not None
        assert head.tied == (layout != "own"), (tied, layout)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "camembert", "albert"])
@pytest.mark.parametrize("tied", [True, False])
def test_biases(tmp_path: Path, kind: str, tied: bool) -> None:
    """The bias of the last layer, under either of its names and under both."""
    folder = write_head(tmp_path, kind, tied, "own")
    own, usual = f"{head_of(kind)}.bias", f"{head_of(kind).rpartition('.')[0]}.bias"
    file = folder / "model.safetensors"
    plain = {name: tensor for name, tensor in load_file(file).items() if name not in (own, usual)}
    biases = {own: torch.linspace(-2, 2, 53), usual: torch.linspace(3, 1, 53)}
    for names in [(own,), (own, usual), *([(usual,)] if tied else [])]:
        save_file({**plain, **{name: biases[name] for name in names}}, file, metadata={"format": "pt"})
        ours, theirs = logits_of(folder, kind)
        assert tiny_bert.relative(ours, theirs) < 1e-5, names
    if not tied:
        save_file({**plain, usual: biases[usual]}, file, metadata={"format": "pt"})
        assert own in " ".join(open_checkpoint(folder).notes)


@pytest.mark.parametrize("value", [None, 0, "false"])
def test_tying_is_true_or_false(tmp_path: Path, value: Any) -> None:
    folder = write_head(tmp_path, "bert", True, "own")
    data = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**data, "tie_word_embeddings": value}))
    with pytest.raises(CheckpointError, match=r"config.json: tie_word_embeddings=.* is neither true nor false"):
        open_checkpoint(folder)


SHARED = "model.shared.weight"
USERS = ("lm_head.weight", "model.decoder.embed_tokens.weight", "model.encoder.embed_tokens.weight")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in tiny_seq2seq.KINDS},
    "untied bart": ("bart", {"tie_word_embeddings": False}),
    "untied marian": ("marian", {"tie_word_embeddings": False}),
    "two vocabularies": ("marian", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 47}),
}


def table_layouts(case: str) -> list[dict[str, int]]:
    """Return tables by name, equal numbers being equal tensors, in all layouts that are whole."""
    kind, config = VARIANTS[case]
    if config.get("share_encoder_decoder_embeddings") is False:
        both = {USERS[2]: 0, USERS[1]: 1}
        return [both, {**both, USERS[0]: 1}, {**both, USERS[0]: 2}, {USERS[2]: 0, USERS[0]: 1}]
    untied = config.get("tie_word_embeddings") is False
    options = [(0, 1, 2)] * 3 if untied else [(None, 0, 1)] * 3
    layouts = [
        {name: number for name, number in zip((SHARED, *USERS), (shared, *numbers), strict=True) if number is not None}
        for shared in ([0] if untied else [0, None])
        for numbers in product(*options)
    ]
    return [layout for layout in layouts if layout][:: 2 if kind == "bart" else 4]


@pytest.mark.parametrize("case", VARIANTS)
def test_tables_of_encoder_decoders(tmp_path: Path, case: str) -> None:
    kind, config = VARIANTS[case]
    folder = tiny_seq2seq.save(tiny_seq2seq.randomized(kind, **config), tmp_path)
    file = folder / "model.safetensors"
    plain = {name: tensor for name, tensor in load_file(file).items() if name not in (SHARED, *USERS)}
    targets = torch.tensor([[3, 8, 17, 40]])
    masks = torch.ones_like(IDS), torch.ones_like(targets)
    for layout in table_layouts(case):
        rows = {name: config.get("decoder_vocab_size", 53) if name in USERS[:2] else 53 for name in layout}
        tables = {name: random_like(torch.empty(rows[name], 24), 20 + number) for name, number in layout.items()}
        save_file({**plain, **tables}, file, metadata={"format": "pt"})
        checkpoint = open_checkpoint(folder)
        theirs = getattr(transformers, tiny_seq2seq.KINDS[kind]).from_pretrained(folder).eval()
        model: Any = checkpoint.load_model()
        with torch.no_grad():
            expected = theirs(input_ids=IDS, attention_mask=masks[0], decoder_input_ids=targets).logits
            actual = model(IDS, masks[0], targets, masks[1])
        assert tiny_bert.relative(actual, expected) < 1e-5, layout
        assert isinstance(checkpoint.config, Seq2SeqConfig)
        if len(set(layout.values())) == 1 or layout.keys() == {SHARED}:
            assert checkpoint.config.tied_head, layout
            assert checkpoint.config.decoder_vocab_size is None, layout


def test_sinusoids_of_the_file(tmp_path: Path) -> None:
    """Positions of a Marian that are saved along are read, as transformers does."""
    folder = tiny_seq2seq.save(tiny_seq2seq.randomized("marian"), tmp_path)
    file = folder / "model.safetensors"
    tables = {f"model.{side}.embed_positions.weight": torch.randn(19, 24) for side in ("encoder", "decoder")}
    save_file({**load_file(file), **tables}, file, metadata={"format": "pt"})
    theirs = transformers.MarianMTModel.from_pretrained(folder).eval()
    model: Any = open_checkpoint(folder).load_model()
    with torch.no_grad():
        expected = theirs(input_ids=IDS, attention_mask=torch.ones_like(IDS), decoder_input_ids=IDS).logits
        assert tiny_bert.relative(model(IDS, torch.ones_like(IDS), IDS, torch.ones_like(IDS)), expected) < 1e-5
