"""Translation over cached keys and values finds what a search finds that computes every target anew."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import edgebert_runtime.tasks.translation_batches as translation_batches
from edgebert_runtime import Generation, Translator
from edgebert_runtime.decoders.seq2seq_kv_cache import Seq2SeqInPlaceKVCache
from edgebert_runtime.errors import EdgebertError, InputError, LimitError
from tests.runtime.fakes import metaspace
from tests.runtime.tasks.fake_seq2seq import EOS, POSITIONS, START, expected, fake_translator, sessions

TEXTS = ["the cat sat", "a", "dog ran in berlin and the cat sat on a mat", "mat, mat", "paris", "cafe and cat"]
PROPERTY = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy with a penalty": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 3},
    "greedy without some": {"bad_words_ids": [[7], [8, 9]], "suppress_tokens": [11], "min_new_tokens": 4},
    "beams": {"num_beams": 4, "length_penalty": 0.6, "early_stopping": "never"},
    "beams with a penalty": {"num_beams": 3, "repetition_penalty": 1.3},
    "forced": {"num_beams": 2, "forced_bos_token_id": 9, "forced_eos_token_id": EOS},
    "n best": {"num_beams": 5, "num_return_sequences": 3, "early_stopping": True},
    "sampling": {"do_sample": True, "seed": 5, "top_k": 20},
    "draws": {"do_sample": True, "seed": 5, "num_return_sequences": 3},
}


@pytest.fixture(scope="module", params=["shared", "growing"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return fake_translator(tmp_path_factory.mktemp(request.param), shared=request.param == "shared")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return fake_translator(tmp_path_factory.mktemp("only"))


def source_ids(engine: Translator, text: str) -> list[int]:
    ids: list[int] = engine._tokenizer.inner.encode(text).ids
    return ids


def flat(results: list[Any]) -> list[Generation]:
    return [item for several in results for item in (several if isinstance(several, list) else [several])]


def assert_same(results: list[Any], expected: list[Any]) -> None:
    ours, theirs = flat(results), flat(expected)
    assert [item.tokens for item in ours] == [item.tokens for item in theirs]
    assert [item.finish_reason for item in ours] == [item.finish_reason for item in theirs]
    for item, second in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(item.token_logprobs, second.token_logprobs, atol=1e-4)
        assert item.score == pytest.approx(second.score, abs=1e-4)


def calls(engine: Translator) -> list[tuple[int, int, tuple[str, ...], int]]:
    """Return what the decoder was asked since the last time."""
    decoder = sessions(engine)[1]
    results, decoder.calls = decoder.calls, []
    return results


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [{}, {"max_new_tokens": 9}, {"max_length": 7}], ids=["free", "new", "whole"])
def test_equals_the_model_without_a_cache(engine: Translator, mode: str, length: dict[str, int]) -> None:
    options = {**length, **MODES[mode]}
    sources = [source_ids(engine, text) for text in TEXTS]
    reference = expected(engine, sources, [[START]] * len(TEXTS), **options)
    results = engine.translate(TEXTS, **options)
    assert_same(results, reference)
    for item in flat(results):
        tokens = item.tokens[:-1] if item.finish_reason == "stop" else item.tokens
        assert item.text == engine._decode(tokens)


@PROPERTY
@given(
    texts=st.lists(st.sampled_from([*TEXTS, "", "x y z", "日本 é", "cat " * 20]), min_size=1, max_size=7),
    mode=st.sampled_from(sorted(MODES)),
    budget=st.sampled_from([None, 1, 60, 200]),
    count=st.integers(1, 9),
)
def test_batch_equals_single(engine: Translator, texts: list[str], mode: str, budget: int | None, count: int) -> None:
    options = {**MODES[mode], "max_new_tokens": count, "min_new_tokens": None}
    together = engine.translate(iter(texts), max_batch_tokens=budget, **options)
    alone = [engine.translate([text], **options)[0] for text in texts]
    assert_same(together, alone)


def test_token_ids_are_a_whole_source(engine: Translator) -> None:
    ids = source_ids(engine, TEXTS[0])
    texts, numbers, arrays = engine.translate([TEXTS[0], ids, np.array(ids)], max_new_tokens=5)
    assert texts == numbers == arrays


def test_two_vocabularies(tmp_path: Path) -> None:
    target = metaspace()
    engine = fake_translator(tmp_path, target=target, decoding={"decoder_start_token_id": 0, "eos_token_id": 1})
    sources = [source_ids(engine, text) for text in TEXTS]
    results = engine.translate(TEXTS, max_new_tokens=12, num_beams=2)
    assert_same(results, expected(engine, sources, [[0]] * len(TEXTS), max_new_tokens=12, num_beams=2))
    assert results[0].text == target.decode(list(results[0].tokens))
    assert target.get_vocab_size() != engine.bundle.manifest.limits.vocab_size


def test_rows_that_end_cost_nothing(engine: Translator) -> None:
    results = engine.translate(TEXTS, max_new_tokens=12)
    lengths = [len(item.tokens) for item in results]
    assert len(set(lengths)) > 2
    calls(engine)
    engine.translate(TEXTS, max_new_tokens=12)
    steps = calls(engine)
    alive = [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert [(rows, sources) for rows, sources, _, _ in steps] == [(count, count) for count in alive]


def test_sources_that_end_cost_nothing(engine: Translator) -> None:
    alone = []
    for text in TEXTS:
        calls(engine)
        engine.translate([text], max_new_tokens=12, num_beams=3)
        alone.append(len(calls(engine)))
    assert len(set(alone)) > 1
    engine.translate(TEXTS, max_new_tokens=12, num_beams=3)
    steps = calls(engine)
    assert [sources for _, sources, _, _ in steps] == [sum(n > step for n in alone) for step in range(max(alone))]
    assert all(rows <= 3 * sources for rows, sources, _, _ in steps)
    assert steps[0][0] == len(TEXTS)  # one row each, before there are beams


@pytest.mark.parametrize("mode", MODES)
def test_logits_stay_in_the_graph_where_the_rules_allow_it(engine: Translator, mode: str) -> None:
    calls(engine)
    engine.translate(TEXTS, max_new_tokens=9, **MODES[mode])
    first, *others = calls(engine)
    whole = not {"repetition_penalty", "do_sample"}.isdisjoint(MODES[mode]) or mode == "greedy without some"
    assert first[2] == ("logits",)
    assert {outputs for _, _, outputs, _ in others} == {("logits",) if whole else ("top_ids", "top_logprobs")}
    if mode == "n best":
        assert {count for _, _, _, count in others} == {10}  # twice the beams


@pytest.mark.parametrize(("budget", "beams"), [(200, 1), (200, 2), (None, 4), (1, 1)])
def test_batches_keep_to_their_budget(engine: Translator, budget: int | None, beams: int) -> None:
    shapes = sessions(engine)[0].shapes
    shapes.clear()
    texts = TEXTS * 40
    engine.translate(texts, max_batch_tokens=budget, num_beams=beams, max_new_tokens=1)
    assert sum(rows for rows, _ in shapes) == len(texts)
    assert all(rows == 1 or rows * width * beams <= (budget or 4096) for rows, width in shapes)
    assert len(shapes) == len(texts) if budget == 1 else len(shapes) < len(texts)


def test_more_beams_than_tokens(tmp_path: Path) -> None:
    engine = fake_translator(tmp_path)
    size = engine.bundle.manifest.limits.vocab_size
    options: dict[str, Any] = {"num_beams": size - 1, "max_new_tokens": 2}
    results = engine.translate(TEXTS[:2], **options)
    assert_same(results, expected(engine, [source_ids(engine, text) for text in TEXTS[:2]], [[START]] * 2, **options))
    assert max(count for _, _, _, count in calls(engine)) == size


def test_room_grows_with_the_target(shared: Translator) -> None:
    options: dict[str, Any] = {"max_new_tokens": POSITIONS, "eos_token_id": None, "num_beams": 2}
    results = shared.translate(["a", "paris"], **options)
    sources = [source_ids(shared, text) for text in ("a", "paris")]
    assert_same(results, expected(shared, sources, [[START]] * 2, **options))
    assert {(len(item.tokens), item.finish_reason) for item in results} == {(POSITIONS - 1, "length")}


@pytest.mark.parametrize("mode", ["greedy", "greedy with a penalty", "sampling"])
@pytest.mark.parametrize("prefix", [None, "mat and"])
@pytest.mark.parametrize("split", [False, True])
def test_pieces_join_to_the_text(engine: Translator, mode: str, prefix: str | None, split: bool) -> None:
    options = {"max_new_tokens": 12, **MODES[mode]}
    if split:
        texts, prefix = [" ".join(TEXTS), " The cat. A dog sat!\n\nBerlin. ", "", "\n"], None
        options["split_sentences"] = True
    else:
        texts = [*TEXTS, "", " "]
    for text in texts:
        whole = engine.translate([text], target_prefix=prefix, **options)[0]
        assert "".join(engine.stream(text, target_prefix=prefix, **options)) == whole.text


def test_a_stream_needs_no_beams(tmp_path: Path) -> None:
    engine = fake_translator(tmp_path, decoding={"decoder_start_token_id": START, "eos_token_id": EOS, "num_beams": 4})
    pieces = engine.stream(TEXTS[2], max_new_tokens=30)
    assert next(pieces)
    assert len(calls(engine)) < 5
    pieces.close()  # type: ignore[attr-defined]
    assert calls(engine) == []
    whole = engine.translate([TEXTS[2]], max_new_tokens=30, num_beams=1)[0].text
    assert "".join(engine.stream(TEXTS[2], max_new_tokens=30)) == whole
    with pytest.raises(InputError, match="num_beams=2 cannot be streamed"):
        engine.stream("a", num_beams=2)
    with pytest.raises(InputError, match="num_return_sequences=2 cannot be streamed"):
        engine.stream("a", do_sample=True, num_return_sequences=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("stop", [None, "mat", " and", "x"])
def test_a_stream_that_ends_at_once_is_its_prefix(engine: Translator, stop: str | None) -> None:
    options: dict[str, Any] = {"target_prefix": "mat and", "stop": stop}
    options["prefix_allowed_tokens_fn"] = lambda _number, _tokens: [EOS]
    (whole,) = engine.translate(["a"], **options)
    assert whole.tokens == (EOS,)
    assert "".join(engine.stream("a", **options)) == whole.text == {"mat": "", " and": "mat"}.get(stop or "", "mat and")


@pytest.mark.parametrize("mode", ["greedy", "beams", "forced", "n best", "sampling"])
def test_a_target_prefix_begins_the_translation(engine: Translator, mode: str) -> None:
    options = {"max_new_tokens": 9, **MODES[mode]}
    prefixes: list[Any] = ["mat and", "a", "", "the cat", [7, 8, 9], ""]
    results = engine.translate(TEXTS, target_prefix=prefixes, **options)
    forced = [MODES[mode]["forced_bos_token_id"]] if "forced_bos_token_id" in MODES[mode] else []
    for text, prefix, item in zip(TEXTS, prefixes, results, strict=True):
        ids = engine._target.content(prefix).ids if isinstance(prefix, str) else prefix
        target, others = [START, *(forced if ids else []), *ids], {**options, "forced_bos_token_id": None}
        assert_same([item], expected(engine, [source_ids(engine, text)], [target], **(others if ids else options)))
        for result in flat([item]):
            tokens = result.tokens[:-1] if result.finish_reason == "stop" else result.tokens
            assert result.text == engine._decode([*ids, *tokens])
    pair = engine.translate(TEXTS[:2], target_prefix="mat and", **options)
    assert pair == engine.translate(TEXTS[:2], target_prefix=["mat and"] * 2, **options)


def test_empty_texts_stay_empty_and_cost_nothing(engine: Translator) -> None:
    calls(engine)
    nothing = Generation("", (), (), 0.0, "stop")
    assert engine.translate(["", " \n", "\u200d\u200b"]) == [nothing, Generation(" \n", (), (), 0.0, "stop"), nothing]
    assert engine.translate([""], num_beams=2, num_return_sequences=2) == [[nothing]]
    assert (engine.translate([]), engine.score([]), calls(engine)) == ([], [], [])
    results = engine.translate(["", TEXTS[0], "", TEXTS[1]])
    assert [results[1], results[3]] == engine.translate(TEXTS[:2])
    assert results[0] == results[2] == nothing


def test_sentences_are_translated_one_by_one(engine: Translator) -> None:
    text = "\nThe cat sat. A dog ran!  \n\nBerlin and\nParis \u200d. \u200b "
    alone = engine.translate(["The cat sat.", "A dog ran!", "Berlin and\nParis \u200d.", TEXTS[0]], num_beams=2)
    whole, second = engine.translate([text, TEXTS[0]], split_sentences=True, num_beams=2)
    assert second == alone[3]
    parts = alone[:3]
    assert whole.text == f"\n{parts[0].text} {parts[1].text}  \n\n{parts[2].text} " + " "
    assert whole.tokens == sum((item.tokens for item in parts), ())
    assert whole.score == pytest.approx(sum(whole.token_logprobs) / len(whole.tokens))


def test_long_texts_are_split_or_refused(engine: Translator) -> None:
    long = "a cat, " * 40
    with pytest.raises(LimitError, match=r"text 1 has 122 tokens, the limit is 48; split it, or pass split_sentences="):
        engine.translate(["a", long])
    (results,) = engine.translate([long], split_sentences=True, max_new_tokens=3)
    assert len(sessions(engine)[0].shapes[-1]) == 2
    assert max(width for _, width in sessions(engine)[0].shapes) <= POSITIONS
    assert len(results.tokens) > 9
    with pytest.raises(LimitError, match=r"text 0 has 62 tokens, the limit is 48; so many stand together without"):
        engine.translate(["The cat. " + "日" * 60], split_sentences=True)
    with pytest.raises(LimitError, match="text 0 has 49 token ids, the limit is 48"):
        engine.translate([[7] * 49])
    with pytest.raises(LimitError, match="target prefix of text 1 has 47 tokens and leaves no room in the model's 48"):
        engine.translate(["a", "a"], target_prefix=["a", "a " * 47])


def test_lengths(engine: Translator) -> None:
    free: dict[str, Any] = {"eos_token_id": None}
    assert [len(item.tokens) for item in engine.translate(["a", TEXTS[2]], **free)] == [3 * 3 + 16, POSITIONS - 1]
    assert len(engine.translate(["a"], max_length=5, **free)[0].tokens) == 4
    assert len(engine.translate(["a"], max_new_tokens=100, **free)[0].tokens) == POSITIONS - 1
    with pytest.raises(LimitError, match="max_length=1 counts them"):
        engine.translate(["a"], max_length=1)


def test_progress_counts_texts(engine: Translator) -> None:
    calls: list[tuple[int, int | None]] = []
    texts = ["", "The cat. The dog.", "a", "The cat sat on a mat. A dog ran."]
    engine.translate(
        texts, split_sentences=True, max_batch_tokens=1, progress=lambda *done: calls.append(done), max_new_tokens=2
    )
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert (len(calls), calls[-1]) == (5, (4, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"max_new_tokens": 1.5}, r"max_new_tokens=1\.5"),
        ({"num_beams": "4"}, "num_beams='4'"),
        ({"top_k": 5}, "top_k=5 has no effect without do_sample"),
        ({"length_penalty": 2}, "length_penalty=2.* has no effect without num_beams"),
        ({"temprature": 1.0}, "did you mean temperature"),
        ({"decoder_start_token_id": 3}, "decoder_start_token_id is the bundle's own, and no option of a call"),
        ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
        ({"encoding_errors": "ignore"}, "encoding_errors='ignore'"),
        ({"target_language": "fr"}, "target_language='fr' has no effect: the model knows one pair of languages"),
        ({"source_language": "fr"}, "source_language='fr' has no effect"),
        ({"target_prefix": ["a"]}, "target_prefix holds 1 for 2 texts"),
        ({"target_prefix": [3, 4]}, "text 0 is int, not str or a list of token ids"),
        ({"target_prefix": "a", "split_sentences": True}, "target_prefix begins one translation"),
        (
            {"num_beams": 2, "num_return_sequences": 2, "split_sentences": True},
            "num_return_sequences=2 asks for several",
        ),
    ],
)
def test_options_that_cannot_be(engine: Translator, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.translate(["a", "b"], **options)


@pytest.mark.parametrize(
    ("texts", "message"), [("a text", "one str was given"), ([3], "text 0 is int"), ([[]], "empty")]
)
def test_texts_that_are_none(engine: Translator, texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.translate(texts)


def test_stop_strings_end_a_text(engine: Translator) -> None:
    (whole,) = engine.translate([TEXTS[2]], max_new_tokens=20)
    middle = whole.text[len(whole.text) // 2 :][:2]
    (beamed,) = engine.translate([TEXTS[2]], max_new_tokens=20, stop=[middle], num_beams=2)
    assert middle not in beamed.text
    (translation,) = engine.translate([TEXTS[2]], max_new_tokens=20, stop=[middle])
    assert (translation.text, translation.finish_reason) == (whole.text[: whole.text.index(middle)], "stop_string")


def test_a_callback_sees_the_numbers_of_texts(engine: Translator) -> None:
    def allowed(number: int, tokens: list[int]) -> Iterator[int]:
        assert tokens[0] == START
        return iter([7 + number])

    results = engine.translate(TEXTS, max_new_tokens=3, max_batch_tokens=30, prefix_allowed_tokens_fn=allowed)
    assert [item.tokens for item in results] == [(7 + number,) * 3 for number in range(len(TEXTS))]


def test_engines_over_sessions_of_their_own_are_not_copied(engine: Translator) -> None:
    with pytest.raises(EdgebertError, match="a Translator over a session of your own cannot be copied"):
        pickle.dumps(engine)


def test_threads_share_an_engine(engine: Translator) -> None:
    expected = engine.translate(TEXTS, max_new_tokens=8, num_beams=2)
    with ThreadPoolExecutor(4) as pool:
        run: Callable[[int], Any] = lambda _: engine.translate(TEXTS, max_new_tokens=8, num_beams=2)  # noqa: E731
        assert all(results == expected for results in pool.map(run, range(8)))


def test_a_call_gets_no_more_room_than_it_can_use(shared: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and values of every row are kept for that many tokens: with many beams they are most of the memory."""
    caches: list[Seq2SeqInPlaceKVCache] = []

    def noting(*arguments: Any) -> Seq2SeqInPlaceKVCache:
        caches.append(Seq2SeqInPlaceKVCache(*arguments))
        return caches[-1]

    monkeypatch.setattr(translation_batches, "Seq2SeqInPlaceKVCache", noting)
    (short,) = shared.translate(["the cat sat on the mat"], num_beams=1, max_new_tokens=3)
    assert len(short.tokens) == 3
    (alone,) = shared.translate(["the cat sat on the mat"], num_beams=1, max_new_tokens=8)
    assert alone.tokens[:3] == short.tokens
    rooms = [past.buffers.shape[3] for past in caches]
    assert rooms == [1 + 3, 1 + 8]
