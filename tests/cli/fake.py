"""An engine that needs no bundle, of the task that the bundle is called; run as a script, the command line over it.

The vector of a text is ``[len(text), ord(first character), 0.1]``; scores come from the length of a text, and the
spans of ``tag`` and ``answer`` are the words with a capital. ``generate`` and ``translate`` say the text again in
capitals. The text ``slow`` takes an hour, ``boom`` raises, ``stop`` is an interrupt within exec(), where the import of
a large library spends much of its time.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime import Answer, Choice, Classification, Entity, Filling, Generation, Ranked, Scored
from edgebert_runtime.errors import InputError, LimitError
from edgebert_runtime.generation import Options
from tests.support.verbs import VERBS

# What the methods of engines that write take beside the options of a search.
SLOW = 3600  # seconds: longer than any test waits
OWN = (
    "encoding_errors",
    "max_batch_tokens",
    "prompt_lookup",
    "split_sentences",
    "target_prefix",
    "source_language",
    "target_language",
)
THIRD = float(np.float32(1 / 3))  # as engines give it: 0.3333333432674408


@dataclass(frozen=True)
class FakeResult:
    vectors: NDArray[np.float32]
    token_counts: NDArray[np.int64]
    truncated: NDArray[np.bool_]


@dataclass
class FakeEngine:
    task: str = "embed"
    problem_type: str = "single_label"
    labels: tuple[str, ...] = ("low", "mid", "high")
    scores: tuple[float, ...] = (0.1, 0.2, 0.7)
    dim: int = 3
    default_tokens: int = 8
    decoding: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    loads: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)

    @property
    def bundle(self) -> Any:
        return SimpleNamespace(manifest=SimpleNamespace(task=self.task))

    def load(self, folder: Path, **options: Any) -> FakeEngine:
        self.loads.append((folder, options))
        self.task = folder.name if folder.name in VERBS else "embed"
        return self

    def read(self, texts: Sequence[str], options: dict[str, Any]) -> NDArray[np.int64]:
        """Remember the call, do what the texts say, and return the number of tokens of each."""
        self.calls.append({"texts": len(texts), **options})
        limit = options.get("max_tokens") or self.default_tokens
        if "slow" in texts:
            time.sleep(SLOW)
        if "stop" in texts:
            exec("raise KeyboardInterrupt")
        if "boom" in texts:
            raise InputError("is bad:\n  it says boom", index=texts.index("boom"))
        counts = np.array([len(text.split()) + 2 for text in texts], np.int64)
        if not options.get("truncate", True) and (counts > limit).any():
            longest = int(np.argmax(counts > limit))
            raise LimitError(
                f"has more than {limit} tokens",
                index=longest,
                hint="raise {max_tokens}, or leave out {truncate}",
                options={"max_tokens": ..., "truncate": False},
            )
        return counts

    def cuts(self, texts: Sequence[str], options: dict[str, Any]) -> list[bool]:
        limit = options.get("max_tokens") or self.default_tokens
        return [bool(count > limit) for count in self.read(texts, options)]

    def embed_detailed(self, texts: list[str], **options: Any) -> FakeResult:
        counts = self.read(texts, options)
        limit = options.get("max_tokens") or self.default_tokens
        rows = [(len(text), ord(text[0]) if text else 0, 0.1) for text in texts]
        vectors = np.array(rows, np.float32).reshape(-1, options.get("dim") or self.dim)
        return FakeResult(vectors, counts.clip(max=limit), counts > limit)

    def translate(self, texts: list[str], **options: Any) -> list[Any]:
        if "long" in texts:
            hint, options = "split it, or pass {split_sentences}", {"split_sentences": True}
            raise LimitError("is long", index=texts.index("long"), hint=hint, options=options)
        return self.generate(texts, **options)

    def generate(self, prompts: list[str], **options: Any) -> list[Any]:
        self.read(prompts, options)
        search = searched(self.decoding, options)
        if "full" in prompts:
            raise LimitError(
                "has 9 tokens and leaves no room in the model's 8", index=prompts.index("full"), item="prompt"
            )
        count = search.num_return_sequences
        results = [[continuation(prompt, rank) for rank in range(count)] for prompt in prompts]
        return results if count > 1 else [result for (result,) in results]

    def continue_one(self, prompt: str, options: dict[str, Any]) -> Iterator[str]:
        """Yield the words of the continuation; ``...`` goes on for ever, ``stuck`` is an hour after the first."""
        searched(self.decoding, options)
        self.read([prompt], options)
        yield from continuation(prompt).text.partition(" ")
        if prompt == "one stuck":
            time.sleep(SLOW)
        while prompt == "...":
            yield " and"

    def score(self, items: Any, **options: Any) -> list[Scored]:
        texts = ["|".join(pair) for pair in items] if self.task == "translate" else items
        counts = self.read(texts, options).tolist()
        return [Scored((7,) * n, (-THIRD,) * n, -THIRD * n, math.exp(THIRD)) for n in counts]

    def stream(self, texts: Any, pairs: list[str] | None = None, **options: Any) -> Iterator[Any]:
        if self.task in ("generate", "translate"):
            yield from self.continue_one(texts, options)
            return
        if self.task == "tag":
            for text, _ in zip(texts, self.read(texts, options), strict=True):
                yield [Entity("NAME", THIRD, *span, text[slice(*span)]) for span in capitals(text)]
            return
        joined = texts if pairs is None else [f"{a}|{b}" for a, b in zip(texts, pairs, strict=True)]
        options["joined"] = joined
        for cut in self.cuts(texts, options):
            scores = np.array(self.scores, np.float32)
            best = 0 if self.problem_type == "regression" else int(scores.argmax())
            yield Classification(self.labels[best], float(scores[best]), scores, cut)

    def rerank(self, query: str, passages: list[str], *, top_k: int | None, **options: Any) -> list[Ranked]:
        return [Ranked(*fields) for fields in self.ranked(passages, options | {"query": query})][:top_k]

    def choose_many(self, questions: list[tuple[str, list[str]]], **options: Any) -> list[list[Choice]]:
        return [
            [Choice(*fields) for fields in self.ranked(choices, options | {"prompt": prompt})]
            for prompt, choices in questions
        ]

    def ranked(self, texts: Sequence[str], options: dict[str, Any]) -> list[tuple[int, float, str, bool]]:
        cuts = self.cuts(texts, options)
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        return [(index, THIRD * len(texts[index]), texts[index], cuts[index]) for index in order]

    def answer_many(self, pairs: list[tuple[str, str]], *, top_k: int, **options: Any) -> list[list[Answer]]:
        self.read([question for question, _ in pairs], {"contexts": [context for _, context in pairs], **options})
        nothing = [Answer("", 0.5, 0, 0)] if options["handle_impossible_answer"] else []
        results = [[Answer(c[slice(*span)], THIRD, *span) for span in capitals(c)] for _, c in pairs]
        return [(nothing + answers)[:top_k] for answers in results]

    def fill(self, texts: list[str], *, top_k: int, targets: Any, **options: Any) -> list[list[list[Filling]]]:
        self.read(texts, {"targets": targets, **options})
        words = (targets or ("sun", "moon", "star"))[:top_k]
        return [[fillings(text, *mask.span(), words) for mask in re.finditer("_", text)] for text in texts]


def searched(decoding: dict[str, Any], options: dict[str, Any]) -> Options:
    """Return the options of the search, checked as an engine checks them."""
    return Options.read(decoding, **{name: value for name, value in options.items() if name not in OWN})


def continuation(prompt: str, rank: int = 0) -> Generation:
    return Generation(prompt.upper() + "!" * rank, (5, 6), (-THIRD, -0.5), -THIRD - 0.5, "length")


def capitals(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"[A-Z]\S*", text)]


def fillings(text: str, start: int, end: int, words: Sequence[str]) -> list[Filling]:
    return [Filling(w, len(w), THIRD, text[:start] + w + text[end:], start, start + len(w)) for w in words]


if __name__ == "__main__":
    import edgebert_runtime
    from edgebert.cli import main, progress

    progress.INTERVAL = float(os.environ.get("PROGRESS_INTERVAL", SLOW))
    edgebert_runtime.load = FakeEngine().load  # type: ignore[assignment]
    main()
