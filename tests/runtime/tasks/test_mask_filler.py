"""Masked words: what transformers gives, in the text as it was; and every input that must be refused."""

from __future__ import annotations

import json
import logging
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgebert_runtime import Bundle, Filling, MaskFiller
from edgebert_runtime.errors import InputError, LimitError
from edgebert_runtime.tasks.base.batch_pipeline import WINDOW
from tests.runtime.conftest import Logits, Tiny, changed, scripted
from tests.support.tiny import VOCAB as VOCABULARY

KINDS = ("bert", "roberta", "xlm-roberta")
PIECE = st.sampled_from(["the", " cat", " sat", "MASK", " MASK", "MASK ", "  ", "\n", ".", "é", " 日本", "ing", "[ ]"])
MASKED = st.lists(PIECE, max_size=9).map(lambda pieces: "".join([*pieces, "MASK"]))


TASK = "fill-mask"  # of the fixture case


@pytest.fixture(scope="module")
def engine(case: Tiny) -> MaskFiller:
    return MaskFiller(Bundle.open(case.bundle))


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, tiny: Callable[..., Tiny]) -> Tiny:
    case: Tiny = tiny("fill-mask", request.param)
    return case


@pytest.fixture(scope="module")
def filler(kind: Tiny) -> MaskFiller:
    return MaskFiller(Bundle.open(kind.bundle))


@pytest.fixture(scope="module")
def theirs(kind: Tiny, filler: MaskFiller) -> Any:
    """Load the tokenizer with transformers."""
    names = {token.content: token for token in filler._tokenizer.inner.get_added_tokens_decoder().values()}
    mask = transformers.AddedToken(filler.mask_token, lstrip=names[filler.mask_token].lstrip, special=True)
    pad = "[PAD]" if "[PAD]" in names else "<pad>"
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(kind.bundle / "tokenizer.json"), mask_token=mask, pad_token=pad
    )


@settings(max_examples=80, deadline=None)
@given(text=MASKED)
def test_ids_are_those_of_transformers(filler: MaskFiller, theirs: Any, text: str) -> None:
    text = text.replace("MASK", filler.mask_token)
    expected = theirs(text)["input_ids"]
    assume(len(expected) <= filler.max_tokens)  # what happens to longer ones is not transformers' to say
    work = filler._tokenize(text, 0, filler._request(1, None, {}))
    (row,) = work.rows
    assert list(row.ids) == expected
    assert [row.ids[position] for position in row.logits_indices] == [theirs.mask_token_id] * len(work.masks)
    assert len(work.masks) == text.count(filler.mask_token)
    assert work.text == text
    assert {work.text[start:end] for start, end in work.masks} == {filler.mask_token}


def test_fillings_are_those_of_transformers(kind: Tiny, filler: MaskFiller, theirs: Any) -> None:
    model = transformers.AutoModelForMaskedLM.from_pretrained(kind.checkpoint)
    pipeline = transformers.pipeline("fill-mask", model=model, tokenizer=theirs, device="cpu")
    mask = filler.mask_token
    texts = [f"the {mask} sat", mask, f"the cat{mask} sat on a mat.", f"{mask} cat {mask}"]
    for text, results in zip(texts, filler.fill(texts, top_k=7), strict=True):
        expected = pipeline(text, top_k=7)
        for fillings, reference in zip(results, expected if text.count(mask) > 1 else [expected], strict=True):
            assert [item.token_id for item in fillings] == [entry["token"] for entry in reference]
            np.testing.assert_allclose(
                [item.score for item in fillings], [entry["score"] for entry in reference], rtol=1e-3
            )
    targets = ["a", "the", "##ing", "."] if mask == "[MASK]" else ["a", "h", ".", ","]
    (fillings,) = filler.fill([texts[0]], targets=targets)[0]
    reference = pipeline(texts[0], targets=targets)
    assert [item.token for item in fillings] == theirs.convert_ids_to_tokens([entry["token"] for entry in reference])
    np.testing.assert_allclose([item.score for item in fillings], [entry["score"] for entry in reference], rtol=1e-3)
    assert [item.text for item in fillings] == [entry["sequence"] for entry in reference]


