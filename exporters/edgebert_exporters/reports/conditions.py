"""The identity and the conditions of a quantization, for its report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from edgebert import __version__
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import MAX_UNKNOWN
from edgebert_runtime.session.conditions import measurement_conditions

Row = tuple[str, str]
BUILT_IN_TEXTS = "built-in English sentences"


def run_conditions(
    source: OpenedBundle, options: Mapping[str, Any], texts: Mapping[str, Any], threads: int | None = None
) -> dict[str, Any]:
    """Return the ``conditions`` of a report.

    They are those of the machine, the version of edgebert, the folder of the ``source``, the ``options`` that differ
    from their defaults, and the sample ``texts``: ``origin``, and their numbers for ``calibration`` and ``test``.
    """
    chosen = {name: value for name, value in options.items() if value not in (None, False, ())}
    return {
        **measurement_conditions(threads),
        "edgebert": __version__,
        "source": source.path.resolve().name,
        "options": chosen,
        "texts": dict(texts),
    }


def condition_rows(conditions: Mapping[str, Any]) -> list[Row]:
    """Return the conditions in words; those that are not there are left out."""
    rows = [("made from", conditions.get("source", "")), ("options", options_in_words(conditions.get("options", {})))]
    if texts := conditions.get("texts"):
        rows.append(("texts", texts_in_words(texts)))
    return [row for row in rows if row[1]] + machine_rows(conditions)


def machine_rows(conditions: Mapping[str, Any]) -> list[Row]:
    """Return the date, the versions and the machine in words."""
    if "cpu" not in conditions:
        return []
    features = conditions["cpu_features"]
    has = "features unknown" if features is None else ", ".join(features) or "no instructions for int8"
    threads = conditions["threads"]
    versions = f"edgebert {conditions['edgebert']}, ONNX Runtime {conditions['onnxruntime']}"
    return [
        ("measured", f"{conditions['date']}, with {threads} thread{'s' * (threads != 1)}"),
        ("versions", f"{versions}, Python {conditions['python']}"),
        ("machine", f"{conditions['cpu']} ({has}), {conditions['system']}"),
    ]


def texts_in_words(texts: Mapping[str, Any]) -> str:
    """Return the number and the origin of sample texts in words."""
    counts = f"{texts['calibration']} to calibrate, {texts['test']} others to measure fidelity"
    return f"{counts}; {texts['origin']}"


def options_in_words(options: Mapping[str, Any]) -> str:
    """Return options as they stand on the command line."""
    words = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, list | tuple) else [value]:
            words += [option] if item is True else [option, shlex.quote(str(item))]
    return " ".join(words)


def unreadable(report: Mapping[str, Any]) -> str:
    """Return why fidelity is not known, with a remedy; nothing where the model reads the sample texts.

    Figures about unknown tokens would be taken for figures about the model.
    """
    if (share := report.get("unknown_tokens", 0)) <= MAX_UNKNOWN:
        return ""
    text = f"not known: {share:.0%} of the tokens of the sample texts are unknown to the model"
    return f"{text}; give texts of its own kind with --calibration"
