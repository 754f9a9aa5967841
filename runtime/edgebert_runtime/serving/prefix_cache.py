"""Keys and values of prompts, by their tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from edgebert_runtime.decoders.kv_cache import Floats

# Shorter beginnings are computed about as fast as they are copied.
MIN_PREFIX_TOKENS = 16


class PrefixCache:
    """The keys and values of recent prompts, ``max_tokens`` tokens in all; the least recently used goes first.

    They are those of prefill only. A decode step rounds differently, so the tokens that a request generated are
    computed again when they come back in a prompt.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.tokens = 0
        self.hit_tokens = 0
        self.entries: OrderedDict[tuple[int, ...], Floats] = OrderedDict()

    def longest(self, ids: Sequence[int]) -> Floats | None:
        """Return the longest keys and values (layers, heads, length, head_dim) that a prompt begins with.

        At least two tokens of the prompt are left, as a chunk of one is rounded differently.
        """
        key, length = None, MIN_PREFIX_TOKENS - 1
        for entry in self.entries:
            shared = shared_length(entry, ids[: len(ids) - 2])
            if shared > length:
                key, length = entry, shared
        if key is None:
            return None
        self.entries.move_to_end(key)
        self.hit_tokens += length
        return self.entries[key][:, :, :length]

    def covers(self, ids: Sequence[int]) -> bool:
        """Say whether a prompt is the beginning of an entry, or of no use as one."""
        room = MIN_PREFIX_TOKENS <= len(ids) <= self.max_tokens
        return not room or any(shared_length(entry, ids) == len(ids) for entry in self.entries)

    def store(self, ids: Sequence[int], contents: Floats) -> None:
        """Keep the keys and values of a prompt. Entries that it begins with are dropped."""
        key = tuple(ids)
        for entry in [entry for entry in self.entries if shared_length(entry, key) == len(entry)]:
            self.drop(entry)
        self.entries[key] = contents
        self.tokens += len(key)
        while self.tokens > self.max_tokens:
            self.drop(next(iter(self.entries)))

    def drop(self, entry: tuple[int, ...]) -> None:
        """Forget an entry."""
        del self.entries[entry]
        self.tokens -= len(entry)


def shared_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of tokens with which both sequences begin."""
    length = min(len(first), len(second))
    differs = np.array(first[:length]) != np.array(second[:length])
    return int(differs.argmax()) if differs.any() else length
