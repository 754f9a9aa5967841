"""Sides of a comparison of generative models: GPT-2 and Marian, with random weights and forced lengths.

Every side takes a :class:`~workloads.Writing` and returns that many new tokens for each prompt or source.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workloads import START, STOP, Writing

THREADS = int(os.environ.get("BENCH_THREADS", "2"))

Writer = Callable[[Writing], "list[list[int]]"]


def edgebert(path: str) -> Writer:
    """Our engine, as an application calls it."""
    import edgebert

    engine: Any = edgebert.load(path, threads=THREADS)
    call = engine.translate if isinstance(engine, edgebert.Translator) else engine.generate

    def write(work: Writing) -> list[list[int]]:
        options: dict[str, Any] = {"num_beams": work.beams} if work.beams > 1 else {}
        results = call(work.rows, max_new_tokens=work.new, min_new_tokens=work.new, **options)
        return [list(result.tokens) for result in results]

    return write


def ctranslate2(path: str) -> Writer:
    """CTranslate2 in the number format of the model, with the token names of random checkpoints."""
    import ctranslate2

    kind = "int8" if "int8" in Path(path).name else "float32"
    options = {"device": "cpu", "compute_type": kind, "intra_threads": THREADS, "inter_threads": 1}
    if (Path(path) / "source_vocabulary.json").is_file() or "marian" in Path(path).name:
        return translating(ctranslate2.Translator(path, **options))
    generator = ctranslate2.Generator(path, **options)

    def write(work: Writing) -> list[list[int]]:
        prompts = [[f"t{token}" for token in row] for row in work.rows]
        lengths = {"max_length": work.new, "min_length": work.new, "beam_size": work.beams, "sampling_topk": 1}
        results = generator.generate_batch(
            prompts, include_prompt_in_result=False, end_token="<|endoftext|>", **lengths
        )
        return [result.sequences_ids[0] for result in results]

    return write


def translating(translator: Any) -> Writer:
    """CTranslate2's translator."""

    def write(work: Writing) -> list[list[int]]:
        sources = [[f"t{token}" if token != STOP else "</s>" for token in row] for row in work.rows]
        lengths = {"max_decoding_length": work.new, "min_decoding_length": work.new, "beam_size": work.beams}
        results = translator.translate_batch(sources, length_penalty=1.0, **lengths)
        return [[int(token[1:]) for token in result.hypotheses[0]] for result in results]

    return write


def onnxruntime(path: str) -> Writer:
    """Run a bare greedy loop over the graph of GPT-2 that optimum exports, past in and present out."""
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = [value.name for value in session.get_outputs()]
    inputs = {value.name: value for value in session.get_inputs()}
    pasts = [name for name in inputs if name.startswith("past")]
    value_of = ort.OrtValue.ortvalue_from_numpy

    def write(work: Writing) -> list[list[int]]:
        if work.beams > 1:
            raise SystemExit("the bare loop has no beams")
        rows, width = len(work.rows), max(map(len, work.rows))
        ids, mask = np.full((rows, width), START), np.zeros((rows, width), np.int64)
        for at, row in enumerate(work.rows):
            ids[at, width - len(row) :], mask[at, width - len(row) :] = row, 1
        heads, dim = inputs[pasts[0]].shape[1], inputs[pasts[0]].shape[3]
        cache = {name: value_of(np.zeros((rows, heads, 0, dim), np.float32)) for name in pasts}
        positions, written = np.maximum(mask.cumsum(1) - 1, 0), []
        for _ in range(work.new):
            feeds = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
            values = {name: value_of(array) for name, array in feeds.items() if name in inputs}
            logits, *present = session.run_with_ort_values(outputs, values | cache)
            ids = logits.numpy()[:, -1].argmax(-1)[:, None]
            written.append(ids)
            cache, positions = dict(zip(pasts, present, strict=True)), positions[:, -1:] + 1
            mask = np.concatenate([mask, np.ones((rows, 1), np.int64)], 1)
        tokens: list[list[int]] = np.concatenate(written, 1).tolist()
        return tokens

    return write


def llama(path: str) -> Writer:
    """llama.cpp by its own interface, greedy; rows of a batch are parallel sequences."""
    import llama_cpp as lib
    import numpy as np

    lib.llama_backend_init()
    settings = lib.llama_model_default_params()
    model = lib.llama_model_load_from_file(path.encode(), settings)
    vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    contexts: dict[int, Any] = {}

    def context(rows: int) -> Any:
        if rows not in contexts:
            parameters = lib.llama_context_default_params()
            parameters.n_ctx, parameters.n_seq_max, parameters.n_batch = 1024 * rows, rows, 1024
            parameters.n_threads = parameters.n_threads_batch = THREADS
            contexts[rows] = lib.llama_init_from_model(model, parameters)
        return contexts[rows]

    def decode(state: Any, batch: Any, tokens: Sequence[tuple[int, int, int, bool]]) -> list[int]:
        """Append (token, position, row, scored), and return the likeliest next tokens."""
        batch.n_tokens = len(tokens)
        for at, (token, position, row, scored) in enumerate(tokens):
            batch.token[at], batch.pos[at], batch.logits[at] = token, position, scored
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, row
        if lib.llama_decode(state, batch):
            raise SystemExit("llama.cpp failed")
        places = [at for at, (_, _, _, scored) in enumerate(tokens) if scored]
        logits = [np.ctypeslib.as_array(lib.llama_get_logits_ith(state, at), (vocab_size,)) for at in places]
        return [int(row_logits.argmax()) for row_logits in logits]

    def write(work: Writing) -> list[list[int]]:
        if work.beams > 1:
            raise SystemExit("llama.cpp has no beams")
        state = context(len(work.rows))
        lib.llama_memory_clear(lib.llama_get_memory(state), True)
        batch = lib.llama_batch_init(1024, 0, len(work.rows))
        items = [(t, p, r, p == len(row) - 1) for r, row in enumerate(work.rows) for p, t in enumerate(row)]
        written: list[list[int]] = [[] for _ in work.rows]
        for step in range(work.new):
            for row, token in zip(written, decode(state, batch, items), strict=True):
                row.append(token)
            items = [(row[-1], len(work.rows[r]) + step, r, True) for r, row in enumerate(written)]
        lib.llama_batch_free(batch)
        return written

    return write


WRITERS: dict[str, Callable[[str], Writer]] = {
    "edgebert": edgebert,
    "ctranslate2": ctranslate2,
    "onnxruntime": onnxruntime,
    "llama": llama,
}
