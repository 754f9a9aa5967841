"""The public tokenizer counts what the model reads, and its offsets and pieces slice the text."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import edgebert_runtime
from edgebert_runtime import Embedder, Generator, Tokenizer, Translator
from edgebert_runtime.errors import InputError, LimitError
from tests.runtime.fakes import KINDS, fake_bundle

TEXTS = ["the cat sat on a mat", "", "  ", "naïve café 日本 👩‍👩‍👧 x\ud83d\ude00", "[SEP] the", "a\tb\nc" * 9]


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokens")
    return Tokenizer(fake_bundle(folder, "classify", {"logits": ("batch", 2)}, {}, KINDS[request.param]()))


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_those_of_the_library(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.tokenize(text, encoding_errors="replace")
    inner = tokenizer._encoders["source"].tokenizer.inner
    expected = inner.encode(text.encode("utf-16", "surrogatepass").decode("utf-16"))
    assert list(tokens.ids) == expected.ids
    assert tokenizer.count_tokens([text], encoding_errors="replace") == [len(tokens)]
    assert [bool(flag) for flag in expected.special_tokens_mask] == list(tokens.special)
    places = [span for span, special in zip(tokens.offsets, tokens.special, strict=True) if not special]
    assert all(0 <= start <= end <= len(text) for start, end in places)
    covered = {place for start, end in places for place in range(start, end)}
    assert text.isascii() <= (covered >= {place for place, char in enumerate(text) if not char.isspace()})


@pytest.mark.parametrize("limit", [6, 9, 20])
@pytest.mark.parametrize("overlap", [0, 2])
def test_pieces_fit_and_cover_the_text(tokenizer: Tokenizer, limit: int, overlap: int) -> None:
    text = "the cat sat  on a mat. hello world\tfoo, berlin paris naïve café " * 3
    pieces = tokenizer.split(text, limit, overlap)
    assert all(text[piece.start : piece.end] == piece.text for piece in pieces)
    assert tokenizer.count_tokens([piece.text for piece in pieces]) == [piece.num_tokens for piece in pieces]
    assert max(piece.num_tokens for piece in pieces) <= limit
    ends = [0, *(piece.end for piece in pieces)]
    for end, piece in zip(ends, pieces, strict=False):
        assert not text[end : piece.start].strip()
        assert overlap or piece.start >= end
    assert not text[ends[-1] :].strip()
    assert all(before.start < after.start for before, after in zip(pieces, pieces[1:], strict=False))


def test_a_character_is_never_split(tmp_path: Path) -> None:
    bundle = fake_bundle(tmp_path, "classify", {"logits": ("batch", 2)}, {}, KINDS["byte-level"]())
    with pytest.raises(
        LimitError, match=r"has '.' at character 2, which is \d tokens and cannot be split; raise max_tok"
    ):
        Tokenizer(bundle).split("a \U00013000 b", 3)


def test_counts_are_those_of_the_rows(task_bundle: Callable[[str], Path]) -> None:
    engine = Embedder.load(task_bundle("embed"))
    result = engine.embed_detailed(["the cat", "a mat"])
    assert engine.tokenizer.count_tokens(["the cat", "a mat"]) == result.token_counts.tolist()
    assert engine.tokenizer.count_tokens(["the cat " * 99]) == [200]  # before the cut
    assert engine.tokenizer.count_tokens(["a"], ["the cat"]) == [6]
    assert engine.tokenizer.count_tokens(["a"], prompt_text="the cat ") == [5]
    assert engine.tokenizer.count_tokens(["a [SEP]"], special_tokens=True) == [4]
    assert engine.tokenizer.decode(engine.tokenizer.tokenize("the cat").ids) == "the cat"
    with pytest.raises(InputError, match="there are fewer pairs than texts"):
        engine.tokenizer.count_tokens(["a", "b"], ["c"])
    with pytest.raises(InputError, match="text 1 is int, not str"):
        engine.tokenizer.count_tokens(["a", 3])  # type: ignore[list-item]


def test_prompts_and_translations_are_counted(
    task_bundle: Callable[[str], Path], translator_bundle: Callable[..., Path]
) -> None:
    generator = Generator.load(task_bundle("generate"))
    assert generator.tokenizer.count_tokens(["the cat"]) == [len(generator.score(["the cat"])[0].tokens)]
    assert generator.tokenizer.num_special_tokens == 0
    translator = Translator.load(translator_bundle("cpu"))
    (scored,) = translator.score([("the cat", "a mat")])
    assert translator.tokenizer.count_tokens(["a mat"], side="target") == [len(scored.tokens)]
    tokens = translator.tokenizer.tokenize("the cat")
    assert tokens.special[-1]
    assert translator.tokenizer.count_tokens(["the cat"]) == [len(tokens)]


def test_it_needs_no_engine(fp32_bundle: Path) -> None:
    program = (
        "import sys; from edgebert_runtime import Tokenizer; t = Tokenizer.load(sys.argv[1]); "
        "assert t.count_tokens(['the cat']) == [4]; assert 'onnxruntime' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(fp32_bundle)], check=True)


def test_threads_and_copies_share_it(fp32_bundle: Path) -> None:
    again: Tokenizer = pickle.loads(pickle.dumps(Tokenizer.load(fp32_bundle)))
    with ThreadPoolExecutor(8) as pool:
        assert set(map(tuple, pool.map(lambda _: again.count_tokens(["the cat", "a"]), range(64)))) == {(4, 3)}
    assert isinstance(edgebert_runtime.load(fp32_bundle).tokenizer, Tokenizer)
