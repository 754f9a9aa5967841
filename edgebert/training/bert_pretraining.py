"""BERT pre-training (Devlin et al., 2019, section 3.1): sentence pairs, masked tokens, and their loss.

Documents are lists of sentences; sentences are lists of token ids without special tokens. All randomness comes from a
seeded generator: the same seed makes the same batches, so a stopped run can resume.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from edgebert.models.bert.pretraining import BertPreTraining
from edgebert.training.examples import IGNORED, padded
from edgebert.training.trainer import Loss
from edgebert_runtime.errors import InputError

Document = Sequence[Sequence[int]]

MASKING_RATE = 0.15  # the share of tokens to predict
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # the shares of those that become [MASK] or a random token; the others stay


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The size of a vocabulary and the ids of its special tokens."""

    size: int
    pad: int
    cls: int
    sep: int
    mask: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        """Read a tokenizer whose special tokens have BERT's names.

        Raises:
            InputError: naming those that are missing.
        """
        ids = {name: tokenizer.token_to_id(f"[{name.upper()}]") for name in ("pad", "cls", "sep", "mask")}
        present = {name: id for name, id in ids.items() if id is not None}
        if missing := [f"[{name.upper()}]" for name in ids if name not in present]:
            raise InputError(f"the tokenizer has no {', '.join(missing)}; add what is missing to its special tokens")
        return cls(size=tokenizer.get_vocab_size(), **present)


class Pair(NamedTuple):
    """Token ids of two texts, and whether the second follows the first in its document."""

    first: list[int]
    second: list[int]
    follows: bool


class Batch(NamedTuple):
    """Pairs with masked tokens: tensors (batch, seq), and ``next_labels`` (batch,), 0 where the second text follows.

    ``labels`` holds the tokens to predict, and ``IGNORED`` elsewhere.
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    labels: Tensor
    next_labels: Tensor

    @property
    def chosen(self) -> Tensor:
        """The tokens (rows,) to predict, as row * seq + position."""
        return (self.labels != IGNORED).flatten().nonzero()[:, 0]


def pairs(documents: Sequence[Document], room: int, generator: torch.Generator) -> Iterator[Pair]:
    """Yield sentence pairs of at most ``room`` tokens, in the order of the documents, in one pass.

    The first text is as many sentences as fit half of ``room``, at least one, which is truncated on the left. The
    second is the next text of the document or, in half of the cases, a text from a random sentence of another
    document; it fills the room unless that document ends. The next pair begins with the first sentence that was not
    read as a whole. The remainder of a sentence longer than its place is skipped.

    Raises:
        InputError: if ``room`` is less than 2, or all sentences are of one document.
    """
    documents = [[sentence for sentence in document if sentence] for document in documents]
    owners = [number for number, document in enumerate(documents) for _ in document]  # of each sentence
    starts = [place for document in documents for place in range(len(document))]
    if room < 2 or len(set(owners)) < 2:
        raise InputError(f"no pairs of {room} tokens from {len(set(owners))} documents; both have to be 2 at least")
    for number, document in enumerate(documents):
        place = 0
        while place < len(document) - 1:
            middle = min(take(document, place, room // 2), len(document) - 1)
            first = [*chain.from_iterable(document[place:middle])][-(room // 2) :]
            left = room - len(first)
            place = middle
            if follows := draw(2, generator) == 0:
                place = take(document, middle, left)
                second = document[middle : place + 1]
            else:
                random_place = elsewhere(owners, number, generator)
                source, start = documents[owners[random_place]], starts[random_place]
                second = source[start : take(source, start, left) + 1]
            yield Pair(first, [*chain.from_iterable(second)][:left], follows)


def take(document: Document, place: int, room: int) -> int:
    """Return the end of the sentences from ``place`` on that fit ``room`` tokens, at least one."""
    end, left = place + 1, room - len(document[place])
    while end < len(document) and len(document[end]) <= left:
        left -= len(document[end])
        end += 1
    return end


def elsewhere(owners: Sequence[int], number: int, generator: torch.Generator) -> int:
    """Return the place of a random sentence of another document; ``owners`` has the document of each."""
    while owners[place := draw(len(owners), generator)] == number:
        pass
    return place


def draw(count: int, generator: torch.Generator) -> int:
    """Draw a number below ``count``."""
    return int(torch.randint(count, (), generator=generator))


def mask_tokens(
    ids: Tensor, special: Tensor, mask_id: int, vocab_size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Mask tokens of ``ids`` (batch, seq) for prediction; return the inputs and the labels.

    15 % of the tokens of each row are chosen, at least one, except where ``special`` (batch, seq) is true. Of those
    80 % become ``mask_id``, 10 % a random token, and 10 % stay.
    """
    ordinary = (~special).sum(1, keepdim=True)
    count = (MASKING_RATE * ordinary).round().long().clamp(min=1).minimum(ordinary)  # (batch, 1)
    order = torch.rand(ids.shape, generator=generator).masked_fill(special, 2.0).argsort(1).argsort(1)
    chosen = order < count
    fate = torch.rand(ids.shape, generator=generator)
    random_ids = torch.randint(vocab_size, ids.shape, generator=generator)
    inputs = torch.where(chosen & (fate < MASK_SHARE), mask_id, ids)
    inputs = torch.where(chosen & (fate >= MASK_SHARE) & (fate < MASK_SHARE + RANDOM_SHARE), random_ids, inputs)
    return inputs, ids.where(chosen, IGNORED)


