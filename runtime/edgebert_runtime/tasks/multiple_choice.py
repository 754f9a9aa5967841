"""Choose among several continuations of a text with a bundle of the task ``multiple-choice``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.inputs.validation import iterate
from edgebert_runtime.task_specs import MULTIPLE_CHOICE
from edgebert_runtime.tasks.activations import best, softmax
from edgebert_runtime.tasks.base.batch_pipeline import BatchEngine, Floats, Request
from edgebert_runtime.tasks.base.engine import Progress
from edgebert_runtime.tasks.base.model_inputs import ModelInput, WorkItem
from edgebert_runtime.tasks.base.text_options import CheckedOptions, TextOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Choice:
    """A choice: its number among those given, its share of the probability, its text, and whether it was cut."""

    index: int
    score: float
    text: str
    truncated: bool


@dataclass(frozen=True)
class QuestionItem(WorkItem):
    """A question: a row for each of its choices, and their texts."""

    choices: Sequence[str]


class MultipleChoice(BatchEngine[Request, QuestionItem, float, "list[Choice]"]):
    """Choices with scores. Threads may share an engine; it pickles as its folder and options.

    Raises:
        BundleError: if the bundle is of another task, or gives more than one number for a choice.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (MULTIPLE_CHOICE,)

    def _read_settings(self) -> None:
        """Check the number of logits."""
        if (size := self._shapes["logits"][-1]) != 1:
            raise BundleError(f"{self.bundle.path} has {size} outputs, a choice takes 1; export again")

    def choose(self, prompt: str, choices: Sequence[str], **options: Unpack[TextOptions]) -> list[Choice]:
        """Return ``choices``, best first, with scores that sum to 1.

        Each is read with ``prompt`` before it. Where both are longer than ``max_tokens`` tokens together, the longer
        one is cut, and one warning says how many were. ``truncate=False`` refuses them. :class:`TextOptions` are the
        options.

        Raises:
            InputError: if there are fewer than two choices; naming the text or option that cannot be used.
            LimitError: for a choice that is too long.
        """
        return self.choose_many([(prompt, choices)], **options)[0]

    def choose_many(
        self,
        questions: Iterable[tuple[str, Sequence[str]]],
        *,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> list[list[Choice]]:
        """Return the results of :meth:`choose` for many prompts with their choices, in order."""
        self._check_usable()
        request = Request(CheckedOptions.read(options, self._limits, self._tokenizer.pair.num_special_tokens))
        items = iterate(questions, "choose_many([(prompt, [choice, choice])])")
        results = self._collect(self._run(items, request), questions, progress)
        truncated = [choice.truncated for choices in results for choice in choices]
        self._warn_truncated(sum(truncated), len(truncated), request.options.max_tokens)
        return results

    def _tokenize(self, item: Any, index: int, request: Request) -> QuestionItem:
        """Turn a question into a row for each choice: the prompt, then the choice."""
        prompt, choices = read_question(item, index)
        prompt_ids = self._encoder.content(prompt, index, request.options, "question", "the prompt")
        rows = []
        for number, choice in enumerate(choices):
            ids = self._encoder.content(choice, index, request.options, "question", ("choice", number))
            rows.append(self._encoder.joined(prompt_ids, ids, index, request.options))
        return QuestionItem(index, rows, choices)

    def _read_outputs(self, row: ModelInput, outputs: tuple[Floats, ...], request: Request) -> float:
        """Return the only logit of a row."""
        return float(outputs[0][0])

    def _finish(self, work: QuestionItem, values: list[float], request: Request) -> list[Choice]:
        """Sort the choices by their probability."""
        scores = softmax(np.array(values))
        order = best(scores, len(scores)).tolist()
        return [
            Choice(number, float(scores[number]), work.choices[number], work.rows[number].truncated) for number in order
        ]


def read_question(question: Any, index: int) -> tuple[str, list[str]]:
    """Return prompt and choices of a question.

    Raises:
        InputError: if it is not a prompt with at least two choices.
    """
    if not isinstance(question, (tuple, list)) or len(question) != 2:
        raise InputError(
            f"is {type(question).__name__}, not a pair of prompt and choices", index=index, item="question"
        )
    prompt, choices = question[0], list(iterate(question[1], "choose(prompt, [choice, choice])"))
    if not isinstance(prompt, str):
        raise InputError(f"is {type(prompt).__name__}, not str", index=index, item="question", part="the prompt")
    for number, choice in enumerate(choices):
        if not isinstance(choice, str):
            part = ("choice", number)
            raise InputError(f"is {type(choice).__name__}, not str", index=index, item="question", part=part)
    if len(choices) < 2:
        raise InputError(f"has {len(choices)} choices", index=index, item="question", hint="give two at least")
    return prompt, choices
