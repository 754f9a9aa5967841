"""Which row of which request is in which slot of a KV cache."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from edgebert_runtime.decoders.kv_cache import Ints


class Cache(Protocol):
    """The part of :class:`~edgebert_runtime.decoders.slot_cache.SlotCache` that moves contents."""

    def copy(self, source: int, target: int) -> None:
        """Let slot ``target`` be what slot ``source`` is."""

    def release(self, slot: int) -> None:
        """Empty a slot."""


class SlotOwner(Protocol):
    """A request: ``slots[i]`` is the slot of its row i."""

    slots: list[int]


OwnerT = TypeVar("OwnerT", bound=SlotOwner)


class SlotTable(Generic[OwnerT]):
    """Slots 0 to ``running - 1`` hold the rows that a step continues; the one after may hold a prompt in prefill.

    All others are empty. Rows move to keep it so.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.owners: list[tuple[OwnerT, int]] = []  # of the running slots: a request, and the number of its row
        self.prefilling: OwnerT | None = None

    @property
    def running(self) -> int:
        """The number of rows that a step continues."""
        return len(self.owners)

    def begin_prefill(self, owner: OwnerT) -> int:
        """Give a request the slot of prefill, and return it."""
        owner.slots = [self.running]
        self.prefilling = owner
        return self.running

    def end_prefill(self) -> None:
        """Let the prompt in prefill become a running row."""
        assert self.prefilling is not None
        self.owners.append((self.prefilling, 0))
        self.prefilling = None

    def continue_rows(self, owner: OwnerT, parents: Ints) -> None:
        """Let row i of a request be what its row ``parents[i]`` was.

        The first child of a row stays in its slot. Others take the slots of rows without children, and then new ones.
        """
        sources = [owner.slots[parent] for parent in parents.tolist()]
        if sources == owner.slots:
            return
        slots: list[int] = []
        spare = sorted(set(owner.slots) - set(sources))
        later = []
        for number, source in enumerate(sources):
            if source in slots:
                later.append((number, source))
                slots.append(-1)
            else:
                slots.append(source)
        owner.slots = slots
        for number, slot in enumerate(slots):
            if slot >= 0:
                self.owners[slot] = (owner, number)
        for number, source in later:
            slot = spare.pop(0) if spare else self.new_slot(owner)
            self.cache.copy(source, slot)
            slots[number] = slot
            self.owners[slot] = (owner, number)
        for slot in reversed(spare):
            self.free(slot)

    def new_slot(self, owner: OwnerT) -> int:
        """Return one more running slot; the prompt in prefill makes room."""
        slot = self.running
        if self.prefilling is not None:
            self.move_prefill(slot + 1)
        self.owners.append((owner, 0))
        return slot

    def free(self, slot: int) -> None:
        """Take a slot away from its row; the last running row moves there."""
        last = self.running - 1
        if slot != last:
            self.cache.copy(last, slot)
            self.owners[slot] = (owner, number) = self.owners[last]
            owner.slots[number] = slot
        del self.owners[last]
        self.cache.release(last)
        if self.prefilling is not None:
            self.move_prefill(last)

    def move_prefill(self, slot: int) -> None:
        """Move the prompt in prefill."""
        assert self.prefilling is not None
        (source,) = self.prefilling.slots
        self.cache.copy(source, slot)
        self.cache.release(source)
        self.prefilling.slots[0] = slot

    def remove(self, owner: OwnerT) -> None:
        """Take all slots away from a request."""
        if owner is self.prefilling:
            self.prefilling = None
            self.cache.release(owner.slots[0])
        else:
            while owner.slots:
                slot = max(owner.slots)
                owner.slots.remove(slot)
                self.renumber(owner)
                self.free(slot)
        owner.slots = []

    def renumber(self, owner: OwnerT) -> None:
        """Note the numbers of a request's rows after one of them left."""
        for number, slot in enumerate(owner.slots):
            self.owners[slot] = (owner, number)

    def requests(self) -> list[OwnerT]:
        """Return the requests with running rows."""
        return list(dict.fromkeys(owner for owner, _ in self.owners))
