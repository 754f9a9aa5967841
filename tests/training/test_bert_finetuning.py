"""The four kinds of tasks of the BERT paper: losses of transformers, heads of any encoder, labels of the engines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

import edgebert
from edgebert.checkpoints import open_checkpoint
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.models.bert.heads import HeadedBert
from edgebert.training import TrainingConfig, save_checkpoint, train
from edgebert.training.bert_finetuning import LOSSES, new_head, span_examples, tagging_examples
from edgebert.training.examples import Batch, Example, batches, collate, text_examples
from edgebert_exporters import export_checkpoint
from edgebert_runtime.errors import CheckpointError, InputError
from tests.models.tiny_bert import relative
from tests.support.tiny import CLASSES, ENDINGS, write_checkpoint

ENCODERS = [name for name, kind in MODEL_TYPES.items() if kind.family == "bert"]
LABELS = {"classify": ["none", "cat"], "tag": ["O", "animal", "thing"], "answer": []}
TEXTS = ["the cats sat", "a dog ran in the rain", "moon , sun and a mat in the rain"]
QUICK = TrainingConfig(steps=80, learning_rate=3e-3, warmup_steps=8, weight_decay=0.0)


def tokenizer_of(folder: Path) -> Tokenizer:
    return Tokenizer.from_str(open_checkpoint(folder).tokenizer_json)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> Tokenizer:
    return tokenizer_of(checkpoint)


def examples_of(tokenizer: Tokenizer, task: str) -> list[Example]:
    """Return examples of three lengths, with labels of every kind that there is."""
    if task == "classify":
        return text_examples(tokenizer, TEXTS, [0, 1, 1], [*TEXTS[1:], "ship ."], max_tokens=40)
    if task == "tag":
        split = [text.split() for text in TEXTS]
        return tagging_examples(tokenizer, split, [[i % 3 for i in range(len(row))] for row in split], max_tokens=40)
    return span_examples(tokenizer, ["cat", "dog ran", "a"], TEXTS, [(4, 8), None, (0, 10)], max_tokens=40)


def theirs_of(task: str, folder: Path) -> Any:
    return getattr(transformers, f"Bert{ENDINGS[task]}").from_pretrained(folder).eval()


def expected(theirs: Any, task: str, batch: Batch) -> Tensor:
    """Return the loss of transformers: of spans, which it lets be at padding, for each row alone."""
    keys = ("input_ids", "attention_mask", "token_type_ids")
    if task != "answer":
        labels = batch.labels[:, 0] if task == "classify" else batch.labels
        actual: Tensor = theirs(**dict(zip(keys, batch, strict=False)), labels=labels).loss
        return actual
    losses = []
    for number, length in enumerate(batch.attention_mask.sum(1).tolist()):
        row = {key: tensor[number : number + 1, :length] for key, tensor in zip(keys, batch, strict=False)}
        start, end = batch.labels[number].unsqueeze(-1)
        losses.append(theirs(**row, start_positions=start, end_positions=end).loss)
    return torch.stack(losses).mean()


@pytest.mark.parametrize("task", LOSSES)
def test_losses_are_those_of_transformers(task: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "given", task=task)
    model, theirs = open_checkpoint(folder, task=task).load_model(), theirs_of(task, folder)
    assert isinstance(model, HeadedBert)
    batch = collate(examples_of(tokenizer, task))
    assert len(set(batch.attention_mask.sum(1).tolist())) == 3
    actual, target = LOSSES[task](model, batch), expected(theirs, task, batch)
    assert relative(actual.mean.detach()[None], target.detach()[None]) < 1e-5
    assert actual.tokens == int(batch.attention_mask.sum())
    assert actual.weight == {"classify": 3, "tag": sum(len(text.split()) for text in TEXTS), "answer": 3}[task]
    (gradient,) = torch.autograd.grad(actual.mean, [model.bert.embeddings.token_embedding.weight])
    table = theirs.bert.embeddings.word_embeddings.weight
    assert relative(gradient, torch.autograd.grad(target, [table])[0]) < 1e-4


@pytest.mark.parametrize("task", LOSSES)
def test_gradients_reach_every_parameter(task: str, tokenizer: Tokenizer, checkpoint: Path) -> None:
    model, _ = new_head(checkpoint, task, 2 if task == "answer" else 3)
    LOSSES[task](model, collate(examples_of(tokenizer, task))).mean.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        # A bias of keys adds the same to all scores of a query, and so does nothing.
        dim = parameter.shape[0] // 3
        parts = [0, 2] if name.endswith("qkv.bias") else [0]
        for part in parts:
            assert parameter.grad is not None
            gradient = parameter.grad[part * dim : (part + 1) * dim] if name.endswith("qkv.bias") else parameter.grad
            assert gradient.abs().max() > 0, name


@pytest.mark.parametrize("task", LOSSES)
@pytest.mark.parametrize("model_type", ENCODERS)
def test_any_encoder_gets_a_head_and_is_saved_with_it(task: str, model_type: str, tmp_path: Path) -> None:
    inputs = write_checkpoint(tmp_path / "given", model_type=model_type)
    outputs = 2 if task == "answer" else 3
    model, opened = new_head(inputs, task, outputs, seed=5)
    bert = open_checkpoint(inputs).load_model().state_dict()
    assert all(torch.equal(tensor, bert[name]) for name, tensor in model.bert.state_dict().items())
    weight = model.head.state_dict()["out.weight"]
    assert weight.shape == (outputs, 32)
    assert 0.015 < float(weight.std()) < 0.025
    saved = save_checkpoint(
        tmp_path / "saved",
        model,
        Tokenizer.from_str(opened.tokenizer_json),
        model_type=model_type,
        task=task,
        config={"architectures": [f"{CLASSES[model_type]}{ENDINGS[task]}"]},
    )
    actual = open_checkpoint(saved)
    assert actual.task == task
    state = actual.load_model().state_dict()
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("model_type", ["bert", "albert"])
def test_a_pooler_is_kept_and_a_head_is_not(model_type: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, task="classify", model_type=model_type)
    trained = open_checkpoint(folder).load_model()
    assert isinstance(trained, HeadedBert)
    model, _ = new_head(folder, "classify", 3)
    assert trained.head.dense is not None
    assert model.head.dense is not None
    assert torch.equal(model.head.dense.weight, trained.head.dense.weight)
    assert torch.equal(model.head.dense.bias, trained.head.dense.bias)
    assert not torch.allclose(model.head.state_dict()["out.weight"], trained.head.state_dict()["out.weight"])


def test_a_pooler_may_stand_in_a_pickle(tmp_path: Path) -> None:
    tensors = load_file(write_checkpoint(tmp_path, task="classify") / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    model, _ = new_head(tmp_path, "classify", allow_pickle=True)
    assert model.head.dense is not None
    assert torch.equal(model.head.dense.weight, tensors["bert.pooler.dense.weight"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: tensor[:5], r"bert\.pooler\.dense\.bias has shape \[5\], should have \[32\]; train the model"),
        (lambda tensor: tensor.log(), r"bert\.pooler\.dense\.bias \(\d+ of 32\) are NaN or infinite; train the model"),
    ],
)
def test_a_pooler_that_is_damaged_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    file = write_checkpoint(tmp_path, task="classify") / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "bert.pooler.dense.bias": change(tensors["bert.pooler.dense.bias"]).contiguous()}, file)
    with pytest.raises(CheckpointError, match=message):
        new_head(tmp_path, "classify")


def test_no_head_for_other_tasks_and_models(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="^task 'fill-mask' is not one of classify, tag, answer$"):
        new_head(checkpoint, "fill-mask")
    with pytest.raises(CheckpointError, match="a gpt2 has no head for embed"):
        new_head(write_checkpoint(tmp_path, task="generate", model_type="gpt2"), "classify")


def learned(task: str, built: Sequence[Example], checkpoint: Path, folder: Path) -> Any:
    """Return the engine of what was learned of examples."""
    model, opened = new_head(checkpoint, task, len(LABELS[task]) or 2)
    train(model, batches(built, 16), LOSSES[task], QUICK)
    save_checkpoint(
        folder / "saved",
        model,
        Tokenizer.from_str(opened.tokenizer_json),
        model_type="bert",
        task=task,
        config={"architectures": [f"Bert{ENDINGS[task]}"], "id2label": dict(enumerate(LABELS[task]))},
    )
    return edgebert.load(export_checkpoint(folder / "saved", folder / "bundle").path)


def sentences(count: int, seed: int) -> list[list[str]]:
    """Return texts of different words, of one token each but for the last."""
    drawn, real = random.Random(seed), ["the", "dog", "sat", "mat", "rain", "on", "cats"]
    return [drawn.sample(real, k=drawn.randint(2, 7)) for _ in range(count)]


def test_labels_of_pairs_are_learned(tokenizer: Tokenizer, checkpoint: Path, tmp_path: Path) -> None:
    """Whether the second text has a cat, wherever the first has some."""
    drawn = [" ".join(row) for row in sentences(400, 1)]
    firsts, seconds = drawn[:200], drawn[200:]
    right = [int("cat" in text) for text in seconds]
    built = text_examples(tokenizer, firsts, right, seconds, max_tokens=40)
    actual = learned("classify", built, checkpoint, tmp_path).classify(firsts, seconds)
    assert [first.label for first in actual] == [LABELS["classify"][number] for number in right]


def test_labels_of_words_are_learned(tokenizer: Tokenizer, checkpoint: Path, tmp_path: Path) -> None:
    kinds = {"cats": 1, "dog": 1, "mat": 2, "rain": 2}
    drawn = sentences(200, 2)
    built = tagging_examples(tokenizer, drawn, [[kinds.get(word, 0) for word in row] for row in drawn], max_tokens=40)
    tagger = learned("tag", built, checkpoint, tmp_path)
    for row, entities in zip(drawn, tagger.tag([" ".join(row) for row in drawn], aggregation="first"), strict=True):
        actual = {word for first in entities for word in first.text.split() if first.label == "animal"}
        assert actual == {"cats", "dog"} & set(row)


def test_spans_and_their_absence_are_learned(tokenizer: Tokenizer, checkpoint: Path, tmp_path: Path) -> None:
    drawn = [" ".join(row) for row in sentences(200, 3)]
    places = [text.find("dog") for text in drawn]
    answers = [(place, place + 3) if place >= 0 else None for place in places]
    built = span_examples(tokenizer, ["mail"] * 200, drawn, answers, max_tokens=40)
    answerer = learned("answer", built, checkpoint, tmp_path)
    actual = answerer.answer_many([("mail", text) for text in drawn], handle_impossible_answer=True)
    assert [(first.start, first.end) for (first,) in actual] == [answer or (0, 0) for answer in answers]
