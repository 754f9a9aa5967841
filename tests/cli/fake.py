"""An engine that needs no bundle; run as a script, the command line over that engine.

The vector of a text is ``[len(text), ord(first character), 0.1]``. The text ``slow`` takes a minute, ``boom`` raises,
``stop`` is an interrupt within exec(), where the import of a large library spends much of its time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.errors import InputError, LimitError


@dataclass(frozen=True)
class FakeResult:
    vectors: NDArray[np.float32]
    token_counts: NDArray[np.int64]
    truncated: NDArray[np.bool_]


@dataclass
class FakeEngine:
    dim: int = 3
    default_tokens: int = 8
    calls: list[dict[str, Any]] = field(default_factory=list)
    loads: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)

    def embed_detailed(self, texts: list[str], **options: Any) -> FakeResult:
        self.calls.append({"texts": len(texts), **options})
        limit = options.get("max_tokens") or self.default_tokens
        if "slow" in texts:
            time.sleep(60)
        if "stop" in texts:
            exec("raise KeyboardInterrupt")
        if "boom" in texts:
            raise InputError(f"text {texts.index('boom')} is bad:\n  it says boom")
        counts = np.array([len(text.split()) + 2 for text in texts], np.int64)
        if not options.get("truncate", True) and (counts > limit).any():
            longest = int(np.argmax(counts > limit))
            remedy = "raise max_tokens, or let it be cut with truncate=True"
            raise LimitError(f"text {longest} has more than {limit} tokens; {remedy}")
        rows = [(len(text), ord(text[0]) if text else 0, 0.1) for text in texts]
        vectors = np.array(rows, np.float32).reshape(-1, self.dim)
        return FakeResult(vectors, counts.clip(max=limit), counts > limit)


if __name__ == "__main__":
    import edgebert_runtime
    from edgebert.cli import main

    edgebert_runtime.load = lambda folder, **_options: FakeEngine()  # type: ignore[assignment]
    main()
