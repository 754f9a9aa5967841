"""The entry points of generation: search for whole sequences, or stream their steps."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from edgebert_runtime.errors import InputError
from edgebert_runtime.generation.beam_search import beam_search
from edgebert_runtime.generation.greedy_and_sampling import greedy_or_sampled
from edgebert_runtime.generation.hypotheses import Hypothesis
from edgebert_runtime.generation.options import Options
from edgebert_runtime.generation.search_plan import SearchPlan
from edgebert_runtime.generation.step_model import (
    Floats,
    Search,
    Step,
    StepModel,
    StepRequest,
    TopK,
    TopKStepModel,
)
from edgebert_runtime.generation.text_streamer import Decode
from edgebert_runtime.generation.top_k import top_of_logits


def search(
    model: StepModel,
    logits: Floats,
    prompts: Sequence[Sequence[int]],
    options: Options,
    *,
    limit: int | Sequence[int] | None = None,
    decode: Decode | None = None,
    keys: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Return ``num_return_sequences`` continuations of each prompt, those of a beam search best first.

    ``logits`` (prompts, vocab) are the model's after the ``prompts``, which begin with the decoder's start token.
    ``limit`` is the number of positions for a prompt and its new tokens, or one number for each prompt. ``decode``
    turns token ids into text, for stop strings. ``keys`` replace the prompts as seeds of random numbers: give the
    sources of translations, whose prompts are all alike. Results of a prompt do not depend on the other prompts.

    Raises:
        InputError: if options do not fit the model, or leave no token.
        LimitError: if there is no room after a prompt.
    """
    if not prompts:
        return []
    check_keys(keys, prompts)
    plan = SearchPlan.of(logits, prompts, options, limit, decode is not None)
    steps = drive(model, start_search(logits, plan, keys, decode if options.stop else None))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            hypotheses: list[list[Hypothesis]] = end.value
            return hypotheses


def stream(
    model: StepModel,
    logits: Floats,
    prompts: Sequence[Sequence[int]],
    options: Options,
    *,
    limit: int | Sequence[int] | None = None,
    decode: Decode | None = None,
    keys: Sequence[Sequence[int]] | None = None,
) -> Iterator[Step]:
    """Return an iterator over the steps of the same search.

    With ``decode`` the steps have pieces of text. The model computes a step when it is asked for, and nothing after the
    iterator is closed.

    Raises:
        InputError: as :func:`search`, and for a beam search, whose first token is known at its end only.
        LimitError: as :func:`search`.
    """
    if options.mode == "beam":
        raise InputError(
            "cannot be streamed",
            option="num_beams",
            value=options.num_beams,
            hint="leave it out, or ask for the whole result",
        )
    if not prompts:
        return iter(())
    check_keys(keys, prompts)
    plan = SearchPlan.of(logits, prompts, options, limit, decode is not None)
    return drive(model, start_search(logits, plan, keys, decode))


def start_search(
    logits: Floats, plan: SearchPlan, keys: Sequence[Sequence[int]] | None, decode: Decode | None
) -> Search:
    """Return the search of a plan, from the ``logits`` (prompts, vocab) after its prompts.

    Its steps have text if ``decode`` turns token ids into it. A beam search has no steps.
    """
    if plan.options.mode == "beam":
        return beam_search(logits, plan, decode)
    return greedy_or_sampled(logits, plan, keys or plan.prompts, decode)


def drive(model: StepModel, search: Search) -> Generator[Step, None, list[list[Hypothesis]]]:
    """Answer the requests of a search with a model; yield its steps, and return its hypotheses."""
    top_k_model = model if isinstance(model, TopKStepModel) else None
    answer: Floats | TopK | None = None
    while True:
        try:
            event = search.send(answer)
        except StopIteration as end:
            hypotheses: list[list[Hypothesis]] = end.value
            return hypotheses
        if not isinstance(event, StepRequest):
            answer = None
            yield event
        elif event.top_k is None:
            answer = model.step(event.parents, event.tokens)
        elif top_k_model is not None:
            answer = top_k_model.step_top_k(event.parents, event.tokens, event.top_k)
        else:  # a model that finds no top-k tokens itself
            answer = top_of_logits(model.step(event.parents, event.tokens), event.top_k)


def check_keys(keys: Sequence[Sequence[int]] | None, prompts: Sequence[Sequence[int]]) -> None:
    """Make sure that there is a key for each prompt, or none at all."""
    if keys is not None and len(keys) != len(prompts):
        raise InputError(f"{len(keys)} keys were given for {len(prompts)} prompts")
