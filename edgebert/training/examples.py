"""Labelled examples and their batches, for fine-tuning.

The tokenizer of the engines reads the texts, so that a bundle reads them as in training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import NamedTuple

import tokenizers
import torch
from torch import Tensor

from edgebert_runtime.errors import InputError
from edgebert_runtime.inputs.special_tokens import EncodedInput, fit_pair
from edgebert_runtime.inputs.tokenizer import TOKENIZER_NAME, ModelTokenizer, build

IGNORED = -100  # the label of positions without a loss


class Example(NamedTuple):
    """The rows of one example, more than one for multiple choice, and its labels."""

    rows: tuple[EncodedInput, ...]
    labels: list[int]


class Batch(NamedTuple):
    """A batch of examples: ids, mask and token types are (batch * rows, seq), padded on the right.

    ``labels`` (batch, labels) are padded with ``IGNORED``.
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    labels: Tensor

    @property
    def tokens(self) -> int:
        """The number of real tokens."""
        return int(self.attention_mask.sum())


def reader(tokenizer: tokenizers.Tokenizer) -> ModelTokenizer:
    """Return the tokenizer of the engines, for which special tokens in a text are plain characters.

    Raises:
        TokenizerError: if the tokenizer does more than putting special tokens before, between and after texts.
    """
    file = Path(TOKENIZER_NAME)
    return ModelTokenizer(file, build(file, tokenizer.to_str()))


def join(read: ModelTokenizer, max_tokens: int, *texts: str) -> EncodedInput:
    """Encode one text or two with special tokens, truncating the longer first.

    Raises:
        InputError: if ``max_tokens`` leaves no room beside the special tokens.
    """
    template = read.single if len(texts) == 1 else read.pair
    read.check_max_tokens(max_tokens, template.num_special_tokens)
    ids = [read.content(text).ids for text in texts]
    room = max_tokens - template.num_special_tokens
    lengths = [room] if len(ids) == 1 else fit_pair(len(ids[0]), len(ids[1]), room)
    return template.join(*(row[:length] for row, length in zip(ids, lengths, strict=True)))


def text_examples(
    tokenizer: tokenizers.Tokenizer,
    texts: Sequence[str],
    labels: Sequence[int],
    pairs: Sequence[str] | None = None,
    *,
    max_tokens: int,
) -> list[Example]:
    """Return an example for each text, or for each pair of texts, with its label.

    Raises:
        InputError: if there are not as many of each, or ``max_tokens`` leaves no room for text.
    """
    same_length(texts=texts, labels=labels, pairs=texts if pairs is None else pairs)
    read = reader(tokenizer)
    inputs = [(text,) for text in texts] if pairs is None else list(zip(texts, pairs, strict=True))
    return [Example((join(read, max_tokens, *parts),), [label]) for parts, label in zip(inputs, labels, strict=True)]


def same_length(**sequences: Sized) -> None:
    """Check that sequences have the same length.

    Raises:
        InputError: naming their lengths.
    """
    if len({len(values) for values in sequences.values()}) > 1:
        counts = ", ".join(f"{len(values)} {name}" for name, values in sequences.items())
        raise InputError(f"{counts} were given; give as many of each")


def batches(examples: Sequence[Example], size: int, *, seed: int = 0) -> Iterator[Batch]:
    """Yield batches of ``size`` examples of similar length, without end, shuffled in each pass.

    Raises:
        InputError: if there are no examples, or ``size`` is less than 1.
    """
    if not examples or size < 1:
        raise InputError(f"{len(examples)} examples in batches of {size}; give at least one of either")
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(examples), generator=generator).tolist()
        order.sort(key=lambda number: max(len(row.ids) for row in examples[number].rows))
        groups = [order[start : start + size] for start in range(0, len(order), size)]
        for chosen in torch.randperm(len(groups), generator=generator).tolist():
            yield collate([examples[number] for number in groups[chosen]])


def collate(examples: Sequence[Example]) -> Batch:
    """Put examples into a batch.

    Raises:
        InputError: if they have different numbers of rows.
    """
    if len(counts := {len(example.rows) for example in examples}) != 1:
        raise InputError(f"examples of {sorted(counts)} rows in one batch; give batches of one number of rows each")
    rows = [row for example in examples for row in example.rows]
    return Batch(
        padded([row.ids for row in rows], 0),
        padded([[1] * len(row.ids) for row in rows], 0),
        padded([row.token_type_ids for row in rows], 0),
        padded([example.labels for example in examples], IGNORED),
    )


def padded(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    """Return rows as a tensor (rows, longest), padded on the right."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])
