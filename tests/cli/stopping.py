"""Stop a command while it writes."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.support.patience import PATIENCE


def stop(process: subprocess.Popen[bytes], folder: Path, number: int, *, after: float = 0) -> int:
    """Send a signal ``after`` so many seconds since there is something in the folder; return the exit code.

    The command must print no result and no traceback, and leave nothing behind.
    """
    while not list(folder.iterdir()) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(after)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert out == b""
    assert b"Traceback" not in err
    assert list(folder.iterdir()) == []
    return process.returncode
