"""Sample texts, as what each task reads."""

from __future__ import annotations

import importlib.resources
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.graph_runner import ForcedTargets
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.translation import translated
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import QuantizationError
from edgebert_runtime.inputs.batching import pad, plan_batches
from edgebert_runtime.inputs.tokenizer import TOKENIZER_NAME, Tokenizer
from edgebert_runtime.task_specs import TASKS
from edgebert_runtime.tasks.translator import TOKENIZERS

BATCH_TOKENS = 1024
# Of the sample texts, every second calibrates; fidelity is measured on the others.
MIN_TEXTS = 8
# Each token of a decoder's texts has a whole vocabulary of logits to be compared; so many are enough.
MOST_TOKENS = 4096
# Where masks are to be filled in, one of so many tokens is a mask.
MASK_EVERY = 7
# Of a model that translates: so many texts, and of each translation so many tokens at most.
MOST_TRANSLATIONS, TARGET_TOKENS = 48, 24


@dataclass(frozen=True)
class Sample:
    """Token ids of a text or of two, the segment of each, and the positions whose logits are asked for.

    Where there is a ``target``, the token that it starts from and its others but the last, these are positions in it.
    """

    ids: Sequence[int]
    types: Sequence[int]
    chosen: Sequence[int] = ()
    target: Sequence[int] = ()


def sample_texts() -> list[str]:
    """Return the English sentences that serve where the user gives no texts (public domain, see THIRD_PARTY.md)."""
    text = importlib.resources.files("edgebert_exporters").joinpath("sample_texts.txt").read_text(encoding="utf-8")
    return text.splitlines()


def source_tokenizer(bundle: Bundle) -> Tokenizer:
    """Load the tokenizer of the texts that a bundle reads."""
    name = TOKENIZERS[0] if TOKENIZERS[0] in bundle.manifest.files else TOKENIZER_NAME
    return Tokenizer.load(bundle.path / name, bundle.manifest.limits.vocab_size)


def sample_rows(bundle: Bundle, texts: Sequence[str] | None, seed: int = 0) -> list[list[int]]:
    """Return token ids of the texts, or of our own sample texts; so short that two fit into one where tasks need two.

    A tokenizer that does not know English (molecules, proteins) turns our texts into unknown tokens, which say
    nothing; such a model gets random ids of its vocabulary, of the same lengths.

    Raises:
        QuantizationError: if fewer than :data:`MIN_TEXTS` texts are given.
    """
    limits = bundle.manifest.limits
    tokenizer = source_tokenizer(bundle)
    if texts is not None and len(texts) < MIN_TEXTS:
        raise QuantizationError(f"{len(texts)} sample texts are too few to measure anything; give at least {MIN_TEXTS}")
    length = limits.default_tokens // 2 if TASKS[bundle.manifest.task].reads_pairs else limits.default_tokens
    rows = [list(e.ids) for e in tokenizer.encode(list(texts or sample_texts()), length)]
    if texts is None and len({i for row in rows for i in row}) < min(500, limits.vocab_size // 2):
        rng = np.random.default_rng(seed)
        rows = [rng.integers(0, limits.vocab_size, max(len(row), 2)).tolist() for row in rows]
    return rows


def to_samples(bundle: OpenedBundle, rows: Sequence[Sequence[int]]) -> list[Sample]:
    """Make rows of token ids into what the task of a bundle reads: as they are, in pairs, or with masks in them.

    Each row is followed by the next one where two are needed, and the last by the first.
    """
    task, limits = bundle.manifest.task, bundle.manifest.limits
    if TASKS[task].reads_pairs:
        pairs = [(list(row), list(rows[(i + 1) % len(rows)])[1:]) for i, row in enumerate(rows)]
        samples = [Sample(one + other, [0] * len(one) + [1] * len(other)) for one, other in pairs]
        return [Sample(s.ids[: limits.max_tokens], s.types[: limits.max_tokens]) for s in samples]
    if task == "generate":  # a tokenizer that adds nothing makes no token of an empty text
        texts = [Sample(row, [0] * len(row), range(len(row))) for row in rows if row]
        used = np.cumsum([len(text.ids) for text in texts])
        return texts[: max(MIN_TEXTS, int((used <= MOST_TOKENS).sum()))]
    if task == "translate":
        assert isinstance(bundle.session, ForcedTargets)
        rows = rows[:MOST_TRANSLATIONS]
        targets = translated(bundle.session, bundle.manifest, rows, TARGET_TOKENS)
        return [Sample(row, [0] * len(row), range(len(t)), t) for row, t in zip(rows, targets, strict=True)]
    if task != "fill-mask":
        return [Sample(row, [0] * len(row)) for row in rows]
    mask = mask_id(bundle.bundle)
    samples = []
    for row in rows:
        inner = range(1, len(row) - 1) or range(len(row))
        chosen = inner[len(inner) // 2 % MASK_EVERY :: MASK_EVERY]
        samples.append(Sample([mask if i in chosen else token for i, token in enumerate(row)], [0] * len(row), chosen))
    return samples


def mask_id(bundle: Bundle) -> int:
    """Return the id of the mask token.

    Raises:
        QuantizationError: if the tokenizer does not have it.
    """
    import tokenizers

    token = bundle.manifest.settings.get("mask_token")
    found = tokenizers.Tokenizer.from_file(str(bundle.path / "tokenizer.json")).token_to_id(str(token))
    if found is None:
        raise QuantizationError(f"{bundle.path}: the tokenizer has no mask token {token!r}; export the bundle again")
    return int(found)


def to_batches(samples: Sequence[Sample], inputs: Collection[str]) -> list[tuple[list[int], Batch]]:
    """Pad samples into batches with the ``inputs`` of a graph; each comes with the numbers of its samples.

    A batch holds fewer tokens where the logits of every one are asked for, since each has a whole vocabulary of them.
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
        values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        values |= {"logits_indices": np.array(chosen, np.int64), "decoder_input_ids": targets}
        feeds = {name: value for name, value in values.items() if name in inputs}
        batches.append((list(indices), Batch("samples", feeds)))
    return batches
