"""One side of a comparison, in a process of its own.

    python worker.py KIND PATH

Prints one JSON line with the first vector. Then it answers each line ``WORKLOAD CALLS`` of standard input with the
seconds of one call. It imports only the library of its side, so any environment can run it.

Kinds: ``edgebert`` (a bundle), ``onnxruntime`` (an ONNX encoder in a bare loop), ``ctranslate2`` and ``torch``
(folders), ``sentence-transformers`` (a folder; texts only), and for generative models those of ``writers.py``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

THREADS = int(os.environ.get("BENCH_THREADS", "2"))
BATCH = int(os.environ.get("BENCH_BATCH", "16"))
TEXTS_FILE, TOKENIZER_FILE = os.environ.get("BENCH_TEXTS", ""), os.environ.get("BENCH_TOKENIZER", "")

Encode = Callable[[Any, Any], Any]  # ids and mask (batch, seq) to hidden states (batch, seq, dim)
Side = Callable[[Any], Any]  # rows of ids, or texts, to vectors


def edgebert(path: str) -> Side:
    """Our engine, as an application calls it."""
    import edgebert

    engine = edgebert.Embedder.load(path)
    return engine.embed


def onnxruntime(path: str) -> Side:
    """ONNX Runtime in the least code around it."""
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    kinds = {i.name: np.int32 if "int32" in i.type else np.int64 for i in session.get_inputs()}

    def encode(ids: Any, mask: Any) -> Any:
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return session.run(None, {name: feeds[name].astype(kind, copy=False) for name, kind in kinds.items()})[0]

    return in_batches(encode)


def ctranslate2(path: str) -> Side:
    """CTranslate2's encoder, in the number format of the model."""
    import ctranslate2
    import numpy as np

    quantized = "int8" in Path(path).name
    encoder = ctranslate2.Encoder(
        path, device="cpu", compute_type="int8" if quantized else "float32", intra_threads=THREADS, inter_threads=1
    )

    def encode(ids: Any, mask: Any) -> Any:
        rows = [row[:count] for row, count in zip(ids.tolist(), mask.sum(1).tolist(), strict=True)]
        return np.array(encoder.forward_batch(rows).last_hidden_state)

    return in_batches(encode)


def torch(path: str) -> Side:
    """PyTorch through transformers."""
    import torch
    from transformers import AutoModel

    torch.set_num_threads(THREADS)
    model = AutoModel.from_pretrained(path).float().eval()

    def encode(ids: Any, mask: Any) -> Any:
        with torch.inference_mode():
            return model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))[0].numpy()

    return in_batches(encode)


def sentence_transformers(path: str) -> Side:
    """sentence-transformers on PyTorch."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(THREADS)
    model = SentenceTransformer(path, device="cpu")
    return lambda texts: model.encode(texts, batch_size=32, show_progress_bar=False, normalize_embeddings=True)


def in_batches(encode: Encode) -> Side:
    """Give a bare encoder a tokenizer, batches by length, and mean pooling."""
    import numpy as np

    tokenizer = None
    if TOKENIZER_FILE:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(TOKENIZER_FILE)
        tokenizer.enable_truncation(256)
        tokenizer.no_padding()

    def run(inputs: Sequence[Any]) -> Any:
        as_text = isinstance(inputs[0], str)
        rows = [e.ids for e in tokenizer.encode_batch(inputs)] if as_text and tokenizer else inputs
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        size = 32 if as_text else BATCH
        outputs: list[Any] = [None] * len(rows)
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            ids = np.zeros((len(chosen), max(len(rows[i]) for i in chosen)), np.int64)
            mask = np.zeros_like(ids)
            for at, i in enumerate(chosen):
                ids[at, : len(rows[i])], mask[at, : len(rows[i])] = rows[i], 1
            hidden = encode(ids, mask)
            if as_text:
                weight = mask[..., None].astype(hidden.dtype)
                hidden = (hidden * weight).sum(1) / np.maximum(weight.sum(1), 1e-9)
                hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
            for i, output in zip(chosen, hidden, strict=True):
                outputs[i] = output
        return np.stack(outputs) if as_text else outputs

    return run


def seconds_since_start() -> float:
    """Return the seconds since the kernel started this process."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def peak_mb() -> float:
    """Return the largest resident size so far, in MB of a million bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


SIDES: dict[str, Callable[[str], Side]] = {
    "edgebert": edgebert,
    "onnxruntime": onnxruntime,
    "ctranslate2": ctranslate2,
    "torch": torch,
    "sentence-transformers": sentence_transformers,
}


def main(kind: str, path: str, first: str) -> None:
    """Load a side, answer the first input, and time the requested workloads."""
    from workloads import IDS, WRITING
    from writers import WRITERS

    texts = Path(TEXTS_FILE).read_text(encoding="utf-8").splitlines() if TEXTS_FILE else []
    inputs: dict[str, Any] = {name: make() for name, make in IDS.items()} | {"E4": texts, "E4one": texts[:1]}
    inputs |= {name: make() for name, make in WRITING.items()}
    side: Side = (WRITERS if first in WRITING else SIDES)[kind](path)
    side(inputs[first])
    print(json.dumps({"first_s": round(seconds_since_start(), 3), "peak_mb": round(peak_mb(), 1)}), flush=True)
    for line in sys.stdin:
        workload, calls = line.split()
        if workload == "save":
            import numpy as np

            np.save(calls, side(texts))
            print("{}", flush=True)
            continue
        start = time.perf_counter()
        for _ in range(int(calls)):
            side(inputs[workload])
        seconds = (time.perf_counter() - start) / int(calls)
        print(json.dumps({"seconds": seconds, "peak_mb": round(peak_mb(), 1)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "E1")
