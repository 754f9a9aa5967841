"""Beam search, as transformers does it: expand, select, finish.

Each step takes the ``num_beams * max(2, 1 + number of eos tokens)`` best continuations of a prompt's beams. Those that
end a sequence are finished, if they are among the best ``num_beams``; the best ``num_beams`` of the others go on, so
that one that finishes never costs a beam. Of continuations that are equally likely, that of the better beam is better,
then the one with the lower token id.

A beam that does not exist is left out: where there are fewer continuations than beams, fewer rows go to the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgebert_runtime.generation.beam_hypotheses import End, Pool
from edgebert_runtime.generation.hypothesis import Hypothesis
from edgebert_runtime.generation.search_plan import Plan, stuck
from edgebert_runtime.generation.step_model import Bools, Continues, ContinuesTop, Doubles, Floats, Ids, Top
from edgebert_runtime.generation.text_streamer import Decode, TextStream
from edgebert_runtime.generation.token_history import History
from edgebert_runtime.generation.top_k import check_top, log_softmax, top_of_logits, top_of_scores


@dataclass(frozen=True)
class Candidates:
    """The best continuations of each prompt that is searched, best first; all arrays are (prompts, n).

    Where a prompt has fewer, ``totals`` are -inf.
    """

    rows: Ids
    tokens: Ids
    logprobs: Floats
    totals: Doubles

    @property
    def exist(self) -> Bools:
        """Say which there are."""
        return self.totals > -np.inf


@dataclass
class Trail:
    """What every row of every step came from, to find the way back from the end of a hypothesis."""

    parents: list[list[int]] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    logprobs: list[list[float]] = field(default_factory=list)

    def add(self, parents: Ids, tokens: Ids, logprobs: Floats) -> None:
        """Note the rows (n,) that go on after a step."""
        self.parents.append(parents.tolist())
        self.tokens.append(tokens.tolist())
        self.logprobs.append(logprobs.tolist())

    def follow(self, end: End, length_penalty: float) -> Hypothesis:
        """Return the hypothesis that ended with ``end``."""
        tokens, logprobs, row = [end.token], [end.logprob], end.row
        for step in range(end.step - 1, -1, -1):
            tokens.append(self.tokens[step][row])
            logprobs.append(self.logprobs[step][row])
            row = self.parents[step][row]
        return Hypothesis.of(tokens[::-1], logprobs[::-1], end.reason, length_penalty)


def search_beams(model: Continues, logits: Floats, plan: Plan, decode: Decode | None) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each prompt, best first; fewer than asked for where there are no more."""
    options = plan.options
    pools = [Pool(options.num_beams, options.penalty, options.early_stopping or False, int(n)) for n in plan.room]
    width = options.num_beams * max(2, 1 + len(options.eos_token_id))
    history = History.start(plan.prompts, kept=plan.rules.whole)
    totals = np.zeros(len(plan.prompts), dtype=np.float64)
    texts = [TextStream(decode, options.stop) for _ in plan.prompts] if decode and options.stop else []
    trail = Trail()
    expander = Expander(model, plan, width)
    top = expander.expand(logits, history)
    while True:
        found = select(top, totals, history.prompts, width)
        prompts = np.unique(history.prompts)
        on, texts = finish(found, plan, history, prompts, pools, texts)
        if not on.any():
            break
        parents, tokens = found.rows[on], found.tokens[on]
        totals = found.totals[on]
        trail.add(parents, tokens, found.logprobs[on])
        history = history.continued(parents, tokens)
        top = expander.advance(parents, tokens, history)
    for prompt, pool in enumerate(pools):
        if not pool.found:
            raise stuck(prompt, history.generated)
    return [
        [trail.follow(end, options.penalty) for _, end in pool.found[: options.num_return_sequences]] for pool in pools
    ]


