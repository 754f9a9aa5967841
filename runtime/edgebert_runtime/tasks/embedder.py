"""Turn texts into vectors with a bundle of the task ``embed``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.inputs.validation import Item, check_choice, iterate
from edgebert_runtime.task_specs import EMBED
from edgebert_runtime.tasks.base.batch_pipeline import BatchEngine, Floats, Request
from edgebert_runtime.tasks.base.engine import Progress
from edgebert_runtime.tasks.base.model_inputs import ModelInput, WorkItem
from edgebert_runtime.tasks.base.text_encoder import token_windows
from edgebert_runtime.tasks.base.text_options import CheckedOptions, TextOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

OUTPUT = "sentence_embedding"
MIN_NORM = 1e-12

LongTexts = Literal["truncate", "mean"]
Embedded = tuple[Floats, int, bool]  # vector, number of tokens, truncated


@dataclass(frozen=True)
class EmbedResult:
    """Vectors (n, dim), the number of tokens of each text (n,), and whether it was cut (n,)."""

    vectors: Floats
    token_counts: NDArray[np.int64]
    truncated: NDArray[np.bool_]


@dataclass(frozen=True)
class EmbedRequest(Request):
    """A call, checked."""

    long_texts: LongTexts
    stride: int


@dataclass(frozen=True)
class EmbedItem(WorkItem):
    """A text: the rows of its windows, their weights in the mean, and the number of its tokens."""

    weights: tuple[int, ...]
    token_count: int


class Embedder(BatchEngine[EmbedRequest, EmbedItem, Floats, Embedded]):
    """Sentence vectors of ``dim`` numbers. Threads may share an engine; it pickles as its folder and options.

    ``session`` replaces the ONNX Runtime session by anything that has its ``run``.

    Raises:
        BundleError: if the bundle is of another task.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (EMBED,)
    _outputs = (OUTPUT,)

    def _read_settings(self) -> None:
        """Read the size of a vector, and whether it has length 1."""
        dim = self._shapes[OUTPUT][-1]
        if len(self._shapes[OUTPUT]) != 2 or not isinstance(dim, int):
            raise BundleError(
                f"{self.bundle.path} has the output {OUTPUT}, but not of shape (batch, dim); export again"
            )
        self.dim = dim
        self._normalize = bool(self.bundle.manifest.settings.get("normalize"))

    def embed(
        self,
        texts: Iterable[Item],
        *,
        long_texts: LongTexts = "truncate",
        stride: int = 0,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> Floats:
        """Return the vectors (n, dim) of ``texts``, in their order.

        A list of token ids may stand for a text. It is taken as it is. A text is too long if it has more than
        ``max_tokens`` tokens, special tokens included; by default the bundle's ``default_tokens``.

        With ``long_texts="truncate"`` such a text is cut, and one warning says how many were. ``truncate=False``
        refuses it. With ``long_texts="mean"`` it is split into windows of ``max_tokens`` that share ``stride`` tokens.
        Its vector is the mean of theirs, each weighted by its tokens without special ones. The mean has length 1 if
        the bundle normalizes.

        ``progress`` is called with the number done and the total, None where it is not known. :class:`TextOptions`
        are the other options.

        Raises:
            InputError: naming the text or option that cannot be used.
            LimitError: for a text that is too long.
        """
        result = self._embed(texts, long_texts, stride, progress, options)
        if truncated := int(result.truncated.sum()):
            max_tokens = options.get("max_tokens") or self.default_tokens
            self._warn_truncated(truncated, len(result.truncated), max_tokens)
        return result.vectors

    def embed_detailed(
        self,
        texts: Iterable[Item],
        *,
        long_texts: LongTexts = "truncate",
        stride: int = 0,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> EmbedResult:
        """Return vectors as :meth:`embed` does, with token counts and truncation. Nothing is logged."""
        return self._embed(texts, long_texts, stride, progress, options)

    def stream(
        self,
        texts: Iterable[Item],
        *,
        long_texts: LongTexts = "truncate",
        stride: int = 0,
        **options: Unpack[TextOptions],
    ) -> Iterator[Floats]:
        """Yield the vector (dim,) of each text in order, reading at most two windows of 512 texts ahead."""
        request = self._request(long_texts, stride, options)
        windows = self._run(iterate(texts, "stream([text])"), request)
        return (vector for results in windows for vector, _, _ in results)

    def _request(self, long_texts: LongTexts, stride: int, options: TextOptions) -> EmbedRequest:
        """Check the options of a call."""
        self._check_usable()
        checked = CheckedOptions.read(options, self._limits, self._tokenizer.num_special_tokens)
        check_choice("long_texts", long_texts, ("truncate", "mean"))
        if long_texts == "mean":
            token_windows(0, checked.max_tokens - self._tokenizer.num_special_tokens, stride)
        elif stride:
            windows = {"long_texts": "mean"}
            raise InputError("has an effect with {long_texts} only", option="stride", value=stride, options=windows)
        return EmbedRequest(checked, long_texts, stride)

    def _embed(
        self,
        texts: Iterable[Item],
        long_texts: LongTexts,
        stride: int,
        progress: Progress | None,
        options: TextOptions,
    ) -> EmbedResult:
        """Compute the vectors of a call."""
        request = self._request(long_texts, stride, options)
        results = self._collect(self._run(iterate(texts, "embed([text])"), request), texts, progress)
        vectors = np.empty((len(results), self.dim), np.float32)
        token_counts = np.empty(len(results), np.int64)
        truncated = np.empty(len(results), np.bool_)
        for number, result in enumerate(results):
            vectors[number], token_counts[number], truncated[number] = result
        return EmbedResult(vectors, token_counts, truncated)

    def _tokenize(self, item: Item, index: int, request: EmbedRequest) -> EmbedItem:
        """Turn a text into a row, or into a row for each of its windows."""
        options = request.options
        if request.long_texts == "truncate" or not isinstance(item, str):
            row = self._encoder.row(item, index, options)
            return EmbedItem(index, (row,), (1,), len(row.ids))
        template = self._tokenizer.single
        ids = self._encoder.content(item, index, options)
        windows = token_windows(len(ids), options.max_tokens - template.num_special_tokens, request.stride)
        rows = [ModelInput(template.join(ids[start:end]).ids) for start, end in windows]
        weights = tuple(max(1, end - start) for start, end in windows)
        return EmbedItem(index, rows, weights, len(ids) + template.num_special_tokens)

    def _read_outputs(self, row: ModelInput, outputs: tuple[Floats, ...], request: EmbedRequest) -> Floats:
        """Return the vector (dim,) of a row."""
        vector: Floats = outputs[0].copy()
        return vector

    def _finish(self, work: EmbedItem, values: list[Floats], request: EmbedRequest) -> Embedded:
        """Return the vector of a text, the mean of those of its windows."""
        if len(values) == 1:
            return values[0], work.token_count, work.rows[0].truncated
        weights = np.array(work.weights, np.float32)
        vector: Floats = np.average(values, 0, weights).astype(np.float32)
        if self._normalize:
            vector /= max(float(np.linalg.norm(vector)), MIN_NORM)
        return vector, work.token_count, False
