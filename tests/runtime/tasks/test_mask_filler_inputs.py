"""Texts, targets and options that cannot be filled in are refused by name; strange ones that can be are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import edgebert_runtime
from edgebert_runtime import Bundle, MaskFiller
from edgebert_runtime.errors import BundleError, InputError, TokenizerError
from tests.runtime.conftest import Logits, Tiny, changed
from tests.support.tiny import VOCAB as VOCABULARY

TASK = "fill-mask"  # of the fixture case


@pytest.fixture(scope="module")
def engine(case: Tiny) -> MaskFiller:
    return MaskFiller(Bundle.open(case.bundle))


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ("cat", r"targets='cat' is not a list of tokens; write targets=\[token\]"),
        (7, "targets=7 is not a list of tokens"),
        ({"cat": 1}, "targets={'cat': 1} is not a list"),
        ([], "leaves nothing to choose"),
        (["cat", "farms"], "targets: 'farms' is not one token; it would be split into farm, ##s"),
        (["日本"], "would be split into 日, 本"),
        (["ж"], r"'ж' is not one token; it would be split into \[UNK\]"),
        ([""], "'' is not one token; it would be split into nothing"),
        (["\ud800"], "a target has the lone surrogate"),
        ([1000], "targets: id=1000 is not between 0 and"),
        ([-1], "targets: id=-1"),
        ([True], "targets: id=True is not a whole number"),
        ([1.5], "targets: id=1.5 is not a whole number"),
        ([None], "targets: id=None"),
    ],
)
def test_bad_targets_are_named(engine: MaskFiller, targets: Any, message: str) -> None:
    for call in (engine.fill, engine.stream):
        with pytest.raises(InputError, match=message):
            call(["the [MASK]"], targets=targets)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("the [MASK]", r"one str was given.*fill\(\[text\]\)"),
        (["the [MASK]", "the cat"], r"text 1 has no \[MASK\]; write it where a word is to be filled in"),
        ([""], r"text 0 has no \[MASK\]"),
        (["[mask]"], r"text 0 has no \[MASK\]"),
        (["<mask>"], r"text 0 has no \[MASK\]"),
        ([None], "text 0 is NoneType"),
        (["\ud800 [MASK]"], "text 0 has the lone surrogate"),
        ([[4] * 41], "41 token ids, the limit is 40"),
    ],
)
def test_bad_texts_are_named(engine: MaskFiller, texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.fill(texts)


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True])
@pytest.mark.parametrize("name", ["top_k", "max_tokens", "max_batch_tokens"])
def test_bad_options_are_named(engine: MaskFiller, name: str, value: Any) -> None:
    for call in (engine.fill, engine.stream):
        with pytest.raises(InputError, match=f"{name}={value!r}"):
            call(["[MASK]"], **{name: value})
    with pytest.raises(InputError, match=f"top_k={len(VOCABULARY) + 1} is not between 1 and {len(VOCABULARY)}"):
        engine.fill(["[MASK]"], top_k=len(VOCABULARY) + 1)


def test_strange_texts(engine: MaskFiller) -> None:
    strange = ["", " ", "\n", "\0", "\u0301" * 50, "\u202e\u200d\ufeff", "👩‍👩‍👧", "שלום", "x" * 100_000, "[SEP]"]
    texts = [f"{text}[MASK]{text}" for text in strange]
    for text, results in zip(strange, engine.fill(texts), strict=True):
        for item in results[0]:
            assert item.text.endswith(text)
            assert 0 <= item.start <= item.end == len(item.text) - len(text)
    damaged, repaired = engine.fill(["\ud800 [MASK]", "\ufffd [MASK]"], encoding_errors="replace")
    assert [item.text for item in damaged[0]] == [item.text for item in repaired[0]]


def test_nothing_in_nothing_out(engine: MaskFiller) -> None:
    assert engine.fill([]) == engine.fill(iter(())) == list(engine.stream([])) == []


@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        (None, BundleError, "setting mask_token=None"),
        (7, BundleError, "setting mask_token=7"),
        ("[GAP]", TokenizerError, r"no token '\[GAP\]'"),
    ],
)
def test_settings_that_do_not_fit(case: Tiny, tmp_path: Path, setting: Any, error: Any, message: str) -> None:
    folder = changed(case.bundle, tmp_path / "bundle", change=lambda data: data["settings"].update(mask_token=setting))
    with pytest.raises(error, match=message):
        edgebert_runtime.load(folder)


def test_other_bundles_are_refused(case: Tiny, engine: MaskFiller, tmp_path: Path) -> None:
    manifest = engine.bundle.manifest
    data = json.loads(manifest.to_json())
    data["graphs"]["model"]["inputs"].pop()
    session = Logits(lambda row: row)
    with pytest.raises(BundleError, match="no input logits_indices"):
        MaskFiller(Bundle(case.bundle, type(manifest).from_json(json.dumps(data))), session=session)
    data = json.loads(manifest.to_json())
    data["graphs"]["model"]["outputs"][0]["shape"][-1] = 9
    with pytest.raises(BundleError, match=f"9 outputs for {len(VOCABULARY)} tokens"):
        MaskFiller(Bundle(case.bundle, type(manifest).from_json(json.dumps(data))), session=session)
