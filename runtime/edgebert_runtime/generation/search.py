"""The entry points of generation: search for whole sequences, or stream their steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgebert_runtime.errors import InputError
from edgebert_runtime.generation.beam_search import beam_search
from edgebert_runtime.generation.greedy_and_sampling import Step, collect, stream_steps
from edgebert_runtime.generation.hypotheses import Hypothesis
from edgebert_runtime.generation.options import Options
from edgebert_runtime.generation.search_plan import SearchPlan
from edgebert_runtime.generation.step_model import Floats, StepModel
from edgebert_runtime.generation.text_streamer import Decode


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
    if options.mode == "beam":
        return beam_search(model, logits, plan, decode)
    return collect(stream_steps(model, logits, plan, keys or prompts, decode if options.stop else None), plan)


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
    return stream_steps(model, logits, plan, keys or prompts, decode)


def check_keys(keys: Sequence[Sequence[int]] | None, prompts: Sequence[Sequence[int]]) -> None:
    """Make sure that there is a key for each prompt, or none at all."""
    if keys is not None and len(keys) != len(prompts):
        raise InputError(f"{len(keys)} keys were given for {len(prompts)} prompts")
