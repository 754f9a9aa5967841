"""Turn text into token ids with the bundle's ``tokenizer.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from edgebert_runtime.errors import EdgebertError, InputError, TokenizerError

TOKENIZER_NAME = "tokenizer.json"


class Encoded(NamedTuple):
    """The ids of one text, special tokens included, and how many there would be without truncation."""

    ids: list[int]
    full_length: int


class Tokenizer:
    """A tokenizer that treats its input as text only, and whose every id is known to be in the vocabulary.

    ``specials`` is the number of special tokens that each text gets. Safe to share between threads: nothing in it
    changes after loading.
    """

    def __init__(self, file: Path, inner: Any) -> None:
        self.file = file
        self.inner = inner
        self.specials: int = inner.num_special_tokens_to_add(False)

    @classmethod
    def load(cls, file: Path, vocab_size: int) -> Tokenizer:
        """Load ``file`` for a model whose ids are below ``vocab_size``.

        Raises:
            TokenizerError: if the file is damaged, or can emit an id that the model does not have.
        """
        try:
            data = file.read_text(encoding="utf-8")
            description = json.loads(data)
        except (OSError, ValueError, RecursionError) as error:
            raise TokenizerError(f"{file} is not readable JSON ({error}); export the bundle again") from error
        if not isinstance(description, dict) or not isinstance(description.get("model"), dict):
            raise TokenizerError(f"{file} is not a tokenizer.json: it has no model; export the bundle again")
        inner = build(file, data)
        check_ids(file, description, inner, vocab_size)
        check_unknown(file, description)
        return cls(file, inner)

    def check_max_tokens(self, max_tokens: int) -> None:
        """Make sure that ``max_tokens`` leaves room for text.

        Raises:
            InputError: if special tokens alone fill it.
        """
        if max_tokens <= self.specials:
            raise InputError(
                f"max_tokens={max_tokens} leaves no room beside {self.specials} special tokens; "
                f"the least is {self.specials + 1}"
            )

    def encode(self, texts: Iterable[str], max_tokens: int) -> list[Encoded]:
        """Return the ids of each text, with its end cut off where they are more than ``max_tokens``.

        Raises:
            TokenizerError: if a text cannot be tokenized.
        """
        try:
            # One at a time: encode_batch starts threads that cannot be forked, and warns on stderr in the child.
            return [self.encode_one(text, max_tokens) for text in texts]
        except BaseException as error:
            raise translate(self.file, error) from error

    def encode_one(self, text: str, max_tokens: int) -> Encoded:
        """Return the ids of one text; errors are those of tokenizers."""
        ids: list[int] = self.inner.encode(text).ids
        if len(ids) <= max_tokens:
            return Encoded(ids, len(ids))
        # Truncation set on the tokenizer would be shared by all threads, so only this encoding is cut.
        content = self.inner.encode(text, add_special_tokens=False)
        content.truncate(max(0, max_tokens - self.specials))
        return Encoded(self.inner.post_process(content).ids, len(ids))


def build(file: Path, data: str) -> Any:
    """Return a tokenizers.Tokenizer without the truncation and padding that the file may ask for.

    The file holds whatever its author last used (often 128 tokens, padded); length is the caller's affair here.
    """
    import tokenizers

    try:
        inner = tokenizers.Tokenizer.from_str(data)
        inner.no_padding()
        inner.no_truncation()
        # "[SEP]" in a text is the five characters, not the token: texts come from strangers.
        inner.encode_special_tokens = True
        inner.encode("")
    except BaseException as error:
        raise translate(file, error) from error
    return inner


def translate(file: Path, error: BaseException) -> BaseException:
    """Return what to raise for ``error``: tokenizers raises plain Exception, and for a panic in Rust BaseException."""
    if isinstance(error, EdgebertError):
        return error
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        return TokenizerError(f"{file} does not work ({' '.join(str(error).split())[:200]}); export the bundle again")
    return error


def check_ids(file: Path, description: dict[str, Any], inner: Any, vocab_size: int) -> None:
    """Compare every id that the tokenizer can emit with the model's vocabulary.

    Raises:
        TokenizerError: naming the first token that the model does not have.
    """
    for token, index in emitted(description, inner):
        if type(index) is not int or not 0 <= index < vocab_size:
            raise TokenizerError(
                f"{file} gives token {token!r:.60} the id {index!r:.30}, the model has 0 to {vocab_size - 1}; "
                "it belongs to another model"
            )


def emitted(description: dict[str, Any], inner: Any) -> Iterator[tuple[str, Any]]:
    """Yield the token of the largest id of the vocabulary, and every added and post-processor token with its id."""
    vocab = description["model"].get("vocab")
    if isinstance(vocab, dict) and vocab:
        try:
            yield max(vocab.items(), key=lambda item: item[1])
        except TypeError:
            yield next((item for item in vocab.items() if type(item[1]) is not int), ("", None))
    elif isinstance(vocab, list) and vocab:  # Unigram: pieces in the order of their ids
        yield str(vocab[-1]), len(vocab) - 1
    for index, token in inner.get_added_tokens_decoder().items():
        yield token.content, index
    yield from post_processor_ids(description.get("post_processor"))
    yield from (("of an empty text", index) for index in inner.encode("").ids)


def post_processor_ids(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tokens and ids that a post-processor adds, at any depth of nesting."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "ids" and isinstance(value, list):
                yield from ((str(part.get("id", "")), index) for index in value)
            elif key in ("sep", "cls") and isinstance(value, list) and len(value) == 2:
                yield str(value[0]), value[1]
            else:
                yield from post_processor_ids(value)
    elif isinstance(part, list):
        for value in part:
            yield from post_processor_ids(value)


def check_unknown(file: Path, description: dict[str, Any]) -> None:
    """Make sure that the tokenizer knows what to do with text outside its vocabulary.

    Without that, WordPiece and Unigram fail at the first such word, and BPE drops it without a sound.

    Raises:
        TokenizerError: if the unknown token is missing.
    """
    model = description["model"]
    kind, vocab, unknown = model.get("type"), model.get("vocab"), model.get("unk_token")
    if kind == "Unigram":
        complete = model.get("unk_id") is not None or bool(model.get("byte_fallback"))
    elif kind == "BPE" and unknown is None:
        steps = json.dumps([description.get("pre_tokenizer"), description.get("normalizer")])
        complete = bool(model.get("byte_fallback")) or '"ByteLevel"' in steps
    else:
        added = description.get("added_tokens") or []
        complete = unknown in (vocab or {}) or any(isinstance(t, dict) and t.get("content") == unknown for t in added)
    if not complete:
        raise TokenizerError(f"{file} has no token for unknown text (unk_token is {unknown!r:.40}); export again")
