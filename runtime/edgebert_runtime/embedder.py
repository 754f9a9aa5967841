"""Turn texts into vectors with a bundle of the task ``embed``."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.batching import pad, plan_batches
from edgebert_runtime.bundle import Bundle
from edgebert_runtime.errors import BundleError, EdgebertError, InputError, LimitError
from edgebert_runtime.inputs import Errors, Item, check_choice, check_ids, check_text, check_whole, iterate, refuse
from edgebert_runtime.manifest import GraphSpec
from edgebert_runtime.session import Runnable, check_process
from edgebert_runtime.tokenizer import TOKENIZER_NAME, Tokenizer
from edgebert_runtime.workers import Workers

logger = logging.getLogger("edgebert")

OUTPUT = "sentence_embedding"
# Texts are read, tokenized and sorted by length so many at a time. The next window is prepared while one runs.
WINDOW = 512
MAX_BATCH_TOKENS = 1 << 24
Progress = Callable[[int, "int | None"], None]
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class EmbedResult:
    """Vectors (n, dim), the number of tokens that each was made of (n,), and whether its text was cut (n,)."""

    vectors: Vectors
    token_counts: NDArray[np.int64]
    truncated: NDArray[np.bool_]


@dataclass(frozen=True)
class Options:
    """How texts become rows, checked."""

    max_tokens: int
    max_ids: int
    truncate: bool
    max_batch_tokens: int
    errors: Errors


@dataclass(frozen=True)
class Row:
    """The token ids of one text, and whether its end was cut off."""

    ids: list[int] | NDArray[np.int64]
    truncated: bool


class Embedder:
    """Sentence vectors. One may be shared by threads; it pickles as its folder and options.

    ``session`` replaces the ONNX Runtime session by anything that has its ``run``.

    Raises:
        BundleError: if the bundle is of another task.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: str = "cpu",
        threads: int | None = None,
        session: Runnable | None = None,
    ) -> None:
        manifest = bundle.manifest
        if manifest.task != "embed" or len(manifest.graphs) != 1:
            raise BundleError(f"{bundle.path} is a bundle of task {manifest.task!r}, not one that makes vectors")
        limits = manifest.limits
        if not 0 < limits.default_tokens <= limits.max_tokens:
            raise BundleError(
                f"{bundle.path} cuts texts at {limits.default_tokens} tokens, the model takes 1 to {limits.max_tokens}"
            )
        self.bundle = bundle
        graph = next(iter(manifest.graphs.values()))
        self.dim = output_size(bundle.path, graph)
        self.max_tokens = limits.max_tokens
        self.default_tokens = limits.default_tokens
        self._options = (device, threads)
        self._own_session = session is None
        self._process = os.getpid()
        self._inputs = tuple(spec.name for spec in graph.inputs)
        if unknown := sorted(set(self._inputs) - {"input_ids", "attention_mask", "token_type_ids"}):
            raise BundleError(f"{bundle.path / graph.file} asks for inputs {unknown}, which no text gives")
        self._tokenizer = Tokenizer.load(bundle.path / TOKENIZER_NAME, limits.vocab_size)
        self._workers = Workers(bundle, graph.file, device, threads, session)

    @property
    def device(self) -> str:
        """Where the model really runs: ``cpu`` or ``cuda:N``."""
        return self._workers.device

    @property
    def fallback(self) -> str | None:
        """Why ``device="auto"`` ended on the CPU, if it did."""
        return self._workers.fallback

    @property
    def threads(self) -> int:
        """The number of threads that a call keeps busy."""
        return self._workers.threads

    def embed(
        self,
        texts: Iterable[Item],
        *,
        max_tokens: int | None = None,
        truncate: bool = True,
        max_batch_tokens: int | None = None,
        errors: Errors = "strict",
        progress: Progress | None = None,
    ) -> Vectors:
        """Return the vectors (n, dim) of ``texts``, in their order.

        A list of token ids may stand for a text; it is taken as it is. Texts longer than ``max_tokens`` tokens
        (special tokens included; by default the bundle's ``default_tokens``) are cut, and one warning says how
        many; with ``truncate=False`` they are refused. ``max_batch_tokens`` bounds the tokens computed at a time,
        and so the memory. ``progress`` is called with the number done and the total, None where it is not known.

        Raises:
            InputError: naming the text or option that cannot be used.
            LimitError: for a text that is too long.
        """
        result = self.embed_detailed(
            texts,
            max_tokens=max_tokens,
            truncate=truncate,
            max_batch_tokens=max_batch_tokens,
            errors=errors,
            progress=progress,
        )
        if result.truncated.any():
            limit = self.default_tokens if max_tokens is None else max_tokens
            logger.warning("%d of %d texts were cut to %d tokens", result.truncated.sum(), len(result.truncated), limit)
        return result.vectors

    def embed_detailed(
        self,
        texts: Iterable[Item],
        *,
        max_tokens: int | None = None,
        truncate: bool = True,
        max_batch_tokens: int | None = None,
        errors: Errors = "strict",
        progress: Progress | None = None,
    ) -> EmbedResult:
        """Do what :meth:`embed` does, and return token counts and truncation with the vectors."""
        options = self._check(max_tokens, truncate, max_batch_tokens, errors)
        items = iterate(texts, "embed([text])")
        total = len(texts) if isinstance(texts, Sized) else None
        parts: list[EmbedResult] = []
        done = 0
        for part in self._encode(items, options):
            parts.append(part)
            done += len(part.vectors)
            if progress is not None:
                progress(done, total)
        if len(parts) == 1:
            return parts[0]
        return EmbedResult(
            np.concatenate([np.empty((0, self.dim), np.float32), *(part.vectors for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.token_counts for part in parts)]),
            np.concatenate([np.empty(0, np.bool_), *(part.truncated for part in parts)]),
        )

    def stream(
        self,
        texts: Iterable[Item],
        *,
        max_tokens: int | None = None,
        truncate: bool = True,
        max_batch_tokens: int | None = None,
        errors: Errors = "strict",
    ) -> Iterator[Vectors]:
        """Yield the vector (dim,) of each text in order, reading at most two windows of 512 texts ahead."""
        options = self._check(max_tokens, truncate, max_batch_tokens, errors)
        items = iterate(texts, "stream([text])")
        return (vector.copy() for part in self._encode(items, options) for vector in part.vectors)

    def _check(self, max_tokens: int | None, truncate: bool, max_batch_tokens: int | None, errors: Errors) -> Options:
        """Check the options of a call."""
        check_process(self._process)
        if not isinstance(truncate, (bool, np.bool_)):
            raise InputError(f"truncate={truncate!r:.60} is not True or False")
        check_choice("errors", errors, ("strict", "replace"))
        limit, ids = self.default_tokens, self.max_tokens
        if max_tokens is not None:
            limit = ids = check_whole("max_tokens", max_tokens, 1, self.max_tokens)
            self._tokenizer.check_max_tokens(limit)
        budget = self._workers.batch_tokens
        if max_batch_tokens is not None:
            budget = check_whole("max_batch_tokens", max_batch_tokens, 1, MAX_BATCH_TOKENS)
        return Options(limit, ids, bool(truncate), budget, errors)

    def _encode(self, items: Iterator[Item], options: Options) -> Iterator[EmbedResult]:
        """Yield the results of one window of texts after the other."""
        running = None
        for start in itertools.count(0, WINDOW):
            window = list(itertools.islice(items, WINDOW))
            if not window:
                break
            rows = [self._row(item, start + i, options) for i, item in enumerate(window)]
            started = self._start(rows, start, options.max_batch_tokens)
            if running is not None:
                yield running()
            running = started
            if len(window) < WINDOW:
                break
        if running is not None:
            yield running()

    def _row(self, item: Item, index: int, options: Options) -> Row:
        """Turn one text, or its token ids, into a row."""
        if not isinstance(item, str):
            if not isinstance(item, (list, tuple, np.ndarray)):
                raise refuse(item, index)
            return Row(check_ids(item, index, self.bundle.manifest.limits.vocab_size, options.max_ids), False)
        encoded = self._tokenizer.encode([check_text(item, index, options.errors)], options.max_tokens)[0]
        truncated = encoded.full_length > options.max_tokens
        if truncated and not options.truncate:
            raise LimitError(
                f"text {index} has {encoded.full_length} tokens, the limit is {options.max_tokens}; split it, raise "
                "max_tokens, or let it be cut with truncate=True"
            )
        return Row(encoded.ids, truncated)

    def _start(self, rows: list[Row], start: int, budget: int) -> Callable[[], EmbedResult]:
        """Start to compute ``rows``, and return a function that waits for the result."""
        counts = [len(row.ids) for row in rows]
        vectors = np.empty((len(rows), self.dim), dtype=np.float32)

        def compute(run: Runnable, batch: list[int]) -> None:
            ids, mask = pad([rows[i].ids for i in batch])
            feeds = {name: ids if name == "input_ids" else mask for name in self._inputs}
            if "token_type_ids" in feeds:
                feeds["token_type_ids"] = np.zeros_like(ids)
            output = run.run([OUTPUT], feeds)[0]
            if not np.isfinite(output).all():
                row = batch[int(np.flatnonzero(~np.isfinite(output).all(axis=1))[0])]
                raise EdgebertError(f"the model produced NaN or infinity for text {start + row}; verify the bundle")
            vectors[batch] = output

        wait = self._workers.start(lambda tokens: plan_batches(counts, tokens), sum(counts), budget, compute)

        def result() -> EmbedResult:
            wait()
            return EmbedResult(vectors, np.array(counts, np.int64), np.array([row.truncated for row in rows], np.bool_))

        return result

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        if not self._own_session:
            raise EdgebertError("an Embedder over a session of your own cannot be copied or pickled; make another one")
        return reopen, (os.path.abspath(self.bundle.path), *self._options)

    def __repr__(self) -> str:
        return f"Embedder({os.fspath(self.bundle.path)!r}, device={self.device!r}, dim={self.dim})"


def reopen(folder: str, device: str, threads: int | None) -> Embedder:
    """Open a bundle again, in another process or for a copy."""
    return Embedder(Bundle.open(folder), device=device, threads=threads)


def output_size(folder: Path, graph: GraphSpec) -> int:
    """Return the dimension of the vectors that ``graph`` makes.

    Raises:
        BundleError: if it has no such output.
    """
    for spec in graph.outputs:
        if spec.name == OUTPUT and len(spec.shape) == 2 and isinstance(spec.shape[1], int):
            return spec.shape[1]
    raise BundleError(f"{folder / graph.file} has no output {OUTPUT} of shape (batch, dim); export again")
