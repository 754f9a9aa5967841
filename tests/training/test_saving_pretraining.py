"""A model with both heads of its pre-training is saved as one checkpoint, which opens for either task."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer

from edgebert.checkpoints import open_checkpoint
from edgebert.models.bert.heads import HeadedBert
from edgebert.models.bert.model import Bert, BertConfig
from edgebert.models.bert.pretraining import MASKED, NEXT, BertPreTraining
from edgebert.training import save_checkpoint
from edgebert_runtime.errors import CheckpointError, InputError
from tests.support.tiny import CLASSES, randomize, sizes, write_checkpoint

REFERENCES = {"bert": transformers.BertForPreTraining, "albert": transformers.AlbertForPreTraining}
IDS = torch.tensor([[2, 9, 13, 4, 7, 6], [2, 3, 17, 4, 0, 0]])
MASK = (IDS != 0).long()
SEGMENTS = torch.tensor([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]])
CHOSEN = torch.tensor([1, 4, 8])  # through both rows


def make_model(model_type: str) -> BertPreTraining:
    options = sizes(model_type) | ({"hidden_act": "gelu_new"} if model_type == "albert" else {})
    model = BertPreTraining(Bert(BertConfig(**options)))
    randomize(model)
    return model.eval()


def save(folder: Path, model: BertPreTraining, model_type: str = "bert", task: str = MASKED) -> Path:
    inputs = open_checkpoint(write_checkpoint(folder.parent / model_type, model_type=model_type))
    config = {"architectures": [f"{CLASSES[model_type]}ForPreTraining"]}
    tokenizer = Tokenizer.from_str(inputs.tokenizer_json)
    return save_checkpoint(folder, model, tokenizer, model_type=model_type, task=task, config=config)


@torch.no_grad()
@pytest.mark.parametrize("model_type", REFERENCES)
def test_one_checkpoint_serves_both_tasks_and_transformers(model_type: str, tmp_path: Path) -> None:
    model = make_model(model_type)
    folder = save(tmp_path / "saved", model, model_type)
    assert open_checkpoint(folder).task == MASKED
    expected = model(IDS, MASK, SEGMENTS, CHOSEN)
    for task, logits in zip((MASKED, NEXT), expected, strict=True):
        opened = open_checkpoint(folder, task=task)
        assert opened.config == model.bert.config
        headed = opened.load_model()
        assert isinstance(headed, HeadedBert)
        chosen = CHOSEN if task == MASKED else None
        torch.testing.assert_close(headed(IDS, MASK, SEGMENTS, chosen), logits, rtol=1e-5, atol=1e-5)
        assert torch.equal(model.with_head(task)(IDS, MASK, SEGMENTS, chosen), headed(IDS, MASK, SEGMENTS, chosen))
    reference, info = REFERENCES[model_type].from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    theirs = reference.eval()(input_ids=IDS, attention_mask=MASK, token_type_ids=SEGMENTS)
    tokens = theirs.prediction_logits.flatten(0, 1)[CHOSEN]
    following = theirs.seq_relationship_logits if model_type == "bert" else theirs.sop_logits
    torch.testing.assert_close(expected[0], tokens, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(expected[1], following, rtol=1e-4, atol=1e-4)


def test_a_head_shares_its_weights_and_the_mode() -> None:
    model = make_model("bert").train()
    headed = model.with_head(NEXT)
    assert headed.training
    assert {id(parameter) for parameter in headed.parameters()} < {id(parameter) for parameter in model.parameters()}
    with torch.no_grad():
        model.bert.embeddings.token_embedding.weight.zero_()
    assert float(headed.bert.embeddings.token_embedding.weight.detach().abs().max()) == 0


def test_types_without_these_heads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^models of the type roberta have no head for next-sentence; give 'bert'$"):
        save(tmp_path / "saved", make_model("bert"), "roberta")
    with pytest.raises(CheckpointError, match="tensors missing for tag"):
        save(tmp_path / "saved", make_model("bert"), task="tag")
    assert not (tmp_path / "saved").exists()
