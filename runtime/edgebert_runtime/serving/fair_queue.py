"""Requests that wait, in a fair order."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

ItemT = TypeVar("ItemT")


class QueueEntry(NamedTuple, Generic[ItemT]):
    """An item with its virtual finish time in seconds, its place among equal ones, and its tokens."""

    finish: float
    number: int
    item: ItemT
    tokens: int


class FairQueue(Generic[ItemT]):
    """A queue in the order of virtual clocks (Zhang, 1990).

    Each flow, such as a job of many texts, has a clock. An item moves it on by the time that its tokens take at
    ``seconds_per_token``. The item with the earliest clock is first. So a single query passes the far end of a long
    job, and the job, whose clock stands while it waits, passes queries that come later. Nobody starves.

    ``clock`` returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.tokens = 0
        self.numbers = itertools.count()
        self.entries: list[QueueEntry[ItemT]] = []  # in order
        self.flows: dict[Hashable, float] = {}

    def push(self, item: ItemT, tokens: int, flow: Hashable, seconds_per_token: float) -> None:
        """Add an item of a flow."""
        finish = max(self.clock(), self.flows.get(flow, 0.0)) + tokens * seconds_per_token
        self.flows[flow] = finish
        self.tokens += tokens
        bisect.insort(self.entries, QueueEntry(finish, next(self.numbers), item, tokens))

    def first(self) -> ItemT:
        """Return the first item, which stays."""
        return self.entries[0].item

    def pop(self) -> ItemT:
        """Take the first item."""
        (item,) = self.take(lambda _: True, 1)
        return item

    def take(self, chosen: Callable[[ItemT], bool], most: int | None = None) -> list[ItemT]:
        """Take the items for which ``chosen`` is true among the first ``most``, asked in order."""
        head = self.entries[:most]
        numbers = [number for number, entry in enumerate(head) if chosen(entry.item)]
        for number in reversed(numbers):
            del self.entries[number]
        self.tokens -= sum(head[number].tokens for number in numbers)
        self.forget_flows()
        return [head[number].item for number in numbers]

    def forget_flows(self) -> None:
        """Drop clocks of the past, which order nothing, once they are many."""
        if len(self.flows) > 2 * len(self.entries) + 64:
            now = self.clock()
            self.flows = {flow: finish for flow, finish in self.flows.items() if finish > now}

    def __len__(self) -> int:
        return len(self.entries)
