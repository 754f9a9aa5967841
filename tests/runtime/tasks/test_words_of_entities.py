"""The words of entities are those of the pipeline of transformers, whether a tokenizer marks them or not."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast, pipeline

from edgebert_runtime.tasks.tagger import Aggregation, Tagger
from tests.runtime.fakes import KINDS, RowSession, fake_bundle

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
WORDS = [
    "mail-carriers", "U.S.", "the", "cat's", "naïve", "日本", "x=1", "don't", "(berlin)", "😀", "a", "...", "café",
    "foo,bar", "3.14",
]  # fmt: skip
BLANKS = (" ", "  ", "\n", "\t")
AGGREGATIONS: tuple[Aggregation, ...] = ("first", "max", "average")


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    inner = KINDS[kind]()
    bundle = fake_bundle(
        tmp_path, "tag", {"logits": ("batch", "sequence", 5)}, {"labels": list(LABELS)}, inner, (512, 512)
    )
    names = {token: token for token in ("[UNK]", "<unk>") if inner.token_to_id(token) is not None}
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token=next(iter(names), None))
    pad = inner.id_to_token(0)
    fast.pad_token = pad
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=inner.get_vocab_size(), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=512, initializer_range=0.8, id2label=dict(enumerate(LABELS)),
    )  # fmt: skip
    theirs: Any = pipeline("token-classification", model=BertForTokenClassification(config).eval(), tokenizer=fast)

    def compute(ids: list[int]) -> list[Any]:
        with torch.no_grad():
            return [theirs.model(torch.tensor([ids]), token_type_ids=torch.zeros(1, len(ids)).long()).logits[0].numpy()]

    ours, rng = Tagger(bundle, session=RowSession(compute)), random.Random(5)
    for _ in range(12):
        text = "".join(part for word in rng.choices(WORDS, k=6) for part in (word, rng.choice(BLANKS))).strip()
        for aggregation in AGGREGATIONS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = theirs(text, aggregation_strategy=aggregation)
            (entities,) = ours.tag([text], aggregation=aggregation)
            # The pipeline has entities of nothing but blanks.
            expected = [e for e in expected if text[e["start"] : e["end"]].strip()]
            assert [(e.label, e.start, e.end) for e in entities] == [
                (e["entity_group"], *trimmed(text, e["start"], e["end"])) for e in expected
            ], (text, aggregation)
            np.testing.assert_allclose([e.score for e in entities], [e["score"] for e in expected], atol=1e-5)


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without the white space that a tokenizer puts into it."""
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())
