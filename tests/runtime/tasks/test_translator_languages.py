"""Models of many languages are told which, each kind in its own way, and refuse what would be another language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgebert_runtime import Translator
from edgebert_runtime.errors import BundleError, InputError
from tests.runtime.tasks.fake_seq2seq import DECODING, EOS, START, fake_translation_bundle, fake_translator, sessions

CLS, SEP = 2, 3  # what the tokenizer puts around a text
CODES = {"fr": 20, "de": 21, "it": 22}


def make(folder: Path, style: str, **settings: str) -> Translator:
    return fake_translator(folder, settings={"languages": CODES, "language_style": style, **settings})


def read(engine: Translator, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], list[int]]]:
    """Note the tokens of sources, and of the targets started, from now on."""
    calls: list[tuple[list[int], list[int]]] = []
    begin = engine._begin

    def noting(batch: Any, options: Any, width: int) -> Any:
        calls.extend((source.ids, source.target) for source in batch)
        return begin(batch, options, width)

    monkeypatch.setattr(engine, "_begin", noting)
    return calls


def content(engine: Translator, text: str) -> list[int]:
    ids: list[int] = engine._tokenizer.content(text).ids
    return ids


def test_marian_reads_the_language_before_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(tmp_path, "token", target_language="it")
    assert (engine.languages, engine.source_language, engine.target_language) == (("fr", "de", "it"), "", "it")
    calls, cat = read(engine, monkeypatch), content(engine, "the cat")
    engine.translate(["the cat"])
    engine.translate(["the cat"], target_language="fr")
    engine.translate([" >>de<<  the cat"])
    engine.translate([">>de<< the cat"], target_language="fr")
    engine.translate([">>de<< The cat. The cat."], split_sentences=True)
    engine.score([(">>de<< the cat", "mat")])
    list(engine.stream("the cat", target_language="de"))
    codes = [ids[1] for ids, _ in calls]
    assert codes == [CODES[name] for name in ("it", "fr", "de", "de", "de", "de", "de", "de")]
    assert all(ids == [CLS, ids[1], *cat, SEP] for ids, _ in calls[:4])
    assert all(target == [START] for _, target in calls)
    assert engine.translate([">>de<< "])[0].tokens == ()


def test_mbart_50_writes_the_language_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(tmp_path, "bart50", source_language="fr", target_language="de")
    calls, cat = read(engine, monkeypatch), content(engine, "the cat")
    for options in ({}, {"num_beams": 2}, {"do_sample": True}):
        (results,) = engine.translate(["the cat"], source_language="it", **options)
        assert (results.tokens[0], results.token_logprobs[0]) == (21, 0)
    assert engine.translate(["the cat"], target_language="fr")[0].tokens[0] == 20
    assert engine.translate(["the cat"], forced_bos_token_id=9)[0].tokens[0] == 9
    assert calls[0] == ([22, *cat, CLS, SEP], [START])
    assert calls[-1][0] == [20, *cat, CLS, SEP]
    (begun,) = engine.translate(["the cat"], target_prefix="mat")
    assert calls[-1][1] == [START, 21, *content(engine, "mat")]
    assert begun.text.startswith("mat")
    engine.score([("the cat", "mat")])
    assert calls[-1] == ([20, *cat, CLS, SEP], [START, 21])


def test_mbart_starts_from_the_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(tmp_path, "bart25", source_language="fr")
    calls, cat = read(engine, monkeypatch), content(engine, "the cat")
    engine.translate(["the cat"], target_language="it")
    engine.score([("the cat", "mat")], target_language="de")
    assert calls == [([*cat, CLS, SEP, 20], [22]), ([*cat, CLS, SEP, 20], [21])]
    with pytest.raises(InputError, match="nothing says which language; pass target_language, one of fr, de, it"):
        engine.translate(["the cat"])


@pytest.mark.parametrize(
    ("style", "text", "options", "message"),
    [
        ("token", "a", {}, "nothing says which language; pass target_language, one of fr, de, it"),
        ("token", "a", {"target_language": "xx"}, "target_language='xx' is not one of fr, de, it"),
        ("token", "a", {"source_language": "fr"}, "source_language='fr' has no effect"),
        ("token", ">>xx<< a", {"target_language": "fr"}, "text 0 begins with >>xx<<, which is not one of fr, de, it"),
        ("bart50", "a", {"target_language": "fr"}, "pass source_language, one of"),
        ("bart50", "a", {"source_language": "fr"}, "pass target_language, one of"),
        ("bart50", "a", {"source_language": "fr", "target_language": ""}, "pass target_language, one of"),
        ("bart50", "a", {"target_language": "fr", "forced_bos_token_id": 9}, "sets forced_bos_token_id=9; give one"),
        ("bart25", "a", {"source_language": "xx", "target_language": "fr"}, "source_language='xx' is not one of"),
    ],
)
def test_languages_that_are_missing_or_unknown(
    tmp_path: Path, style: str, text: str, options: dict[str, Any], message: str
) -> None:
    engine = make(tmp_path, style)
    with pytest.raises(InputError, match=message):
        engine.translate([text], **options)
    assert sessions(engine)[0].shapes == []


def test_text_that_looks_like_a_code_is_text_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_translator(tmp_path)
    calls = read(engine, monkeypatch)
    engine.translate([">>fr<< a"])
    assert calls[0][0] == [CLS, *content(engine, ">>fr<< a"), SEP]


def test_a_text_may_quote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(tmp_path, "token", target_language="it")
    calls = read(engine, monkeypatch)
    engine.translate(["a >>fr<< a", ">> a << a"])
    assert [ids[1] for ids, _ in calls] == [22, 22]


@pytest.mark.parametrize(
    ("settings", "decoding", "message"),
    [
        ({"language_style": "bart99", "languages": CODES}, {}, "the settings have languages=.* in the style 'bart99'"),
        ({"language_style": "token"}, {}, r"languages=\{\} in the style 'token'"),
        ({"languages": CODES}, {}, "in the style ''"),
        ({"language_style": "token", "languages": {"fr": 10_000}}, {}, "languages={'fr': 10000}"),
        ({"language_style": "token", "languages": {"fr": True}}, {}, "languages={'fr': True}"),
        ({"language_style": "token", "languages": ["fr"]}, {}, r"languages=\['fr'\]"),
        (
            {"language_style": "token", "languages": CODES, "target_language": "xx"},
            {},
            "name the language 'xx', which has no token",
        ),
        ({"source_language": 3}, {}, "name the language 3"),
        ({}, {"eos_token_id": EOS}, "has decoder_start_token_id=None"),
        ({}, {**DECODING, "decoder_start_token_id": 10_000}, "has decoder_start_token_id=10000"),
    ],
)
def test_settings_that_make_no_sense(
    tmp_path: Path, settings: dict[str, Any], decoding: dict[str, Any], message: str
) -> None:
    bundle = fake_translation_bundle(tmp_path, settings=settings, decoding=decoding or None)
    nothing: Any = (object(), object())
    with pytest.raises(BundleError, match=message):
        Translator(bundle, sessions=nothing)
