"""Every argument of the library's functions takes the values of its type, NumPy's too, and refuses others by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgebert_runtime
from edgebert_exporters import arguments, export, quantize, verify
from edgebert_exporters.export import export_checkpoint
from edgebert_exporters.quantize import measure_sensitivity, quantize_bundle
from edgebert_exporters.verify import verify_bundle
from edgebert_runtime.errors import EdgebertError, InputError
from tests.runtime.test_option_values import WILD

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "export": export_checkpoint,
    "quantize": quantize_bundle,
    "sensitivity": measure_sensitivity,
    "verify": verify_bundle,
    "load": edgebert_runtime.load,
}


class ChecksAreOver(Exception):
    """Raised in the place of the first step of work."""


@pytest.fixture
def needed(
    task_checkpoint: Callable[[str], Path],
    task_bundle: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, dict[str, Any]]:
    """Return the arguments that a call of each function needs, and let none of them work."""
    bundle, checkpoint = task_bundle("classify"), task_checkpoint("classify")

    def over(*_: object, **__: object) -> None:
        raise ChecksAreOver

    monkeypatch.setattr(export, "write_bundle", over)
    monkeypatch.setattr(quantize, "split_samples", over)
    monkeypatch.setattr(verify, "check_golden", over)
    return {
        "export": {"checkpoint": checkpoint, "bundle": tmp_path / "bundle"},
        "quantize": {"bundle": bundle, "out": tmp_path / "out"},
        "sensitivity": {"bundle": bundle},
        "verify": {"bundle": bundle},
        "load": {"folder": bundle},
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_value_of_any_argument_is_taken_or_refused_by_name(name: str, needed: dict[str, dict[str, Any]]) -> None:
    function, refused = FUNCTIONS[name], 0
    for parameter in inspect.signature(function).parameters:
        for value in WILD:
            try:
                function(**{**needed[name], parameter: value})
            except EdgebertError:
                refused += 1
            except ChecksAreOver:
                continue
            except Exception as error:
                pytest.fail(f"{name}({parameter}={value!r}): {type(error).__name__}: {error}")
    assert refused


@pytest.mark.parametrize(
    ("parser", "value", "expected"),
    [
        (arguments.whole, np.int64(32), 32),
        (arguments.whole, np.array(32), 32),
        (arguments.number, np.float32(0.5), 0.5),
        (arguments.number, np.int8(1), 1),
        (arguments.flag, np.bool_(True), True),
        (arguments.flag, np.array(False), False),
        (arguments.text, np.str_("int8"), "int8"),
        (arguments.texts, np.array(["a", "b"]), ["a", "b"]),
        (arguments.texts, ("a", np.str_("b")), ["a", "b"]),
    ],
)
def test_numpy_values_become_those_of_python(parser: arguments.Parser, value: Any, expected: Any) -> None:
    parsed = parser("option", value)
    assert parsed == expected
    assert type(parsed) is type(expected)


@pytest.mark.parametrize(
    ("parser", "value"),
    [
        (arguments.whole, True),
        (arguments.whole, np.float32(2)),
        (arguments.whole, np.ma.masked),
        (arguments.number, np.float64("nan")),
        (arguments.number, np.bool_(True)),
        (arguments.flag, 1),
        (arguments.text, b"int8"),
        (arguments.texts, "labels"),
        (arguments.texts, {"a": 1}),
        (arguments.texts, [1]),
    ],
)
def test_other_values_are_refused_by_name(parser: arguments.Parser, value: Any) -> None:
    with pytest.raises(InputError, match="^option="):
        parser("option", value)


def test_numpy_values_give_the_bundle_of_python_values(task_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "scheme": ("int8", np.str_("int8")),
        "granularity": ("block", np.str_("block")),
        "block_size": (32, np.int64(32)),
        "asymmetric": (True, np.bool_(True)),
        "min_fidelity": (0.0, np.float32(0)),
        "exclude": (["head.*"], np.array(["head.*"])),
    }
    made = [
        quantize_bundle(
            task_bundle("classify"), tmp_path / str(kind), **{name: pair[kind] for name, pair in options.items()}
        )
        for kind in (0, 1)
    ]
    plain, numpy = (bundle.manifest for bundle in made)
    assert plain.files == numpy.files
    assert [report["block_size"] for report in (plain.report, numpy.report)] == [32, 32]
    assert type(numpy.report["min_fidelity"]) is type(plain.report["min_fidelity"])