@settings(max_examples=20, deadline=None)
@given(texts=st.lists(MASKED, min_size=1, max_size=6), budget=st.integers(1, 90))
def test_batch_equals_single(engine: MaskFiller, texts: list[str], budget: int) -> None:
    texts = [text.replace("MASK", "[MASK]") for text in texts]
    together = engine.fill(iter(texts), top_k=len(VOCABULARY), max_batch_tokens=budget)
    for text, results in zip(texts, together, strict=True):
        (alone,) = engine.fill([text], top_k=len(VOCABULARY))
        assert len(results) == len(alone) == text.count("[MASK]")
        for fillings, expected in zip(results, alone, strict=True):
            scores = {item.token_id: item.score for item in expected}
            for item in fillings:
                assert item.score == pytest.approx(scores[item.token_id], abs=1e-5)
            assert sum(scores.values()) == pytest.approx(1)


def test_each_mask_equals_the_reference(case: Tiny, engine: MaskFiller) -> None:
    text = "the [MASK] sat on [MASK] and [MASK]"
    (results,) = engine.fill([text], top_k=3)
    ids = engine._tokenizer.single.join(engine._tokenizer.content(text).ids).ids
    places = [place for place, index in enumerate(ids) if index == 4]
    row = torch.tensor([ids])
    with torch.no_grad():
        logits = case.model(row, torch.ones_like(row), torch.zeros_like(row), torch.tensor(places))
    for fillings, expected in zip(results, logits.softmax(-1), strict=True):
        best = expected.topk(3)
        assert [item.token_id for item in fillings] == best.indices.tolist()
        np.testing.assert_allclose([item.score for item in fillings], best.values.numpy(), atol=1e-5)


def test_several_masks_are_filled_alone(engine: MaskFiller) -> None:
    first, second = scripted(engine, cat=1.0, dog=0.0).fill(["[MASK] sat[MASK]."], top_k=2)[0]
    assert [item.text for item in first] == ["cat sat[MASK].", "dog sat[MASK]."]
    assert [item.text for item in second] == ["[MASK] satcat.", "[MASK] satdog."]
    assert second[0].score == pytest.approx(0.7310586)
    assert second[0] == Filling("cat", 6, second[0].score, "[MASK] satcat.", 10, 13)


def test_token_ids_stand_for_a_text(filler: MaskFiller) -> None:
    texts = [f"the {filler.mask_token} sat {filler.mask_token}.", f"{filler.mask_token} cat", "the" + filler.mask_token]
    tokenizer = filler._tokenizer
    rows = [tokenizer.single.join(tokenizer.content(text).ids).ids for text in texts]
    for results, expected, text in zip(filler.fill(rows), filler.fill(texts), texts, strict=True):
        assert [[item.token_id for item in fillings] for fillings in results] == [
            [item.token_id for item in fillings] for fillings in expected
        ]
        for item in results[0]:
            assert item.text[: item.start].split() == text.partition(filler.mask_token)[0].split()
            assert filler.mask_token not in item.text or len(results) > 1
            around = item.text[: item.start] + item.text[item.end :]
            assert not any(special in around for special in ("[CLS]", "[SEP]", "<s>", "</s>"))
    with pytest.raises(InputError, match=f"text 0 has no {re.escape(filler.mask_token)}"):
        filler.fill([[5, 6]])


def test_only_masks_are_computed(engine: MaskFiller) -> None:
    session = Logits(lambda row: np.zeros(len(VOCABULARY)))
    MaskFiller(engine.bundle, session=session).fill(["the [MASK]", "[MASK] and [MASK] on"])
    (feeds,) = session.feeds
    assert feeds["input_ids"].shape == (2, 6)
    assert feeds["logits_indices"].tolist() == [1, 3, 8]
    assert feeds["logits_indices"].dtype == np.int64


def test_ties_go_to_the_lower_id(engine: MaskFiller) -> None:
    (fillings,) = scripted(engine, the=2.0, cat=3.0, dog=2.0, rain=2.0).fill(["[MASK]"], top_k=3)[0]
    assert [item.token for item in fillings] == ["cat", "the", "dog"]
    (fillings,) = scripted(engine, the=2.0).fill(["[MASK]"], targets=["dog", "cat", "the"], top_k=3)[0]
    assert [item.token for item in fillings] == ["the", "dog", "cat"]


