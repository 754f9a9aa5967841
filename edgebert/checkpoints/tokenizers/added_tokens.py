"""Added tokens: each token that a file of the folder adds to the vocabulary, with its id and its flags.

Four files can declare them, and the one named first is followed, as transformers 5 does:

1. ``added_tokens_decoder`` of tokenizer_config.json, by id, with flags;
2. special_tokens_map.json and added_tokens.json, the older pair, beside what tokenizer.json has.

The named special tokens (``mask_token``, ...) and the additional ones (``extra_special_tokens``,
``additional_special_tokens``, and keys of one's own that end in ``_token``) are added too where they are missing.
An id that no tokenizer can give is refused, whichever file names it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tokenizers import AddedToken, Tokenizer

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert_runtime.errors import TokenizerError

log = logging.getLogger(__name__)

SETTINGS = "tokenizer_config.json"
SPECIALS = "special_tokens_map.json"
ADDED = "added_tokens.json"
DECODER = "added_tokens_decoder"
ADDITIONAL = ("extra_special_tokens", "additional_special_tokens")
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
MAX_BYTES = 16 << 20


@dataclass
class AddedTokens:
    """The tokens that a folder declares beside its vocabulary.

    ``by_id`` are those with an id. ``special`` are those without, in their order: of two with one text the later
    counts. ``flagged`` are those of them whose flags stand beside ``added_tokens_decoder``, and go before what
    tokenizer.json says. ``sources`` is the file that names each id.
    """

    by_id: dict[int, AddedToken] = field(default_factory=dict)
    special: list[AddedToken] = field(default_factory=list)
    flagged: list[AddedToken] = field(default_factory=list)
    sources: dict[tuple[str, int], str] = field(default_factory=dict)

    def declare(self, token: AddedToken, id: int, source: str) -> None:
        """Add a token with its id."""
        self.by_id[id] = token
        self.sources[token.content, id] = source


def read_added_tokens(folder: CheckpointFolder, usual: Mapping[str, str] = MappingProxyType({})) -> AddedTokens:
    """Read the added tokens of a folder; ``usual`` are the named special tokens of its class of tokenizer.

    Raises:
        TokenizerError: naming the file and the entry that is no token, no id or no flag.
    """
    settings = folder.json(SETTINGS, cap=MAX_BYTES) if folder.has(SETTINGS) else {}
    older = folder.json(ADDED, cap=MAX_BYTES) if folder.has(ADDED) else {}
    added, decoder = AddedTokens(), settings.get(DECODER)
    additional = read_additional(settings, ADDITIONAL)
    if decoder is not None:
        if not isinstance(decoder, dict):
            raise TokenizerError(f"{SETTINGS}: {DECODER}={decoder!r:.60} is not an object of ids; save it again")
        for key, entry in decoder.items():
            added.declare(
                read_token(entry, f"{SETTINGS}: {DECODER} {key!r:.20}"), read_id(key, DECODER, SETTINGS), SETTINGS
            )
        added.flagged = read_named({key: value for key, value in settings.items() if isinstance(value, dict)})
    elif folder.has(SPECIALS):
        settings |= folder.json(SPECIALS, cap=MAX_BYTES)
        additional += read_additional(settings, ADDITIONAL[:1])
    named = read_named({**usual, **{key: value for key, value in settings.items() if value}})
    special = {token.content for token in (*named, *additional)}
    for content, id in older.items():
        if decoder is None:
            flags = {"normalized": content not in special, "special": content in special}
            added.declare(AddedToken(content, **flags), read_id(id, content, ADDED), ADDED)
        else:
            added.sources[content, read_id(id, content, ADDED)] = ADDED
    added.special = distinct([*named, *additional, *read_additional(settings, ADDITIONAL)])
    return added


def distinct(tokens: Sequence[AddedToken]) -> list[AddedToken]:
    """Return tokens in their order, those of equal text and flags once."""
    result: list[AddedToken] = []
    for token in tokens:
        if token not in result:
            result.append(token)
    return result


def read_named(settings: Mapping[str, Any]) -> list[AddedToken]:
    """Return the named special tokens, and those of keys of one's own that end in ``_token``."""
    custom = [key for key in settings if key.endswith("_token") and not key.startswith("add_") and key not in NAMED]
    return [
        read_token(settings[key], f"{SETTINGS}: {key}", special=True)
        for key in (*NAMED, *custom)
        if isinstance(settings.get(key), str | dict) and settings[key]
    ]


def read_additional(settings: Mapping[str, Any], keys: Sequence[str]) -> list[AddedToken]:
    """Return the additional special tokens, from the first of ``keys`` that has any."""
    entries: Any = next((settings[key] for key in keys if settings.get(key)), [])
    where = f"{SETTINGS}: {' or '.join(keys)}"
    if not isinstance(entries, list | dict):
        raise TokenizerError(f"{where}: {entries!r:.60} is not a list of tokens; save the tokenizer again")
    return [read_token(entry, where, True) for entry in (entries.values() if isinstance(entries, dict) else entries)]


def read_token(entry: Any, where: str, special: bool = False) -> AddedToken:
    """Return a token that a file writes as its text, or as an object with ``content`` and flags."""
    if isinstance(entry, str) and entry:
        return AddedToken(entry, special=special, normalized=not special)
    content = entry.get("content") if isinstance(entry, dict) else None
    if not isinstance(content, str) or not content:
        raise TokenizerError(f"{where}: {entry!r:.80} is not a token; save the tokenizer again")
    flags = {name: entry[name] for name in FLAGS if entry.get(name) is not None}
    if wrong := [f"{name}={value!r:.20}" for name, value in flags.items() if type(value) is not bool]:
        raise TokenizerError(f"{where}: {', '.join(wrong)} is neither true nor false; save the tokenizer again")
    flags["special"] = flags.get("special", False) or special
    flags.setdefault("normalized", not flags["special"])
    return AddedToken(content, **flags)


def read_id(value: Any, token: str, source: str) -> int:
    """Return the id of an added token, which may be written as a string."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise TokenizerError(f"{source} has ids that are none: {token!r:.60}: {value!r:.40}; save the tokenizer again")
    return value


def add_tokens(tokenizer: Tokenizer, added: AddedTokens, vocab_size: int | None) -> None:
    """Add the declared tokens to a tokenizer, with their flags.

    A special token without an id that the model has no embedding of is left out.
    """
    own = tokenizer.get_added_tokens_decoder()
    for id, token in sorted(added.by_id.items()):
        if own.get(id) != token:
            tokenizer.add_tokens([token])
    declared = {token.content for token in added.by_id.values()}
    declared_tokens = declared | {token.content for token in own.values()}
    for token in added.special:
        content = token.content
        if content in declared_tokens and (content in declared or token not in added.flagged):
            continue
        if tokenizer.token_to_id(content) is None and vocab_size is not None and next_id(tokenizer) >= vocab_size:
            log.info("%s: left out %.60r, which the model has no embedding of", SETTINGS, content)
        else:
            tokenizer.add_tokens([token])


def next_id(tokenizer: Tokenizer) -> int:
    """Return the id that a new token would get."""
    size: int = tokenizer.get_vocab_size(with_added_tokens=True)
    return size


def id_problems(tokenizer: Tokenizer, added: AddedTokens) -> Iterator[str]:
    """Yield each declared token that has another id in the tokenizer."""
    for (content, id), source in added.sources.items():
        if (actual := tokenizer.token_to_id(content)) != id:
            outcome = "lacks it" if actual is None else f"gives {actual}"
            yield f"{source}: {content!r:.60} has id {id}, the tokenizer {outcome}; use the files of the model"
