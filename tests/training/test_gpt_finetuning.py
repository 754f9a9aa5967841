"""The joint loss of the GPT paper out of the parts of transformers, and tasks that are learned with it."""

from __future__ import annotations

import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

import edgebert
from edgebert.cli import main
from edgebert.models.gpt2.heads import Gpt2Classifier
from edgebert.training import TrainingConfig, save_checkpoint, train
from edgebert.training.examples import Example, batches, collate, text_examples
from edgebert.training.gpt_finetuning import (
    choice_examples,
    finetuning_loss,
    logits,
    new_head,
    similarity_examples,
)
from edgebert_exporters import export_checkpoint
from tests.models.tiny_bert import relative
from tests.training.tiny_words import DELIMITER, EXTRACT, START, WORDS, write_words

LABELS = ("no", "yes")
QUICK = TrainingConfig(steps=120, learning_rate=3e-3, warmup_steps=10, weight_decay=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_words(tmp_path_factory.mktemp("gpt") / "gpt")


def save(folder: Path, model: Gpt2Classifier, tokenizer: Tokenizer) -> Path:
    named = {"id2label": dict(enumerate(LABELS[: model.head.out_features]))}
    return save_checkpoint(
        folder,
        model,
        tokenizer,
        model_type="gpt2",
        task="classify",
        config={"architectures": ["GPT2ForSequenceClassification"], "pad_token_id": START, **named},
    )


def examples_of(form: str, tokenizer: Tokenizer) -> list[Example]:
    """Return three examples of several lengths."""
    first, second, labels = ["a b c", "d", "e f"], ["b", "c d e", "a f"], [1, 0, 1]
    if form == "text":
        return text_examples(tokenizer, first, labels, second, max_tokens=20)
    if form == "similarity":
        return similarity_examples(tokenizer, first, second, labels, max_tokens=20)
    choices = [["a", "b c", "d"], ["e", "f", "a b"], ["c c c", "d", ""]]
    return choice_examples(tokenizer, first, choices, [2, 0, 1], max_tokens=20)


def prepared(form: str, folder: Path) -> tuple[Gpt2Classifier, Tokenizer]:
    """Return a model whose head and new rows are large enough to matter."""
    model, tokenizer = new_head(folder, 1 if form == "choice" else 2)
    with torch.no_grad():
        for tensor in (model.head.weight, model.gpt2.token_embedding.weight[START:]):
            tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(3)) * 0.5)
    return model, tokenizer


def expected(theirs: Any, language: Any, form: str, examples: list[Example], weight: float) -> Tensor:
    """Return the joint loss, each row alone: hidden states, head and language model of transformers, a sum by hand."""
    tasks, costs = [], []
    for example in examples:
        states = []
        for row in example.rows:
            ids = torch.tensor([row.ids])
            states.append(theirs.transformer(ids).last_hidden_state[0, -1])
            predicted = language(ids).logits[0, :-1].log_softmax(-1)
            costs += [-predicted[place, id] for place, id in enumerate(row.ids[1:])]
        scores = torch.stack(states) @ theirs.score.weight.T  # (rows, outputs)
        built = {"text": scores[0], "similarity": scores.sum(0), "choice": scores.flatten()}[form]
        tasks.append(-built.log_softmax(0)[example.labels[0]])
    return torch.stack(tasks).mean() + weight * torch.stack(costs).mean()


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("form", ["text", "similarity", "choice"])
def test_the_joint_loss_is_that_of_the_parts(form: str, weight: float, folder: Path, tmp_path: Path) -> None:
    model, tokenizer = prepared(form, folder)
    saved = save(tmp_path / "saved", model, tokenizer)
    theirs = transformers.GPT2ForSequenceClassification.from_pretrained(saved).eval()
    language = transformers.GPT2LMHeadModel(theirs.config).eval()
    language.transformer = theirs.transformer
    language.tie_weights()
    examples = examples_of(form, tokenizer)
    actual = finetuning_loss(model, collate(examples), form=form, weight=weight)
    target = expected(theirs, language, form, examples, weight)
    assert relative(actual.mean.detach()[None], target.detach()[None]) < 1e-5
    assert (actual.weight, actual.tokens) == (3, sum(len(row.ids) for example in examples for row in example.rows))
    (gradient,) = torch.autograd.grad(actual.mean, [model.gpt2.token_embedding.weight])
    assert relative(gradient, torch.autograd.grad(target, [theirs.transformer.wte.weight])[0]) < 1e-4


