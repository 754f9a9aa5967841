"""A comparison of three bundles with round figures; the last one has another task."""

from __future__ import annotations

from typing import Any


def spread(median: float) -> dict[str, float]:
    return {"median": median, "least": median / 2, "most": 2 * median}


def row(name: str, scheme: str, size: int, **figures: Any) -> dict[str, Any]:
    return {
        **{"name": name, "path": f"/b/{name}", "task": "embed", "family": "bert", "target": "cpu", "notes": []},
        **{"weights": {"scheme": scheme, "bytes": size, "coverage": [0, 0] if scheme == "fp32" else [3, 4]}},
        **{"bytes_on_disk": size + 10**6, "start_seconds": spread(0.5)},
        "memory_bytes": {"peak": 3 * size, "mapped": size, "libraries": 60 * 10**6},
        **figures,
    }


def comparison() -> dict[str, Any]:
    """Return the result of compare_bundles."""

    def speed(median: float, speedup: float) -> list[dict[str, Any]]:
        name = "1 text of 16 tokens"
        return [{"workload": name, "turns": 7, "milliseconds": spread(median), "speedup": speedup}]

    fidelity = {"texts": 76, "cosine_mean": 0.99997, "cosine_min": 0.995, "nearest_neighbor_changes": 0.25}
    first = row("a.bundle", "fp32", 100 * 10**6, speed=speed(10.0, 1.0))
    second = row("a.int8", "int8", 25 * 10**6, speed=speed(4.0, 2.5), fidelity=fidelity, notes=["the key x is unused"])
    third = row("<b>", "fp32", 10**6, task="generate", memory_bytes=None)
    reason = "its task is generate, not embed"
    return {
        "conditions": {
            **{"date": "2026-12-01 05:45 UTC", "onnxruntime": "1.32.0", "python": "3.11.7", "system": "Linux x86_64"},
            **{"cpu": "Some CPU", "cpu_features": None, "threads": 1, "edgebert": "0.2.0", "device": "cpu"},
            **{"seconds": 5.0, "starts": 3, "texts": {"origin": "texts.txt", "count": 76}},
        },
        "baseline": "a.bundle",
        "bundles": [first, second, third],
        "left_out": [{"bundle": "<b>", "figures": figures, "reason": reason} for figures in ("speed", "fidelity")],
    }
