"""From a PyTorch checkpoint to a semantic search, with size, speed and fidelity of each form of the model.

    make demo

Fetches all-MiniLM-L6-v2, exports and verifies it, and quantizes it to int8. Embeds ``samples/sentences.txt`` (State of
the Union addresses, 1890 to 2000) and answers three queries. Compares PyTorch with both bundles.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

import edgebert
from edgebert.checkpoints import open_checkpoint
from edgebert.models.bert.model import Bert
from edgebert.models.pooling import SentenceEncoder
from edgebert_exporters import export_checkpoint, quantize_bundle

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from fetch_minilm import fetch  # noqa: E402

Floats = npt.NDArray[np.float32]
Embed = Callable[[Sequence[str]], Floats]

QUERIES = (
    "Who looks after the trees?",
    "mail carriers in the countryside",
    "cheaper medicine for old people",
)
BATCH = 32
TURNS = 5
# How long a step is silent that reports its progress, in seconds.
SILENCE = 5.0


def main(folder: Path) -> None:
    """Run the whole demonstration, keeping checkpoint and bundles in ``folder``."""
    sentences = (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()
    folder.mkdir(exist_ok=True)
    checkpoint = fetch(folder / "minilm")
    say(f"all-MiniLM-L6-v2 is in {checkpoint}")
    bundle = export_checkpoint(checkpoint, folder / "minilm.bundle", force=True, progress=progress_lines())
    figures = bundle.manifest.verification
    say(
        f"exported to {bundle.path}; on {figures['batches']} batches it differs from PyTorch by "
        f"{figures['max_error']:.0e} at most"
    )
    small = quantize_bundle(bundle.path, folder / "minilm.int8", force=True, progress=progress_lines())
    quantized, eligible = small.manifest.weights.coverage
    say(f"quantized to {small.path}; {quantized} of {eligible} matrix products are int8")
    search(edgebert.Embedder.load(small.path), sentences)
    compare(checkpoint, [("fp32 bundle", bundle.path), ("int8 bundle", small.path)], sentences)


def search(model: edgebert.Embedder, sentences: Sequence[str]) -> None:
    """Print the sentence nearest to each query."""
    vectors = model.embed(sentences)  # (n, dim), each of length 1
    for query, vector in zip(QUERIES, model.embed(QUERIES), strict=True):
        scores = vectors @ vector  # (n,) cosines
        best = int(scores.argmax())
        print(f"\n  {query}\n  {scores[best]:.2f}  {sentences[best]}")


def compare(checkpoint: Path, bundles: Sequence[tuple[str, Path]], sentences: Sequence[str]) -> None:
    """Print size, load time, speed and mean cosine to PyTorch for the checkpoint and each bundle."""
    start = time.perf_counter()
    sides: list[tuple[str, float, float, Embed]] = []
    embed = pytorch(checkpoint)
    sides.append(("PyTorch", size(checkpoint / "model.safetensors"), time.perf_counter() - start, embed))
    for name, path in bundles:
        start = time.perf_counter()
        model = edgebert.Embedder.load(path)
        model.embed(sentences[:1])
        sides.append((name, sum(map(size, path.iterdir())), time.perf_counter() - start, model.embed))
    reference = embed(sentences)
    seconds: dict[str, list[float]] = {name: [] for name, *_ in sides}
    for _ in range(TURNS):  # in turns, because a machine is faster at some times than at others
        for name, _, _, run in sides:
            start = time.perf_counter()
            run(sentences)
            seconds[name].append(time.perf_counter() - start)
    print(f"\n  {len(sentences)} sentences     size     load    speed              cosine")
    for name, megabytes, load, run in sides:
        speed = len(sentences) / statistics.median(seconds[name])
        cosine = (run(sentences) * reference).sum(1)
        print(f"  {name:<12} {megabytes:7.1f} MB {load:6.2f} s {speed:6.0f} sentences/s {cosine.mean():8.4f}")


def pytorch(checkpoint: Path) -> Embed:
    """Return a function that embeds texts with the PyTorch reference, batched by length as well."""
    from tokenizers import Tokenizer

    opened = open_checkpoint(checkpoint)
    bert = opened.load_model()
    assert isinstance(bert, Bert)
    module = SentenceEncoder(bert, "mean", normalize=True).eval()
    tokenizer = Tokenizer.from_str(opened.tokenizer_json)
    tokenizer.enable_truncation(opened.default_tokens)
    tokenizer.enable_padding()

    def embed(texts: Sequence[str]) -> Floats:
        vectors = np.empty((len(texts), opened.config.hidden_size), np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            encoded = tokenizer.encode_batch([texts[i] for i in rows])
            ids, mask = (torch.tensor([getattr(e, name) for e in encoded]) for name in ("ids", "attention_mask"))
            with torch.inference_mode():
                vectors[rows] = module(ids, mask, torch.zeros_like(ids)).numpy()
        return vectors

    return embed


def progress_lines() -> Callable[[str, int, int], None]:
    """Return a function that reports each step on standard error, a long one again every few seconds."""
    current, last = "", 0.0

    def report(step: str, done: int, total: int) -> None:
        nonlocal current, last
        if step != current or time.monotonic() - last > SILENCE:
            current, last = step, time.monotonic()
            print(f"  {step}: {done} of {total}", file=sys.stderr, flush=True)

    return report


def size(file: Path) -> float:
    """Return the size of a file in MB."""
    return file.stat().st_size / 1e6


def say(text: str) -> None:
    """Print one step, at once even into a pipe."""
    print(text, flush=True)


if __name__ == "__main__":
    try:
        main(Path(".demo"))
    except (RuntimeError, edgebert.EdgebertError) as error:
        sys.exit(f"demo: {error}")
