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
from edgebert_runtime.tasks.engine import Engine, Floats, Progress
from edgebert_runtime.tasks.requests import Options, Row, TextOptions, Work

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Choice:
    """A choice: its number among those given, its share of the probability, its text, and whether it was cut."""

    index: int
    score: float
    text: str
    truncated: bool


class MultipleChoice(Engine):
    """Choices with scores. One may be shared by threads; it pickles as its folder and options.

    Raises:
        BundleError: if the bundle is of another task, or gives more than one number for a choice.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (MULTIPLE_CHOICE,)

    def _setup(self) -> None:
        """Read the settings."""
        if (size := self._shapes["logits"][-1]) != 1:
            raise BundleError(f"{self.bundle.path} has {size} outputs, a choice takes 1; export again")

    def choose(self, prompt: str, choices: Sequence[str], **options: Unpack[TextOptions]) -> list[Choice]:
        """Return ``choices``, best first, with scores that sum to 1.

        Each is read with ``prompt`` before it. Where both are longer than ``max_tokens`` tokens together, the longer
        one is cut, and one warning says how many were; with ``truncate=False`` they are refused.
        :class:`TextOptions` are the options.

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
        """Do what :meth:`choose` does for many pairs of a prompt and its choices, in their order."""
        checked = self._check(self._tokenizer.pair.num_special_tokens, **options)

        def prepare(question: Any, index: int) -> Work[float, list[Choice]]:
            prompt, choices = split(question, index)
            asked = self._content(prompt, index, checked, "question", "the prompt")
            return self._ask(asked, choices, index, checked)

        items = iterate(questions, "choose_many([(prompt, [choice, choice])])")
        parts = self._run(items, prepare, read, checked.max_batch_tokens)
        found = self._gather(parts, questions, progress)
        cut = [choice.truncated for choices in found for choice in choices]
        self._warn(sum(cut), len(cut), checked)
        return found

    def _ask(self, asked: list[int], choices: list[str], index: int, options: Options) -> Work[float, list[Choice]]:
        """Make a row of each choice, and a distribution of what they give."""
        rows = []
        for place, choice in enumerate(choices):
            ids = self._content(choice, index, options, "question", ("choice", place))
            rows.append(self._join(asked, ids, index, options))

        def finish(logits: list[float]) -> list[Choice]:
            scores = softmax(np.array(logits))
            order = best(scores, len(scores)).tolist()
            return [Choice(i, float(scores[i]), choices[i], rows[i].truncated) for i in order]

        return Work(rows, finish)


def read(_row: Row, parts: tuple[Floats, ...]) -> float:
    """Return the only logit of a row."""
    return float(parts[0][0])


def split(question: Any, index: int) -> tuple[str, list[str]]:
    """Return prompt and choices of a question.

    Raises:
        InputError: if it is not a text and at least two others.
    """
    if not isinstance(question, (tuple, list)) or len(question) != 2:
        raise InputError(f"question {index} is {type(question).__name__}, not a pair of prompt and choices")
    prompt, choices = question[0], list(iterate(question[1], "choose(prompt, [choice, choice])"))
    for what, text in (("the prompt", prompt), *((f"choice {i}", choice) for i, choice in enumerate(choices))):
        if not isinstance(text, str):
            raise InputError(f"{what} of question {index} is {type(text).__name__}, not str")
    if len(choices) < 2:
        raise InputError(f"question {index} has {len(choices)} choices; give two at least")
    return prompt, choices
