"""A tiny random BERT of transformers, and the folder it saves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers

from tests.models.tiny_bert import randomized, save


@pytest.fixture(autouse=True)
def one_seed_one_thread() -> Iterator[None]:
    """Give every test the same random numbers, and no threads to wait for on a busy machine."""
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.manual_seed(20)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


@pytest.fixture(scope="session")
def reference() -> transformers.BertModel:
    return randomized(transformers.BertModel)


@pytest.fixture(scope="session")
def folder(reference: transformers.BertModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(reference, tmp_path_factory.mktemp("tiny"))
