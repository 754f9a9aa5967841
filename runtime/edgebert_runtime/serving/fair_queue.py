"""Requests that wait, in a fair order."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


@dataclass(order=True)
class QueueEntry(Generic[ItemT]):
    """An item with its virtual finish time in seconds, and its place among equal ones."""

    finish: float
    number: int
    item: ItemT = field(compare=False)
    tokens: int = field(compare=False)


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
        self.entries: list[QueueEntry[ItemT]] = []
        self.flows: dict[Hashable, float] = {}

    def push(self, item: ItemT, tokens: int, flow: Hashable, seconds_per_token: float) -> None:
        """Add an item of a flow."""
        finish = max(self.clock(), self.flows.get(flow, 0.0)) + tokens * seconds_per_token
        self.flows[flow] = finish
        self.tokens += tokens
        heapq.heappush(self.entries, QueueEntry(finish, next(self.numbers), item, tokens))

    def first(self) -> ItemT:
        """Return the first item, which stays."""
        return self.entries[0].item

    def pop(self) -> ItemT:
        """Take the first item."""
        entry = heapq.heappop(self.entries)
        self.tokens -= entry.tokens
        self.forget_flows()
        return entry.item

    def remove(self, leaves: Callable[[ItemT], bool]) -> list[ItemT]:
        """Take the items for which ``leaves`` is true, wherever they are."""
        removed = [entry for entry in self.entries if leaves(entry.item)]
        if removed:
            self.entries = [entry for entry in self.entries if not leaves(entry.item)]
            heapq.heapify(self.entries)
            self.tokens -= sum(entry.tokens for entry in removed)
            self.forget_flows()
        return [entry.item for entry in removed]

    def forget_flows(self) -> None:
        """Drop clocks that no longer order anything: those of the past, once they are many."""
        if len(self.flows) > 2 * len(self.entries) + 64:
            now = self.clock()
            self.flows = {flow: finish for flow, finish in self.flows.items() if finish > now}

    def __iter__(self) -> Iterator[ItemT]:
        return (entry.item for entry in sorted(self.entries))

    def __len__(self) -> int:
        return len(self.entries)
