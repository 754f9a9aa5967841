"""An opened bundle: its tokenizer, its session and its settings. The engines of all tasks build on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

from edgebert_runtime.bundle.reader import Bundle, Verify, opening
from edgebert_runtime.errors import BundleError, DeviceError, EdgebertError, InputError
from edgebert_runtime.session.session import ClosedSession, Runnable, fork_error, open_session, preload_imports
from edgebert_runtime.tasks.activations import ACTIVATIONS, Activation
from edgebert_runtime.tasks.base.bundle_tokenizers import load_tokenizers
from edgebert_runtime.tasks.base.text_encoder import TextEncoder
from edgebert_runtime.tasks.base.tokenizer import Tokenizer

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

# The inputs that an engine computes from texts.
TEXT_INPUTS = {"input_ids", "attention_mask", "token_type_ids", "pooling_mask", "logits_indices", "top_k"}

Progress = Callable[[int, "int | None"], None]
T = TypeVar("T")


class Engine:
    """ModelTokenizer and sessions of a bundle. Threads may share an engine; it pickles as its folder and options.

    ``device`` is where the model runs: ``cpu`` or ``cuda:N``. ``fallback`` says why ``device="auto"`` ended on the CPU,
    None if it did not. ``threads`` is the number of threads that a call keeps busy. ``max_tokens`` is the longest
    input of the model, ``default_tokens`` the length at which texts are cut by default.

    ``session`` replaces the ONNX Runtime session by anything that has its ``run``.

    Raises:
        BundleError: if the bundle is of another task.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks: ClassVar[tuple[str, ...]]
    _graphs: ClassVar[tuple[str, ...]] = ("model",)  # the first one reads the texts
    _outputs: ClassVar[tuple[str, ...]] = ("logits",)
    _state_prefixes: ClassVar[tuple[str, ...]] = ()  # of inputs that come from the graph's own outputs

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: str = "cpu",
        threads: int | None = None,
        session: Runnable | None = None,
    ) -> None:
        self._check_bundle(bundle)
        limits, graph = bundle.manifest.limits, bundle.manifest.graphs[self._graphs[0]]
        self.bundle = bundle
        self.max_tokens = limits.max_tokens
        self.default_tokens = limits.default_tokens
        self._inputs = tuple(spec.name for spec in graph.inputs)
        self._shapes = {spec.name: spec.shape for spec in graph.outputs}
        self._tokenizer, self._target = load_tokenizers(bundle)
        side = bundle.manifest.settings.get("truncation_side", "right")
        self._encoder = TextEncoder(self._tokenizer, limits.vocab_size, cuts_left=side == "left")
        self._read_settings()
        self._arguments = (device, threads)
        self._process = os.getpid()
        self._closed = False
        cpu_only, opened = self._cpu_only(), None
        if session is None:
            opened = open_session(bundle.path / graph.file, device=device, threads=threads, cpu_only=cpu_only)
        elif cpu_only is not None and getattr(session, "device", "cpu") != "cpu":
            raise cpu_only
        self._own_session = opened is None
        self._session: Runnable = opened or session or ClosedSession()
        self.device = opened.device if opened else "cpu"
        self.fallback = opened.fallback if opened else None
        self.threads = opened.threads if opened else threads or 1

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None, verify: Verify = "hash"
    ) -> Self:
        """Open the bundle in ``folder``, as :func:`edgebert_runtime.load` does, for an engine of this class.

        Raises:
            BundleError: if the folder is no intact bundle, or a bundle of another task.
            DeviceError: if the device cannot be had.
        """
        with opened_bundle(folder, verify) as bundle:
            return cls(bundle, device=device, threads=threads)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the bundle, with which to count, split and look at tokens."""
        return Tokenizer(self.bundle, (self._tokenizer, self._target))

    def close(self) -> None:
        """Free the sessions. A closed engine refuses every call; closing it twice is allowed."""
        self._closed = True
        self._session = ClosedSession()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_bundle(self, bundle: Bundle) -> None:
        """Make sure that this class runs the bundle.

        Raises:
            BundleError: saying what does not fit.
        """
        if not isinstance(bundle, Bundle):
            name = type(self).__name__
            raise InputError(f"{name}({bundle!r:.60}) takes an opened Bundle; write {name}.load({bundle!r:.60})")
        manifest, limits = bundle.manifest, bundle.manifest.limits
        if manifest.task not in self.tasks:
            raise BundleError(f"{bundle.path} is a bundle of task {manifest.task!r}, not of {' or '.join(self.tasks)}")
        if manifest.graphs.keys() != set(self._graphs):
            raise BundleError(
                f"{bundle.path} has the graphs {', '.join(manifest.graphs)}, the task is run by "
                f"{', '.join(self._graphs)}; export again"
            )
        if not 0 < limits.default_tokens <= limits.max_tokens:
            raise BundleError(
                f"{bundle.path} cuts texts at {limits.default_tokens} tokens, the model takes 1 to {limits.max_tokens}"
            )
        graph = manifest.graphs[self._graphs[0]]
        unknown = sorted({spec.name for spec in graph.inputs} - TEXT_INPUTS)
        if unknown := [name for name in unknown if not name.startswith(self._state_prefixes)]:
            raise BundleError(f"{bundle.path / graph.file} asks for inputs {unknown}, which no text gives")
        if missing := sorted(set(self._outputs) - {spec.name for spec in graph.outputs}):
            raise BundleError(f"{bundle.path / graph.file} has no output {', '.join(missing)}; export again")

    def _read_settings(self) -> None:
        """Read the task's part of the manifest, before the session is opened.

        Raises:
            BundleError: if it does not fit the graph.
        """

    def _cpu_only(self) -> DeviceError | None:
        """Return the reason that the model does not run on CUDA, None if it does."""
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

    def _activation_function(self, name: object) -> Activation:
        """Return the activation of this name.

        Raises:
            BundleError: if there is none.
        """
        if not isinstance(name, str) or name not in ACTIVATIONS:
            names = ", ".join(ACTIVATIONS)
            raise BundleError(f"{self.bundle.path} has the setting activation={name!r:.60}, not {names}")
        return ACTIVATIONS[name]

    def _label_names(self) -> tuple[str, ...]:
        """Return the names of the logits.

        Raises:
            BundleError: if they are not as many, or no names.
        """
        labels, size = self._setting("labels", list), self._shapes["logits"][-1]
        if len(labels) != size or not all(isinstance(label, str) for label in labels):
            raise BundleError(f"{self.bundle.path} has {len(labels)} labels for {size} outputs; export again")
        return tuple(labels)

    def _check_usable(self) -> None:
        """Make sure that the engine is open, and in the process that opened it.

        Raises:
            EdgebertError: if it is closed.
            ForkError: in a child forked since.
        """
        if self._closed:
            raise EdgebertError(f"this {type(self).__name__} is closed; load the bundle again")
        if os.getpid() != self._process:
            raise fork_error(self._process)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        if self._own_session:
            name = type(self).__name__
            raise EdgebertError(f"a {name} over a session of your own cannot be copied or pickled; make another one")
        return reopen, (type(self), os.path.abspath(self.bundle.path), *self._arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({os.fspath(self.bundle.path)!r}, device={self.device!r})"


@contextlib.contextmanager
def opened_bundle(folder: str | os.PathLike[str], verify: Verify) -> Iterator[Bundle]:
    """Open a bundle. onnxruntime is imported meanwhile, and the files may be hashed until the end of the block.

    Raises:
        BundleError: if the folder is no intact bundle.
    """
    with contextlib.ExitStack() as until_checked:
        with preload_imports():
            bundle = until_checked.enter_context(opening(folder, verify))
        yield bundle


def reopen(kind: type[Engine], folder: str, device: str, threads: int | None) -> Engine:
    """Open a bundle again, in another process or for a copy."""
    return kind(Bundle.open(folder), device=device, threads=threads)
