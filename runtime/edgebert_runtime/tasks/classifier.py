"""Give texts, or pairs of texts, one of several labels: tasks ``classify`` and ``next-sentence``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.inputs.validation import Item, iterate
from edgebert_runtime.task_specs import CLASSIFY, NEXT_SENTENCE
from edgebert_runtime.tasks.activations import Doubles, sigmoid, softmax
from edgebert_runtime.tasks.engine import Engine, Floats, Progress
from edgebert_runtime.tasks.requests import Row, TextOptions, Work, single

if TYPE_CHECKING:
    from typing_extensions import Unpack

SCORES: dict[str, Callable[[Floats], Floats | Doubles]] = {
    "single_label": softmax,
    "multi_label": sigmoid,
    "regression": np.array,
}
END = object()


@dataclass(frozen=True)
class Classification:
    """The best label of a text and its score, the scores (labels,) of all labels, and whether the text was cut."""

    label: str
    score: float
    scores: Floats
    truncated: bool


class Classifier(Engine):
    """Labels with scores. One may be shared by threads; it pickles as its folder and options.

    ``labels`` are the names in the order of the scores. ``problem`` says what the scores are: ``single_label``
    probabilities that sum to 1, ``multi_label`` a probability for each label, ``regression`` the numbers themselves.

    Raises:
        BundleError: if the bundle is of another task, or its labels do not fit its model.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (CLASSIFY, NEXT_SENTENCE)

    def _setup(self) -> None:
        """Read the settings."""
        self.labels = self._labels()
        self.problem = self._setting("problem", str)
        if self.problem not in SCORES:
            raise BundleError(
                f"{self.bundle.path} has the setting problem={self.problem!r:.60}, not {', '.join(SCORES)}"
            )

    def classify(
        self,
        texts: Iterable[Item],
        pairs: Iterable[str] | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> list[Classification]:
        """Return the label of each text, or of each text with the one of ``pairs`` at the same place.

        Without ``pairs``, a list of token ids may stand for a text; it is taken as it is. Texts longer than
        ``max_tokens`` tokens are cut, the longer one of a pair first, and one warning says how many; with
        ``truncate=False`` they are refused. The label is that of the highest score, for ``regression`` the first.
        ``progress`` is called with the number done and the total, None where it is not known.
        :class:`TextOptions` are the other options.

        Raises:
            InputError: naming the text or option that cannot be used; if there are not as many ``pairs`` as
                ``texts``; if the task is next-sentence and there are no ``pairs``.
            LimitError: for a text that is too long.
        """
        found = self._gather(self._score(texts, pairs, "classify", options), texts, progress)
        self._warn(sum(one.truncated for one in found), len(found), self._check(**options))
        return found

    def stream(
        self, texts: Iterable[Item], pairs: Iterable[str] | None = None, **options: Unpack[TextOptions]
    ) -> Iterator[Classification]:
        """Yield what :meth:`classify` returns, in order, reading at most two windows of 512 texts ahead."""
        return (one for part in self._score(texts, pairs, "stream", options) for one in part)

    def _score(
        self, texts: Iterable[Item], pairs: Iterable[str] | None, method: str, given: TextOptions
    ) -> Iterator[list[Classification]]:
        """Yield the results of some hundred texts after the other."""
        if pairs is None:
            if self.bundle.manifest.task == NEXT_SENTENCE:
                raise InputError(f"next-sentence needs pairs: write {method}([text], [text that may follow])")
            options = self._check(**given)

            def prepare(item: Any, index: int) -> Work[Classification, Classification]:
                return single(self._row(item, index, options))

            return self._run(iterate(texts, f"{method}([text])"), prepare, self._read, options.max_batch_tokens)
        options = self._check(self._tokenizer.pair.num_special_tokens, **given)

        def prepare_pair(item: tuple[Any, Any], index: int) -> Work[Classification, Classification]:
            return single(self._pair(*item, index, options))

        items = pair_up(texts, pairs, f"{method}([text], [text])")
        return self._run(items, prepare_pair, self._read, options.max_batch_tokens)

    def _read(self, row: Row, parts: tuple[Floats, ...]) -> Classification:
        """Turn the logits (labels,) of a row into a label."""
        scores = SCORES[self.problem](parts[0])
        place = 0 if self.problem == "regression" else int(scores.argmax())
        return Classification(self.labels[place], float(scores[place]), scores.astype(np.float32), row.truncated)


def pair_up(texts: Iterable[Any], pairs: Iterable[Any], example: str) -> Iterator[tuple[Any, Any]]:
    """Return an iterator over each text with its partner; ``example`` shows how to call.

    Raises:
        InputError: if there are more of one than of the other; at their end, where their number is not known before.
    """
    one, other = iterate(texts, example), iterate(pairs, example)
    if isinstance(texts, Sized) and isinstance(pairs, Sized) and len(texts) != len(pairs):
        raise InputError(f"{len(texts)} texts were given with {len(pairs)} pairs; give as many of both")
    return zip_both(one, other)


def zip_both(texts: Iterator[Any], pairs: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield pairs until both iterators end."""
    count = 0
    while True:
        text, pair = next(texts, END), next(pairs, END)
        if text is END and pair is END:
            return
        if text is END or pair is END:
            short, long = ("texts", "pairs") if text is END else ("pairs", "texts")
            raise InputError(f"{short} ended after {count}, {long} did not; give as many of both")
        yield text, pair
        count += 1
