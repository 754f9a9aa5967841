"""Text generation in NumPy: greedy search, sampling and beam search over any step model.

::

    search.py               the entry points: search() and stream()
    options.py              the options of a call           option_parsers.py     the parser of each option
    search_plan.py          the limits of each prompt       step_model.py         the model's protocol, token history
    greedy_and_sampling.py  one token of each row a step    sampler.py            distributions and random draws
    beam_search.py          expand, select, finish          hypotheses.py         finished sequences and their scores
    token_constraints.py    suppressed and forced tokens    logits_processors.py  scores changed by the history
    top_k.py                top-k tokens, log-softmax       text_streamer.py      text of tokens as they come
"""

from __future__ import annotations

from edgebert_runtime.generation.hypotheses import FinishReason, Hypothesis
from edgebert_runtime.generation.options import Options
from edgebert_runtime.generation.search import search, stream
from edgebert_runtime.generation.step_model import Step, StepModel, StepRequest, TopK, TopKStepModel
from edgebert_runtime.generation.text_streamer import TextStream, read_text

__all__ = [
    "FinishReason",
    "Hypothesis",
    "Options",
    "Step",
    "StepModel",
    "StepRequest",
    "TextStream",
    "TopK",
    "TopKStepModel",
    "read_text",
    "search",
    "stream",
]
