"""Standard streams that were closed by whoever started the process, as a shell does for ``>&-``."""

from __future__ import annotations

import os
import sys

from edgebert.cli.errors import Failure


def replace_closed_streams() -> None:
    """Occupy the descriptors of closed streams, and let messages go nowhere where standard error is closed.

    Otherwise the next file that is opened would get the descriptor of a stream, and take what a library prints there.
    Commands that read standard input say themselves that it is closed.

    Raises:
        Failure: if standard output is closed: there is no place for results.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != descriptor:
                os.dup2(nothing, descriptor)
                os.close(nothing)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)
    if sys.stdout is None:
        raise Failure("standard output is closed; send it to a file, or to /dev/null")
