"""A single query passes a long job, and the job does not starve."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgebert_runtime.serving.fair_queue import FairQueue


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_query_passes_the_end_of_a_job() -> None:
    clock = Clock()
    queue: FairQueue[str] = FairQueue(clock)
    for number in range(100):
        queue.push(f"job {number}", 10, "job", 0.01)
    for _ in range(20):  # the job runs alone for two seconds
        clock.now += 0.1
        queue.pop()
    queue.push("query", 10, "query", 0.01)
    assert [queue.pop() for _ in range(2)] == ["job 20", "query"]
    assert queue.tokens == 790


def test_a_job_is_not_starved_by_queries_that_keep_coming() -> None:
    clock = Clock()
    queue: FairQueue[str] = FairQueue(clock)
    for _ in range(20):
        queue.push("job", 10, "job", 0.01)
    served = []
    for number in range(60):  # queries alone would fill the model
        queue.push("query", 10, number, 0.01)
        clock.now += 0.1
        served.append(queue.pop())
    assert served.count("job") == 20


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3)), max_size=40))
def test_each_flow_keeps_its_order_and_tokens_are_counted(items: list[tuple[int, int]]) -> None:
    queue: FairQueue[tuple[int, int]] = FairQueue(Clock())
    for number, (tokens, flow) in enumerate(items):
        queue.push((flow, number), tokens, flow, 0.5)
    removed = queue.take(lambda item: item[1] % 3 == 0)
    left = [item for number, item in enumerate(items) if number % 3]
    assert len(removed) + len(queue) == len(items)
    assert queue.tokens == sum(tokens for tokens, _ in left)
    order = [queue.pop() for _ in range(len(queue))]
    for flow in range(4):
        numbers = [number for of, number in order if of == flow]
        assert numbers == sorted(numbers)
    assert queue.tokens == 0


def test_clocks_of_the_past_are_forgotten() -> None:
    clock = Clock()
    queue: FairQueue[int] = FairQueue(clock)
    for number in range(1000):
        queue.push(number, 1, object(), 0.01)
        queue.pop()
        clock.now += 1
    assert len(queue.flows) < 100