class Expander:
    """Finds the ``width`` best next tokens of every row, under the rules."""

    def __init__(self, model: Continues, plan: Plan, width: int) -> None:
        self.model = model
        self.rules = plan.rules
        self.width = width
        self.quick = model if isinstance(model, ContinuesTop) and not self.rules.whole else None

    def advance(self, parents: Ids, tokens: Ids, history: History) -> Top:
        """Continue rows, and look at what can come after."""
        if self.quick is not None:
            top = check_top(self.quick.advance_top(parents, tokens, self.width + self.rules.spare))
            return self.rules.narrow(top, history, self.width)
        return self.expand(self.model.advance(parents, tokens), history)

    def expand(self, logits: Floats, history: History) -> Top:
        """Look at ``logits`` (rows, vocab)."""
        if self.rules.whole:
            scores = log_softmax(logits)
            self.rules.apply(scores, history)
            return top_of_scores(scores, self.width)
        return self.rules.narrow(top_of_logits(logits, self.width + self.rules.spare), history, self.width)


def select(top: Top, totals: Doubles, prompts: Ids, width: int) -> Candidates:
    """Return the ``width`` best continuations of each prompt, out of the best of each of its rows.

    ``totals`` (rows,) are the sums of the rows so far; the rows of a prompt stand together, best first.
    """
    starts = np.flatnonzero(prompts != np.concatenate([[-1], prompts[:-1]]))  # the first row of each prompt
    counts = np.diff(starts, append=len(prompts))
    sums, k = totals[:, None] + top.logprobs, top.ids.shape[1]
    most = int(counts.max())
    if most * len(starts) != len(prompts):
        slots = np.repeat(np.arange(len(starts)), counts)  # (rows,) which prompt
        ranks = np.arange(len(prompts)) - np.repeat(starts, counts)  # (rows,) which of its beams
        filled = np.full((len(starts), most, k), -np.inf)
        filled[slots, ranks] = sums
        sums = filled
    flat = sums.reshape(len(starts), most * k)
    order = np.argsort(-flat, axis=1, kind="stable")[:, :width]  # (prompts, n)
    rows = np.minimum(starts[:, None] + order // k, len(prompts) - 1)
    places = order % k
    found = flat[np.arange(len(starts))[:, None], order]
    return Candidates(rows, top.ids[rows, places], top.logprobs[rows, places], found)


def finish(
    found: Candidates, plan: Plan, history: History, prompts: Ids, pools: list[Pool], texts: list[TextStream]
) -> tuple[Bools, list[TextStream]]:
    """Put the continuations that end into the pools; say which (prompts, n) go on, and give their texts.

    ``prompts`` are the numbers of those that are searched.
    """
    beams, length = plan.options.num_beams, history.generated + 1
    ended = plan.ends(found.tokens) | (length >= plan.room[prompts])[:, None]
    heard = listen(found, plan, texts)
    for slot, row in enumerate(heard):
        ended[slot] |= [text.stopped for text in row]
    for slot, place in np.argwhere(ended[:, :beams] & found.exist[:, :beams]).tolist():
        token, prompt = int(found.tokens[slot, place]), int(prompts[slot])
        stopped = bool(heard) and heard[slot][place].stopped
        end = End(
            length - 1,
            int(found.rows[slot, place]),
            token,
            float(found.logprobs[slot, place]),
            plan.reason(token, prompt, length, stopped) or "length",
        )
        pools[prompt].add(float(found.totals[slot, place]), end)
    on = found.exist & ~ended
    on &= np.cumsum(on, axis=1) <= beams
    for slot, prompt in enumerate(prompts.tolist()):
        best = float(found.totals[slot, on[slot].argmax()])
        on[slot] &= not pools[prompt].final(best, length)
    return on, [heard[slot][place] for slot, place in np.argwhere(on)] if heard else []


def listen(found: Candidates, plan: Plan, texts: list[TextStream]) -> list[list[TextStream]]:
    """Return the text of each continuation, where stop strings are looked for."""
    if not texts:
        return []
    heard = []
    for rows, tokens in zip(found.rows.tolist(), found.tokens.tolist(), strict=True):
        forks = [texts[row].fork() for row in rows]
        for fork, token in zip(forks, tokens, strict=True):
            if token not in plan.options.eos_token_id:
                fork.feed(token)
        heard.append(forks)
    return heard
