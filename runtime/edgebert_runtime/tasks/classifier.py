"""Give texts, or pairs of texts, one of several labels: tasks ``classify`` and ``next-sentence``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.inputs.validation import Item, iterate
from edgebert_runtime.task_specs import CLASSIFY, NEXT_SENTENCE
from edgebert_runtime.tasks.base.batch_pipeline import BatchEngine, Floats, Request
from edgebert_runtime.tasks.base.engine import Progress
from edgebert_runtime.tasks.base.model_inputs import ModelInput, WorkItem
from edgebert_runtime.tasks.base.text_options import CheckedOptions, TextOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

# The activation of a bundle that names none, by problem type.
SCORES = {"single_label": "softmax", "multi_label": "sigmoid", "regression": "identity"}
END = object()


@dataclass(frozen=True)
class Classification:
    """The best label of a text and its score, the scores (labels,) of all labels, and whether the text was cut."""

    label: str
    score: float
    scores: Floats
    truncated: bool


@dataclass(frozen=True)
class ClassifyRequest(Request):
    """A call, checked. Its items are texts, or pairs of texts."""

    pairs: bool


class Classifier(BatchEngine[ClassifyRequest, WorkItem, Classification, Classification]):
    """Labels with scores. Threads may share an engine; it pickles as its folder and options.

    ``labels`` are the names in the order of the scores. ``problem_type`` is the kind of the scores. ``single_label``:
    probabilities that sum to 1. ``multi_label``: a probability for each label. ``regression``: the numbers themselves.
    ``activation`` makes scores of logits. It is another for one label, a sigmoid, and for a CrossEncoder, its own.

    Raises:
        BundleError: if the bundle is of another task, or its labels do not fit its model.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (CLASSIFY, NEXT_SENTENCE)

    def _read_settings(self) -> None:
        """Read the labels, and the kind of their scores."""
        self.labels = self._label_names()
        self.problem_type = self._setting("problem_type", str)
        if self.problem_type not in SCORES:
            raise BundleError(
                f"{self.bundle.path} has the setting problem_type={self.problem_type!r:.60}, not {', '.join(SCORES)}"
            )
        self.activation = self.bundle.manifest.settings.get("activation", SCORES[self.problem_type])
        self._scores = self._activation_function(self.activation)

    def classify(
        self,
        texts: Iterable[Item],
        pairs: Iterable[str] | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> list[Classification]:
        """Return the label of each text, or of each text with the one of ``pairs`` at the same place.

        Without ``pairs``, a list of token ids may stand for a text. It is taken as it is. Texts longer than
        ``max_tokens`` tokens are cut, the longer one of a pair first, and one warning says how many.
        ``truncate=False`` refuses them. The label is that of the highest score, for ``regression`` the first.
        ``progress`` is called with the number done and the total, None where it is not known.
        :class:`TextOptions` are the other options.

        Raises:
            InputError: naming the text or option that cannot be used; if there are not as many ``pairs`` as
                ``texts``; if the task is next-sentence and there are no ``pairs``.
            LimitError: for a text that is too long.
        """
        request = self._request(pairs, "classify", options)
        results = self._collect(self._run(items_of(texts, pairs, "classify"), request), texts, progress)
        truncated = sum(result.truncated for result in results)
        self._warn_truncated(truncated, len(results), request.options.max_tokens)
        return results

    def stream(
        self, texts: Iterable[Item], pairs: Iterable[str] | None = None, **options: Unpack[TextOptions]
    ) -> Iterator[Classification]:
        """Yield the results of :meth:`classify` in order, reading at most two windows of 512 texts ahead."""
        request = self._request(pairs, "stream", options)
        windows = self._run(items_of(texts, pairs, "stream"), request)
        return (result for results in windows for result in results)

    def _request(self, pairs: Iterable[str] | None, method: str, options: TextOptions) -> ClassifyRequest:
        """Check the options of a call."""
        self._check_usable()
        if pairs is None and self.bundle.manifest.task == NEXT_SENTENCE:
            raise InputError(f"next-sentence needs pairs: write {method}([text], [text that may follow])")
        template = self._tokenizer.single if pairs is None else self._tokenizer.pair
        checked = CheckedOptions.read(options, self._limits, template.num_special_tokens)
        return ClassifyRequest(checked, pairs is not None)

    def _tokenize(self, item: Any, index: int, request: ClassifyRequest) -> WorkItem:
        """Turn a text, or a pair of texts, into a row."""
        if request.pairs:
            return WorkItem(index, (self._encoder.pair(item[0], item[1], index, request.options),))
        return WorkItem(index, (self._encoder.row(item, index, request.options),))

    def _read_outputs(self, row: ModelInput, outputs: tuple[Floats, ...], request: ClassifyRequest) -> Classification:
        """Turn the logits (labels,) of a row into a label."""
        scores = self._scores(outputs[0])
        best = 0 if self.problem_type == "regression" else int(scores.argmax())
        return Classification(self.labels[best], float(scores[best]), scores.astype(np.float32), row.truncated)

    def _finish(self, work: WorkItem, values: list[Classification], request: ClassifyRequest) -> Classification:
        """Return the label of the only row."""
        return values[0]


def items_of(texts: Iterable[Any], pairs: Iterable[Any] | None, method: str) -> Iterator[Any]:
    """Return an iterator over texts, or over pairs of texts; ``method`` is the method of the call.

    Raises:
        InputError: if there are more of one than of the other; at their end, where their number is not known before.
    """
    if pairs is None:
        return iterate(texts, f"{method}([text])")
    first, second = (iterate(items, f"{method}([text], [text])") for items in (texts, pairs))
    if isinstance(texts, Sized) and isinstance(pairs, Sized) and len(texts) != len(pairs):
        raise InputError(f"{len(texts)} texts were given with {len(pairs)} pairs; give as many of both")
    return zip_both(first, second)


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
