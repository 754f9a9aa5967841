"""Text outside the vocabulary of a tokenizer that has no token for it.

WordPiece and Unigram fail at such text, and BPE drops it without a word. Here the tokenizer gets a token of its own for
it, with the first id that the model does not have, so that a text with this id can be refused by name.
"""

from __future__ import annotations

import json
from typing import Any

from edgebert_runtime.errors import InputError
from edgebert_runtime.inputs.character_spans import strip

# Code points that are no characters: no vocabulary has them, and no text should.
OUTSIDE = "\ufdd0outside\ufdd0"


def lacks_unknown_token(description: dict[str, Any]) -> bool:
    """Say whether a tokenizer.json has no token for text outside its vocabulary.

    Of a file that is malformed, the library says so later.
    """
    model, added = description["model"], description.get("added_tokens") or []
    unknown, vocab = model.get("unk_token"), model.get("vocab")
    if model.get("type") == "Unigram":
        return isinstance(vocab, list) and model.get("unk_id") is None and not model.get("byte_fallback")
    if not isinstance(vocab, dict) or not isinstance(added, list) or not isinstance(unknown, str | None):
        return False
    if model.get("type") == "BPE" and unknown is None:
        steps = json.dumps([description.get("pre_tokenizer"), description.get("normalizer")])
        return not model.get("byte_fallback") and '"ByteLevel"' not in steps
    return unknown not in vocab and not any(
        isinstance(token, dict) and token.get("content") == unknown for token in added
    )


def add_outside_token(description: dict[str, Any], index: int) -> dict[str, Any]:
    """Return a tokenizer.json that gives text outside its vocabulary the id ``index``, which no token has.

    Added tokens become entries of the vocabulary, as their ids would move otherwise.
    """
    model, added = description["model"], description.get("added_tokens") or []
    named = [token for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    ids = {token.get("content"): token.get("id") for token in named} | {OUTSIDE: index}
    if isinstance(model["vocab"], dict):
        vocab = {**model["vocab"], **{token: id for token, id in ids.items() if token not in model["vocab"]}}
        return {**description, "model": {**model, "vocab": vocab, "unk_token": OUTSIDE}}
    pieces, tokens = list(model["vocab"]), {id: token for token, id in ids.items()}
    # The ids are the places in the list; fillers are as impossible in a text as the token itself.
    pieces += [[tokens.get(place, f"{OUTSIDE}{place}"), 0.0] for place in range(len(pieces), index + 1)]
    return {**description, "model": {**model, "vocab": pieces, "unk_id": index}}


def outside_error(text: str, encoding: Any, index: int) -> InputError:
    """Return the error for a text of whose encoding the id ``index`` is a part."""
    start, end = strip(text, *encoding.offsets[encoding.ids.index(index)])
    return InputError(
        f"has {text[start:end]!r:.40} at character {start}, which the vocabulary does not have, and the tokenizer has "
        "no unknown token",
        hint="take it out, or give token ids",
    )
