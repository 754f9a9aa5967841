"""Text becomes the ids that tokenizers gives, cut where asked, and every id is known to the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from edgebert_runtime.errors import InputError, TokenizerError
from edgebert_runtime.inputs.tokenizer import ModelTokenizer, tokenizer_error
from tests.support.tiny import VOCAB

SIZE = len(VOCAB)


@pytest.fixture(scope="module")
def file(tokenizer_json: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(tokenizer_json, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer(file: Path) -> ModelTokenizer:
    return ModelTokenizer.load(file, SIZE)


def expected(file: Path, text: str, max_tokens: int | None) -> list[int]:
    plain = tokenizers.Tokenizer.from_file(str(file))
    plain.encode_special_tokens = True
    plain.no_padding()
    plain.no_truncation()
    if max_tokens:
        plain.enable_truncation(max_tokens)
    ids: list[int] = plain.encode(text).ids
    return ids


def test_the_vocabulary_is_as_large_as_assumed(file: Path) -> None:
    assert len(json.loads(file.read_text())["model"]["vocab"]) == SIZE


@given(st.text(alphabet="thecatsn .,[]SEPé日\0\n", max_size=60), st.integers(3, 40))
@example("the [SEP] cat", 40)
@settings(max_examples=60, deadline=None)
def test_equals_tokenizers_with_truncation(file: Path, tokenizer: ModelTokenizer, text: str, max_tokens: int) -> None:
    (encoded,) = tokenizer.encode([text], max_tokens)
    assert encoded.ids == expected(file, text, max_tokens)
    assert encoded.full_length == len(expected(file, text, None))


def test_the_preset_in_the_file_is_gone(tokenizer: ModelTokenizer) -> None:
    short, long = tokenizer.encode(["the", "the cat sat on a mat and the dog ran"], 40)
    assert (len(short.ids), len(long.ids)) == (3, 12)


def test_threads_with_different_limits_do_not_disturb_each_other(tokenizer: ModelTokenizer) -> None:
    texts = ["the cat sat on a mat and the dog ran in rain"] * 50

    def lengths(limit: int) -> set[int]:
        return {len(encoded.ids) for encoded in tokenizer.encode(texts, limit)}

    with ThreadPoolExecutor(8) as pool:
        limits = [3, 5, 8, 13] * 20
        assert list(pool.map(lengths, limits)) == [{limit} for limit in limits]


def test_limits_need_room_for_text(tokenizer: ModelTokenizer) -> None:
    tokenizer.check_max_tokens(3)
    with pytest.raises(InputError, match="max_tokens=2 leaves no room beside 2 special tokens; the least is 3"):
        tokenizer.check_max_tokens(2)


Change = Callable[[dict[str, Any]], None]


def load_changed(file: Path, tmp_path: Path, change: Change, vocab_size: int = SIZE) -> ModelTokenizer:
    data = json.loads(file.read_text())
    change(data)
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    return ModelTokenizer.load(tmp_path / "tokenizer.json", vocab_size)


def vocabulary(token: str, index: Any) -> Change:
    return lambda data: data["model"]["vocab"].update({token: index})


def template(ids: list[Any]) -> Change:
    return lambda data: data["post_processor"]["special_tokens"]["[SEP]"].update(ids=ids)


def added(index: int) -> Change:
    entry: dict[str, Any] = {
        "special": False,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": True,
    }
    return lambda data: data["added_tokens"].append({"id": index, "content": "<new>", **entry})


def bert_processor(data: dict[str, Any]) -> None:
    data["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 4_000_000], "cls": ["[CLS]", 2]}


def nested(data: dict[str, Any]) -> None:
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    inner: dict[str, Any] = {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 900]}
    inner |= {"trim_offsets": True, "add_prefix_space": True}
    data["post_processor"] = {"type": "Sequence", "processors": [byte_level, inner]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (vocabulary("zoo", SIZE), f"gives token 'zoo' the id {SIZE}, the model has 0 to {SIZE - 1}"),
        (vocabulary("zoo", 2**31), "the id 2147483648"),
        (template([3, 4_000_000_000]), "the id 4000000000"),
        (added(SIZE), f"the id {SIZE}"),
        (bert_processor, "the id 4000000"),
        (nested, "the id 900"),
    ],
)
def test_ids_that_the_model_does_not_have(file: Path, tmp_path: Path, change: Change, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        load_changed(file, tmp_path, change)


def test_a_smaller_model(file: Path) -> None:
    with pytest.raises(TokenizerError, match="belongs to another model"):
        ModelTokenizer.load(file, SIZE - 1)


@pytest.mark.parametrize(
    "change",
    [
        vocabulary("zoo", -1),
        vocabulary("zoo", "5"),
        vocabulary("zoo", None),
        vocabulary("zoo", 5.5),
        vocabulary("zoo", 2**40),
        template([]),
        template(["x"]),
        lambda data: data["model"].update(vocab=None),
        lambda data: data["model"].update(vocab=7),
        lambda data: data["model"].update(type="Future"),
        lambda data: data["model"].update(unk_token="[NONE]"),
        lambda data: data.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}),
        lambda data: data.update(version="99.0"),
        lambda data: data.update(added_tokens=7),
    ],
)
def test_changes_that_break_a_tokenizer(file: Path, tmp_path: Path, change: Change) -> None:
    try:
        loaded = load_changed(file, tmp_path, change)
    except TokenizerError:
        return
    (encoded,) = loaded.encode(["the cat [SEP] zoo"], 40)
    assert encoded.ids
    assert all(0 <= index < SIZE for index in encoded.ids)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"{}", b'{"model": 1}', b"\xff\xfe", b"[" * 100_000])
def test_files_that_are_no_tokenizer(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        ModelTokenizer.load(tmp_path / "tokenizer.json", SIZE)


@pytest.mark.parametrize("content", [b"{", b'{"model": 1}', b'{"model": {}, "added_tokens": 7}', b'{"model": {}}'])
def test_files_that_are_no_tokenizer_with_a_mask(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        ModelTokenizer.load(tmp_path / "tokenizer.json", SIZE, "[MASK]")


def test_one_special_token_can_be_recognised(file: Path, tokenizer: ModelTokenizer) -> None:
    text = "the [MASK] [SEP] [mask]"
    recognising = ModelTokenizer.load(file, SIZE, "[MASK]")
    mask, sep = VOCAB.index("[MASK]"), VOCAB.index("[SEP]")
    plain, result = tokenizer.content(text).ids, recognising.content(text).ids
    assert (plain.count(mask), result.count(mask)) == (0, 1)
    assert sep not in plain + result
    assert result == [VOCAB.index("the"), mask, *tokenizer.content("[SEP] [mask]").ids]
    assert recognising.single == tokenizer.single
    with pytest.raises(TokenizerError, match="has no token '<mask>'"):
        ModelTokenizer.load(file, SIZE, "<mask>")


def test_the_unknown_token_is_known(tokenizer: ModelTokenizer, tmp_path: Path) -> None:
    assert tokenizer.unknown == VOCAB.index("[UNK]")
    unigram = saved(tmp_path, models.Unigram([("a", -2.0), ("<unk>", -1.0)], unk_id=1))
    assert ModelTokenizer.load(unigram, 2).unknown == 1
    alphabet = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    byte_level = saved(tmp_path, models.BPE(alphabet, []), pre_tokenizers.ByteLevel())
    assert ModelTokenizer.load(byte_level, 256).unknown is None


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="is not readable"):
        ModelTokenizer.load(tmp_path / "tokenizer.json", SIZE)


def saved(tmp_path: Path, model: Any, pre_tokenizer: Any = None) -> Path:
    tokenizer = tokenizers.Tokenizer(model)
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


NO_UNKNOWN: dict[str, tuple[Any, Any]] = {
    "BPE": (models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]), pre_tokenizers.Whitespace()),
    "WordPiece": (models.WordPiece({"a": 0, "b": 1, "##b": 2}, unk_token="[UNK]"), pre_tokenizers.Whitespace()),
    "WordLevel": (models.WordLevel({"a": 0, "b": 1, "ab": 2}, unk_token="[UNK]"), pre_tokenizers.Whitespace()),
    "Unigram": (models.Unigram([("a", -1.0), ("b", -1.0), ("ab", -1.5)]), None),
}


@pytest.mark.parametrize("kind", NO_UNKNOWN)
def test_text_may_not_vanish(kind: str, tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer(NO_UNKNOWN[kind][0])
    if NO_UNKNOWN[kind][1] is not None:
        inner.pre_tokenizer = NO_UNKNOWN[kind][1]
    inner.add_special_tokens(["<s>"])
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 3)])
    inner.save(str(tmp_path / "tokenizer.json"))
    loaded = ModelTokenizer.load(tmp_path / "tokenizer.json", 4)
    for text in ("a", "ab", "b"):
        assert loaded.encode_one(text, 9).ids == inner.encode(text).ids
    assert loaded.ids("<s>a", special_tokens=True) == [3, 0]
    for text, place in (
        ("abc", r"'(abc|c)' at character [02]"),
        ("a \u65e5 b", "'\u65e5' at character 2"),
        ("<s>", "'<"),
    ):
        with pytest.raises(InputError, match=place):
            loaded.encode_one(text, 9)


def test_byte_level_and_unigram_models_load(tmp_path: Path) -> None:
    alphabet = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    loaded = ModelTokenizer.load(saved(tmp_path, models.BPE(alphabet, []), pre_tokenizers.ByteLevel()), 256)
    assert len(loaded.encode(["日"], 40)[0].ids) == 4  # a space and three bytes
    file = saved(tmp_path, models.Unigram([("<unk>", -1.0), ("a", -2.0)], unk_id=0))
    assert ModelTokenizer.load(file, 2).encode(["ab"], 40)[0].ids == [1, 0]
    with pytest.raises(TokenizerError, match="'a'"):
        ModelTokenizer.load(file, 1)


def test_a_tokenizer_without_specials_truncates_to_the_limit(tmp_path: Path) -> None:
    model = models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>")
    loaded = ModelTokenizer.load(saved(tmp_path, model, pre_tokenizers.Whitespace()), 2)
    assert loaded.num_special_tokens == 0
    assert loaded.encode(["a a a", "", "a"], 1) == [([1], 3), ([], 0), ([1], 1)]


def test_panics_are_tokenizer_errors_and_interrupts_are_not() -> None:
    panic = type("PanicException", (BaseException,), {})("index out of bounds\nat 5")
    result = tokenizer_error(Path("t.json"), panic)
    assert isinstance(result, TokenizerError)
    assert "index out of bounds at 5" in str(result)
    interrupt = KeyboardInterrupt()
    assert tokenizer_error(Path("t.json"), interrupt) is interrupt
    error = InputError("x")
    assert tokenizer_error(Path("t.json"), error) is error


def test_processors_of_each_kind_are_scanned(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "</s>": 2}, unk_token="<unk>"))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 3))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert ModelTokenizer.load(tmp_path / "tokenizer.json", 4).num_special_tokens == 2
    with pytest.raises(TokenizerError, match="'<s>' the id 3"):
        ModelTokenizer.load(tmp_path / "tokenizer.json", 3)
