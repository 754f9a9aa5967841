"""Bundles without a model: a tokenizer, a manifest made by hand, and a session that the test brings."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from edgebert_runtime import Answerer, Bundle
from edgebert_runtime.bundle.manifest import GraphSpec, Limits, Manifest, TensorSpec, Weights

CORPUS = [
    "the cat sat on a mat. naïve café 日本 ไทยนี้ हिन्दी שלום 👩‍👩‍👧 👍🏽 cafe\u0301 hello  world\tfoo, berlin paris"
] * 20
WORDS = "the cat sat on a mat and dog ran in berlin paris cafe ete ##ing ##lin ##te , . - ? ' é 日 本 ह ##ि न".split()
LETTERS = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def wordpiece() -> Any:
    """Make BERT's uncased tokenizer over a few words and all letters."""
    vocab = {token: index for index, token in enumerate(dict.fromkeys([*SPECIALS, *WORDS, *LETTERS]))}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def byte_level(prefix: bool = False) -> Any:
    """Train RoBERTa's kind of tokenizer: a character may be split over several tokens."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    specials = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), add_prefix_space=prefix)
    return tokenizer


def metaspace(split: bool = True) -> Any:
    """Train XLM-R's kind of tokenizer: the space before a word belongs to its first token."""
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    steps = [pre_tokenizers.WhitespaceSplit()] if split else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.Metaspace()])
    tokenizer.normalizer = normalizers.NFKC()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 1)]
    )
    return tokenizer


KINDS: dict[str, Callable[[], Any]] = {
    "wordpiece": wordpiece,
    "byte-level": byte_level,
    "byte-level with a space before": functools.partial(byte_level, True),
    "metaspace": metaspace,
    "metaspace over spaces": functools.partial(metaspace, False),
}


def fake_bundle(
    folder: Path,
    task: str,
    outputs: dict[str, tuple[int | str, ...]],
    settings: dict[str, Any],
    tokenizer: Any = None,
    limits: tuple[int, int] = (64, 32),
) -> Bundle:
    """Write a tokenizer into ``folder``; ``limits`` are the most tokens and where texts are cut by default."""
    tokenizer = wordpiece() if tokenizer is None else tokenizer
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    graph = GraphSpec(
        "model.onnx",
        tuple(TensorSpec(name, "int64", ("batch", "sequence")) for name in ("input_ids", "attention_mask")),
        tuple(TensorSpec(name, "float32", shape) for name, shape in outputs.items()),
    )
    size = Limits(tokenizer.get_vocab_size(), *limits)
    manifest = Manifest("0", "bert", task, "cpu", {}, {"model": graph}, settings, size, Weights("fp32", 0), {})
    return Bundle(folder, manifest)


class RowSession:
    """A session that computes each row without its padding, and keeps the rows it was asked for.

    ``compute`` takes a row's ids to a list of arrays, one for each output, that begin with the row's tokens.
    """

    def __init__(self, compute: Callable[[list[int]], Sequence[NDArray[Any]]]) -> None:
        self.compute = compute
        self.rows: list[list[int]] = []

    def run(self, output_names: Any, feeds: Any) -> Any:
        ids, mask = feeds["input_ids"], feeds["attention_mask"]
        computed = []
        for row, kept in zip(ids, mask, strict=True):
            self.rows.append(row[: kept.sum()].tolist())
            computed.append(self.compute(self.rows[-1]))
        outputs = []
        for parts in zip(*computed, strict=True):
            output = np.full((len(ids), ids.shape[1], *parts[0].shape[1:]), 1e4, np.float32)
            for place, part in enumerate(parts):
                output[place, : len(part)] = part
            outputs.append(output)
        assert len(outputs) == len(output_names)
        return outputs


def random_logits(ids: list[int], *shape: int, spread: float = 3.0) -> NDArray[np.float32]:
    """Return numbers (tokens, ...) that depend on the ids of a row alone."""
    generator = np.random.default_rng([len(ids), *ids])
    return (spread * generator.standard_normal((len(ids), *shape))).astype(np.float32)


def both(ids: list[int]) -> list[NDArray[np.float32]]:
    """Return start and end logits that depend on the ids of a row alone."""
    return list(random_logits(ids, 2).T)


def make_answerer(folder: Path, session: Any, tokenizer: Any = None, **options: Any) -> Answerer:
    """Make an engine that answers what ``session`` makes of its rows."""
    ends: dict[str, tuple[int | str, ...]] = {f"{side}_logits": ("batch", "sequence") for side in ("start", "end")}
    return Answerer(fake_bundle(folder, "answer", ends, {}, tokenizer, **options), session=session)