def test_targets(engine: MaskFiller) -> None:
    fake = scripted(engine, the=3.0, cat=2.0, dog=1.0)
    total = np.exp([3.0, 2.0, 1.0]).sum() + (len(VOCABULARY) - 3) * np.exp(-50.0)
    (fillings,) = fake.fill(["the [MASK]"], targets=["dog", 6, "dog", np.int64(12), " CAT "])[0]
    assert [item.token for item in fillings] == ["cat", "dog"]
    np.testing.assert_allclose([item.score for item in fillings], np.exp([2.0, 1.0]) / total, rtol=1e-6)
    (fillings,) = fake.fill(["the [MASK]"], targets=iter(["dog", "cat"]), top_k=1)[0]
    assert [item.token for item in fillings] == ["cat"]


@pytest.mark.parametrize("at", [0, 3, 25, 58, 59])
def test_long_texts_are_read_around_their_masks(engine: MaskFiller, caplog: pytest.LogCaptureFixture, at: int) -> None:
    words = ["the", "cat", "dog"] * 20
    words[at] = "[MASK]"
    text = " ".join(words)
    session = Logits(lambda row: np.array([float(i == 6) for i in range(len(VOCABULARY))]) * 50)
    with caplog.at_level(logging.WARNING, logger="edgebert"):
        ((best,),) = MaskFiller(engine.bundle, session=session).fill([text], top_k=1)[0]
    assert [record.getMessage() for record in caplog.records] == ["1 of 1 texts were cut to 40 tokens"]
    assert best.text == text.replace("[MASK]", "cat")
    ids = session.feeds[0]["input_ids"][0].tolist()
    assert (len(ids), ids[0], ids[-1]) == (40, 2, 3)
    (place,) = session.feeds[0]["logits_indices"]
    assert ids[place] == 4
    everything = engine._tokenizer.content(text).ids
    start = at - (place - 1)
    assert ids[1:-1] == everything[start : start + 38]
    assert min(place - 1, 38 - place) >= min(18, at, 59 - at)
    with pytest.raises(LimitError, match="text 0 has 62 tokens, the limit is 40"):
        engine.fill([text], truncate=False)


def test_masks_too_far_apart(engine: MaskFiller) -> None:
    text = "the " * 20 + "[MASK] " + "cat " * 36 + "[MASK]" + " dog" * 20
    assert [item[0].text.count("[MASK]") for item in engine.fill([text])[0]] == [1, 1]
    with pytest.raises(LimitError, match="text 1 has masks that span 39 tokens, of which 38 fit into max_tokens=40"):
        engine.fill(["[MASK]", text.replace("cat", "cat cat", 1)])


def test_order_and_a_bounded_window_ahead(engine: MaskFiller) -> None:
    read = 0
    fake = MaskFiller(engine.bundle, session=Logits(lambda row: np.arange(len(VOCABULARY)) == 5 + (row[2] - 5) % 20))

    def source() -> Iterator[list[int]]:
        nonlocal read
        while True:
            read += 1
            yield [4, 3, 5 + read % 70]

    stream = fake.stream(source(), top_k=1)
    for position in range(2 * WINDOW + 5):
        ((filling,),) = next(stream)
        assert filling.token_id == 5 + (1 + position) % 70 % 20
        assert read - position <= 2 * WINDOW


def test_a_mask_that_the_file_does_not_list_is_found(case: Tiny, engine: MaskFiller, tmp_path: Path) -> None:
    data = json.loads((case.bundle / "tokenizer.json").read_text())
    data["added_tokens"] = [entry for entry in data["added_tokens"] if entry["content"] != "[MASK]"]
    folder = changed(case.bundle, tmp_path / "bundle", {"tokenizer.json": json.dumps(data).encode()})
    second = MaskFiller.load(folder)
    text = "the [MASK] [SEP][mask]"
    assert second._tokenizer.content(text).ids == engine._tokenizer.content(text).ids
    assert second.fill([text]) == engine.fill([text])


def test_pickles_by_reloading(engine: MaskFiller) -> None:
    again = pickle.loads(pickle.dumps(MaskFiller(engine.bundle, threads=1)))
    assert (type(again), again.mask_token, again.threads) == (MaskFiller, "[MASK]", 1)
