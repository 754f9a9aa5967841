"""The conditions under which figures were measured."""

from __future__ import annotations

import datetime
import platform
from typing import Any

from edgebert_runtime.session.cpu_features import cpu_features, cpu_name
from edgebert_runtime.session.session import import_onnxruntime
from edgebert_runtime.session.thread_count import available_threads


def measurement_conditions(threads: int | None = None) -> dict[str, Any]:
    """Return the date in UTC, the versions, the CPU with its features, and the threads of an engine.

    ``threads`` is as for an engine. Features are those for int8 that the CPU has, None where they are not known.
    """
    features = cpu_features()
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "onnxruntime": str(import_onnxruntime().__version__),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cpu_features": None if features is None else [name for name, has in features.items() if has],
        "threads": threads or available_threads(),
    }
