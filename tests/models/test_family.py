"""Every model type with every head computes what transformers computes, from the files that transformers saves."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgebert.checkpoints import open_checkpoint
from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.weights.name_mapping import to_published
from edgebert.models.bert.heads import HeadedBert
from edgebert.models.bert.model import Bert, BertConfig
from tests.models.patterns import PATTERNS
from tests.models.tiny_bert import random_ids, randomized, relative, save
from tests.support.tiny import CLASSES, ENDINGS

# Model type, task, the ending of the class of transformers if it is not the usual, and the name of its output.
ENCODERS = [kind for kind in MODEL_TYPES if MODEL_TYPES[kind].family == "bert"]
HEADED = [(kind, task, ENDINGS[task], "logits") for kind in ENCODERS for task in HEADS[kind]]
HEADED = [case for case in HEADED if case[:2] != ("albert", "next-sentence")]
HEADED += [
    ("bert", "fill-mask", "ForPreTraining", "prediction_logits"),
    ("bert", "next-sentence", "ForPreTraining", "seq_relationship_logits"),
    ("electra", "tag", "ForPreTraining", "logits"),
    ("albert", "fill-mask", "ForPreTraining", "prediction_logits"),
    ("albert", "next-sentence", "ForPreTraining", "sop_logits"),
]
LABELS = {"classify": 4, "tag": 4, "rerank": 1}
MANY = [("bert", "fill-mask"), ("roberta", "classify"), ("electra", "tag"), ("albert", "answer"), ("distilbert", "tag")]


@lru_cache
def reference(model_type: str, ending: str, labels: int = 2, **config: Any) -> Any:
    return randomized(getattr(transformers, f"{CLASSES[model_type]}{ending}"), num_labels=labels, **config)


def inputs_of(model_type: str, ids: Tensor, mask: Tensor, types: Tensor) -> dict[str, Tensor]:
    named = {"input_ids": ids, "attention_mask": mask}
    return named if model_type == "distilbert" else {**named, "token_type_ids": types}


@torch.no_grad()
def expected_of(theirs: Any, output: str, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Return the outputs of transformers for one row without padding."""
    if type(theirs).__name__.endswith("MultipleChoice"):
        inputs = {name: value[:, None] for name, value in inputs.items()}
    actual = theirs(**inputs)
    names = ["start_logits", "end_logits"] if type(theirs).__name__.endswith("QuestionAnswering") else [output]
    return [actual[name][0] for name in names]


@torch.no_grad()
def assert_equal(model: HeadedBert, theirs: Any, output: str, mask: Tensor) -> None:
    """Compare the outputs for a batch with those of transformers for each row alone."""
    kind, reads = theirs.config.model_type, model.head.config.reads
    ids, types = random_ids(mask)
    real = mask.bool()
    chosen = torch.arange(mask.numel())[real.flatten()].flip(0) if reads == "chosen" else None
    actual = model(ids, mask, None if kind == "distilbert" else types, chosen)
    parts = [*actual] if isinstance(actual, tuple) else [actual]
    for part in parts:
        assert part.isfinite().all()
    if chosen is not None:  # back to (batch, seq, vocab)
        spread = torch.zeros(mask.numel(), parts[0].shape[-1])
        spread[chosen] = parts[0]
        parts = [spread.reshape(*mask.shape, -1)]
    if model.head.config.binary:
        assert not parts[0][..., 0].any()
        parts = [parts[0][..., 1]]
    ours, target = [], []
    for row in range(len(mask)):
        remaining = (ids[row, real[row]][None], torch.ones_like(ids[row, real[row]])[None], types[row, real[row]][None])
        if not real[row].any():
            continue
        for part, expected in zip(parts, expected_of(theirs, output, inputs_of(kind, *remaining)), strict=True):
            ours.append(part[row] if reads == "first" else part[row, real[row]])
            assert ours[-1].shape == expected.shape
            target.append(expected)
    if target:
        actual, expected = torch.cat([part.flatten() for part in ours]), torch.cat([part.flatten() for part in target])
        assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max().clamp(min=0.5)  # logits are near 1


