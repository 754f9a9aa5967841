"""The bytes of text of each token, for tokenizers that split text into bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.inputs.tokenizer import TOKENIZER_NAME

Counts = npt.NDArray[np.int64]


def token_bytes(bundle: Bundle) -> Counts | None:
    """Return the bytes (vocab_size,) of each token, 0 for special ones; None for other kinds of tokenizers.

    A byte-level tokenizer writes each byte as one character (Radford et al., 2019). Others drop white space, or turn
    unknown text into one token.
    """
    description = json.loads((bundle.path / TOKENIZER_NAME).read_text(encoding="utf-8"))
    if description.get("normalizer") or not any(splits_into_bytes(step) for step in steps(description.get("decoder"))):
        return None
    counts = {index: len(token) for token, index in description["model"]["vocab"].items()}
    for token in description.get("added_tokens", []):
        counts[token["id"]] = 0 if token["special"] else len(token["content"].encode())
    return np.array([counts.get(index, 0) for index in range(bundle.manifest.limits.vocab_size)], np.int64)


def steps(decoder: dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    """Return the steps of a decoder, or the decoder as its only step."""
    return [] if decoder is None else decoder.get("decoders", [decoder])


def splits_into_bytes(step: dict[str, Any]) -> bool:
    """Return whether a step of a decoder joins bytes."""
    return bool(step.get("type") == "ByteLevel")
