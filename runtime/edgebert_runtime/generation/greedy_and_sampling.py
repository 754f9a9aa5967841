"""Greedy search and sampling: one token of each row a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgebert_runtime.generation.hypotheses import FinishReason, Hypothesis
from edgebert_runtime.generation.sampler import Sampler
from edgebert_runtime.generation.search_plan import SearchPlan, no_allowed_token
from edgebert_runtime.generation.step_model import Floats, Ids, Search, Step, StepRequest, TokenHistory, TopK
from edgebert_runtime.generation.text_streamer import Decode, TextStream
from edgebert_runtime.generation.top_k import log_norms, top_of_logits


def greedy_or_sampled(logits: Floats, plan: SearchPlan, keys: Sequence[Sequence[int]], decode: Decode | None) -> Search:
    """Search with one token of each row a step. Ended rows are not asked for again."""
    repeats = plan.options.num_return_sequences
    selector = TokenSelector(plan, Sampler(plan.options, keys) if plan.options.do_sample else None)
    history = TokenHistory.start(plan.prompts, repeats=repeats, with_tokens=plan.constraints.needs_full_logits)
    rows = np.arange(len(history.prompts), dtype=np.int64)
    texts = [TextStream(decode, plan.options.stop) for _ in rows] if decode else []
    sequences = [TokenSequence([], []) for _ in rows]
    parents = history.prompts
    selected = selector.select(logits if repeats == 1 else logits[parents], history, rows)
    while True:
        tokens, logprobs = selected.ids[:, 0], selected.logprobs[:, 0]
        reasons, pieces = endings(plan, history, rows, tokens, texts)
        for row, token, logprob, reason in zip(rows.tolist(), tokens.tolist(), logprobs.tolist(), reasons, strict=True):
            sequences[row].add(token, logprob, reason)
        yield Step(rows, tokens, logprobs, reasons, pieces)
        alive = np.array([i for i, reason in enumerate(reasons) if reason is None], dtype=np.int64)
        if not alive.size:
            break
        parents = parents[alive] if not history.generated else alive
        history, tokens, rows = history.append(alive, tokens[alive]), tokens[alive], rows[alive]
        answer = yield StepRequest(parents, tokens, selector.top_k)
        selected = selector.read(answer, history, rows)
    hypotheses = [sequence.hypothesis() for sequence in sequences]
    return [hypotheses[start : start + repeats] for start in range(0, len(hypotheses), repeats)]


@dataclass
class TokenSequence:
    """The new tokens of a row with their log-probabilities, and why it ended."""

    tokens: list[int]
    logprobs: list[float]
    reason: FinishReason = "length"

    def add(self, token: int, logprob: float, reason: FinishReason | None) -> None:
        """Add a token; ``reason`` says why the row ends with it, if it does."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.reason = reason or self.reason

    def hypothesis(self) -> Hypothesis:
        """Return the row, scored."""
        return Hypothesis.of(self.tokens, self.logprobs, self.reason)


class TokenSelector:
    """Selects the next token of each row: the most likely one, or a draw.

    ``top_k`` is the number of best tokens that it needs, None for full logits.
    """

    def __init__(self, plan: SearchPlan, sampler: Sampler | None) -> None:
        self.constraints = plan.constraints
        self.sampler = sampler
        full = self.constraints.needs_full_logits or sampler is not None
        self.top_k = None if full else 1 + self.constraints.extra_candidates  # so that one allowed token is left

    def read(self, answer: Floats | TopK | None, history: TokenHistory, rows: Ids) -> TopK:
        """Select a token of each row from the answer to a request."""
        if isinstance(answer, TopK):
            return self.select_best(answer, history)
        assert answer is not None
        return self.select(answer, history, rows)

    def select(self, logits: Floats, history: TokenHistory, rows: Ids) -> TopK:
        """Select a token of each row of ``logits`` (rows, vocab)."""
        if self.top_k is not None:
            return self.select_best(top_of_logits(logits, self.top_k), history)
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
