"""How much of its time an engine spends outside of the model and the tokenizer, for every task.

    python benchmarks/overhead.py minilm

Random heads are put on all-MiniLM-L6-v2 (``samples/fetch_minilm.py``), each is exported and quantized to int8, which
is the hardest case because its model is the fastest, and 1,000 short texts go through on one thread, where nothing
overlaps. A line for each task: texts per second, and the shares of the time in session.run, in the tokenizer, and
elsewhere. Medians of five runs.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from edgebert_exporters import export_checkpoint, quantize_bundle
from edgebert_runtime import ENGINES, Bundle
from edgebert_runtime.session.session import open_session
from edgebert_runtime.tasks.base.engine import Engine

ROOT = Path(__file__).parent.parent
TEXTS, RUNS = 1000, 5
QUESTION = "Who looks after trees?"
# What each head is called, its outputs, and the ending of its architecture.
HEADS: dict[str, tuple[dict[str, int], str]] = {
    "embed": ({}, "Model"),
    "classify": ({"classifier": 3}, "ForSequenceClassification"),
    "rerank": ({"classifier": 1}, "ForSequenceClassification"),
    "tag": ({"classifier": 9}, "ForTokenClassification"),
    "answer": ({"qa_outputs": 2}, "ForQuestionAnswering"),
    "fill-mask": ({"cls.predictions.transform.dense": 384}, "ForMaskedLM"),
}


class Timed:
    """Stands for a session or a tokenizer, and adds up the time that one method of it takes."""

    def __init__(self, inner: Any, method: str) -> None:
        self.inner, self.method, self.seconds = inner, method, 0.0
        setattr(self, method, self.timed)

    def timed(self, *args: Any, **options: Any) -> Any:
        """Call the method."""
        start = time.perf_counter()
        result = getattr(self.inner, self.method)(*args, **options)
        self.seconds += time.perf_counter() - start
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def make_bundle(minilm: Path, task: str, folder: Path) -> Path:
    """Put a random head on the checkpoint, export it and quantize it."""
    checkpoint = folder / "checkpoint"
    shutil.copytree(minilm, checkpoint)
    outputs, ending = HEADS[task]
    tensors, generator = load_file(minilm / "model.safetensors"), torch.Generator().manual_seed(0)
    for name, size in outputs.items():
        tensors[f"{name}.weight"] = torch.randn(size, 384, generator=generator) * 0.05
        tensors[f"{name}.bias"] = torch.zeros(size)
    if task == "fill-mask":
        norm = "cls.predictions.transform.LayerNorm"
        tensors |= {f"{norm}.weight": torch.ones(384), f"{norm}.bias": torch.zeros(384)}
        tensors["cls.predictions.bias"] = torch.zeros(30522)
    save_file(tensors, checkpoint / "model.safetensors")
    config = json.loads((minilm / "config.json").read_text(encoding="utf-8"))
    (checkpoint / "config.json").write_text(json.dumps(config | {"architectures": [f"Bert{ending}"]}))
    exact = export_checkpoint(checkpoint, folder / "fp32", task=task)
    return quantize_bundle(exact.path, folder / "int8", min_fidelity=0).path


# How an application calls the engine of each task.
CALLS: dict[str, Callable[[Any, list[str]], object]] = {
    "embed": lambda engine, texts: engine.embed(texts),
    "classify": lambda engine, texts: engine.classify(texts),
    "rerank": lambda engine, texts: engine.rerank(QUESTION, texts),
    "tag": lambda engine, texts: engine.tag(texts),
    "answer": lambda engine, texts: engine.answer_many([(QUESTION, text) for text in texts]),
    "fill-mask": lambda engine, texts: engine.fill([f"{text} [MASK]" for text in texts]),
}


def main(minilm: Path) -> None:
    """Measure every task and print a line for each."""
    lines = (ROOT / "samples" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    texts = [lines[i % len(lines)] for i in range(TEXTS)]
    print(f"{'task':<10} texts/s   session  tokenizer  elsewhere  elsewhere a text")
    for task in HEADS:
        with tempfile.TemporaryDirectory() as scratch:
            bundle = Bundle.open(make_bundle(minilm, task, Path(scratch)))
            kind: type[Engine] = ENGINES[task]
            session: Any = Timed(open_session(bundle.path / "model.onnx", threads=1), "run")
            engine = kind(bundle, session=session)
            engine._tokenizer.inner = tokenizer = Timed(engine._tokenizer.inner, "encode")
            CALLS[task](engine, texts[:50])
            print_shares(task, engine, session, tokenizer, texts)


def print_shares(task: str, engine: Any, session: Timed, tokenizer: Timed, texts: list[str]) -> None:
    """Run several times and print the medians."""
    rows = []
    for _ in range(RUNS):
        session.seconds = tokenizer.seconds = 0.0
        start = time.perf_counter()
        CALLS[task](engine, texts)
        wall = time.perf_counter() - start
        rows.append((wall, session.seconds / wall, tokenizer.seconds / wall))
    wall, inside, tokens = (statistics.median(column) for column in zip(*rows, strict=True))
    elsewhere = statistics.median(1 - row[1] - row[2] for row in rows)
    each = f"{elsewhere * wall / len(texts) * 1e6:9.0f} us"
    print(f"{task:<10} {len(texts) / wall:7.0f}  {inside:8.1%}  {tokens:9.1%}  {elsewhere:9.1%}  {each}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
