"""Turn texts into vectors with a bundle of the task ``embed``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.inputs.validation import Item, check_choice, iterate
from edgebert_runtime.task_specs import EMBED
from edgebert_runtime.tasks.engine import Engine, Floats, Progress
from edgebert_runtime.tasks.requests import Options, Row, TextOptions, Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

OUTPUT = "sentence_embedding"
SHORTEST = 1e-12


@dataclass(frozen=True)
class EmbedResult:
    """Vectors (n, dim), the number of tokens that each was made of (n,), and whether its text was cut (n,)."""

    vectors: Floats
    token_counts: NDArray[np.int64]
    truncated: NDArray[np.bool_]


class Embedder(Engine):
    """Sentence vectors. One may be shared by threads; it pickles as its folder and options.

    ``session`` replaces the ONNX Runtime session by anything that has its ``run``.

    Raises:
        BundleError: if the bundle is of another task.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (EMBED,)
    outputs = (OUTPUT,)

    def _setup(self) -> None:
        """Read the settings."""
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
        windows: str | None = None,
        stride: int = 0,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> Floats:
        """Return the vectors (n, dim) of ``texts``, in their order.

        A list of token ids may stand for a text; it is taken as it is. Texts longer than ``max_tokens`` tokens
        (special tokens included; by default the bundle's ``default_tokens``) are cut, and one warning says how
        many; with ``truncate=False`` they are refused. With ``windows="mean"`` a longer text is split into windows
        of ``max_tokens`` which share ``stride`` tokens; its vector is the mean of theirs, each weighted by its
        tokens without special ones, and of length 1 again if the bundle normalizes. ``progress`` is called with the
        number done and the total, None where it is not known. :class:`TextOptions` are the other options.

        Raises:
            InputError: naming the text or option that cannot be used.
            LimitError: for a text that is too long.
        """
        result = self.embed_detailed(texts, windows=windows, stride=stride, progress=progress, **options)
        self._warn(int(result.truncated.sum()), len(result.truncated), self._check(**options))
        return result.vectors

    def embed_detailed(
        self,
        texts: Iterable[Item],
        *,
        windows: str | None = None,
        stride: int = 0,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> EmbedResult:
        """Do what :meth:`embed` does, and return token counts and truncation with the vectors."""
        parts = self._encode(texts, windows, stride, "embed([text])", options)
        found = self._gather(parts, texts, progress)
        vectors = np.empty((len(found), self.dim), np.float32)
        for row, (vector, _, _) in enumerate(found):
            vectors[row] = vector
        counts = np.array([count for _, count, _ in found], np.int64)
        return EmbedResult(vectors, counts, np.array([truncated for _, _, truncated in found], np.bool_))

    def stream(
        self,
        texts: Iterable[Item],
        *,
        windows: str | None = None,
        stride: int = 0,
        **options: Unpack[TextOptions],
    ) -> Iterator[Floats]:
        """Yield the vector (dim,) of each text in order, reading at most two windows of 512 texts ahead."""
        parts = self._encode(texts, windows, stride, "stream([text])", options)
        return (vector for part in parts for vector, _, _ in part)

    def _encode(
        self, texts: Iterable[Item], windows: str | None, stride: int, example: str, given: TextOptions
    ) -> Iterator[list[tuple[Floats, int, bool]]]:
        """Yield vector, number of tokens and truncation of each text."""
        options = self._check(**given)
        if windows is not None:
            check_choice("windows", windows, ("mean",))
            self._windows(0, options.max_tokens - self._tokenizer.num_special_tokens, stride)
        elif stride:
            raise InputError(f'stride={stride!r:.60} has an effect with windows="mean" only')

        def prepare(item: Item, index: int) -> Work[Floats, tuple[Floats, int, bool]]:
            if windows and isinstance(item, str):
                return self._split(item, index, stride, options)
            row = self._row(item, index, options)
            return Work([row], lambda found: (found[0], len(row.ids), row.truncated))

        return self._run(
            iterate(texts, example), prepare, lambda _row, parts: parts[0].copy(), options.max_batch_tokens
        )

    def _split(self, text: str, index: int, stride: int, options: Options) -> Work[Floats, tuple[Floats, int, bool]]:
        """Split a text into windows and average their vectors."""
        template = self._tokenizer.single
        ids = self._tokenizer.content(str(self._text(text, index, options))).ids
        places = self._windows(len(ids), options.max_tokens - template.num_special_tokens, stride)
        weights = np.array([max(1, end - start) for start, end in places], np.float32)

        def finish(found: list[Floats]) -> tuple[Floats, int, bool]:
            vector = found[0] if len(found) == 1 else np.average(found, 0, weights).astype(np.float32)
            if self._normalize and len(found) > 1:
                vector = vector / max(float(np.linalg.norm(vector)), SHORTEST)
            return vector, len(ids) + template.num_special_tokens, False

        return Work([Row(template.join(ids[start:end]).ids) for start, end in places], finish)
