"""The pre-training of BERT (Devlin et al., 2019, section 3.1): pairs of texts, masked tokens, and the loss of both.

Documents are lists of sentences, and sentences are lists of token ids without special tokens. Everything random is
drawn with a generator that is given, so that the same seed makes the same batches and a run that was stopped can go on.
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
from edgebert.training.examples import IGNORED
from edgebert.training.trainer import Loss
from edgebert_runtime.errors import InputError

Document = Sequence[Sequence[int]]

CHOSEN = 0.15  # the share of the tokens that are to be guessed
HIDDEN, SWAPPED = 0.8, 0.1  # of those, the shares that become [MASK] or any token; the others stay


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What of a vocabulary is needed: how many tokens it has, and the ids of the special ones."""

    size: int
    pad: int
    cls: int
    sep: int
    mask: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        """Look at a tokenizer whose special tokens have the names that BERT gives them.

        Raises:
            InputError: naming those that are missing.
        """
        ids = {name: tokenizer.token_to_id(f"[{name.upper()}]") for name in ("pad", "cls", "sep", "mask")}
        present = {name: id for name, id in ids.items() if id is not None}
        if missing := [f"[{name.upper()}]" for name in ids if name not in present]:
            raise InputError(f"the tokenizer has no {', '.join(missing)}; add what is missing to its special tokens")
        return cls(size=tokenizer.get_vocab_size(), **present)


class Pair(NamedTuple):
    """The token ids of two texts, and whether the second follows the first in their document."""

    first: list[int]
    second: list[int]
    follows: bool


class Batch(NamedTuple):
    """Pairs with masked tokens: tensors (batch, seq), and ``next_labels`` (batch,), 0 where the second text follows.

    ``labels`` are the tokens to be guessed, and ``IGNORED`` elsewhere.
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    labels: Tensor
    next_labels: Tensor

    @property
    def chosen(self) -> Tensor:
        """The tokens (rows,) to be guessed, counted through the whole batch: row * seq + position."""
        return (self.labels != IGNORED).flatten().nonzero()[:, 0]


def pairs(documents: Sequence[Document], room: int, generator: torch.Generator) -> Iterator[Pair]:
    """Yield pairs of texts of ``room`` tokens together at most, in the order of the documents, in one pass.

    The first text is as many sentences as fit half of the room, at least one, which loses its beginning where it is
    longer. The second is what comes next in the document or, in half of the cases, what begins with any sentence of
    another document; it fills the room unless that document ends. The next pair begins with the first sentence that
    was not read as a whole; what is left of one that alone is longer than its place is passed over.

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
            first = join(document[place:middle])[-(room // 2) :]
            left = room - len(first)
            place = middle
            if follows := draw(2, generator) == 0:
                place = take(document, middle, left)
                second = document[middle : place + 1]
            else:
                random_place = elsewhere(owners, number, generator)
                source, start = documents[owners[random_place]], starts[random_place]
                second = source[start : take(source, start, left) + 1]
            yield Pair(first, join(second)[:left], follows)


def take(document: Document, place: int, room: int) -> int:
    """Return the place behind the sentences from ``place`` on that fit ``room`` tokens, at least one of them."""
    end, left = place + 1, room - len(document[place])
    while end < len(document) and len(document[end]) <= left:
        left -= len(document[end])
        end += 1
    return end


def join(sentences: Document) -> list[int]:
    """Return the tokens of all sentences."""
    return list(chain.from_iterable(sentences))


def elsewhere(owners: Sequence[int], number: int, generator: torch.Generator) -> int:
    """Return the place of a random sentence of another document; ``owners`` (sentences,) has that of each."""
    while owners[place := draw(len(owners), generator)] == number:
        pass
    return place


def draw(count: int, generator: torch.Generator) -> int:
    """Return a random number from 0 to below ``count``."""
    return int(torch.randint(count, (), generator=generator))


def mask_tokens(
    ids: Tensor, special: Tensor, mask_id: int, vocab_size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Choose tokens of ``ids`` (batch, seq) to be guessed; return what is read in their place, and the labels.

    In each row 15 % of the tokens are chosen, one at least, but none that ``special`` (batch, seq) is true for. Of
    those 80 % become ``mask_id``, 10 % any token of the vocabulary, and 10 % stay as they are.
    """
    ordinary = (~special).sum(1, keepdim=True)
    count = (CHOSEN * ordinary).round().long().clamp(min=1).minimum(ordinary)  # (batch, 1)
    order = torch.rand(ids.shape, generator=generator).masked_fill(special, 2.0).argsort(1).argsort(1)
    chosen = order < count
    fate = torch.rand(ids.shape, generator=generator)
    random_ids = torch.randint(vocab_size, ids.shape, generator=generator)
    inputs = torch.where(chosen & (fate < HIDDEN), mask_id, ids)
    inputs = torch.where(chosen & (fate >= HIDDEN) & (fate < HIDDEN + SWAPPED), random_ids, inputs)
    return inputs, ids.where(chosen, IGNORED)


def collate(rows: Sequence[Pair], vocabulary: Vocabulary, generator: torch.Generator) -> Batch:
    """Put ``[CLS] first [SEP] second [SEP]`` of each pair into a row, pad them to the longest, and mask tokens."""
    width = max(len(row.first) + len(row.second) for row in rows) + 3
    ids = torch.full((len(rows), width), vocabulary.pad)
    mask, segments = torch.zeros_like(ids), torch.zeros_like(ids)
    special = torch.ones_like(ids, dtype=torch.bool)
    for number, (first, second, _) in enumerate(rows):
        middle, end = len(first) + 1, len(first) + len(second) + 2  # where the two [SEP] stand
        ids[number, : end + 1] = torch.tensor([vocabulary.cls, *first, vocabulary.sep, *second, vocabulary.sep])
        mask[number, : end + 1] = 1
        segments[number, middle + 1 : end + 1] = 1
        special[number, 1:end] = False
        special[number, middle] = True
    inputs, labels = mask_tokens(ids, special, vocabulary.mask, vocabulary.size, generator)
    return Batch(inputs, mask, segments, labels, torch.tensor([int(not row.follows) for row in rows]))


def batches(
    documents: Sequence[Document], vocabulary: Vocabulary, *, size: int, length: int, seed: int = 0
) -> Iterator[Batch]:
    """Yield batches of ``size`` pairs of ``length`` tokens at most, without end.

    In each pass the pairs are made anew, shuffled, and masked otherwise; what is left over of a pass is not used.

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
    """Return the cross-entropy of the tokens that were chosen plus that of the pairs, each a mean over the batch.

    Its weight is the number of pairs.
    """
    tokens, following = model(batch.input_ids, batch.attention_mask, batch.token_type_ids, batch.chosen)
    masked = functional.cross_entropy(tokens.float(), batch.labels.flatten()[batch.chosen])
    paired = functional.cross_entropy(following.float(), batch.next_labels)
    return Loss(masked + paired, len(batch.next_labels), int(batch.attention_mask.sum()))