def collate(rows: Sequence[Pair], vocabulary: Vocabulary, generator: torch.Generator) -> Batch:
    """Put each pair into a row, ``[CLS] first [SEP] second [SEP]``, pad on the right, and mask tokens."""
    cls, sep = vocabulary.cls, vocabulary.sep
    ids = padded([[cls, *row.first, sep, *row.second, sep] for row in rows], vocabulary.pad)
    mask = padded([[1] * (len(row.first) + len(row.second) + 3) for row in rows], 0)
    token_types = padded([[0] * (len(row.first) + 2) + [1] * (len(row.second) + 1) for row in rows], 0)
    special = padded([[1, *[0] * len(row.first), 1, *[0] * len(row.second), 1] for row in rows], 1) != 0
    inputs, labels = mask_tokens(ids, special, vocabulary.mask, vocabulary.size, generator)
    return Batch(inputs, mask, token_types, labels, torch.tensor([int(not row.follows) for row in rows]))


def batches(
    documents: Sequence[Document], vocabulary: Vocabulary, *, size: int, length: int, seed: int = 0
) -> Iterator[Batch]:
    """Yield batches of ``size`` pairs of at most ``length`` tokens, without end.

    Each pass makes, shuffles and masks the pairs anew; an incomplete last batch is dropped.

    Raises:
        InputError: if ``length`` is less than 5, if all sentences are of one document, or they make too few pairs.
    """
    generator = torch.Generator().manual_seed(seed)
    while True:
        rows = list(pairs(documents, length - 3, generator))
        if len(rows) < size:
            raise InputError(
                f"the documents make {len(rows)} pairs, a batch takes {size}; give more text or a lower size"
            )
        order = torch.randperm(len(rows), generator=generator).tolist()
        for start in range(0, len(order) - size + 1, size):
            yield collate([rows[place] for place in order[start : start + size]], vocabulary, generator)


def pretraining_loss(model: BertPreTraining, batch: Batch) -> Loss:
    """Return the mean cross-entropy of the masked tokens plus that of the pairs.

    Its weight is the number of pairs.
    """
    tokens, following = model(batch.input_ids, batch.attention_mask, batch.token_type_ids, batch.chosen)
    masked = functional.cross_entropy(tokens.float(), batch.labels.flatten()[batch.chosen])
    paired = functional.cross_entropy(following.float(), batch.next_labels)
    return Loss(masked + paired, len(batch.next_labels), int(batch.attention_mask.sum()))
