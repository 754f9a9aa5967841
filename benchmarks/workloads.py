"""The workloads on which models are compared; seeds are fixed.

E is for encoders of the sizes of BERT-base and all-MiniLM-L6-v2, G for GPT-2 and S for Marian (OPUS-MT).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Writing:
    """Prompts or sources as ids, the new tokens of each, and the number of beams."""

    rows: list[list[int]]
    new: int
    beams: int = 1


# Ids of GPT-2's vocabulary that pad, and of Marian's that end a source.
START, STOP = 50256, 0


def prompt(length: int, seed: int) -> list[int]:
    """Return the ids of a prompt for GPT-2."""
    ids: list[int] = np.random.default_rng(seed).integers(100, 50000, length).tolist()
    return ids


def source(length: int, seed: int) -> list[int]:
    """Return the ids of a source for Marian, with the one that ends it."""
    ids: list[int] = np.random.default_rng(seed).integers(100, 58000, length - 1).tolist()
    return [*ids, STOP]


WRITING: dict[str, Callable[[], Writing]] = {
    "TTFT": lambda: Writing([prompt(32, 3)], 1),
    "G1": lambda: Writing([prompt(32, 3)], 128),
    "G2": lambda: Writing([prompt(n, 50 + i) for i, n in enumerate((8, 11, 15, 18, 22, 25, 29, 32))], 64),
    "G3": lambda: Writing([prompt(512, 4)], 64),
    "G4": lambda: Writing([prompt(32, 3)], 64, 4),
    "S1": lambda: Writing([source(30, 5)], 40),
    "S2": lambda: Writing([source(30, 5)], 40, 4),
    "S3": lambda: Writing([source(n, 80 + n) for n in range(10, 42, 2)], 40, 4),
}

# Name of a workload, and the rows of ids that are one call. E4 and E4one take texts, which the caller gives.
IDS: dict[str, Callable[[], list[list[int]]]] = {
    "E1": lambda: [token_ids(128, 1)],
    "E2": lambda: [token_ids(16, 2)],
    "E3": ragged,
}
TEXTS = ("E4", "E4one")
# Calls in one turn: long enough for the clock, short enough for the sides to alternate.
CALLS = {**dict.fromkeys(WRITING, 1), "TTFT": 20, "E1": 8, "E2": 40, "E3": 1, "E4": 1, "E4one": 100}
