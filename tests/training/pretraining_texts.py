"""Documents of random tokens, and the vocabulary that they are of."""

from __future__ import annotations

import torch

from edgebert.training.bert_pretraining import Vocabulary
from tests.support.tiny import VOCAB

PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = Vocabulary(size=len(VOCAB), pad=PAD, cls=CLS, sep=SEP, mask=MASK)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_documents(count: int = 12, seed: int = 3, low: int = 5, high: int = len(VOCAB)) -> list[list[list[int]]]:
    generator = seeded(seed)

    def sentence() -> list[int]:
        length = int(torch.randint(1, 12, (), generator=generator))
        return torch.randint(low, high, (length,), generator=generator).tolist()

    return [[sentence() for _ in range(15)] for _ in range(count)]
