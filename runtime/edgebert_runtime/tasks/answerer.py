"""Find the answer to a question in a text with a bundle of the task ``answer``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgebert_runtime.errors import BundleError, InputError, LimitError
from edgebert_runtime.inputs.character_spans import original_offsets
from edgebert_runtime.inputs.validation import check_text, check_whole, iterate
from edgebert_runtime.task_specs import ANSWER
from edgebert_runtime.tasks.answer_spans import Ends, Span, no_answer, normalizer, read_words, search
from edgebert_runtime.tasks.engine import Engine, Floats, Progress
from edgebert_runtime.tasks.requests import Options, Row, TextOptions, Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Beside a question that leaves less room for a longer context, windows would hold fragments of sentences.
LEAST_ROOM = 8


@dataclass(frozen=True)
class Answer:
    """A span of the context: ``text`` is ``context[start:end]``, in characters; all of it empty for no answer."""

    text: str
    score: float
    start: int
    end: int


@dataclass(frozen=True)
class Wish:
    """The options of a call that are about answers, checked."""

    top_k: int
    max_answer_tokens: int
    handle_impossible_answer: bool
    stride: int | None


class Answerer(Engine):
    """Answers.

    Raises:
        BundleError: if the bundle is of another task, or its tokenizer begins a pair of texts without a special
            token, which is where a model puts "no answer".
    """

    tasks = (ANSWER,)
    outputs = ("start_logits", "end_logits")

    def _setup(self) -> None:
        """Read the settings."""
        if not self._tokenizer.pair.special_tokens[0].ids:
            raise BundleError(f"{self._tokenizer.file} begins pairs of texts without a special token; export again")

    def answer(
        self,
        question: str,
        context: str,
        *,
        top_k: int = 1,
        max_answer_tokens: int = 15,
        handle_impossible_answer: bool = False,
        stride: int | None = None,
        **options: Unpack[TextOptions],
    ) -> list[Answer]:
        """Return the ``top_k`` best answers, best first; fewer only if there are not so many distinct ones.

        An answer is a span of whole words (in scripts without spaces: of tokens). It was found by its tokens, which
        are ``max_answer_tokens`` at most, and its score is the probability of its start times that of its end, both
        among "no answer" and all tokens of the context. ``handle_impossible_answer`` lets "no answer", an empty span,
        compete with the others.

        The question is never cut, and neither is the context: a longer one is computed in windows that share
        ``stride`` tokens (None: a quarter of a window's context, at most 128). If either is blank, the model is not
        asked, and there is no answer. :class:`TextOptions` are the other options.

        Raises:
            InputError: naming the text or option that cannot be used.
            LimitError: for a text that is too long, or a question that leaves no room for the context.
        """
        wish = self._wish(top_k, max_answer_tokens, handle_impossible_answer, stride)
        return next(iter(self._gather(self._answer([(question, context)], wish, options), None, None)))

    def answer_many(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        top_k: int = 1,
        max_answer_tokens: int = 15,
        handle_impossible_answer: bool = False,
        stride: int | None = None,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> list[list[Answer]]:
        """Return what :meth:`answer` returns for each (question, context), the windows of all computed together."""
        wish = self._wish(top_k, max_answer_tokens, handle_impossible_answer, stride)
        return self._gather(self._answer(pairs, wish, options), pairs, progress)

    def _wish(self, top_k: int, max_answer_tokens: int, impossible: bool, stride: int | None) -> Wish:
        """Check the options that are about answers."""
        if not isinstance(impossible, (bool, np.bool_)):
            raise InputError(f"handle_impossible_answer={impossible!r:.60} is not True or False")
        return Wish(
            check_whole("top_k", top_k, 1, None),
            check_whole("max_answer_tokens", max_answer_tokens, 1, self.max_tokens),
            bool(impossible),
            stride,
        )

    def _answer(self, pairs: Iterable[tuple[str, str]], wish: Wish, given: TextOptions) -> Iterator[list[list[Answer]]]:
        """Yield the answers of some pairs after the other."""
        template = self._tokenizer.pair
        options = self._check(template.num_special_tokens, **given)
        self._windows(0, options.max_tokens - template.num_special_tokens, wish.stride)

        def prepare(item: object, index: int) -> Work[tuple[Floats, ...], list[Answer]]:
            return self._split(*read_pair(item, index), index, wish, options)

        return self._run(
            iterate(pairs, "answer_many([(question, context)])"),
            prepare,
            lambda _row, parts: tuple(part.copy() for part in parts),
            options.max_batch_tokens,
        )

    def _split(
        self, question: str, context: str, index: int, wish: Wish, options: Options
    ) -> Work[tuple[Floats, ...], list[Answer]]:
        """Put the question before each window of the context, and find the best spans of all windows."""
        template = self._tokenizer.pair
        asked = self._tokenizer.content(check_text(question, index, options.errors, "question")).ids
        read = check_text(context, index, options.errors, "question", "the context")
        tokens = self._tokenizer.content(read)
        ids = tokens.ids
        if not asked or not ids or question.isspace() or context.isspace():
            nothing = [Answer("", 1.0, 0, 0)] if wish.handle_impossible_answer else []
            return Work([], lambda _: nothing)
        places = self._places(len(asked), len(ids), index, wish, options)
        _, place = template.starts(len(asked), len(ids))

        def finish(found: list[tuple[Floats, ...]]) -> list[Answer]:
            ends: list[Ends] = []
            for (start, end), (one, other) in zip(places, found, strict=True):
                kept = slice(place, place + end - start)
                ends.append((np.append(one[:1], one[kept]), np.append(other[:1], other[kept])))
            words = read_words(read, tokens.word_ids, tokens.offsets)
            spans = search(places, ends, words, wish.top_k, wish.max_answer_tokens)
            if wish.handle_impossible_answer:
                spans = sorted([*spans, Span(-no_answer(ends), 0, 0)])[: wish.top_k]
            return locate(spans, normalizer(ends), context, read)

        return Work([Row(*template.join(asked, ids[start:end])) for start, end in places], finish)

    def _places(self, asked: int, length: int, index: int, wish: Wish, options: Options) -> list[tuple[int, int]]:
        """Plan the windows over ``length`` tokens of context beside a question of ``asked`` tokens.

        Raises:
            LimitError: if the question leaves too little room.
        """
        room = options.max_tokens - self._tokenizer.pair.num_special_tokens - asked
        where = f"text {index} has a question of {asked} tokens, which leaves {max(0, room)} of {options.max_tokens}"
        advice = f"shorten the question, or raise max_tokens up to {self.max_tokens}"
        if room < min(LEAST_ROOM, length):
            raise LimitError(f"{where} for the context of {length}; {advice}")
        if length <= room:
            return [(0, length)]
        if wish.stride is not None and wish.stride >= room:
            raise LimitError(f"{where} for the context, not more than stride={wish.stride}; lower it, {advice}")
        return self._windows(length, room, wish.stride)


def read_pair(item: object, index: int) -> tuple[str, str]:
    """Return a question and its context.

    Raises:
        InputError: if ``item`` is not a pair of texts.
    """
    if not isinstance(item, (tuple, list)) or len(item) != 2 or not all(isinstance(text, str) for text in item):
        raise InputError(f"text {index} is {item!r:.60}, not a pair (question, context) of str")
    return item[0], item[1]


def locate(spans: Iterable[Span], total: float, context: str, read: str) -> list[Answer]:
    """Turn spans of what was ``read`` into answers out of the ``context``, by ``total`` scored as probabilities."""
    origin = original_offsets(context, read)
    places = [(min(1.0, math.exp(-span.badness - total)), origin[span.start], origin[span.end]) for span in spans]
    return [Answer(context[start:end], score, start, end) for score, start, end in places]
