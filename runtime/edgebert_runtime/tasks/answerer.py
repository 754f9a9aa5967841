"""Find the answer to a question in a text with a bundle of the task ``answer``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebert_runtime.errors import BundleError, InputError, LimitError
from edgebert_runtime.inputs.character_spans import original_offsets
from edgebert_runtime.inputs.validation import check_text, check_whole, iterate
from edgebert_runtime.task_specs import ANSWER
from edgebert_runtime.tasks.answer_spans import (
    Span,
    StartEndLogits,
    best_spans,
    log_normalizer,
    no_answer_score,
    read_words,
)
from edgebert_runtime.tasks.base.batch_pipeline import BatchEngine, Floats, Request
from edgebert_runtime.tasks.base.engine import Progress
from edgebert_runtime.tasks.base.model_inputs import ModelInput, WorkItem
from edgebert_runtime.tasks.base.text_encoder import token_windows
from edgebert_runtime.tasks.base.text_options import CheckedOptions, TextOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Beside a question that leaves less room for a longer context, windows would hold fragments of sentences.
MIN_CONTEXT_TOKENS = 8


@dataclass(frozen=True)
class Answer:
    """A span of the context: ``text`` is ``context[start:end]``, in characters; all of it empty for no answer."""

    text: str
    score: float
    start: int
    end: int


@dataclass(frozen=True)
class AnswerOptions(Request):
    """A call, checked."""

    top_k: int
    max_answer_tokens: int
    handle_impossible_answer: bool
    stride: int | None


@dataclass(frozen=True)
class AnswerItem(WorkItem):
    """A context as it was given, as it was tokenized, its tokens (``tokenizers.Encoding``), and their windows.

    ``context_start`` is the position of the first token of the context in a row.
    """

    context: str
    tokenized: str
    tokens: Any
    windows: Sequence[tuple[int, int]]
    context_start: int


class Answerer(BatchEngine[AnswerOptions, AnswerItem, "tuple[Floats, ...]", "list[Answer]"]):
    """Answers.

    Raises:
        BundleError: if the bundle is of another task, or its tokenizer begins a pair of texts without a special
            token, which is where a model puts "no answer".
    """

    tasks = (ANSWER,)
    _outputs = ("start_logits", "end_logits")

    def _read_settings(self) -> None:
        """Check the tokenizer."""
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

        An answer is a span of whole words; in scripts without spaces, of tokens. It has ``max_answer_tokens`` tokens
        at most. Its score is the probability of its start times that of its end, both among "no answer" and all
        tokens of the context. ``handle_impossible_answer`` lets "no answer", an empty span, compete with the others.

        Neither question nor context is cut. A longer context is computed in windows that share ``stride`` tokens
        (None: a quarter of a window's context, at most 128). If either is blank, the model is not asked, and there is
        no answer. :class:`TextOptions` are the other options.

        Raises:
            InputError: naming the text or option that cannot be used.
            LimitError: for a text that is too long, or a question that leaves no room for the context.
        """
        request = self._request(top_k, max_answer_tokens, handle_impossible_answer, stride, options)
        return next(self._run([(question, context)], request))[0]

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
        """Return the answers of each (question, context); the windows of all run together. See :meth:`answer`."""
        request = self._request(top_k, max_answer_tokens, handle_impossible_answer, stride, options)
        return self._collect(self._run(iterate(pairs, "answer_many([(question, context)])"), request), pairs, progress)

    def _request(
        self, top_k: int, max_answer_tokens: int, impossible: bool, stride: int | None, options: TextOptions
    ) -> AnswerOptions:
        """Check the options of a call."""
        self._check_usable()
        if not isinstance(impossible, (bool, np.bool_)):
            raise InputError("is not True or False", option="handle_impossible_answer", value=impossible)
        top_k = check_whole("top_k", top_k, 1, None)
        max_answer_tokens = check_whole("max_answer_tokens", max_answer_tokens, 1, self.max_tokens)
        special_tokens = self._tokenizer.pair.num_special_tokens
        checked = CheckedOptions.read(options, self._limits, special_tokens)
        token_windows(0, checked.max_tokens - special_tokens, stride)
        return AnswerOptions(checked, top_k, max_answer_tokens, bool(impossible), stride)

    def _tokenize(self, item: object, index: int, request: AnswerOptions) -> AnswerItem:
        """Put the question before each window of the context. There are no rows if either is blank."""
        question, context = read_pair(item, index)
        template, errors = self._tokenizer.pair, request.options.encoding_errors
        question_ids = self._encoder.content(question, index, request.options, "question")
        tokenized = check_text(context, index, errors, "question", "the context")
        tokens = self._encoder.encoding(tokenized, index, request.options, "question", "the context")
        ids = tokens.ids
        if not question_ids or not ids or question.isspace() or context.isspace():
            return AnswerItem(index, (), context, tokenized, tokens, (), 0)
        windows = self._context_windows(len(question_ids), len(ids), index, request)
        rows = [ModelInput(*template.join(question_ids, ids[start:end])) for start, end in windows]
        _, context_start = template.starts(len(question_ids), len(ids))
        return AnswerItem(index, rows, context, tokenized, tokens, windows, context_start)

    def _context_windows(
        self, question: int, context: int, index: int, request: AnswerOptions
    ) -> list[tuple[int, int]]:
        """Plan the windows over ``context`` tokens beside a question of ``question`` tokens.

        Raises:
            LimitError: if the question leaves too little room.
        """
        max_tokens, stride = request.options.max_tokens, request.stride
        room = max_tokens - self._tokenizer.pair.num_special_tokens - question
        message = f"has a question of {question} tokens, which leaves {max(0, room)} of {max_tokens} for the context"
        hint = f"shorten the question, or raise {{max_tokens}} up to {self.max_tokens}"
        if room < min(MIN_CONTEXT_TOKENS, context):
            least = min(MIN_CONTEXT_TOKENS, context)
            raise LimitError(
                f"{message} of {context}; the least is {least}", index=index, hint=hint, options={"max_tokens": ...}
            )
        if context <= room:
            return [(0, context)]
        if stride is not None and stride >= room:
            message, hint = f"{message}, not more than {{stride}}", f"lower it, {hint}"
            raise LimitError(message, index=index, hint=hint, options={"max_tokens": ..., "stride": stride})
        return token_windows(context, room, stride)

    def _read_outputs(self, row: ModelInput, outputs: tuple[Floats, ...], request: AnswerOptions) -> tuple[Floats, ...]:
        """Return the logits (seq,) of starts and ends of a row."""
        return tuple(output.copy() for output in outputs)

    def _finish(self, work: AnswerItem, values: list[tuple[Floats, ...]], request: AnswerOptions) -> list[Answer]:
        """Return the best spans of all windows."""
        if not values:
            return [Answer("", 1.0, 0, 0)] if request.handle_impossible_answer else []
        logits: list[StartEndLogits] = []
        for (first, last), (starts, ends) in zip(work.windows, values, strict=True):
            context = slice(work.context_start, work.context_start + last - first)
            logits.append((np.append(starts[:1], starts[context]), np.append(ends[:1], ends[context])))
        words = read_words(work.tokenized, work.tokens.word_ids, work.tokens.offsets)
        spans = best_spans(work.windows, logits, words, request.top_k, request.max_answer_tokens)
        if request.handle_impossible_answer:
            spans = sorted([*spans, Span(-no_answer_score(logits), 0, 0)])[: request.top_k]
        origin, total = original_offsets(work.context, work.tokenized), log_normalizer(logits)
        answers = []
        for span in spans:
            start, end = origin[span.start], origin[span.end]
            score = min(1.0, math.exp(-span.negative_score - total))
            answers.append(Answer(work.context[start:end], score, start, end))
        return answers


def read_pair(item: object, index: int) -> tuple[str, str]:
    """Return a question and its context.

    Raises:
        InputError: if ``item`` is not a pair of texts.
    """
    if not isinstance(item, (tuple, list)) or len(item) != 2 or not all(isinstance(text, str) for text in item):
        raise InputError(f"is {item!r:.60}, not a pair (question, context) of str", index=index)
    return item[0], item[1]
