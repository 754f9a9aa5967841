"""The workloads on which encoders are compared. Sizes as in BERT-base and all-MiniLM-L6-v2; seeds are fixed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

VOCAB_SIZE = 30522
CLS, SEP, FIRST_WORD = 101, 102, 1000


def token_ids(length: int, seed: int) -> list[int]:
    """Return ids of one text with its special tokens."""
    ids: list[int] = np.random.default_rng(seed).integers(FIRST_WORD, VOCAB_SIZE, length).tolist()
    ids[0], ids[-1] = CLS, SEP
    return ids


def ragged(count: int = 256) -> list[list[int]]:
    """Return texts of log-normal length, 3 to 256 tokens, 26 on average."""
    lengths = np.random.default_rng(7).lognormal(np.log(30) - 0.6**2 / 2, 0.6, count)
    clipped = np.clip(np.round(lengths), 3, 256).astype(int)
    return [token_ids(int(length), 1000 + i) for i, length in enumerate(clipped)]


# Name of a workload, and the rows of ids that are one call. E4 and E4one take texts, which the caller gives.
IDS: dict[str, Callable[[], list[list[int]]]] = {
    "E1": lambda: [token_ids(128, 1)],
    "E2": lambda: [token_ids(16, 2)],
    "E3": ragged,
}
TEXTS = ("E4", "E4one")
# Calls in one turn: long enough for the clock, short enough for the sides to alternate.
CALLS = {"E1": 8, "E2": 40, "E3": 1, "E4": 1, "E4one": 100}
