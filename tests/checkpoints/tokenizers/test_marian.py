"""Tokenizers built from the files of Marian give what MarianTokenizer of transformers gives."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import transformers
from hypothesis import assume, given, settings

from edgebert_runtime.errors import TokenizerError
from edgebert_runtime.inputs.language_tokens import Direction, Languages
from edgebert_runtime.inputs.tokenizer import ModelTokenizer
from tests.checkpoints.tokenizers.marian_folders import EASTERN, LANGUAGES, SPACE, read, runtime, size, write_folder
from tests.checkpoints.tokenizers.spm_models import LATIN, equal, lines, odd_lines, processor, texts

FOLDERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pieces missing": {"dropped": 0.12},
    "languages": {"languages": LANGUAGES, "dropped": 0.05, "rules": "nmt_nfkc"},
    "no prefix": {"languages": LANGUAGES, "add_dummy_prefix": False},
    "spaces kept": {"languages": LANGUAGES, "remove_extra_whitespaces": False},
    "separate": {"separate": True, "dropped": 0.05},
    "merges": {"kind": "bpe", "languages": LANGUAGES, "dropped": 0.1},
    "bytes": {"byte_fallback": True, "languages": LANGUAGES, "dropped": 0.02, "vocab_size": 400},
    "merges of bytes": {"kind": "bpe", "byte_fallback": True, "languages": LANGUAGES, "vocab_size": 420},
}
starts = st.sampled_from(["", "", *LANGUAGES, ">>fra", "<<", " >>deu<<", ">>fra<< ", ">>aa<<\u2581", ">>deu<<\u0338"])
odd_texts = st.tuples(starts, texts).map("".join)


class Both:
    """Our tokenizers of a folder, as the runtime has them, and that of transformers, which takes texts as texts."""

    def __init__(self, folder: Path) -> None:
        actual = read(folder)
        self.languages = actual.languages
        target = "target_vocab.json" if (folder / "target_vocab.json").exists() else "vocab.json"
        sides = ((actual.source, "vocab.json"), (actual.target or actual.source, target))
        self.ours = [runtime(folder, file, size(folder, name)) for file, name in sides]
        self.pieces = [processor((folder / name).read_bytes()) for name in ("source.spm", "target.spm")]
        self.separate, self.size = target != "vocab.json", size(folder, target) - SPACE
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*sacremoses")  # MarianTokenizer mentions it and does without
            self.theirs = transformers.MarianTokenizer.from_pretrained(folder, split_special_tokens=True)

    def check(self, text: str) -> None:
        """Compare the ids of a text on both sides, and the text of these."""
        for side, switch in enumerate((self.theirs._switch_to_input_mode, self.theirs._switch_to_target_mode)):
            switch()
            actual = self.ours[side].single.join(self.ours[side].ids(text)).ids
            assert actual == self.theirs.encode(text) or self.is_matter_of_rounding(side, text), (side, text)
        self.check_text(actual)

    def is_matter_of_rounding(self, side: int, text: str) -> bool:
        """Say whether the pieces found in a text are as good as those that SentencePiece finds."""
        pieces, tokens = self.pieces[side], self.ours[side].content(text).tokens
        code = f"{text.partition('<<')[0]}<<"
        if code[2:-2] in self.languages:
            text, tokens = text[len(code) :], tokens[1:]
        ids = [pieces.piece_to_id(token.strip("\ufdd0").replace(" ", "<")) for token in tokens]
        return equal(pieces, ids, pieces.encode(text))

    def check_text(self, ids: list[int]) -> None:
        """Compare the texts of ids of the target."""
        self.theirs._switch_to_input_mode()
        ours = self.ours[1].inner.decode(ids, skip_special_tokens=True)
        theirs = self.theirs.decode(ids, skip_special_tokens=True)
        assert ours == theirs or "\ufffd" in theirs


@pytest.fixture(scope="module", params=FOLDERS)
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Return both tokenizers of a folder."""
    return Both(write_folder(tmp_path_factory.mktemp("marian"), **FOLDERS[request.param]))


def differs(text: str, languages: dict[str, int]) -> bool:
    """Say whether MarianTokenizer may take for a token what is text here.

    Whatever a text begins with is a language there if it is written like one, unknown or not. And where the pieces know
    none of its letters, a special token or a language is one there wherever it stands.
    """
    code, actual, tail = text.partition("<<")
    if text.startswith(">>") and actual:
        if code[2:] not in languages:
            return True
        text = tail
    return any(token in text for token in ("</s>", "<unk>", *(f">>{code}<<" for code in languages)))


def test_ids_and_texts_are_those_of_transformers(sides: Both) -> None:
    for start in ["", *(f">>{code}<<" for code in sides.languages)]:
        for text in [*lines(count=60), *lines(f"{LATIN} {EASTERN}".split(), 60, 3), *odd_lines(120)]:
            if not differs(text, sides.languages):
                sides.check(f"{start}{text}")


