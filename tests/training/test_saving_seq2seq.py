"""An encoder and a decoder that were saved open again, and in transformers where that computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from edgebert.checkpoints import open_checkpoint
from edgebert.models.seq2seq.model import Seq2Seq
from edgebert.training import save_checkpoint
from edgebert_runtime.errors import InputError
from tests.models.test_seq2seq_training import made
from tests.models.tiny_seq2seq import random_ids, targets, words

IDS: dict[str, Any] = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3, "bos_token_id": 0}
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
SOURCE, TARGET = random_ids(MASK), targets(6, 2)


def save(folder: Path, model: Seq2Seq, model_type: str, architecture: str, **options: Any) -> Path:
    own = model.config.decoder_vocab_size
    return save_checkpoint(
        folder,
        model,
        words(model.config.vocab_size),
        model_type=model_type,
        task="translate",
        config={"architectures": [architecture], **IDS},
        target_tokenizer=words(own) if own else None,
        **options,
    )


def logits(model: Any) -> Tensor:
    """Return the logits of our model, or of one of transformers."""
    inputs = (SOURCE, MASK, TARGET)
    with torch.no_grad():
        if isinstance(model, Seq2Seq):
            ours: Tensor = model(*inputs, torch.ones_like(TARGET))
            return ours
        theirs: Tensor = model(
            **dict(zip(("input_ids", "attention_mask", "decoder_input_ids"), inputs, strict=True))
        ).logits
        return theirs


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": ("MarianMTModel", {"decoder_vocab_size": None}),
    "marian of two vocabularies": ("MarianMTModel", {}),
    "marian of two tables": ("MarianMTModel", {"decoder_vocab_size": 53}),
    "marian untied": ("MarianMTModel", {"tied_head": False, "scale_embedding": True}),
    "marian without bias": ("MarianMTModel", {"output_bias": False, "hidden_act": "silu"}),
    "bart": (
        "BartForConditionalGeneration",
        {"decoder_vocab_size": None, "positions": "learned", "position_offset": 2, "embedding_norm": True},
    ),
    "seq2seq pre-norm": ("Seq2Seq", {"norm": "pre", "final_norm": True, "decoder_vocab_size": None}),
    "seq2seq of two vocabularies": ("Seq2Seq", {"norm": "pre", "layer_norm_eps": 1e-6}),
    "seq2seq learned": ("Seq2Seq", {"positions": "learned", "embedding_norm": True, "tied_head": False}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_saved_model_opens_again(tmp_path: Path, form: str) -> None:
    architecture, changed = FORMS[form]
    model = made(**changed)
    folder = save(tmp_path / "new", model, form.partition(" ")[0], architecture)
    actual = open_checkpoint(folder)
    assert (actual.task, actual.config) == ("translate", model.config)
    assert {**IDS, **actual.decoding} == actual.decoding
    assert (actual.target_tokenizer_json is None) == (model.config.decoder_vocab_size is None)
    reopened = actual.load_model()
    assert reopened.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(logits(reopened), logits(model))
    if architecture != "Seq2Seq":
        theirs = getattr(transformers, architecture).from_pretrained(folder).eval()
        torch.testing.assert_close(logits(theirs), logits(model), rtol=1e-4, atol=1e-4)


def test_half_precision(tmp_path: Path) -> None:
    model = made()
    actual = open_checkpoint(save(tmp_path / "half", model, "marian", "MarianMTModel", half=True)).load_model()
    for name, tensor in model.state_dict().items():
        assert torch.equal(actual.state_dict()[name], tensor.half().float()), name


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "pre-norm": (
        "marian",
        {"norm": "pre"},
        "models of the type marian have norm='post', not 'pre'; give model_type='seq2seq'",
    ),
    "norms": (
        "bart",
        {"decoder_vocab_size": None, "final_norm": True, "positions": "learned", "embedding_norm": True},
        "models of the type bart have position_offset=2, not 0, final_norm=False, not True; give model_type='seq2seq'",
    ),
    "tables": ("mbart", {"norm": "pre"}, "decoder_vocab_size=None, not 47"),
    "a head of one table": (
        "seq2seq",
        {"decoder_vocab_size": None, "tied_head": False},
        "decoder_vocab_size=53, not None",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_type_does_not_compute_is_not_saved_as_one(tmp_path: Path, case: str) -> None:
    model_type, changed, expected = REFUSED[case]
    with pytest.raises(InputError) as caught:
        save(tmp_path / "new", made(**changed), model_type, "MarianMTModel")
    assert expected in str(caught.value)
    assert list(tmp_path.iterdir()) == []
