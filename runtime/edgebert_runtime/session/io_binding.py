"""Graphs bound to NumPy arrays, which they read and write without copies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from edgebert_runtime.session.error_messages import explain_run
from edgebert_runtime.session.session import Runnable, Session, fork_error, import_onnxruntime

Arrays = Mapping[str, NDArray[Any]]


class Binding:
    """A session with the contiguous arrays on the CPU that its runs read and write.

    Their contents may change between runs, their shapes may not. An array may be both input and output.
    """

    def __init__(self, session: Session, inputs: Arrays, outputs: Arrays) -> None:
        self.session = session
        self.inner = session.inner.io_binding()
        as_value = import_onnxruntime().OrtValue.ortvalue_from_numpy
        arrays = {id(array): array for array in (*inputs.values(), *outputs.values())}
        self.values = {key: as_value(array) for key, array in arrays.items()}  # each keeps its array alive
        for name, array in inputs.items():
            self.inner.bind_ortvalue_input(name, self.values[id(array)])
        for name, array in outputs.items():
            self.inner.bind_ortvalue_output(name, self.values[id(array)])

    def run(self) -> None:
        """Compute the outputs.

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


class CopyBinding:
    """The same over any other session: its outputs are copied into the arrays."""

    def __init__(self, session: Runnable, inputs: Arrays, outputs: Arrays) -> None:
        self.session = session
        self.inputs, self.outputs = inputs, outputs

    def run(self) -> None:
        """Compute the outputs."""
        results = self.session.run(list(self.outputs), self.inputs)
        for array, result in zip(self.outputs.values(), results, strict=True):
            array[...] = result


def bind(session: Runnable, inputs: Arrays, outputs: Arrays) -> Binding | CopyBinding:
    """Bind a session to the arrays of its inputs and outputs, by name."""
    if isinstance(session, Session):
        return Binding(session, inputs, outputs)
    return CopyBinding(session, inputs, outputs)