@pytest.mark.parametrize(("kind", "task", "ending", "output"), HEADED)
def test_heads(tmp_path: Path, kind: str, task: str, ending: str, output: str) -> None:
    theirs = reference(kind, ending, LABELS.get(task, 2))
    checkpoint = open_checkpoint(save(theirs, tmp_path), task=task)
    assert (checkpoint.task, checkpoint.model_type, checkpoint.max_tokens) == (task, kind, 19)
    model = checkpoint.load_model()
    assert isinstance(model, HeadedBert)
    for mask in PATTERNS.values():
        assert_equal(model, theirs, output, torch.tensor(mask))


@pytest.mark.parametrize("case", MANY)
@given(
    mask=st.integers(1, 19).flatmap(
        lambda seq: st.lists(st.lists(st.integers(0, 1), min_size=seq, max_size=seq), min_size=1, max_size=4)
    )
)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mask(models: Callable[..., HeadedBert], case: tuple[str, str], mask: list[list[int]]) -> None:
    theirs = reference(case[0], ENDINGS[case[1]], LABELS.get(case[1], 2))
    assert_equal(models(*case), theirs, "logits", torch.tensor(mask))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., HeadedBert]:
    @lru_cache
    def load(kind: str, task: str) -> Any:
        folder = save(reference(kind, ENDINGS[task], LABELS.get(task, 2)), tmp_path_factory.mktemp("many"))
        return open_checkpoint(folder).load_model()

    return load


@pytest.mark.parametrize("kind", ENCODERS)
@torch.no_grad()
def test_encoders(tmp_path: Path, kind: str) -> None:
    theirs = reference(kind, "Model")
    checkpoint = open_checkpoint(save(theirs, tmp_path))
    assert (checkpoint.task, checkpoint.head, checkpoint.model_type) == ("embed", None, kind)
    model = checkpoint.load_model()
    assert isinstance(model, Bert)
    for pattern in PATTERNS.values():
        mask = torch.tensor(pattern)
        ids, types = random_ids(mask)
        hidden = model(ids, mask, None if kind == "distilbert" else types)
        for row, real in enumerate(mask.bool()):
            assert not hidden[row, ~real].any()
            if real.any():
                remaining = (ids[row, real][None], torch.ones_like(ids[row, real])[None], types[row, real][None])
                expected = theirs(**inputs_of(kind, *remaining)).last_hidden_state[0]
                assert relative(hidden[row, real], expected) < 1e-5


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert"])
@torch.no_grad()
def test_positions_come_after_padding(tmp_path: Path, kind: str) -> None:
    """The batch of transformers, which finds padding by its id: no row of positions is 0 or shared."""
    theirs = reference(kind, "Model")
    pad = theirs.config.pad_token_id
    table = theirs.embeddings.position_embeddings.weight
    assert table.abs().sum(1).min() > 1
    checkpoint = open_checkpoint(save(theirs, tmp_path))
    assert isinstance(checkpoint.config, BertConfig)
    assert checkpoint.config.position_offset == pad + 1
    assert checkpoint.max_tokens == len(table) - pad - 1
    mask = torch.tensor([[1] * 19, [1] * 7 + [0] * 12])
    ids, types = random_ids(mask)
    ids[mask == 0] = pad
    expected = theirs(ids, mask, types).last_hidden_state
    real = mask.bool()
    assert relative(checkpoint.load_model()(ids, mask, types)[real], expected[real]) < 1e-5
    with pytest.raises((IndexError, RuntimeError)):  # there is no row for the twentieth token
        theirs(torch.full((1, 20), 4))


ALTERED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "electra as wide as its embeddings": ("electra", "ForMaskedLM", {"embedding_size": 24}),
    "albert as wide as its embeddings": ("albert", "ForMaskedLM", {"embedding_size": 24}),
    "other activation": ("distilbert", "ForMaskedLM", {"activation": "relu"}),
    "activation of the discriminator": ("electra", "ForPreTraining", {"hidden_act": "tanh"}),
    "activation of the generator": ("electra", "ForMaskedLM", {"hidden_act": "tanh"}),
    "activation of the encoder": ("roberta", "ForMaskedLM", {"hidden_act": "relu"}),
    "activation of albert": ("albert", "ForMaskedLM", {"hidden_act": "relu"}),
    "sinusoids": ("distilbert", "ForMaskedLM", {"sinusoidal_pos_embds": True}),
    "eps": ("roberta", "ForMaskedLM", {"layer_norm_eps": 0.3}),
    **{
        f"untied {kind}": (kind, "ForMaskedLM", {"tie_word_embeddings": False})
        for kind in ("bert", "roberta", "distilbert", "electra", "albert")
    },
}