@pytest.mark.parametrize("form", ["text", "similarity", "choice"])
def test_without_the_auxiliary_objective_it_is_the_loss_of_the_task(form: str, folder: Path) -> None:
    model, tokenizer = prepared(form, folder)
    batch = collate(examples_of(form, tokenizer))
    scores = logits(model, batch, form=form)
    assert scores.shape == (3, 3 if form == "choice" else 2)
    plain = functional.cross_entropy(scores, batch.labels[:, 0])
    assert float(finetuning_loss(model, batch, form=form, weight=0).mean.detach()) == pytest.approx(
        float(plain.detach())
    )
    assert float(finetuning_loss(model, batch, form=form).mean.detach()) > float(plain.detach()) + 0.1


def test_similarity_knows_no_order(folder: Path) -> None:
    model, tokenizer = prepared("similarity", folder)
    orders = (["a b c"], ["d e"]), (["d e"], ["a b c"])
    actual = [collate(similarity_examples(tokenizer, *texts, [0], max_tokens=20)) for texts in orders]
    texts, pairs = (logits(model, batch, form="similarity").detach() for batch in actual)
    assert torch.allclose(texts, pairs, atol=1e-6)
    plain = [collate(text_examples(tokenizer, first, [0], second, max_tokens=20)) for first, second in orders]
    assert not torch.allclose(logits(model, plain[0]).detach(), logits(model, plain[1]).detach(), atol=1e-3)


@pytest.mark.parametrize("form", ["text", "similarity", "choice"])
def test_gradients_reach_every_parameter(form: str, folder: Path) -> None:
    model, tokenizer = prepared(form, folder)
    finetuning_loss(model, collate(examples_of(form, tokenizer)), form=form).mean.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name
    table = model.gpt2.token_embedding.weight.grad
    assert table is not None
    assert all(float(table[id].abs().max()) > 1e-4 for id in (START, DELIMITER, EXTRACT))


def drawn(count: int, seed: int) -> list[str]:
    """Return texts of two to four different words."""
    generator = random.Random(seed)
    return [" ".join(generator.sample(WORDS[2:], generator.randint(2, 4))) for _ in range(count)]


def softmax(values: Tensor) -> list[float]:
    raised = [math.exp(value) for value in values.tolist()]
    return [value / sum(raised) for value in raised]


@pytest.mark.parametrize("pairs", [False, True])
def test_a_task_is_learned_exported_and_classified(pairs: bool, folder: Path, tmp_path: Path) -> None:
    """Whether a text has an ``a``; whether the first text of two, which is read before the other, has one."""
    model, tokenizer = new_head(folder, 2)
    texts, others = drawn(120, 1), drawn(120, 2) if pairs else None
    right = [int("a" in text) for text in texts]
    built = text_examples(tokenizer, texts, right, others, max_tokens=24)
    train(model, batches(built, 16), finetuning_loss, QUICK)
    bundle = export_checkpoint(save(tmp_path / "saved", model, tokenizer), tmp_path / "bundle").path
    actual = edgebert.Classifier.load(bundle).classify(texts, others)
    assert [first.label for first in actual] == [LABELS[number] for number in right]
    with torch.no_grad():
        scores = logits(model, collate(built))
    assert np.allclose([first.scores for first in actual], [softmax(row) for row in scores], atol=1e-5)
    inputs = "\t".join([texts[0], *(others or [])[:1]])
    done = CliRunner().invoke(main, ["classify", str(bundle), *(["--pairs"] if pairs else [])], input=f"{inputs}\n")
    assert done.exit_code == 0, done.output
    assert LABELS[right[0]] in done.stdout.split()


def test_choices_and_similarity_are_learned(folder: Path) -> None:
    """The choice that has an ``a``; whether two texts have the same number of words."""
    model, tokenizer = new_head(folder, 1)
    generator = random.Random(5)
    wrong = [[text.replace("a", "f") for text in drawn(3, seed)] for seed in range(100)]
    right = [generator.randrange(3) for _ in wrong]
    choices = [
        [f"{text} a" if place == label else text for place, text in enumerate(texts)]
        for texts, label in zip(wrong, right, strict=True)
    ]
    built = choice_examples(tokenizer, drawn(100, 6), choices, right, max_tokens=24)
    train(model, batches(built, 16), partial(finetuning_loss, form="choice"), QUICK)
    with torch.no_grad():
        assert logits(model, collate(built), form="choice").argmax(1).tolist() == right
    model, tokenizer = new_head(folder, 2)
    texts, pairs = drawn(100, 7), drawn(100, 8)
    right = [int("a" in first.split() or "a" in second.split()) for first, second in zip(texts, pairs, strict=True)]
    built = similarity_examples(tokenizer, texts, pairs, right, max_tokens=24)
    train(model, batches(built, 16), partial(finetuning_loss, form="similarity", weight=0.1), QUICK)
    with torch.no_grad():
        assert logits(model, collate(built), form="similarity").argmax(1).tolist() == right
