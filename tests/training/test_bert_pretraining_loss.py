"""The loss of the pre-training is that of transformers, both tasks are learned, and a run may be stopped."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.heads.head_detection import head_config
from edgebert.models.bert.model import Bert, BertConfig
from edgebert.models.bert.pretraining import MASKED, NEXT, BertPreTraining, pretraining_heads
from edgebert.training import TrainingConfig, initialize, train
from edgebert.training.bert_pretraining import Batch, Pair, batches, collate, pairs, pretraining_loss
from edgebert.training.examples import IGNORED
from edgebert.training.save_checkpoint import describe, publish
from tests.support.tiny import CONFIG, VOCAB, randomize
from tests.training.pretraining_texts import UNK, VOCABULARY, random_documents, seeded


def make_model() -> BertPreTraining:
    model = BertPreTraining(Bert(BertConfig(**CONFIG)))
    randomize(model)
    return model


def test_heads_are_those_that_a_published_checkpoint_has() -> None:
    config = BertConfig(**CONFIG)
    expected = {
        task: head_config(HEADS["bert"][task][0], config, size) for task, size in ((MASKED, len(VOCAB)), (NEXT, 2))
    }
    assert pretraining_heads(config) == expected


def test_loss_and_gradients_are_those_of_transformers() -> None:
    model = make_model()
    rows = [*itertools.islice(pairs(random_documents(), 33, seeded()), 5), Pair([7, 8, 9], [10], True)]
    batch = collate(rows, VOCABULARY, seeded())
    assert batch.attention_mask.sum(1).tolist() == [36] * 4 + [32, 7]
    config = transformers.BertConfig(
        **describe(model, "bert"), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    reference = transformers.BertForPreTraining(config)
    loaded = reference.load_state_dict(publish(model, "bert", MASKED), strict=False)
    assert loaded.unexpected_keys == []
    assert set(loaded.missing_keys) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}  # tied
    actual = pretraining_loss(model, batch)
    expected = reference(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        token_type_ids=batch.token_type_ids,
        labels=batch.labels,
        next_sentence_label=batch.next_labels,
    ).loss
    assert actual.mean.item() == pytest.approx(expected.item(), rel=1e-5)
    assert (actual.weight, actual.tokens) == (6, int(batch.attention_mask.sum()))
    actual.mean.backward()  # type: ignore[no-untyped-call]
    expected.backward()
    theirs = {name: parameter.grad for name, parameter in reference.named_parameters()}
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0
        parameter.data = parameter.grad
    for name, gradient in publish(model, "bert", MASKED).items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-3, atol=1e-5, msg=name)


def test_only_chosen_tokens_count() -> None:
    model = make_model()
    batch = next(batches(random_documents(), VOCABULARY, size=6, length=36))
    first = batch.labels.clone()
    row, place = (first != IGNORED).nonzero()[0].tolist()
    first[first != IGNORED] = IGNORED
    first[row, place] = batch.labels[row, place]
    masked, following = (model.with_head(task) for task in (MASKED, NEXT))
    inputs = batch.input_ids, batch.attention_mask, batch.token_type_ids
    with torch.no_grad():
        logits = masked(*inputs, torch.tensor([row * first.shape[1] + place]))
        expected = -logits.double().log_softmax(1)[0, first[row, place]]
        expected -= following(*inputs).double().log_softmax(1)[torch.arange(6), batch.next_labels].mean()
        assert pretraining_loss(model, batch._replace(labels=first)).mean.item() == pytest.approx(
            expected.item(), rel=1e-5
        )


def test_both_tasks_are_learned_where_they_can_be() -> None:
    documents = [random_documents(1, seed, 5 + 4 * seed, 9 + 4 * seed)[0] for seed in range(6)]  # each in its own words
    model = BertPreTraining(Bert(BertConfig(**CONFIG)))
    initialize(model, std=0.1)
    stream = batches(documents, VOCABULARY, size=16, length=24, seed=2)
    test = [next(stream) for _ in range(8)]
    train(model, stream, pretraining_loss, TrainingConfig(steps=200, learning_rate=3e-3, warmup_steps=15))
    losses, right = [], []
    with torch.no_grad():
        for batch in test:
            losses.append(pretraining_loss(model, batch).mean.item())
            logits = model.with_head(NEXT)(*batch[:3])
            right.append((logits.argmax(1) == batch.next_labels).float().mean().item())
    assert sum(right) / len(right) > 0.95
    assert sum(losses) / len(losses) < math.log(4) + 0.4  # a document has four words


def test_a_run_that_was_stopped_ends_at_the_same_weights(tmp_path: Path) -> None:
    documents, config = random_documents(), TrainingConfig(steps=8, learning_rate=1e-2, gradient_accumulation_steps=2)

    def stream() -> Iterator[Batch]:
        return batches(documents, VOCABULARY, size=4, length=24, seed=6)

    ends = []
    for stops in ([8], [3, 5, 8]):
        state = tmp_path / f"{len(stops)}.run"
        for stop in stops:
            model = make_model()
            train(model, stream(), pretraining_loss, config, state=state, until=stop)
        ends.append(model.state_dict())
    for name, tensor in ends[0].items():
        assert torch.equal(tensor, ends[1][name]), name
    second = make_model()
    train(
        second, batches(documents, replace(VOCABULARY, mask=UNK), size=4, length=24, seed=6), pretraining_loss, config
    )
    assert any(not torch.equal(tensor, ends[0][name]) for name, tensor in second.state_dict().items())
