"""Token ids of texts, by the bundle's ``tokenizer.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from edgebert_runtime import strict_json
from edgebert_runtime.errors import EdgebertError, InputError, TokenizerError
from edgebert_runtime.inputs.special_tokens import detect_template, leaking_tokens, without_tokens
from edgebert_runtime.inputs.unknown_text import add_outside_token, lacks_unknown_token, outside_error

TOKENIZER_NAME = "tokenizer.json"
# If this token follows the model's vocabulary, all tokens after it are pieces of unknown text.
UNKNOWN_PIECES = "<unknown pieces>"


class Encoded(NamedTuple):
    """The ids of one text with special tokens, and their number without truncation."""

    ids: list[int]
    full_length: int


class ModelTokenizer:
    """A tokenizer whose input is text only, and whose ids are all in the model's vocabulary.

    ``single`` and ``pair`` are the special tokens around one text and two. ``unknown`` is the id for text outside the
    vocabulary, None if there is no such text. Ids from ``vocab_end`` on, if it is not None, stand for such text too.
    A text with the id ``outside``, if it is not None, is refused. Threads may share a tokenizer: nothing that they see
    changes after loading.
    """

    def __init__(
        self,
        file: Path,
        inner: Any,
        unknown: int | None = None,
        vocab_end: int | None = None,
        outside: int | None = None,
    ) -> None:
        self.file = file
        self.inner = inner
        self.unknown = unknown
        self.vocab_end = vocab_end
        self.outside = outside
        try:
            self.single, self.pair = detect_template(inner, 1), detect_template(inner, 2)
            self.leaking = leaking_tokens(inner) - {unknown}
        except BaseException as error:
            raise tokenizer_error(file, error) from error
        self.num_special_tokens = self.single.num_special_tokens

    @classmethod
    def load(cls, file: Path, vocab_size: int, special_token: str | None = None) -> ModelTokenizer:
        """Load ``file`` for a model whose ids are below ``vocab_size``.

        ``special_token`` is the one special token that texts may contain, such as a mask token.

        Raises:
            TokenizerError: if the file is damaged, or has an id that the model does not have.
        """
        try:
            data = file.read_text(encoding="utf-8")
            description = strict_json.loads(data)
        except (OSError, ValueError, RecursionError) as error:
            raise TokenizerError(f"{file} is not readable JSON ({error}); export the bundle again") from error
        if not isinstance(description, dict) or not isinstance(description.get("model"), dict):
            raise TokenizerError(f"{file} is not a tokenizer.json: it has no model; export the bundle again")
        outside = vocab_size if lacks_unknown_token(description) else None
        read = description if outside is None else add_outside_token(description, outside)
        if special_token is not None:
            inner = allow_special_token(file, read, special_token)
        else:
            inner = build(file, data if outside is None else json.dumps(read))
        check_ids(file, description, inner, vocab_size)
        vocab_end = vocab_size if inner.token_to_id(UNKNOWN_PIECES) == vocab_size else None
        unknown = unknown_id(description, inner) if outside is None else None
        return cls(file, inner, unknown, vocab_end, outside)

    @cached_property
    def with_special_tokens(self) -> Any:
        """The ``tokenizers.Tokenizer`` that reads special tokens in a text as tokens, made when it is asked for."""
        inner = build(self.file, self.inner.to_str())
        inner.encode_special_tokens = False
        return inner

    @cached_property
    def without_special_tokens(self) -> Any:
        """The ``tokenizers.Tokenizer`` for texts in which ``inner`` finds special tokens though it should not."""
        return build(self.file, without_tokens(self.inner.to_str(), self.leaking))

    def check_max_tokens(self, max_tokens: int, num_special_tokens: int | None = None) -> None:
        """Make sure that special tokens leave room for text; ``None`` stands for those of one text.

        Raises:
            InputError: if special tokens alone fill it.
        """
        count = self.num_special_tokens if num_special_tokens is None else num_special_tokens
        if max_tokens <= count:
            raise InputError(
                f"leaves no room beside {count} special tokens; the least is {count + 1}",
                option="max_tokens",
                value=max_tokens,
            )

    def content(self, text: str, special_tokens: bool = False) -> Any:
        """Return the ``tokenizers.Encoding`` of a text without those around it.

        With ``special_tokens`` those in the text are read as tokens, otherwise as the characters that they are.

        Raises:
            InputError: if the text has characters that the tokenizer has no token for.
            TokenizerError: if the text cannot be tokenized.
        """
        try:
            inner = self.with_special_tokens if special_tokens else self.inner
            encoding = inner.encode(text, add_special_tokens=False)
            if self.leaking and not special_tokens and not self.leaking.isdisjoint(encoding.ids):
                encoding = self.without_special_tokens.encode(text, add_special_tokens=False)
        except BaseException as error:
            raise tokenizer_error(self.file, error) from error
        if self.outside is not None and self.outside in encoding.ids:
            raise outside_error(text, encoding, self.outside)
        return encoding

    def takes(self, text: str) -> bool:
        """Say whether the tokenizer has tokens for a text and all characters in it."""
        try:
            return bool(self.content(text).ids)
        except InputError:
            return False

    def ids(self, text: str, special_tokens: bool = False) -> list[int]:
        """Return the ids of a text as :meth:`content` does."""
        return self.in_vocabulary(self.content(text, special_tokens).ids)

    def in_vocabulary(self, ids: list[int]) -> list[int]:
        """Return ids with that of the unknown token in the place of those that stand for it."""
        if self.vocab_end is None or self.unknown is None or max(ids, default=0) < self.vocab_end:
            return ids
        return [index if index < self.vocab_end else self.unknown for index in ids]

    def encode(self, texts: Iterable[str], max_tokens: int) -> list[Encoded]:
        """Return the ids of each text, truncated to ``max_tokens``.

        Raises:
            TokenizerError: if a text cannot be tokenized.
        """
        # One at a time: encode_batch starts threads that cannot be forked, and warns on stderr in the child.
        return [self.encode_one(text, max_tokens) for text in texts]

    def encode_one(self, text: str, max_tokens: int) -> Encoded:
        """Return the ids of one text."""
        return self.truncated(self.ids(text), max_tokens)

    def truncated(self, ids: list[int], max_tokens: int, cuts_left: bool = False) -> Encoded:
        """Put special tokens around the ids of one text, of which the first or last are left if they are too many."""
        room = max(0, max_tokens - self.num_special_tokens)
        part = ids[max(0, len(ids) - room) :] if cuts_left else ids[:room]
        return Encoded(self.single.join(part).ids, len(ids) + self.num_special_tokens)


def build(file: Path, data: str) -> Any:
    """Return a tokenizers.Tokenizer without the truncation and padding of the file.

    The file holds the last settings of its author, often 128 tokens with padding; here callers decide.
    """
    import tokenizers

    try:
        inner = tokenizers.Tokenizer.from_str(data)
        inner.no_padding()
        inner.no_truncation()
        # "[SEP]" in a text is five characters, not the token: texts come from strangers.
        inner.encode_special_tokens = True
        inner.encode("")
    except BaseException as error:
        raise tokenizer_error(file, error) from error
    return inner


def allow_special_token(file: Path, description: dict[str, Any], token: str) -> Any:
    """Return a tokenizers.Tokenizer that recognizes ``token`` in texts, with the white space that the file adds to it.

    In texts, tokenizers ignores tokens flagged as special, and no others.

    Raises:
        TokenizerError: if it has no such token.
    """
    added = description.get("added_tokens")
    listed = added if isinstance(added, list) else []
    entries = [entry for entry in listed if isinstance(entry, dict) and entry.get("content") == token]
    for entry in entries:
        entry["special"] = False
    inner = build(file, json.dumps(description))
    if not entries and inner.token_to_id(token) is not None:
        import tokenizers

        inner.add_tokens([tokenizers.AddedToken(token, normalized=False)])
    index = inner.token_to_id(token)
    if index is None or inner.encode(token, add_special_tokens=False).ids != [index]:
        raise TokenizerError(f"{file} has no token {token!r:.60}; export the bundle again")
    return inner


def tokenizer_error(file: Path, error: BaseException) -> BaseException:
    """Return the error to raise for one of tokenizers: Exception, or BaseException for a panic in Rust."""
    if isinstance(error, EdgebertError):
        return error
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        return TokenizerError(f"{file} does not work ({' '.join(str(error).split())[:200]}); export the bundle again")
    return error


def check_ids(file: Path, description: dict[str, Any], inner: Any, vocab_size: int) -> None:
    """Compare every id of the tokenizer with the model's vocabulary.

    Raises:
        TokenizerError: naming the first token that the model does not have.
    """
    for token, index in reachable_ids(description, inner, vocab_size):
        if type(index) is not int or not 0 <= index < vocab_size:
            raise TokenizerError(
                f"{file} gives token {token!r:.60} the id {index!r:.30}, the model has 0 to {vocab_size - 1}; "
                "it belongs to another model"
            )


def unknown_id(description: dict[str, Any], inner: Any) -> Any:
    """Return the id of the token for unknown text, None if there is none."""
    token = description["model"].get("unk_token")
    return description["model"].get("unk_id") if token is None else inner.token_to_id(token)


def reachable_ids(description: dict[str, Any], inner: Any, vocab_size: int) -> Iterator[tuple[str, Any]]:
    """Yield token and id of the vocabulary's largest id, and of each added and post-processor token.

    If unknown pieces follow the vocabulary, the unknown token takes the place of the largest id.
    """
    vocab = description["model"].get("vocab")
    if inner.token_to_id(UNKNOWN_PIECES) == vocab_size:
        vocab = None
        yield "of unknown text", unknown_id(description, inner)
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
