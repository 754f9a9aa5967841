"""Search for continuations of prompts: greedy, sampling, beams. NumPy only.

::

    options.py     what a caller may ask for            model.py    what is asked of a model
    plan.py        what that means for each prompt      rules.py    which tokens can come next, in what order
    processors.py  scores changed by what came before   warpers.py  distributions shaped for sampling
    ranking.py     the best of many scores              history.py  the tokens of each row
    steps.py       greedy and sampling, token by token  sampling.py random numbers of each row
    beams.py       beam search                          pool.py     its finished hypotheses
    text.py        text while tokens come               search.py   the two ways in
"""

from __future__ import annotations

from edgebert_runtime.generation.generate import search, stream
from edgebert_runtime.generation.greedy_and_sampling import Step
from edgebert_runtime.generation.hypothesis import FinishReason, Hypothesis
from edgebert_runtime.generation.options import Options
from edgebert_runtime.generation.step_model import Continues, ContinuesTop, Top
from edgebert_runtime.generation.text_streamer import TextStream, read_text

__all__ = [
    "Continues",
    "ContinuesTop",
    "FinishReason",
    "Hypothesis",
    "Options",
    "Step",
    "TextStream",
    "Top",
    "read_text",
    "search",
    "stream",
]
