"""The tokens that a model computes in a second, measured as it runs."""

from __future__ import annotations

import math

# The newest tokens that the mean is over, and what is assumed before the first.
MEMORY = 4096
ASSUMED_TOKENS_PER_SECOND = 100.0


class Throughput:
    """A running mean over about the last ``MEMORY`` tokens."""

    def __init__(self) -> None:
        self.tokens_per_second = ASSUMED_TOKENS_PER_SECOND
        self.tokens = self.busy = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Count tokens that were computed in so many seconds."""
        weight = max(0.0, 1 - tokens / MEMORY)
        self.tokens = self.tokens * weight + tokens
        self.busy = self.busy * weight + seconds
        if self.busy > 0:
            self.tokens_per_second = self.tokens / self.busy

    def seconds(self, tokens: int) -> float:
        """Return how long so many tokens take."""
        return tokens / self.tokens_per_second

    def retry_after(self, tokens: int) -> int:
        """Return the whole seconds, from 1 to 60, after which so many tokens are computed."""
        return min(60, max(1, math.ceil(self.seconds(tokens))))
