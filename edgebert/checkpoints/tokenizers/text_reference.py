"""The ids of texts as the files of a folder say, to compare the tokenizer of a bundle with.

A tokenizer that was built, or changed, is not asked for its own opinion: vocab.txt, and vocab.json with merges.txt, are
followed in plain Python, a tokenizer.json is read as it stands, and a SentencePiece model by SentencePiece itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tokenizers import AddedToken, Tokenizer

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.added_tokens import AddedTokens
from edgebert.checkpoints.tokenizers.plain_tokenizers import PlainByteLevel, PlainWordPiece
from edgebert.checkpoints.tokenizers.probe_texts import token_probes, variants

MAX_BYTES = 100_000_000
MOST_TOKENS = 40  # added tokens that are tried; a vocabulary can have thousands of a kind
# Where the text of an added token is looked for: no other token than itself gives its id.
Match = tuple[int, int, int | None]


class TextReference(Protocol):
    """The ids of texts that the files of a folder ask for."""

    @property
    def against(self) -> str:
        """Return the file, or the library, whose word it is."""

    def texts(self) -> Iterator[str]:
        """Yield the texts to compare."""

    def difference(
        self, text: str, special_tokens: bool, ids: Sequence[int], tokens: Sequence[str]
    ) -> list[int] | None:
        """Return the ids that a text should have, None if those of a tokenizer, with their ``tokens``, are right."""


def declared_tokens(
    own: Mapping[int, AddedToken], added: AddedTokens, vocabulary: Mapping[str, int], vocab_size: int | None
) -> dict[str, tuple[int, AddedToken]]:
    """Return id and flags of each token that the files declare, by its text.

    ``own`` are those of tokenizer.json. Those that the model has no embedding of are left out.
    """
    tokens = {token.content: (index, token) for index, token in own.items()}
    tokens |= {token.content: (index, token) for index, token in added.by_id.items()}
    named = {token.content for token in added.by_id.values()}
    for token in added.special:
        content = token.content
        if content in tokens and (content in named or token not in added.flagged):
            continue
        used = [index for index, _ in tokens.values()]
        index = tokens[content][0] if content in tokens else vocabulary.get(content)
        index = max(len(vocabulary), max(used, default=-1) + 1) if index is None else index
        if vocab_size is None or index < vocab_size:
            tokens[content] = index, token
    return tokens


@dataclass(frozen=True)
class PlainReference:
    """A vocabulary in plain Python, with its added tokens."""

    against: str
    plain: PlainWordPiece | PlainByteLevel
    tokens: Mapping[str, tuple[int, AddedToken]]

    def texts(self) -> Iterator[str]:
        """Yield the texts to compare."""
        yield from variants()
        yield from token_probes(list(self.tokens)[:MOST_TOKENS])

    def difference(
        self, text: str, special_tokens: bool, ids: Sequence[int], tokens: Sequence[str]
    ) -> list[int] | None:
        """Return the ids that a text should have, None if ``ids`` are these."""
        expected = self.ids(text, special_tokens)
        return None if expected == list(ids) else expected

    def ids(self, text: str, special_tokens: bool) -> list[int]:
        """Return the ids of a text: first of tokens in it as it stands, then of those in its normalized parts."""
        ids: list[int] = []
        for part, index in split(text, self.matches(text, False, special_tokens)):
            if index is not None:
                ids.append(index)
                continue
            normal = self.plain.normalize(part)
            for word, token in split(normal, self.matches(normal, True, special_tokens)):
                ids += self.plain.ids(word) if token is None else [token]
        return ids

    def matches(self, text: str, normalized: bool, special_tokens: bool) -> list[Match]:
        """Return the places of the tokens that are looked for in normalized text, or before."""
        chosen = {content: entry for content, entry in self.tokens.items() if entry[1].normalized == normalized}
        if normalized:
            chosen = {self.plain.normalize(content): entry for content, entry in chosen.items()}
        return find_tokens(text, chosen, special_tokens)


def find_tokens(text: str, tokens: Mapping[str, tuple[int, AddedToken]], special_tokens: bool) -> list[Match]:
    """Return start, end and id of each token in a text, the longest at a place, with the white space of its flags."""
    pattern = "|".join(re.escape(content) for content in sorted(tokens, key=len, reverse=True) if content)
    matches: list[Match] = []
    for match in re.finditer(pattern, text) if pattern else ():
        index, token = tokens[match[0]]
        start, end = match.span()
        inside = re.match(r"\w", text[end:]) or re.search(r"\w\Z", text[:start])
        if (token.special and not special_tokens) or (token.single_word and inside):
            continue
        before = matches[-1][1] if matches else 0
        start = max(before, len(text[:start].rstrip())) if token.lstrip else start
        end = len(text) - len(text[end:].lstrip()) if token.rstrip else end
        matches.append((start, end, index))
    return matches


def split(text: str, matches: Sequence[Match]) -> Iterator[tuple[str, int | None]]:
    """Yield the parts of a text with the id of each token, None for the text between tokens."""
    place = 0
    for start, end, index in (*matches, (len(text), len(text), None)):
        if place < start:
            yield text[place:start], None
        if index is not None:
            yield text[start:end], index
        place = max(place, end)


@dataclass(frozen=True)
class FileReference:
    """A tokenizer.json as it stands, beside ``tokens`` that other files declare.

    A text with one of ``changed``, which the file has not or with other flags, is compared by the tokens found in it.
    ``lowercase`` puts texts in lower case first.
    """

    against: str
    tokenizer: Tokenizer
    tokens: Mapping[str, tuple[int, AddedToken]]
    changed: Sequence[str]
    lowercase: bool = False
    declared: frozenset[int] = field(init=False)
    special: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        special = (index for index, token in self.tokens.values() if token.special)
        object.__setattr__(self, "special", frozenset(special))
        object.__setattr__(self, "declared", frozenset(self.tokens[content][0] for content in self.changed))

    def texts(self) -> Iterator[str]:
        """Yield the texts to compare."""
        yield from variants()
        yield from token_probes(list(dict.fromkeys([*self.changed, *self.tokens]))[:MOST_TOKENS])

    def difference(
        self, text: str, special_tokens: bool, ids: Sequence[int], tokens: Sequence[str]
    ) -> list[int] | None:
        """Return the ids that a text should have, None if ``ids`` are these."""
        if self.lowercase:
            if special_tokens:  # whose letters would change
                return None
            text = "".join(map(str.lower, text))
        if any(content.lower() in text.lower() for content in self.changed):
            if any(token.normalized for _, token in self.tokens.values()):
                return None
            matches = find_tokens(text, self.tokens, special_tokens)
            expected = [index for _, _, index in matches if index in self.declared]
            actual = [index for index in ids if index in self.declared]
        else:
            self.tokenizer.encode_special_tokens = not special_tokens
            expected, actual = self.tokenizer.encode(text, add_special_tokens=False).ids, list(ids)
            if not special_tokens and not self.special.isdisjoint(expected):
                return None  # the library finds tokens among the pieces of a text, which engines prevent
        return None if expected == actual else [index for index in expected if index is not None]


def text_reference(
    folder: CheckpointFolder,
    source: str,
    settings: Mapping[str, Any],
    used: Mapping[str, Any],
    added: AddedTokens,
    vocab_size: int | None,
) -> TextReference | None:
    """Return the reference of the tokenizer that was read from the file ``source``, None if it stands there as it is.

    ``used`` is its content, with the spelling rules of ``settings`` or, where they say nothing, those decided on.
    """
    if source == "vocab.txt":
        lines = folder.text(source, MAX_BYTES, drop_mark=True).splitlines()
        wordpiece = word_piece({line: index for index, line in enumerate(lines) if line}, settings, used)
        return PlainReference(source, wordpiece, declared_tokens({}, added, wordpiece.vocabulary, vocab_size))
    if source == "vocab.json":
        vocabulary = json.loads(folder.text(source, MAX_BYTES, drop_mark=True))
        lines = folder.text("merges.txt", MAX_BYTES, drop_mark=True).splitlines()
        pairs = [(first, second) for first, space, second in (line.partition(" ") for line in lines) if space]
        byte_level = PlainByteLevel(vocabulary, pairs[lines[0].startswith("#version") :], spaced(settings))
        tokens = declared_tokens({}, added, vocabulary, vocab_size)
        return PlainReference(f"{source} and merges.txt", byte_level, tokens)
    return ready_reference(source, folder.text(source, MAX_BYTES), settings, used, added, vocab_size)


def ready_reference(
    source: str,
    text: str,
    settings: Mapping[str, Any],
    used: Mapping[str, Any],
    added: AddedTokens,
    vocab_size: int | None,
) -> TextReference | None:
    """Return the reference of a tokenizer.json, of which ``text`` stands in the folder and ``used`` is taken."""
    data = {**json.loads(text), "padding": None, "truncation": None}
    tokenizer, normalizer = Tokenizer.from_str(json.dumps(data)), used.get("normalizer")
    own = tokenizer.get_added_tokens_decoder()
    tokens = declared_tokens(own, added, tokenizer.get_vocab(with_added_tokens=False), vocab_size)
    respelled = normalizer != data.get("normalizer")
    if respelled and isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        return PlainReference(source, word_piece(data["model"]["vocab"], settings, used), tokens)
    changed = [content for content, (index, token) in tokens.items() if own.get(index) != token]
    if not (changed or respelled or {token.content for token in own.values()} - tokens.keys()):
        return None
    return FileReference(source, tokenizer, tokens, changed, respelled)


def word_piece(vocabulary: Mapping[str, int], settings: Mapping[str, Any], used: Mapping[str, Any]) -> PlainWordPiece:
    """Return BERT's tokenizer over a vocabulary, with the spelling rules of tokenizer_config.json."""
    steps = used["normalizer"].get("normalizers", [used["normalizer"]])
    lowercase = settings.get("do_lower_case", steps[-1]["lowercase"])
    accents = settings.get("strip_accents", steps[-1]["strip_accents"])
    han = settings.get("tokenize_chinese_chars", steps[-1]["handle_chinese_chars"])
    # sentence-transformers can ask for lower case before all else.
    first = any(step["type"] == "Lowercase" for step in steps)
    unknown = settings.get("unk_token") or "[UNK]"
    return PlainWordPiece(vocabulary, unknown, first or lowercase, lowercase if accents is None else accents, han)


def spaced(settings: Mapping[str, Any]) -> bool:
    """Say whether a space is put before texts."""
    return settings.get("add_prefix_space") is True