@settings(max_examples=30, deadline=None)
@given(text=odd_texts)
def test_any_text_gives_the_same(sides: Both, text: str) -> None:
    assume(not differs(text, sides.languages))
    sides.check(text)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_ids_give_the_same_text(sides: Both, data: st.DataObject) -> None:
    # With separate vocabularies MarianTokenizer looks for the special tokens of targets among those of sources.
    sides.check_text(data.draw(st.lists(st.integers(2, sides.size - 1 - sides.separate), max_size=12)))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Return both tokenizers of a model that can be told languages, and whose vocabulary lacks a sign."""
    folder = write_folder(tmp_path_factory.mktemp("told"), languages=LANGUAGES)
    vocabulary = {token: index for token, index in json.loads((folder / "vocab.json").read_text()).items()}
    remaining = {token: index for token, index in vocabulary.items() if "." not in token}
    (folder / "vocab.json").write_text(json.dumps(remaining))
    return Both(folder)


def test_languages_count_at_the_start_only(told: Both) -> None:
    ids = told.ours[0].ids
    fra, deu = told.languages["fra"], told.languages["deu"]
    assert list(told.languages) == ["fra", "deu", "cmn_Hans", "aa"]
    assert ids(">>fra<< the cat") == ids(">>fra<<the cat") == [fra, *ids("the cat")]
    for text in ("the >>fra<< cat", " >>fra<< the cat", ">>>fra<< the", ">>fra< the", ">>FRA<< the", ">>xyz<< the"):
        assert not {fra, deu} & {*ids(text)}
    assert ids(">>fra<<>>deu<< cat").count(deu) == 0
    # Where MarianTokenizer has the unknown token for a language that it does not know, its letters are text here.
    assert told.theirs.encode(">>xyz<< the cat")[:2] == [1, ids("the")[0]]
    assert len(ids(">>xyz<< the cat")) > 3


def test_pieces_that_the_vocabulary_lacks_are_unknown_each(told: Both) -> None:
    ids = told.ours[0].ids
    assert told.theirs.encode("... ...", add_special_tokens=False) == ids("... ...") == [1, 1]
    assert min(told.ours[0].content("... ...").ids) > told.size + SPACE
    assert told.ours[0].encode_one("a ...", 9).ids == [*ids("a"), 1, 0]


def test_unknown_text_is_looked_up_as_a_whole(told: Both) -> None:
    ids, token = told.ours[0].ids, told.ours[1].inner.token_to_id
    assert ids("я")[1:] == [token("я")]  # no piece of source.spm, but one of target.spm
    assert ids("яя")[1:] == ids("☃")[1:] == [1]
    assert ids("я the я") == [*ids("я"), *ids("the"), *ids("я")]


def test_what_is_told_of_a_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_folder(tmp_path, languages=LANGUAGES, dropped=0.1)
    config = {"tokenizer_class": "MarianTokenizer", "target_lang": "deu", "source_lang": "eng", "model_max_length": 77}
    config |= {"clean_up_tokenization_spaces": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with caplog.at_level(logging.INFO, "edgebert"):
        actual = read(folder)
    assert (actual.language_style, actual.source_language, actual.target_language) == ("token", "", "deu")
    assert (actual.source.model_max_length, actual.source.mask_token) == (77, None)
    assert "pieces of source.spm are not in vocab.json: they are unknown" in caplog.text
    (spaces,) = actual.source.notes
    assert "tokenizer_config.json: clean_up_tokenization_spaces=true: transformers removes spaces" in spaces
    assert actual.target is not None
    assert actual.target.text != actual.source.text


def test_one_tokenizer_serves_both_sides_with_the_same_pieces(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, joint=True)
    assert (folder / "source.spm").read_bytes() == (folder / "target.spm").read_bytes()
    actual = read(folder)
    assert actual.target is None
    assert actual.language_style == ""
    assert actual.languages == {}
    Both(folder).check("Москва и я, the cat")


def test_runtime_takes_pieces_beyond_the_vocabulary_for_unknown_only_where_they_are_said_to_be(told: Both) -> None:
    file = told.ours[0].file
    for vocab_size in (told.size + SPACE + 1, told.size + SPACE - 1):
        with pytest.raises(TokenizerError, match="it belongs to another model"):
            ModelTokenizer.load(file, vocab_size)


def test_a_second_language_is_text(told: Both) -> None:
    languages = Languages("token", told.languages, "", "")
    for text in (">>fra<<>>deu<< the cat", ">>fra<< >>deu<<the cat", ">>fra<< >>xyz<< cat"):
        content, direction = languages.named(text, 0, Direction())
        actual = languages.add_special_tokens(told.ours[0].ids(content), direction, told.ours[0].single)
        assert actual == told.theirs.encode(text), text


def test_special_tokens_are_read_as_transformers_reads_them(told: Both) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*sacremoses")
        theirs = transformers.MarianTokenizer.from_pretrained(told.theirs.name_or_path)
    for text in ("the</s>cat", "</s>", "the <pad> cat", "a <unk> b", "</s></s> the", "the cat"):
        actual = told.ours[0].single.join(told.ours[0].ids(text, special_tokens=True)).ids
        assert actual == theirs.encode(text), text
