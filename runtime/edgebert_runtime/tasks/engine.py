"""What the engines of all tasks share: their options, rows of token ids, and the batches that compute them."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import BundleError, EdgebertError, InputError, LimitError
from edgebert_runtime.inputs.batching import plan_batches
from edgebert_runtime.inputs.character_spans import plan_windows
from edgebert_runtime.inputs.special_tokens import fit_pair
from edgebert_runtime.inputs.tokenizer import TOKENIZER_NAME, Tokenizer
from edgebert_runtime.inputs.validation import Item, check_choice, check_ids, check_text, check_whole, refuse
from edgebert_runtime.session.batch_executor import Workers
from edgebert_runtime.session.session import Runnable, fork_error
from edgebert_runtime.tasks.requests import Options, Row, TextOptions, Work, feed

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger("edgebert")

# Rows are read, tokenized and sorted by length so many at a time. The next ones are prepared while these run.
WINDOW = 512
MAX_BATCH_TOKENS = 1 << 24
INPUTS = {"input_ids", "attention_mask", "token_type_ids", "logits_indices", "top_k"}

Floats = NDArray[np.float32]
Progress = Callable[[int, "int | None"], None]
T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R")


class Engine:
    """Tokenizer and sessions of a bundle. One may be shared by threads; it pickles as its folder and options.

    ``session`` replaces the ONNX Runtime session by anything that has its ``run``.

    Raises:
        BundleError: if the bundle is of another task.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks: ClassVar[tuple[str, ...]]
    graphs: ClassVar[tuple[str, ...]] = ("model",)  # the first one reads the texts
    outputs: ClassVar[tuple[str, ...]] = ("logits",)
    state: ClassVar[tuple[str, ...]] = ()  # how inputs begin that a graph gets from its own outputs

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: str = "cpu",
        threads: int | None = None,
        session: Runnable | None = None,
    ) -> None:
        manifest = bundle.manifest
        if manifest.task not in self.tasks:
            wanted = " or ".join(self.tasks)
            raise BundleError(f"{bundle.path} is a bundle of task {manifest.task!r}, not of {wanted}")
        if manifest.graphs.keys() != set(self.graphs):
            found, wanted = ", ".join(manifest.graphs), ", ".join(self.graphs)
            raise BundleError(f"{bundle.path} has the graphs {found}, the task is run by {wanted}; export again")
        limits = manifest.limits
        if not 0 < limits.default_tokens <= limits.max_tokens:
            raise BundleError(
                f"{bundle.path} cuts texts at {limits.default_tokens} tokens, the model takes 1 to {limits.max_tokens}"
            )
        self.bundle = bundle
        self.max_tokens = limits.max_tokens
        self.default_tokens = limits.default_tokens
        self._arguments = (device, threads)
        self._own_session = session is None
        self._process = os.getpid()
        graph = manifest.graphs[self.graphs[0]]
        self._inputs = tuple(spec.name for spec in graph.inputs)
        if unknown := sorted(name for name in set(self._inputs) - INPUTS if not name.startswith(self.state)):
            raise BundleError(f"{bundle.path / graph.file} asks for inputs {unknown}, which no text gives")
        self._shapes = {spec.name: spec.shape for spec in graph.outputs}
        if missing := sorted(set(self.outputs) - self._shapes.keys()):
            raise BundleError(f"{bundle.path / graph.file} has no output {', '.join(missing)}; export again")
        self._tokenizer = self._load_tokenizer()
        self._setup()
        self._workers = Workers(bundle, graph.file, device, threads, session)

    def _setup(self) -> None:
        """Read what a task keeps in the manifest, before the session is opened.

        Raises:
            BundleError: if it does not fit the graph.
        """

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

    def _load_tokenizer(self) -> Tokenizer:
        """Load what makes token ids of texts."""
        file, size = self.bundle.path / TOKENIZER_NAME, self.bundle.manifest.limits.vocab_size
        return Tokenizer.load(file, size, self._special_token_in_texts())

    def _special_token_in_texts(self) -> str | None:
        """Return the special token that texts may contain, None if they may contain none."""
        return None

    def _setting(self, name: str, kind: type[T]) -> T:
        """Return an entry of the manifest's settings.

        Raises:
            BundleError: if it is missing or of another type.
        """
        value = self.bundle.manifest.settings.get(name)
        if not isinstance(value, kind):
            raise BundleError(f"{self.bundle.path} has the setting {name}={value!r:.60}, not {kind.__name__}")
        return value

    def _labels(self) -> tuple[str, ...]:
        """Return the names in the settings of what the logits are for.

        Raises:
            BundleError: if they are not as many, or no names.
        """
        labels, size = self._setting("labels", list), self._shapes["logits"][-1]
        if len(labels) != size or not all(isinstance(label, str) for label in labels):
            raise BundleError(f"{self.bundle.path} has {len(labels)} labels for {size} outputs; export again")
        return tuple(labels)

    def _check(self, specials: int | None = None, **given: Unpack[TextOptions]) -> Options:
        """Check the options of a call whose rows have ``specials`` special tokens (None: those of one text)."""
        if os.getpid() != self._process:
            raise fork_error(self._process)
        if unknown := sorted(given.keys() - TextOptions.__annotations__.keys()):
            known = ", ".join(TextOptions.__annotations__)
            raise TypeError(f"{type(self).__name__} has no option {unknown[0]!r} there; all methods take {known}")
        truncate, max_tokens = given.get("truncate", True), given.get("max_tokens")
        budget, errors = given.get("max_batch_tokens"), given.get("errors", "strict")
        if not isinstance(truncate, (bool, np.bool_)):
            raise InputError(f"truncate={truncate!r:.60} is not True or False")
        check_choice("errors", errors, ("strict", "replace"))
        limit, ids = self.default_tokens, self.max_tokens
        if max_tokens is not None:
            limit = ids = check_whole("max_tokens", max_tokens, 1, self.max_tokens)
        self._tokenizer.check_max_tokens(limit, specials)
        tokens = self._workers.batch_tokens
        if budget is not None:
            tokens = check_whole("max_batch_tokens", budget, 1, MAX_BATCH_TOKENS)
        return Options(limit, ids, bool(truncate), tokens, errors)

    def _text(self, item: Item, index: int, options: Options) -> str | NDArray[np.int64]:
        """Return a text that can be tokenized, or token ids that the model can take."""
        if isinstance(item, str):
            return check_text(item, index, options.errors)
        if not isinstance(item, (list, tuple, np.ndarray)):
            raise refuse(item, index)
        return check_ids(item, index, self.bundle.manifest.limits.vocab_size, options.max_ids)

    def _row(self, item: Item, index: int, options: Options) -> Row:
        """Turn one text, or its token ids, into a row, cut where it is too long."""
        text = self._text(item, index, options)
        if not isinstance(text, str):
            return Row(text)
        ids, full_length = self._tokenizer.encode_one(text, options.max_tokens)
        return Row(ids, truncated=self._cut(index, full_length, options))

    def _pair(self, first: str, second: str, index: int, options: Options) -> Row:
        """Turn two texts into a row; where they are too long together, the longer one is cut first."""
        for text in (first, second):
            if not isinstance(text, str):
                raise InputError(f"text {index} is a pair with {type(text).__name__} in it, not two of str")
        one, other = (self._content(text, index, options) for text in (first, second))
        return self._join(one, other, index, options)

    def _content(
        self,
        text: str,
        index: int | None,
        options: Options,
        item: str = "text",
        part: str | tuple[str, int] | None = None,
    ) -> list[int]:
        """Return the token ids of a text without special ones."""
        ids: list[int] = self._tokenizer.content(check_text(text, index, options.errors, item, part)).ids
        return ids

    def _join(self, first: list[int], second: list[int], index: int, options: Options) -> Row:
        """Turn the token ids of two texts into a row, the longer one cut first."""
        template = self._tokenizer.pair
        kept = fit_pair(len(first), len(second), max(0, options.max_tokens - template.num_special_tokens))
        truncated = self._cut(index, len(first) + len(second) + template.num_special_tokens, options)
        return Row(*template.join(first[: kept[0]], second[: kept[1]]), truncated)

    def _cut(self, index: int, full_length: int, options: Options) -> bool:
        """Say whether a text of ``full_length`` tokens has to be cut.

        Raises:
            LimitError: if it has to, and must not.
        """
        truncated = full_length > options.max_tokens
        if truncated and not options.truncate:
            raise LimitError(
                f"has {full_length} tokens, the limit is {options.max_tokens}",
                index=index,
                hint="split it, raise {max_tokens}, or leave out {truncate}",
                options={"max_tokens": ..., "truncate": False},
            )
        return truncated

    def _windows(self, length: int, room: int, stride: int | None) -> list[tuple[int, int]]:
        """Plan windows of ``room`` tokens that share ``stride`` (None: a quarter, at most 128).

        Raises:
            InputError: if ``stride`` leaves no way forward.
        """
        if stride is None:
            return plan_windows(length, room, min(128, room // 4))
        return plan_windows(length, room, check_whole("stride", stride, 0, room - 1))

    def _run(
        self,
        items: Iterable[T],
        prepare: Callable[[T, int], Work[V, R]],
        read: Callable[[Row, tuple[Floats, ...]], V],
        budget: int,
    ) -> Iterator[list[R]]:
        """Yield the results of some hundred items after the other, in order.

        ``prepare`` gets each item with its number, ``read`` each row with its part of every output. While one window
        of rows runs, the next is prepared.
        """
        running: Callable[[], list[R]] | None = None
        window: list[Work[V, R]] = []
        first, rows = 0, 0
        for index, item in enumerate(items):
            window.append(prepare(item, index))
            rows += max(1, len(window[-1].rows))  # an item without rows is held as well
            if rows >= WINDOW:
                started = self._start(window, first, read, budget)
                if running is not None:
                    yield running()
                running, window, rows, first = started, [], 0, index + 1
        started = self._start(window, first, read, budget)
        if running is not None:
            yield running()
        yield started()

    def _start(
        self,
        window: list[Work[V, R]],
        first: int,
        read: Callable[[Row, tuple[Floats, ...]], V],
        budget: int,
    ) -> Callable[[], list[R]]:
        """Start to compute a window of which the first item has the number ``first``; return how to wait for it."""
        rows = [row for work in window for row in work.rows]
        counts = [len(row.ids) for row in rows]
        values: list[Any] = [None] * len(rows)

        def compute(run: Runnable, batch: list[int]) -> None:
            chosen = [rows[i] for i in batch]
            outputs = run.run(list(self.outputs), feed(chosen, self._inputs))
            for i, row, parts in zip(batch, chosen, self._parts(chosen, outputs), strict=True):
                if not all(np.isfinite(part).all() for part in parts):
                    owner = np.searchsorted(np.cumsum([len(work.rows) for work in window]), i, side="right")
                    raise EdgebertError(
                        f"the model produced NaN or infinity for text {first + owner}; verify the bundle"
                    )
                values[i] = read(row, parts)

        wait = self._workers.start(lambda tokens: plan_batches(counts, tokens), sum(counts), budget, compute)

        def results() -> list[R]:
            wait()
            remaining = iter(values)
            return [work.finish(list(itertools.islice(remaining, len(work.rows)))) for work in window]

        return results

    def _parts(self, rows: Sequence[Row], outputs: Sequence[Floats]) -> Iterator[tuple[Floats, ...]]:
        """Yield each row's part of every output, without padding."""
        if "logits_indices" in self._inputs:
            ends = np.cumsum([len(row.chosen) for row in rows])[:-1]
            yield from zip(*(np.split(output, ends) for output in outputs), strict=True)
            return
        whole = ["sequence" not in self._shapes[name] for name in self.outputs]
        for place, row in enumerate(rows):
            width = len(row.ids)
            yield tuple(o[place] if w else o[place, :width] for o, w in zip(outputs, whole, strict=True))

    def _gather(self, parts: Iterator[list[R]], items: object, progress: Progress | None) -> list[R]:
        """Collect the results of a whole call, and report progress on the way."""
        total = len(items) if isinstance(items, Sized) else None
        results: list[R] = []
        for part in parts:
            results += part
            if progress is not None and part:
                progress(len(results), total)
        return results

    def _warn(self, truncated: int, total: int, options: Options) -> None:
        """Warn once that texts were cut."""
        if truncated:
            logger.warning("%d of %d texts were cut to %d tokens", truncated, total, options.max_tokens)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        if not self._own_session:
            name = type(self).__name__
            raise EdgebertError(f"a {name} over a session of your own cannot be copied or pickled; make another one")
        return reopen, (type(self), os.path.abspath(self.bundle.path), *self._arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({os.fspath(self.bundle.path)!r}, device={self.device!r})"


def reopen(kind: type[Engine], folder: str, device: str, threads: int | None) -> Engine:
    """Open a bundle again, in another process or for a copy."""
    return kind(Bundle.open(folder), device=device, threads=threads)