@pytest.mark.parametrize("case", ALTERED)
def test_other_settings(tmp_path: Path, case: str) -> None:
    kind, ending, changed = ALTERED[case]
    theirs = reference(kind, ending, **changed)
    model = open_checkpoint(save(theirs, tmp_path)).load_model()
    assert isinstance(model, HeadedBert)
    assert model.head.config.tied is (ending == "ForMaskedLM" and "untied" not in case)
    assert_equal(model, theirs, "logits", torch.tensor(PATTERNS["holes"]))


@pytest.mark.parametrize("kind", ENCODERS)
def test_keys_that_may_be_missing(tmp_path: Path, kind: str) -> None:
    """A configuration that leaves out what is usual gives what the class of transformers gives."""
    usual = {"hidden_act", "activation", "layer_norm_eps", "type_vocab_size", "pad_token_id", "embedding_size"}
    cls = getattr(transformers, f"{CLASSES[kind]}Model")
    sizes = {key: value for key, value in randomized(cls).config.to_dict().items() if key not in usual}
    theirs = cls(cls.config_class(**sizes))
    data = json.loads((save(theirs, tmp_path) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({key: data[key] for key in data if key not in usual}))
    config = open_checkpoint(tmp_path).config
    assert isinstance(config, BertConfig)
    assert config.hidden_act == (theirs.config.activation if kind == "distilbert" else theirs.config.hidden_act)
    assert config.layer_norm_eps == getattr(theirs.config, "layer_norm_eps", 1e-12)
    assert config.type_vocab_size == getattr(theirs.config, "type_vocab_size", 0)
    assert config.embedding_size == getattr(theirs.config, "embedding_size", None)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("task", ["classify", "fill-mask", "tag"])
def test_names_run_backwards(tmp_path: Path, kind: str, task: str) -> None:
    theirs = reference(kind, ENDINGS[task], LABELS.get(task, 2))
    checkpoint = open_checkpoint(save(theirs, tmp_path))
    model = checkpoint.load_model()
    published = to_published(model.state_dict(), kind, checkpoint.head_names)
    stored = load_file(tmp_path / "model.safetensors")
    passed = {name for name in stored if name.endswith("decoder.bias")}
    assert published.keys() == stored.keys() - passed
    assert all(torch.equal(published[name], stored[name]) for name in published)


@pytest.mark.parametrize("kind", ENCODERS)
def test_prefixes(tmp_path: Path, kind: str) -> None:
    """The encoder's names may stand behind a prefix or not, and that of a wrapper before both."""
    expected = open_checkpoint(save(reference(kind, "Model"), tmp_path)).load_model().state_dict()
    file = tmp_path / "model.safetensors"
    stored = load_file(file)
    own = {"distilbert": "distilbert.", "electra": "electra.", "albert": "albert.", "bert": "bert."}.get(
        kind, "roberta."
    )
    for prefix in (own, "module.", f"module.{own}"):
        save_file({prefix + name: tensor for name, tensor in stored.items()}, file)
        actual = open_checkpoint(tmp_path).load_model().state_dict()
        assert all(torch.equal(actual[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
@torch.no_grad()
def test_head_on_the_mean_of_all_tokens(tmp_path: Path, kind: str) -> None:
    """The head that ``"classifier_pooling": "mean"`` asks for, worked out row by row."""
    encoder = reference(kind, "Model")
    save(encoder, tmp_path)
    weight, bias = torch.randn(3, 24), torch.randn(3)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "classifier.weight": weight, "classifier.bias": bias}, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"architectures": [f"{CLASSES[kind]}ForSequenceClassification"], "classifier_pooling": "mean"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = open_checkpoint(tmp_path)
    assert (checkpoint.task, checkpoint.labels) == ("classify", ("LABEL_0", "LABEL_1", "LABEL_2"))
    model, mask = checkpoint.load_model(), torch.tensor(PATTERNS["holes"])
    ids, types = random_ids(mask)
    actual = model(ids, mask, None if kind == "distilbert" else types)
    for row, real in enumerate(mask.bool()):
        remaining = (ids[row, real][None], mask[row, real][None], types[row, real][None])
        hidden = encoder(**inputs_of(kind, *remaining)).last_hidden_state[0]
        assert relative(actual[row], hidden.mean(0) @ weight.T + bias) < 1e-5
