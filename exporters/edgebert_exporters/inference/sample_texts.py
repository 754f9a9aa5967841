"""Sample texts, samples of a task, and batches of samples."""

from __future__ import annotations

import importlib.resources
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from edgebert_exporters.inference.batch import Batch
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import QuantizationError
from edgebert_runtime.inputs.batching import pad, plan_batches
from edgebert_runtime.inputs.tokenizer import TOKENIZER_NAME, ModelTokenizer
from edgebert_runtime.task_specs import TASKS
from edgebert_runtime.tasks.base.bundle_tokenizers import TOKENIZERS

BATCH_TOKENS = 1024
# Of the sample texts, every second calibrates; fidelity is measured on the others.
MIN_TEXTS = 8
# With a larger share of unknown tokens, sample texts are not of the kind that the model reads.
MAX_UNKNOWN = 0.05


@dataclass(frozen=True)
class Sample:
    """Token ids and segments of one or two texts, and ``chosen`` positions.

    With a ``target``, the inputs of a decoder, the positions are those of the target.
    """

    ids: Sequence[int]
    types: Sequence[int]
    chosen: Sequence[int] = ()
    target: Sequence[int] = ()


def sample_texts() -> list[str]:
    """Return our own English sentences (public domain, see THIRD_PARTY.md)."""
    text = importlib.resources.files("edgebert_exporters").joinpath("sample_texts.txt").read_text(encoding="utf-8")
    return text.splitlines()


def source_tokenizer(bundle: Bundle) -> ModelTokenizer:
    """Load the tokenizer of a bundle; of two, that of sources."""
    name = TOKENIZERS[0] if TOKENIZERS[0] in bundle.manifest.files else TOKENIZER_NAME
    return ModelTokenizer.load(bundle.path / name, bundle.manifest.limits.vocab_size)


def sample_rows(bundle: Bundle, texts: Sequence[str] | None, seed: int = 0) -> list[list[int]]:
    """Return token ids of ``texts``, or of our own; half as long where the task reads pairs.

    A tokenizer without English (molecules, proteins) makes unknown tokens of our texts. Its model gets random ids of
    the same lengths instead.

    Raises:
        QuantizationError: if fewer than :data:`MIN_TEXTS` texts are given.
    """
    limits = bundle.manifest.limits
    tokenizer = source_tokenizer(bundle)
    if texts is not None and len(texts) < MIN_TEXTS:
        raise QuantizationError(f"{len(texts)} sample texts are too few to measure anything; give at least {MIN_TEXTS}")
    length = limits.default_tokens // 2 if TASKS[bundle.manifest.task].reads_pairs else limits.default_tokens
    if texts is not None:
        return [list(encoded.ids) for encoded in tokenizer.encode(texts, length)]
    rows = [list(tokenizer.encode_one(text, length).ids) if tokenizer.takes(text) else [] for text in sample_texts()]
    if len({i for row in rows for i in row}) < min(500, limits.vocab_size // 2):
        rng = np.random.default_rng(seed)
        rows = [rng.integers(0, limits.vocab_size, max(len(row), 2)).tolist() for row in rows]
    return rows


def unknown_share(bundle: Bundle, texts: Sequence[str] | None) -> float:
    """Return the share of tokens of sample texts, None for our own, that stand for unknown text, or for a byte of it.

    A text that the tokenizer refuses is unknown as a whole.
    """
    tokenizer = source_tokenizer(bundle)
    # Only where bytes are the last resort are their tokens unknown text; a byte-level BPE reads all text so.
    fallback = {tokenizer.inner.token_to_id(f"<0x{byte:02X}>") for byte in range(256)} - {None}
    missing, total = 0, 0
    for text in sample_texts() if texts is None else texts:
        ids = tokenizer.ids(text) if tokenizer.takes(text) else [-1] * len(text)
        missing += sum(index in (-1, tokenizer.unknown) or index in fallback for index in ids)
        total += len(ids)
    return missing / max(1, total)


def to_batches(samples: Sequence[Sample], inputs: Collection[str]) -> list[tuple[list[int], Batch]]:
    """Pad samples into batches with ``inputs``, with the indices of the samples.

    Where every token is asked for, each has a whole vocabulary of logits, and batches are smaller.
    """
    batches, most = [], BATCH_TOKENS
    if all(len(sample.chosen) >= len(sample.ids) or sample.target for sample in samples):
        most = BATCH_TOKENS // 4
    for indices in plan_batches([len(sample.ids) for sample in samples], most):
        length = max(len(samples[i].ids) for i in indices)
        ids, mask, types = (np.zeros((len(indices), length), np.int64) for _ in range(3))
        targets = pad([samples[i].target or (0,) for i in indices])[0]
        read = targets.shape[1] if any(samples[i].target for i in indices) else length
        chosen: list[int] = []
        for at, i in enumerate(indices):
            size = len(samples[i].ids)
            ids[at, :size], mask[at, :size], types[at, :size] = samples[i].ids, 1, samples[i].types
            chosen.extend(at * read + position for position in samples[i].chosen)
        values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "pooling_mask": mask}
        values |= {"logits_indices": np.array(chosen, np.int64), "decoder_input_ids": targets}
        feeds = {name: value for name, value in values.items() if name in inputs}
        batches.append((list(indices), Batch("samples", feeds)))
    return batches
