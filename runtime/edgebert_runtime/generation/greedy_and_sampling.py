"""Greedy search and sampling: one token of each row a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgebert_runtime.generation.hypotheses import FinishReason, Hypothesis
from edgebert_runtime.generation.sampler import Sampler
from edgebert_runtime.generation.search_plan import SearchPlan, no_allowed_token
from edgebert_runtime.generation.step_model import Floats, Ids, StepModel, TokenHistory, TopK, TopKStepModel
from edgebert_runtime.generation.text_streamer import Decode, TextStream
from edgebert_runtime.generation.top_k import log_norms, top_of_logits


@dataclass(frozen=True)
class Step:
    """One new token of each running sequence.

    ``rows`` (n,) are the numbers of the sequences, in rising order: ``num_return_sequences`` for each prompt.
    ``tokens`` and ``logprobs`` (n,) are theirs. ``reasons`` say why they end, None if they go on. ``pieces`` are the
    text that is final now. All pieces of a sequence join to its text.
    """

    rows: Ids
    tokens: Ids
    logprobs: Floats
    reasons: tuple[FinishReason | None, ...]
    pieces: tuple[str, ...]


def stream_steps(
    model: StepModel, logits: Floats, plan: SearchPlan, keys: Sequence[Sequence[int]], decode: Decode | None
) -> Iterator[Step]:
    """Yield each step until every sequence has ended. Ended rows are not computed again."""
    repeats = plan.options.num_return_sequences
    selector = TokenSelector(model, plan, Sampler(plan.options, keys) if plan.options.do_sample else None)
    history = TokenHistory.start(plan.prompts, repeats=repeats, with_tokens=plan.constraints.needs_full_logits)
    rows = np.arange(len(history.prompts), dtype=np.int64)
    texts = [TextStream(decode, plan.options.stop) for _ in rows] if decode else []
    parents = history.prompts
    selected = selector.select(logits if repeats == 1 else logits[parents], history, rows)
    while True:
        tokens, logprobs = selected.ids[:, 0], selected.logprobs[:, 0]
        reasons, pieces = endings(plan, history, rows, tokens, texts)
        yield Step(rows, tokens, logprobs, reasons, pieces)
        alive = np.array([i for i, reason in enumerate(reasons) if reason is None], dtype=np.int64)
        if not alive.size:
            return
        parents = parents[alive] if not history.generated else alive
        history, tokens, rows = history.append(alive, tokens[alive]), tokens[alive], rows[alive]
        selected = selector.step(parents, tokens, history, rows)


class TokenSelector:
    """Selects the next token of each row: the most likely one, or a draw."""

    def __init__(self, model: StepModel, plan: SearchPlan, sampler: Sampler | None) -> None:
        self.model = model
        self.constraints = plan.constraints
        self.sampler = sampler
        self.needs_full_logits = self.constraints.needs_full_logits or sampler is not None
        self.k = 1 + self.constraints.extra_candidates  # so that one allowed token is left
        self.top_k_model = model if isinstance(model, TopKStepModel) and not self.needs_full_logits else None

    def step(self, parents: Ids, tokens: Ids, history: TokenHistory, rows: Ids) -> TopK:
        """Continue rows, and select the token after."""
        if self.top_k_model is not None:
            return self.select_best(self.top_k_model.step_top_k(parents, tokens, self.k), history)
        return self.select(self.model.step(parents, tokens), history, rows)

    def select(self, logits: Floats, history: TokenHistory, rows: Ids) -> TopK:
        """Select a token of each row of ``logits`` (rows, vocab)."""
        if not self.needs_full_logits:
            return self.select_best(top_of_logits(logits, self.k), history)
        norms = log_norms(logits)
        scores = np.array(logits, dtype=np.float32)
        self.constraints.apply(scores, history)
        tokens = scores.argmax(axis=1)
        numbers = np.arange(len(tokens))
        check_possible(scores[numbers, tokens], history)
        if self.sampler is not None:
            tokens = self.sampler.draw(scores, rows)
        logprobs = (logits[numbers, tokens] - norms).astype(np.float32)
        logprobs[self.constraints.forced_rows(history)] = 0
        return TopK(tokens[:, None], logprobs[:, None])

    def select_best(self, top: TopK, history: TokenHistory) -> TopK:
        """Select the best allowed token of each row."""
        top = self.constraints.filter_top_k(top, history, 1)
        check_possible(top.logprobs[:, 0], history)
        return top


def check_possible(scores: Floats, history: TokenHistory) -> None:
    """Check that the best score (rows,) of each row is possible.

    Raises:
        InputError: naming the prompt for which the options leave none.
    """
    impossible = scores == -np.inf
    if impossible.any():
        raise no_allowed_token(int(history.prompts[impossible.argmax()]), history.generated)


def endings(
    plan: SearchPlan, history: TokenHistory, rows: Ids, tokens: Ids, texts: list[TextStream]
) -> tuple[tuple[FinishReason | None, ...], tuple[str, ...]]:
    """Return the finish reason of each row, and its text that is final now."""
    reasons, pieces = [], []
    for row, token, prompt in zip(rows.tolist(), tokens.tolist(), history.prompts.tolist(), strict=True):
        reason = plan.finish_reason(token, prompt, history.generated + 1)
        piece = ""
        if texts:
            text = texts[row]
            piece = "" if reason == "stop" else text.feed(token)
            reason = plan.finish_reason(token, prompt, history.generated + 1, text.stopped)
            piece += text.finish() if reason else ""
        reasons.append(reason)
        pieces.append(piece)
    return tuple(reasons), tuple(pieces)


def collect(steps: Iterator[Step], plan: SearchPlan) -> list[list[Hypothesis]]:
    """Return the sequences of each prompt, in the order of their rows."""
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
    hypotheses = [Hypothesis.of(*parts) for parts in zip(tokens, logprobs, reasons, strict=True)]
    return [hypotheses[start : start + count] for start in range(0, len(hypotheses), count)]
