"""Entities and answers of exported models are those of the PyTorch reference and of transformers."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import BertForTokenClassification, PreTrainedTokenizerFast, pipeline

import edgebert_runtime
from edgebert_runtime import Answerer, Bundle, Tagger
from edgebert_runtime.errors import BundleError
from edgebert_runtime.tasks.answer_spans import best_spans, log_normalizer, read_words
from edgebert_runtime.tasks.entity_aggregation import AGGREGATIONS
from edgebert_runtime.tasks.tagger import Aggregation

TEXTS = ["the cat  sat on Zé mat.", "", "日本 é dog?", "sun moon running in [rain] " * 9, "xyzzy", "Cafe\u0301 the"]
LIMIT = 40
PROPERTY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.lists(st.sampled_from("the cat sat on Zé mat. running 日 zzz".split()), max_size=50).map(" ".join)


def run(model: torch.nn.Module, encoding: Any) -> list[Any]:
    """Return the outputs of the reference for one row."""
    row = torch.tensor([encoding.ids])
    with torch.no_grad():
        results = model(row, torch.ones_like(row), torch.tensor([encoding.type_ids]))
    return [part[0].numpy() for part in (results if isinstance(results, tuple) else (results,))]


def load_tokenizer(bundle: Any) -> Any:
    tokenizer = tokenizers.Tokenizer.from_file(str(bundle / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@pytest.mark.parametrize("model_type", ["bert", "roberta", "electra"])
def test_tags_of_the_reference(tiny: Callable[..., Any], model_type: str) -> None:
    case = tiny("tag", model_type)
    engine, tokenizer = edgebert_runtime.load(case.bundle), load_tokenizer(case.bundle)
    assert isinstance(engine, Tagger)
    for text, results in zip(TEXTS, engine.tag(TEXTS, aggregation="none", stride=0, max_tokens=LIMIT), strict=True):
        content = tokenizer.encode(text, add_special_tokens=False)
        expected = []
        for start in range(0, len(content.ids), LIMIT - 2):
            window = copy.copy(content)
            window.truncate(start + LIMIT - 2)
            window.truncate(len(window.ids) - start, direction="left")
            logits = run(case.model, tokenizer.post_process(window))[0][1:-1].astype(np.float64)
            for place, row in enumerate(np.exp(logits - logits.max(1, keepdims=True)), start):
                if (best := int(row.argmax())) and text[slice(*content.offsets[place])].strip():
                    expected.append((engine.labels[best], row[best] / row.sum()))
        assert [entity.label for entity in results] == [label for label, _ in expected]
        np.testing.assert_allclose([entity.score for entity in results], [score for _, score in expected], atol=1e-4)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_entities_of_transformers(tiny: Callable[..., Any], aggregation: Aggregation) -> None:
    case = tiny("tag")
    fast = PreTrainedTokenizerFast(tokenizer_file=str(case.bundle / "tokenizer.json"), unk_token="[UNK]")
    model = BertForTokenClassification.from_pretrained(case.checkpoint)
    theirs = pipeline("token-classification", model=model, tokenizer=fast, aggregation_strategy=aggregation)
    texts = ["the cat  sat on a mat.", "A dog running in sun, moon? zq", "日本 farm ships mailing"]
    for text, results in zip(
        texts, edgebert_runtime.Tagger.load(case.bundle).tag(texts, aggregation=aggregation), strict=True
    ):
        expected = theirs(text)
        labels = [entity["entity" if aggregation == "none" else "entity_group"] for entity in expected]
        assert [entity.label for entity in results] == labels
        assert [(entity.start, entity.end) for entity in results] == [(e["start"], e["end"]) for e in expected]
        np.testing.assert_allclose([entity.score for entity in results], [e["score"] for e in expected], atol=1e-5)


@pytest.mark.parametrize("model_type", ["bert", "xlm-roberta"])
@pytest.mark.parametrize("context", TEXTS[:1] + TEXTS[3:])
def test_answers_of_the_reference(tiny: Callable[..., Any], model_type: str, context: str) -> None:
    case = tiny("answer", model_type)
    engine, tokenizer = edgebert_runtime.load(case.bundle), load_tokenizer(case.bundle)
    assert isinstance(engine, Answerer)
    question = "cat on a mat?"
    question_ids, content = (tokenizer.encode(text, add_special_tokens=False) for text in (question, context))
    room = LIMIT - tokenizer.num_special_tokens_to_add(True) - len(question_ids.ids)
    windows, sides = [], []
    for start in range(0, len(content.ids), room):
        window = copy.copy(content)
        window.truncate(start + room)
        window.truncate(len(window.ids) - start, direction="left")
        framed = tokenizer.post_process(question_ids, window)
        remaining = [0, *(place for place, sequence in enumerate(framed.sequence_ids) if sequence == 1)]
        item, second = run(case.model, framed)
        sides.append((item[remaining], second[remaining]))
        windows.append((start, start + len(window.ids)))
    words = read_words(context, content.word_ids, content.offsets)
    expected = best_spans(windows, sides, words, 4, 9)
    results = engine.answer(question, context, top_k=4, max_answer_tokens=9, stride=0, max_tokens=LIMIT)
    assert [(answer.start, answer.end) for answer in results] == [(span.start, span.end) for span in expected]
    np.testing.assert_allclose(
        [answer.score for answer in results],
        np.exp([-span.negative_score - log_normalizer(sides) for span in expected]),
        rtol=1e-3,
    )
    assert all(answer.text == context[answer.start : answer.end] for answer in results)


@pytest.fixture(scope="module")
def tagger(tiny: Callable[..., Any]) -> Tagger:
    return Tagger(Bundle.open(tiny("tag").bundle))


@pytest.fixture(scope="module")
def answerer(tiny: Callable[..., Any]) -> Answerer:
    return Answerer(Bundle.open(tiny("answer").bundle))


@given(texts=st.lists(TEXT, min_size=1, max_size=6), budget=st.integers(1, 200))
@PROPERTY
def test_batch_equals_single(tagger: Tagger, answerer: Answerer, texts: list[str], budget: int) -> None:
    together = tagger.tag(texts, max_batch_tokens=budget)
    for text, results in zip(texts, together, strict=True):
        (alone,) = tagger.tag([text])
        assert [(e.label, e.start, e.end) for e in results] == [(e.label, e.start, e.end) for e in alone]
        np.testing.assert_allclose([e.score for e in results], [e.score for e in alone], atol=1e-5)
    pairs = [("the cat", text) for text in texts]
    for pair, answers in zip(pairs, answerer.answer_many(pairs, max_batch_tokens=budget), strict=True):
        for item, second in zip(answers, answerer.answer(*pair), strict=True):
            assert item.score == pytest.approx(second.score, abs=1e-5)
            assert item.text == second.text


def test_pickles_and_knows_its_task(tagger: Tagger, answerer: Answerer) -> None:
    assert pickle.loads(pickle.dumps(tagger)).tag(TEXTS) == tagger.tag(TEXTS)
    assert copy.deepcopy(answerer).answer("cat", TEXTS[3]) == answerer.answer("cat", TEXTS[3])
    with pytest.raises(BundleError, match="task 'answer', not of tag"):
        Tagger(answerer.bundle)
    with pytest.raises(BundleError, match="task 'tag', not of answer"):
        Answerer(tagger.bundle)
