"""Whatever is wrong with config.json is named."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoConfig

from edgebert.checkpoints import open_checkpoint
from edgebert.checkpoints.config.config_reader import misspelt_keys
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.models.bert.checkpoint_names import BERT_FIELDS
from edgebert.models.checkpoint_tables import REQUIRED
from edgebert_runtime.errors import CheckpointError
from tests.checkpoints.broken import CONFIG, Faults, assert_named, config, remove, write

USE = "use the config.json that came with the weights"
AGAIN = "download it again"
FAULTS: Faults = {
    "missing": (remove("config.json"), ("config.json is missing", "download")),
    "empty": (write("config.json", ""), ("config.json is empty", AGAIN)),
    "not JSON": (
        write("config.json", "{'vocab_size': 3}"),
        ("config.json is not valid JSON", "line 1 column 2", AGAIN),
    ),
    "a list": (write("config.json", "[1]"), ("config.json should hold an object, holds [1]", AGAIN)),
    "a web page": (write("config.json", "<html>no</html>"), ("config.json is a web page", AGAIN)),
    "deep": (write("config.json", '{"a":' * 100_000), ("config.json is not valid JSON", AGAIN)),
    "a long number": (write("config.json", '{"a": 1' + "0" * 5000 + "}"), ("config.json is not valid JSON", AGAIN)),
    "byte order mark": (
        write("config.json", b"\xef\xbb\xbf{}"),
        ("config.json starts with a UTF-8 byte order", "save"),
    ),
    "UTF-16": (write("config.json", "{}".encode("utf-16")), ("config.json is UTF-16", "save it as UTF-8")),
    "Latin-1": (write("config.json", b'{"\xe9": 1}'), ("config.json is not UTF-8", "byte 2", "save it as UTF-8")),
    "too large": (write("config.json", b" " * 1_048_577), ("config.json has 1048577 bytes, at most 1048576",)),
    "key twice": (
        write("config.json", '{"vocab_size": 1, "vocab_size": 2}'),
        ("'vocab_size' stands there twice", AGAIN),
    ),
    "no sizes": (config("vocab_size", "hidden_size"), ("config.json lacks vocab_size, hidden_size", USE)),
    "string": (config(hidden_size="768"), ("config.json: hidden_size='768' is not a whole number", USE)),
    "float": (config(num_hidden_layers=12.0), ("config.json: num_hidden_layers=12.0 is not a whole number", USE)),
    "true": (config(vocab_size=True), ("config.json: vocab_size=True is not a whole number", USE)),
    "null": (config(intermediate_size=None), ("config.json: intermediate_size=None is not a whole number", USE)),
    "list": (config(type_vocab_size=[2]), ("config.json: type_vocab_size=[2] is not a whole number", USE)),
    "zero": (config(num_attention_heads=0), ("config.json: num_attention_heads=0 ", USE)),
    "negative": (config(max_position_embeddings=-1), ("config.json: max_position_embeddings=-1 ", USE)),
    "layers without end": (config(num_hidden_layers=10**18), (f"num_hidden_layers={10**18}", "from 1 to 1000", USE)),
    "vocabulary without end": (config(vocab_size=1 << 63), (f"vocab_size={1 << 63}", "from 1 to", USE)),
    "eps zero": (config(layer_norm_eps=0), ("config.json: layer_norm_eps=0 ", USE)),
    "eps infinite": (
        write("config.json", json.dumps(CONFIG).replace("1e-12", "1e400")),
        ("config.json: layer_norm_eps=inf ", USE),
    ),
    "dropout": (config(hidden_dropout_prob=7), ("config.json: hidden_dropout_prob=7 is not a number from 0 to 1",)),
    "heads": (config(num_attention_heads=3), ("hidden_size=8 is not divisible by num_attention_heads=3", USE)),
    "pad": (config(pad_token_id=11), ("config.json: pad_token_id=11 is not an id below vocab_size=11",)),
    "activation": (config(hidden_act="geglu"), ("config.json: hidden_act='geglu' is not one of gelu, ", USE)),
    "relative positions": (
        config(position_embedding_type="relative_key"),
        ("config.json: position_embedding_type='relative_key' is not supported, only 'absolute'",),
    ),
    "decoder": (config(is_decoder=True), ("config.json: is_decoder=True is not supported, only False",)),
    "cross attention": (config(add_cross_attention=True), ("config.json: add_cross_attention=True", "only False")),
    "pruned": (config(pruned_heads={"0": [1]}), ("config.json: pruned_heads={'0': [1]} is not supported",)),
    "quantized": (config(quantization_config={"bits": 4}), ("config.json: quantization_config={'bits': 4}",)),
    "other model": (
        config(model_type="llama"),
        (
            "config.json: model_type is 'llama', supported: bert, roberta, xlm-roberta, camembert, distilbert, ",
            "electra, albert",
        ),
    ),
    "no model": (
        config("model_type"),
        ("config.json: there is no model_type, supported: bert", "add", '"model_type": "bert"'),
    ),
    "code": (config(auto_map={"AutoModel": "x.Y"}), ("config.json: auto_map asks for program code", "never run")),
    "misspelt": (
        config(num_hiden_layers=3),
        ("config.json: unknown key 'num_hiden_layers', did you mean 'num_hidden_layers'?", "remove it"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(folder: Path, fault: str) -> None:
    assert_named(folder, FAULTS[fault])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*BERT_FIELDS, *REQUIRED, *CONFIG, "auto_map"]), json_values, max_size=4))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_config_is_fine_or_named(folder: Path, changed: dict[str, Any]) -> None:
    config(**changed)(folder)
    with contextlib.suppress(CheckpointError):
        open_checkpoint(folder)


def test_unknown_keys_change_nothing(folder: Path) -> None:
    config(my_experiment=3, another={"x": 1}, tie_encoder_decoder=False, layer_norm_type="x")(folder)
    assert not any("config.json" in note and "tokenizer_config" not in note for note in open_checkpoint(folder).notes)


@pytest.mark.parametrize("model_type", [name for name in MODEL_TYPES if name not in ("seq2seq", "elmo")])
def test_keys_of_transformers_are_not_taken_for_misspelt_ones(model_type: str) -> None:
    keys = AutoConfig.for_model(model_type).to_dict()
    older = dict.fromkeys(["tie_encoder_decoder", "pooler_num_attention_heads", "encoder_layerdrop"])
    assert misspelt_keys({**keys, **older, "max_new_tokens": 1}, MODEL_TYPES[model_type]) == []
