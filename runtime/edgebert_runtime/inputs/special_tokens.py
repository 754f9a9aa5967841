"""The special tokens that a tokenizer puts around one text or two."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from edgebert_runtime.errors import TokenizerError
from edgebert_runtime.inputs.unknown_text import OUTSIDE

# The first of these that a tokenizer knows shows its special tokens.
PROBES = ("a", "0", "The", "C")


class EncodedInput(NamedTuple):
    """Token ids of one text or two with special tokens, and the token type (segment) of each."""

    ids: list[int]
    token_type_ids: list[int]


@dataclass(frozen=True)
class SpecialTokenTemplate:
    """The special tokens around one text or two, with their token types.

    ``special_tokens`` are those before, between and after the texts. ``token_type_ids`` are the types of the texts.
    """

    special_tokens: tuple[EncodedInput, ...]
    token_type_ids: tuple[int, ...]

    @property
    def num_special_tokens(self) -> int:
        """The number of special tokens."""
        return sum(len(special.ids) for special in self.special_tokens)

    def starts(self, *lengths: int) -> list[int]:
        """Return the position of the first token of each text, given the lengths of the texts."""
        positions, position = [], 0
        for special, length in zip(self.special_tokens, lengths, strict=False):
            positions.append(position + len(special.ids))
            position += len(special.ids) + length
        return positions

    def join(self, *texts: Sequence[int]) -> EncodedInput:
        """Put the special tokens around the ids of the texts."""
        ids, type_ids = list(self.special_tokens[0].ids), list(self.special_tokens[0].token_type_ids)
        for text, type_id, special in zip(texts, self.token_type_ids, self.special_tokens[1:], strict=True):
            ids += [*text, *special.ids]
            type_ids += [type_id] * len(text) + special.token_type_ids
        return EncodedInput(ids, type_ids)


def detect_template(inner: Any, texts: int) -> SpecialTokenTemplate:
    """Find the special tokens that a tokenizer puts around one text, or two.

    Raises:
        TokenizerError: if it does more than putting some before, between and after them.
    """
    encodings = ((text, inner.encode(text, add_special_tokens=False)) for text in PROBES)
    text, probe = next((pair for pair in encodings if pair[1].ids), ("", None))
    if probe is None:
        raise TokenizerError(f"the tokenizer gives no tokens for {', '.join(map(repr, PROBES))}; export again")
    encoding = inner.encode(text, text) if texts == 2 else inner.encode(text)
    specials, type_ids, order = [EncodedInput([], [])], [], []
    previous = None
    for index, type_id, sequence in zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True):
        if sequence is None:
            specials[-1].ids.append(index)
            specials[-1].token_type_ids.append(type_id)
        elif sequence != previous:
            type_ids.append(type_id)
            order.append(sequence)
            specials.append(EncodedInput([], []))
        previous = sequence
    template = SpecialTokenTemplate(tuple(specials), tuple(type_ids))
    if order != list(range(texts)) or template.join(*[probe.ids] * texts) != (encoding.ids, encoding.type_ids):
        raise TokenizerError(f"the tokenizer makes {encoding.tokens} of {texts} x {probe.tokens}; export again")
    return template


def leaking_tokens(inner: Any) -> frozenset[int]:
    """Return the special tokens that a text of their characters gives, although it should not.

    Where the vocabulary of a Unigram model lists them, the model finds them like any other piece.
    """
    special = {index: token.content for index, token in inner.get_added_tokens_decoder().items() if token.special}
    return frozenset(
        index
        for index, token in special.items()
        if any(index in inner.encode(text, add_special_tokens=False).ids for text in (token, f"a {token}"))
    )


def without_tokens(text: str, ids: frozenset[int]) -> str:
    """Return a tokenizer.json in whose vocabulary other texts, which nobody writes, stand for the tokens ``ids``."""
    data = json.loads(text)
    vocab = data["model"]["vocab"]
    names = {index: f"{OUTSIDE}{index}" for index in ids}
    if isinstance(vocab, dict):
        data["model"]["vocab"] = {names.get(index, token): index for token, index in vocab.items()}
    else:
        data["model"]["vocab"] = [[names.get(index, piece), score] for index, (piece, score) in enumerate(vocab)]
    data["added_tokens"] = [token for token in data["added_tokens"] if token["id"] not in ids]
    return json.dumps(data)


def fit_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of each of two texts fill ``room``; the longer text is cut first."""
    if first + second <= room:
        return first, second
    short = min(first, second, room // 2)
    return (short, room - short) if first <= second else (room - short, short)
