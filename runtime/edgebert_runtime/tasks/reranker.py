"""Sort passages by how well they answer a query, with a bundle of the task ``rerank``.

The model reads query and passage together (a cross-encoder: Nogueira and Cho, 2019) and gives them one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.inputs.validation import check_whole, iterate
from edgebert_runtime.task_specs import RERANK
from edgebert_runtime.tasks.activations import best, sigmoid, softmax
from edgebert_runtime.tasks.engine import Engine, Floats, Progress
from edgebert_runtime.tasks.requests import Row, TextOptions, Work, single

if TYPE_CHECKING:
    from typing_extensions import Unpack

# How logits become a score, and how many logits there are.
ACTIVATIONS: dict[str, tuple[Callable[[Floats], float], int]] = {
    "sigmoid": (lambda logits: float(sigmoid(logits)[0]), 1),
    "identity": (lambda logits: float(logits[0]), 1),
    "softmax": (lambda logits: float(softmax(logits)[1]), 2),
}
Scored = tuple[float, bool]


@dataclass(frozen=True)
class Ranked:
    """A passage: its number among those given, its score, its text, and whether it was cut."""

    index: int
    score: float
    text: str
    truncated: bool


class Reranker(Engine):
    """Scores of pairs of texts. One may be shared by threads; it pickles as its folder and options.

    ``activation`` says what a score is: ``sigmoid`` and ``softmax`` a probability, ``identity`` the number itself.

    Raises:
        BundleError: if the bundle is of another task, or its activation does not fit its model.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (RERANK,)

    def _setup(self) -> None:
        """Read the settings."""
        self.activation = self._setting("activation", str)
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise BundleError(f"{self.bundle.path} has the setting activation={self.activation!r:.60}, not {known}")
        self._score, wanted = ACTIVATIONS[self.activation]
        if (size := self._shapes["logits"][-1]) != wanted:
            raise BundleError(f"{self.bundle.path} has {size} outputs, {self.activation} takes {wanted}; export again")

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
        says how many were; with ``truncate=False`` they are refused. ``progress`` is called with the number done
        and the total, None where it is not known. :class:`TextOptions` are the other options.

        Raises:
            InputError: naming the passage or option that cannot be used.
            LimitError: for a passage that is too long.
        """
        checked = self._check(self._tokenizer.pair.num_special_tokens, **options)
        if top_k is not None:
            top_k = check_whole("top_k", top_k, 1, None)
        if not isinstance(query, str):
            raise InputError(f"is {type(query).__name__}, not str", item="the query")
        items = iterate(passages, "rerank(query, [passage])")
        asked = self._content(query, None, checked, "the query")
        texts: list[str] = []

        def prepare(passage: Any, index: int) -> Work[Scored, Scored]:
            if not isinstance(passage, str):
                raise InputError(f"is {type(passage).__name__}, not str", index=index, item="passage")
            texts.append(passage)
            return single(self._join(asked, self._content(passage, index, checked), index, checked))

        found = self._gather(self._run(items, prepare, self._read, checked.max_batch_tokens), passages, progress)
        self._warn(sum(truncated for _, truncated in found), len(found), checked)
        order = best(np.array([score for score, _ in found]), len(found) if top_k is None else top_k)
        return [Ranked(i, found[i][0], texts[i], found[i][1]) for i in order.tolist()]

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
        checked = self._check(self._tokenizer.pair.num_special_tokens, **options)

        def prepare(item: Any, index: int) -> Work[Scored, Scored]:
            if not isinstance(item, (tuple, list)) or len(item) != 2:
                raise InputError(f"text {index} is {type(item).__name__}, not a pair of two texts")
            return single(self._pair(item[0], item[1], index, checked))

        items = iterate(pairs, "score([(query, passage)])")
        parts = self._run(items, prepare, self._read, checked.max_batch_tokens)
        found = self._gather(parts, pairs, progress)
        self._warn(sum(truncated for _, truncated in found), len(found), checked)
        return np.array([score for score, _ in found], np.float32)

    def _read(self, row: Row, parts: tuple[Floats, ...]) -> Scored:
        """Turn the logits of a row into a score."""
        return self._score(parts[0]), row.truncated
