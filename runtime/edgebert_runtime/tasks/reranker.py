"""Sort passages by how well they answer a query, with a bundle of the task ``rerank``.

The model reads query and passage together (a cross-encoder: Nogueira and Cho, 2019) and gives them one number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.inputs.validation import check_whole, iterate
from edgebert_runtime.task_specs import RERANK
from edgebert_runtime.tasks.activations import best
from edgebert_runtime.tasks.base.batch_pipeline import BatchEngine, Floats, Request
from edgebert_runtime.tasks.base.engine import Progress
from edgebert_runtime.tasks.base.model_inputs import ModelInput, WorkItem
from edgebert_runtime.tasks.base.text_options import CheckedOptions, TextOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Ranked:
    """A passage: its number among those given, its score, its text, and whether it was cut."""

    index: int
    score: float
    text: str
    truncated: bool


@dataclass(frozen=True)
class RerankRequest(Request):
    """A call, checked. Its items are passages for the token ids of a ``query``, or pairs of texts if it is None."""

    query: list[int] | None = None


@dataclass(frozen=True)
class PassageItem(WorkItem):
    """A pair of texts, and the second of them."""

    text: str


class Reranker(BatchEngine[RerankRequest, PassageItem, float, Ranked]):
    """Scores of pairs of texts. Threads may share an engine; it pickles as its folder and options.

    ``activation`` makes the score: ``sigmoid`` and ``softmax`` a probability, ``identity`` the number itself.
    ``prompt`` is put before every query.

    Raises:
        BundleError: if the bundle is of another task, or its activation does not fit its model.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (RERANK,)

    def _read_settings(self) -> None:
        """Read the activation, and the prompt of queries."""
        self.activation = self._setting("activation", str)
        self.prompt = str(self.bundle.manifest.settings.get("prompt", ""))
        self._scores = self._activation_function(self.activation)
        num_logits = 2 if self.activation == "softmax" else 1
        if (size := self._shapes["logits"][-1]) != num_logits:
            raise BundleError(
                f"{self.bundle.path} has {size} outputs, {self.activation} takes {num_logits}; export again"
            )

    def rerank(
        self,
        query: str,
        passages: Iterable[str],
        *,
        top_k: int | None = None,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> list[Ranked]:
        """Return the ``top_k`` (None: all) best of ``passages``, best first, of equal ones the first.

        Where query and passage are longer than ``max_tokens`` tokens together, the longer one is cut, and one warning
        says how many were. ``truncate=False`` refuses them. ``progress`` is called with the number done and the
        total, None where it is not known. :class:`TextOptions` are the other options.

        Raises:
            InputError: naming the passage or option that cannot be used.
            LimitError: for a passage that is too long.
        """
        checked = self._checked(options)
        if top_k is not None:
            top_k = check_whole("top_k", top_k, 1, None)
        if not isinstance(query, str):
            raise InputError(f"is {type(query).__name__}, not str", item="the query")
        items = iterate(passages, "rerank(query, [passage])")
        request = RerankRequest(checked, self._encoder.content(self.prompt + query, None, checked, "the query"))
        results = self._rank(items, request, passages, progress)
        order = best(np.array([result.score for result in results]), len(results) if top_k is None else top_k)
        return [results[number] for number in order.tolist()]

    def score(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> Floats:
        """Return the scores (n,) of ``pairs`` of texts, in their order. The options are those of :meth:`rerank`.

        Raises:
            InputError: naming the pair or option that cannot be used.
            LimitError: for a pair that is too long.
        """
        request = RerankRequest(self._checked(options))
        results = self._rank(iterate(pairs, "score([(query, passage)])"), request, pairs, progress)
        return np.array([result.score for result in results], np.float32)

    def _checked(self, options: TextOptions) -> CheckedOptions:
        """Check the options of a call."""
        self._check_usable()
        return CheckedOptions.read(options, self._limits, self._tokenizer.pair.num_special_tokens)

    def _rank(
        self, items: Iterable[Any], request: RerankRequest, source: object, progress: Progress | None
    ) -> list[Ranked]:
        """Return the score of each item, and warn of those that were cut."""
        results = self._collect(self._run(items, request), source, progress)
        truncated = sum(result.truncated for result in results)
        self._warn_truncated(truncated, len(results), request.options.max_tokens)
        return results

    def _tokenize(self, item: Any, index: int, request: RerankRequest) -> PassageItem:
        """Turn a passage and the query, or a pair of texts, into a row."""
        if request.query is None:
            if not isinstance(item, (tuple, list)) or len(item) != 2:
                raise InputError(f"is {type(item).__name__}, not a pair of two texts", index=index)
            first = self.prompt + item[0] if isinstance(item[0], str) else item[0]
            return PassageItem(index, (self._encoder.pair(first, item[1], index, request.options),), item[1])
        if not isinstance(item, str):
            raise InputError(f"is {type(item).__name__}, not str", index=index, item="passage")
        ids = self._encoder.content(item, index, request.options)
        return PassageItem(index, (self._encoder.joined(request.query, ids, index, request.options),), item)

    def _read_outputs(self, row: ModelInput, outputs: tuple[Floats, ...], request: RerankRequest) -> float:
        """Turn the logits of a row into a score."""
        return float(self._scores(outputs[0])[-1])  # that of label 1 where there are two

    def _finish(self, work: PassageItem, values: list[float], request: RerankRequest) -> Ranked:
        """Return the passage with its score."""
        return Ranked(work.index, values[0], work.text, work.rows[0].truncated)
