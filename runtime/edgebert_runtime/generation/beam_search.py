"""Beam search, as transformers does it: expand, select, finish.

Each step takes the ``num_beams * max(2, 1 + number of eos tokens)`` best continuations of a prompt's beams. Those that
end a sequence are finished, if they are among the best ``num_beams``. The best ``num_beams`` of the others run on, so
a finished beam never costs a running one. Among equally likely continuations the better beam comes first, then the
lower token id.

Where there are fewer continuations than beams, fewer rows go to the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgebert_runtime.generation.hypotheses import BeamHypotheses, FinishedBeam, Hypothesis
from edgebert_runtime.generation.search_plan import SearchPlan, no_allowed_token
from edgebert_runtime.generation.step_model import (
    Bools,
    Doubles,
    Floats,
    Ids,
    Search,
    StepRequest,
    TokenHistory,
    TopK,
)
from edgebert_runtime.generation.text_streamer import Decode, TextStream
from edgebert_runtime.generation.top_k import log_softmax, top_of_logits, top_of_scores


@dataclass(frozen=True)
class Candidates:
    """The best continuations of each running prompt, best first.

    All arrays are (prompts, n). ``totals`` are sums of log-probabilities, -inf where a prompt has fewer continuations
    than n.
    """

    rows: Ids
    tokens: Ids
    logprobs: Floats
    totals: Doubles

    @property
    def exist(self) -> Bools:
        """Mask (prompts, n) of the continuations that exist."""
        return self.totals > -np.inf


@dataclass
class BackPointers:
    """Parent, token and log-probability of each row of each step."""

    parents: list[list[int]] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    logprobs: list[list[float]] = field(default_factory=list)

    def add(self, parents: Ids, tokens: Ids, logprobs: Floats) -> None:
        """Add the rows (n,) that run on after a step."""
        self.parents.append(parents.tolist())
        self.tokens.append(tokens.tolist())
        self.logprobs.append(logprobs.tolist())

    def trace(self, beam: FinishedBeam, length_penalty: float) -> Hypothesis:
        """Return the hypothesis of a finished beam."""
        tokens, logprobs, row = [beam.token], [beam.logprob], beam.row
        for step in range(beam.step - 1, -1, -1):
            tokens.append(self.tokens[step][row])
            logprobs.append(self.logprobs[step][row])
            row = self.parents[step][row]
        return Hypothesis.of(tokens[::-1], logprobs[::-1], beam.reason, length_penalty)


def beam_search(logits: Floats, plan: SearchPlan, decode: Decode | None) -> Search:
    """Search for the best hypotheses of each prompt, best first.

    They are fewer than ``num_return_sequences`` if there are no more.
    """
    options = plan.options
    hypotheses = [
        BeamHypotheses(options.num_beams, options.penalty, options.early_stopping or False, int(most))
        for most in plan.max_new_tokens
    ]
    width = options.num_beams * max(2, 1 + len(options.eos_token_id))
    scorer = CandidateScorer(plan, width)
    history = TokenHistory.start(plan.prompts, with_tokens=plan.constraints.needs_full_logits)
    totals = np.zeros(len(plan.prompts), dtype=np.float64)
    texts = [TextStream(decode, options.stop) for _ in plan.prompts] if decode and options.stop else []
    pointers = BackPointers()
    top = scorer.score(logits, history)
    while True:
        candidates = select(top, totals, history.prompts, width)
        prompts = np.unique(history.prompts)
        running, texts = finish(candidates, plan, history, prompts, hypotheses, texts)
        if not running.any():
            break
        parents, tokens = candidates.rows[running], candidates.tokens[running]
        totals = candidates.totals[running]
        pointers.add(parents, tokens, candidates.logprobs[running])
        history = history.append(parents, tokens)
        answer = yield StepRequest(parents, tokens, scorer.top_k)
        top = scorer.read(answer, history)
    for prompt, beams in enumerate(hypotheses):
        if not beams.finished:
            raise no_allowed_token(prompt, history.generated)
    count = options.num_return_sequences
    return [[pointers.trace(beam, options.penalty) for _, beam in beams.finished[:count]] for beams in hypotheses]


class CandidateScorer:
    """Scores the ``width`` best allowed next tokens of each row.

    ``top_k`` is the number of best tokens that it needs, None for full logits.
    """

    def __init__(self, plan: SearchPlan, width: int) -> None:
        self.constraints = plan.constraints
        self.width = width
        extra = self.constraints.extra_candidates  # so that enough allowed tokens are left
        self.top_k = None if self.constraints.needs_full_logits else width + extra

    def read(self, answer: Floats | TopK | None, history: TokenHistory) -> TopK:
        """Score the tokens of the answer to a request."""
        if isinstance(answer, TopK):
            return self.constraints.filter_top_k(answer, history, self.width)
        assert answer is not None
        return self.score(answer, history)

    def score(self, logits: Floats, history: TokenHistory) -> TopK:
        """Score the tokens of ``logits`` (rows, vocab)."""
        if self.top_k is None:
            scores = log_softmax(logits)
            self.constraints.apply(scores, history)
            return top_of_scores(scores, self.width)
        return self.constraints.filter_top_k(top_of_logits(logits, self.top_k), history, self.width)


def select(top: TopK, totals: Doubles, prompts: Ids, width: int) -> Candidates:
    """Return the ``width`` best continuations of each prompt.

    ``totals`` (rows,) are the sums of the rows so far. The rows of a prompt stand together, best first.
    """
    starts = np.flatnonzero(prompts != np.concatenate([[-1], prompts[:-1]]))  # the first row of each prompt
    counts = np.diff(starts, append=len(prompts))
    sums, k = totals[:, None] + top.logprobs, top.ids.shape[1]
    most = int(counts.max())
    if most * len(starts) != len(prompts):
        slots = np.repeat(np.arange(len(starts)), counts)  # (rows,) which prompt
        ranks = np.arange(len(prompts)) - np.repeat(starts, counts)  # (rows,) which of its beams
        padded = np.full((len(starts), most, k), -np.inf)
        padded[slots, ranks] = sums
        sums = padded
    flat = sums.reshape(len(starts), most * k)
    order = np.argsort(-flat, axis=1, kind="stable")[:, :width]  # (prompts, n)
    rows = np.minimum(starts[:, None] + order // k, len(prompts) - 1)
    columns = order % k
    best = flat[np.arange(len(starts))[:, None], order]
    return Candidates(rows, top.ids[rows, columns], top.logprobs[rows, columns], best)


def finish(
    candidates: Candidates,
    plan: SearchPlan,
    history: TokenHistory,
    prompts: Ids,
    hypotheses: list[BeamHypotheses],
    texts: list[TextStream],
) -> tuple[Bools, list[TextStream]]:
    """Finish the candidates that end.

    The mask returned (prompts, n) is of those that run on; the texts are theirs. ``prompts`` are the numbers of the
    running prompts.
    """
    num_beams, length = plan.options.num_beams, history.generated + 1
    ended = plan.ends(candidates.tokens) | (length >= plan.max_new_tokens[prompts])[:, None]
    forks = update_stop_strings(candidates, plan, texts)
    for slot, streams in enumerate(forks):
        ended[slot] |= [stream.stopped for stream in streams]
    for slot, rank in np.argwhere(ended[:, :num_beams] & candidates.exist[:, :num_beams]).tolist():
        token, prompt = int(candidates.tokens[slot, rank]), int(prompts[slot])
        stopped = bool(forks) and forks[slot][rank].stopped
        beam = FinishedBeam(
            length - 1,
            int(candidates.rows[slot, rank]),
            token,
            float(candidates.logprobs[slot, rank]),
            plan.finish_reason(token, prompt, length, stopped) or "length",
        )
        hypotheses[prompt].add(float(candidates.totals[slot, rank]), beam)
    running = candidates.exist & ~ended
    running &= np.cumsum(running, axis=1) <= num_beams
    for slot, prompt in enumerate(prompts.tolist()):
        best = float(candidates.totals[slot, running[slot].argmax()])
        running[slot] &= not hypotheses[prompt].is_final(best, length)
    return running, [forks[slot][rank] for slot, rank in np.argwhere(running)] if forks else []


def update_stop_strings(candidates: Candidates, plan: SearchPlan, texts: list[TextStream]) -> list[list[TextStream]]:
    """Return the text stream of each candidate, forked from its row."""
    if not texts:
        return []
    forks = []
    for rows, tokens in zip(candidates.rows.tolist(), candidates.tokens.tolist(), strict=True):
        streams = [texts[row].fork() for row in rows]
        for stream, token in zip(streams, tokens, strict=True):
            if token not in plan.options.eos_token_id:
                stream.feed(token)
        forks.append(streams)
    return forks
