"""A tiny random BERT of transformers, and the folder it saves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers

from tests.models.tiny_bert import randomized, save


@pytest.fixture(autouse=True)
def one_seed() -> Iterator[None]:
    """Give every test the same random numbers, and leave the generator as it was."""
    state = torch.get_rng_state()
    torch.manual_seed(20)
    yield
    torch.set_rng_state(state)


@pytest.fixture(scope="session")
def reference() -> transformers.BertModel:
    return randomized(transformers.BertModel)


@pytest.fixture(scope="session")
def folder(reference: transformers.BertModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(reference, tmp_path_factory.mktemp("tiny"))
