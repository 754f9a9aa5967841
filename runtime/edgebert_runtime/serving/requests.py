"""A request of a scheduler: what was asked, how far it is, and the figures of all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from edgebert_runtime.decoders.kv_cache import Outputs
from edgebert_runtime.generation import Step, StepRequest, TopK
from edgebert_runtime.generation.step_model import Floats, Search
from edgebert_runtime.tasks.base.text_engine import Generation, PreparedPrompt

OnStep = Callable[[Step], None]


@dataclass(eq=False)
class ActiveRequest:
    """A request: what was asked, and how far it is.

    ``position`` counts the tokens of the prompt in the KV cache. ``search`` starts after the prompt, and waits for the
    answer to ``pending``.
    """

    prompt: PreparedPrompt
    future: Future[list[Generation]]
    on_step: OnStep | None
    deadline: float
    slots: list[int] = field(default_factory=list)
    position: int = 0
    search: Search | None = None
    pending: StepRequest | None = None

    @property
    def tokens(self) -> int:
        """The most tokens that it has in the KV cache."""
        return self.prompt.rows * self.prompt.final_length


@dataclass(frozen=True)
class SchedulerStats:
    """Requests that wait and that are in the KV cache, their tokens, and totals since the start."""

    waiting: int
    queued_tokens: int
    active: int
    running_rows: int
    cached_tokens: int
    max_cached_tokens: int
    steps: int
    chunks: int
    generated_tokens: int
    prefill_tokens: int
    prefix_hit_tokens: int
    tokens_per_second: float


def answer_of(request: ActiveRequest, outputs: Outputs) -> Floats | TopK:
    """Return the part of a step's outputs that a request asked for. One row is a view."""
    assert request.pending is not None
    top_k, slots = request.pending.top_k, request.slots
    rows = slots if len(slots) > 1 else slice(slots[0], slots[0] + 1)
    if top_k is None:
        logits: Floats = outputs[-1][rows]
        return logits
    return TopK(outputs[0][rows, :top_k], outputs[1][rows, :top_k])


def resolve(request: ActiveRequest, generations: list[Generation]) -> None:
    """Give a request its result, unless it was cancelled."""
    if request.future.set_running_or_notify_cancel():
        request.future.set_result(generations)
