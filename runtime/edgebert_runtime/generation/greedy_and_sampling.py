"""Greedy search and sampling, one token of every row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgebert_runtime.generation.hypothesis import FinishReason, Hypothesis
from edgebert_runtime.generation.sampler import Sampler
from edgebert_runtime.generation.search_plan import Plan, stuck
from edgebert_runtime.generation.step_model import Continues, ContinuesTop, Floats, Ids, Top
from edgebert_runtime.generation.text_streamer import Decode, TextStream
from edgebert_runtime.generation.token_history import History
from edgebert_runtime.generation.top_k import check_top, log_norms, top_of_logits


@dataclass(frozen=True)
class Step:
    """One new token of each sequence that goes on, and those that end with it.

    ``rows`` (n,) are the numbers of the sequences, in rising order: ``num_return_sequences`` for each prompt.
    ``tokens`` and ``logprobs`` (n,) are theirs, and ``reasons`` say why they end, or None. ``pieces`` are the text
    that has become certain; those of a sequence join to its text.
    """

    rows: Ids
    tokens: Ids
    logprobs: Floats
    reasons: tuple[FinishReason | None, ...]
    pieces: tuple[str, ...]


def stream_steps(
    model: Continues, logits: Floats, plan: Plan, keys: Sequence[Sequence[int]], decode: Decode | None
) -> Iterator[Step]:
    """Yield each step until every sequence has ended. The model is not asked again for one that has."""
    repeats = plan.options.num_return_sequences
    chooser = Chooser(model, plan, Sampler(plan.options, keys) if plan.options.do_sample else None)
    history = History.start(plan.prompts, repeats=repeats, kept=plan.rules.whole)
    rows = np.arange(len(history.prompts), dtype=np.int64)
    texts = [TextStream(decode, plan.options.stop) for _ in rows] if decode else []
    parents = history.prompts
    best = chooser.choose(logits if repeats == 1 else logits[parents], history, rows)
    while True:
        tokens, logprobs = best.ids[:, 0], best.logprobs[:, 0]
        reasons, pieces = endings(plan, history, rows, tokens, texts)
        yield Step(rows, tokens, logprobs, reasons, pieces)
        alive = np.array([i for i, reason in enumerate(reasons) if reason is None], dtype=np.int64)
        if not alive.size:
            return
        parents = parents[alive] if not history.generated else alive
        history, tokens, rows = history.continued(alive, tokens[alive]), tokens[alive], rows[alive]
        best = chooser.advance(parents, tokens, history, rows)


class Chooser:
    """Chooses the next token of every row: the best, or one that a sampler draws."""

    def __init__(self, model: Continues, plan: Plan, sampler: Sampler | None) -> None:
        self.model = model
        self.rules = plan.rules
        self.sampler = sampler
        self.whole = self.rules.whole or sampler is not None
        self.count = 1 + self.rules.spare  # tokens to choose from, so that one is left
        self.quick = model if isinstance(model, ContinuesTop) and not self.whole else None

    def advance(self, parents: Ids, tokens: Ids, history: History, rows: Ids) -> Top:
        """Continue rows, and choose the token after."""
        if self.quick is not None:
            top = check_top(self.quick.advance_top(parents, tokens, self.count))
            return self.best(top, history)
        return self.choose(self.model.advance(parents, tokens), history, rows)

    def choose(self, logits: Floats, history: History, rows: Ids) -> Top:
        """Choose a token of each row of ``logits`` (rows, vocab)."""
        if not self.whole:
            return self.best(top_of_logits(logits, self.count), history)
        norms = log_norms(logits)
        scores = np.array(logits, dtype=np.float32)
        self.rules.apply(scores, history)
        tokens = scores.argmax(axis=1)
        numbers = np.arange(len(tokens))
        check_possible(scores[numbers, tokens], history)
        if self.sampler is not None:
            tokens = self.sampler.draw(scores, rows)
        logprobs = (logits[numbers, tokens] - norms).astype(np.float32)
        logprobs[self.rules.forced(history)] = 0
        return Top(tokens[:, None], logprobs[:, None])

    def best(self, top: Top, history: History) -> Top:
        """Choose the best token of each row that the rules leave of ``top``."""
        top = self.rules.narrow(top, history, 1)
        check_possible(top.logprobs[:, 0], history)
        return top


def check_possible(scores: Floats, history: History) -> None:
    """Make sure that there is a token for every row; ``scores`` (rows,) are those of the best ones.

    Raises:
        InputError: naming the prompt for which the options leave none.
    """
    gone = scores == -np.inf
    if gone.any():
        raise stuck(int(history.prompts[gone.argmax()]), history.generated)


def endings(
    plan: Plan, history: History, rows: Ids, tokens: Ids, texts: list[TextStream]
) -> tuple[tuple[FinishReason | None, ...], tuple[str, ...]]:
    """Return why each row ends, or None, and the text that its token makes certain."""
    reasons, pieces = [], []
    for row, token, prompt in zip(rows.tolist(), tokens.tolist(), history.prompts.tolist(), strict=True):
        reason = plan.reason(token, prompt, history.generated + 1)
        piece = ""
        if texts:
            text = texts[row]
            piece = "" if reason == "stop" else text.feed(token)
            reason = plan.reason(token, prompt, history.generated + 1, text.stopped)
            piece += text.finish() if reason else ""
        reasons.append(reason)
        pieces.append(piece)
    return tuple(reasons), tuple(pieces)


def collect(steps: Iterator[Step], plan: Plan) -> list[list[Hypothesis]]:
    """Return the sequences of each prompt, in the order in which they were drawn."""
    count = plan.options.num_return_sequences
    tokens: list[list[int]] = [[] for _ in range(len(plan.prompts) * count)]
    logprobs: list[list[float]] = [[] for _ in tokens]
    reasons: list[FinishReason] = ["length" for _ in tokens]
    for step in steps:
        for row, token, logprob, reason in zip(
            step.rows.tolist(), step.tokens.tolist(), step.logprobs.tolist(), step.reasons, strict=True
        ):
            tokens[row].append(token)
            logprobs[row].append(logprob)
            reasons[row] = reason or reasons[row]
    made = [Hypothesis.of(*found, plan.options.penalty) for found in zip(tokens, logprobs, reasons, strict=True)]
    return [made[start : start + count] for start in range(0, len(made), count)]
