"""Bind a graph to NumPy arrays that it reads and writes in place, so that nothing is copied between runs."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray

from edgebert_runtime.session.error_messages import explain_run
from edgebert_runtime.session.session import Runnable, Session, fork_error, import_onnxruntime


class Binding:
    """A session with the arrays that its next runs read and write, all on the CPU.

    The arrays are contiguous. Their contents may change between runs, their shapes may not.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.inner = session.inner.io_binding()
        self.to_value = import_onnxruntime().OrtValue.ortvalue_from_numpy
        self.values: list[Any] = []  # the arrays live as long as the binding

    def bind(self, array: NDArray[Any], *, read: str | None = None, written: str | None = None) -> None:
        """Let the graph read the input called ``read`` from ``array``, and write the output ``written`` into it."""
        value = self.to_value(array)
        self.values.append(value)
        if read is not None:
            self.inner.bind_ortvalue_input(read, value)
        if written is not None:
            self.inner.bind_ortvalue_output(written, value)

    def run(self) -> None:
        """Compute the outputs that are bound.

        Raises:
            ForkError: in a process forked after the session was opened.
            DeviceError: if memory runs out.
            EdgebertError: if ONNX Runtime fails otherwise.
        """
        if os.getpid() != self.session.process:
            raise fork_error(self.session.process)
        try:
            self.session.inner.run_with_iobinding(self.inner)
        except Exception as error:  # its exceptions share no base class but this
            raise explain_run(error) from error


class Copies:
    """The same over a session of the caller's own: what it gives is copied into the arrays."""

    def __init__(self, session: Runnable) -> None:
        self.session = session
        self.read: dict[str, NDArray[Any]] = {}
        self.written: dict[str, NDArray[Any]] = {}

    def bind(self, array: NDArray[Any], *, read: str | None = None, written: str | None = None) -> None:
        """Feed ``array`` to the input called ``read``, and copy the output ``written`` into it."""
        if read is not None:
            self.read[read] = array
        if written is not None:
            self.written[written] = array

    def run(self) -> None:
        """Compute the outputs that are bound."""
        for array, output in zip(self.written.values(), self.session.run(list(self.written), self.read), strict=True):
            array[...] = output


def bind_to(session: Runnable) -> Binding | Copies:
    """Return what binds a session to arrays."""
    return Binding(session) if isinstance(session, Session) else Copies(session)
