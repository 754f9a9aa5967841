"""Vectors of folders of sentence-transformers are those that it gives itself: prompts, poolings, sizes, lengths."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

from edgebert.checkpoints import open_checkpoint
from edgebert_runtime.errors import CheckpointError, EdgebertError, InputError
from tests.support.sentence_models import assert_equal, engine_of, put, sentence_transformer, update
from tests.support.tiny import write_checkpoint

LONG = "the cat sat on a mat and the dog ran in rain , " * 5
TEXTS = ["the cat", LONG, "", "dogs running in the farmship mail"]
PROMPTS = "config_sentence_transformers.json"
SETTINGS = "sentence_bert_config.json"
POOLING = "1_Pooling/config.json"
E5 = {"query": "the dog : ", "passage": "mat, mat"}
MODES = ("cls", "mean", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean")


@pytest.fixture
def folder(checkpoint: Path, tmp_path: Path) -> Path:
    """Return a folder of mean pooling and Normalize, to be changed."""
    return Path(shutil.copytree(checkpoint, tmp_path / "folder"))


def assert_same(folder: Path, **options: Any) -> None:
    """Compare the vectors of every way to embed that both sides have."""
    ours, theirs = engine_of(folder), sentence_transformer(folder)
    assert_equal(ours.embed(TEXTS, **options), theirs.encode(TEXTS, **options))
    assert_equal(ours.embed_query(TEXTS), theirs.encode_query(TEXTS))
    assert_equal(ours.embed_documents(TEXTS), theirs.encode_document(TEXTS))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"prompts": {}},
        {"prompts": E5},
        {"prompts": E5, "default_prompt_name": "passage"},
        {"prompts": {"query": None, "document": "cat "}, "default_prompt_name": "document"},
        {"prompts": {"document": "cat "}, "default_prompt_name": "query"},
        {"prompts": {"": "cat "}, "default_prompt_name": ""},
        {"prompts": {"corpus": "cat ", "passage": "mat "}, "default_prompt_name": "corpus", "truncate_dim": 5},
        {"truncate_dim": 8},
        {"truncate_dim": 1000},
        {"truncate_dim": None, "model_type": "SentenceTransformer", "similarity_fn_name": "cosine"},
    ],
    ids=str,
)
def test_prompts_and_sizes(folder: Path, said: dict[str, Any]) -> None:
    put(folder, PROMPTS, said)
    assert_same(folder)


def test_every_way_to_give_a_prompt(folder: Path) -> None:
    put(folder, PROMPTS, {"prompts": E5, "default_prompt_name": "query"})
    ours, theirs = engine_of(folder), sentence_transformer(folder)
    for name in E5:
        assert_equal(ours.embed(TEXTS, prompt=name), theirs.encode(TEXTS, prompt_name=name))
        assert_equal(ours.embed_query(TEXTS, prompt=name), theirs.encode_query(TEXTS, prompt_name=name))
    for text in ("", "rain", "ü"):
        assert_equal(ours.embed(TEXTS, prompt_text=text), theirs.encode(TEXTS, prompt=text))
        assert_equal(ours.embed_documents(TEXTS, prompt_text=text), theirs.encode_document(TEXTS, prompt=text))
    assert_equal(list(ours.stream(TEXTS)), theirs.encode(TEXTS))
    assert_equal(ours.embed_detailed(TEXTS, prompt="passage").vectors, theirs.encode(TEXTS, prompt_name="passage"))


def test_prompts_with_special_tokens_are_noted(folder: Path) -> None:
    put(folder, PROMPTS, {"prompts": {"query": "[CLS] the", "passage": "the [ CLS ]"}, "default_prompt_name": "query"})
    (note,) = (note for note in open_checkpoint(folder).notes if "prompts" in note)
    assert note.startswith(f"{PROMPTS}: the prompts query have special tokens, which are read as characters")
    ours, theirs = engine_of(folder), sentence_transformer(folder)
    assert_equal(ours.embed(TEXTS, special_tokens=True), theirs.encode(TEXTS))
    put(folder, POOLING, {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": False})
    ours, theirs = engine_of(folder), sentence_transformer(folder)
    assert_equal(ours.embed(TEXTS, special_tokens=True), theirs.encode(TEXTS))


@pytest.mark.parametrize("prompt", ["the dog", "the dog ", "zzz 日", LONG, "q"])
@pytest.mark.parametrize("mode", MODES)
def test_prompts_that_are_not_pooled(folder: Path, mode: str, prompt: str) -> None:
    put(folder, POOLING, {"embedding_dimension": 32, "pooling_mode": mode, "include_prompt": False})
    put(folder, PROMPTS, {"prompts": {"query": prompt}, "default_prompt_name": "query"})
    put(folder, SETTINGS, {"max_seq_length": 16})
    assert_same(folder)


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("frame", [["[CLS]"], []], ids=str)
def test_prompts_without_a_special_token_behind_them(folder: Path, frame: list[str], include: bool) -> None:
    inner = BertTokenizerFast(str(folder / "vocab.txt")).backend_tokenizer
    template = " ".join([*frame, "$A"])
    inner.post_processor = tokenizers.processors.TemplateProcessing(template, template + " $B", [("[CLS]", 2)])
    inner.save(str(folder / "tokenizer.json"))
    put(
        folder,
        "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "pad_token": "[PAD]"},
    )
    put(folder, POOLING, {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": include})
    for prompt in ("the dog", "the ☃"):
        put(folder, PROMPTS, {"prompts": {"query": prompt}, "default_prompt_name": "query"})
        ours, theirs, texts = engine_of(folder), sentence_transformer(folder), ["the cat", LONG, "mat"]
        assert_equal(ours.embed(texts), theirs.encode(texts))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_poolings(tmp_path: Path, mode: str, normalize: bool) -> None:
    folder = write_checkpoint(tmp_path / "folder", normalize=normalize)
    put(folder, POOLING, {"embedding_dimension": 32, "pooling_mode": mode})
    assert_same(folder)


@pytest.mark.parametrize("dim", [1, 7, 32])
@pytest.mark.parametrize("normalizes", [True, False])
def test_sizes_of_a_call(tmp_path: Path, normalizes: bool, dim: int) -> None:
    folder = write_checkpoint(tmp_path / "folder", normalize=normalizes)
    put(folder, PROMPTS, {"truncate_dim": 16})
    ours, theirs = engine_of(folder), sentence_transformer(folder)
    assert (ours.dim, ours.max_dim) == (16, 32)
    assert_equal(ours.embed(TEXTS, dim=dim), theirs.encode(TEXTS, truncate_dim=dim))
    scaled = theirs.encode(TEXTS, truncate_dim=dim, normalize_embeddings=True)
    assert_equal(ours.embed(TEXTS, dim=dim, normalize=True), scaled)
    assert_equal(engine_of(folder, dim=dim).embed(TEXTS), theirs.encode(TEXTS, truncate_dim=dim))


@pytest.mark.parametrize("family", "bert roberta distilbert camembert albert xlm-roberta xlnet".split())
def test_settings_have_seven_names(folder: Path, family: str) -> None:
    put(folder, f"sentence_{family}_config.json", {"max_seq_length": 9})
    assert_same(folder)


def test_the_first_settings_that_say_something_count(folder: Path) -> None:
    put(folder, "sentence_roberta_config.json", {"max_seq_length": 9})
    put(folder, SETTINGS, {})
    assert_same(folder)
    put(folder, SETTINGS, {"do_lower_case": False})
    assert_same(folder)


@pytest.mark.parametrize(
    ("settings", "tokenizer"),
    [
        ({"max_seq_length": 9, "do_lower_case": True}, {"model_max_length": 20}),
        ({"max_seq_length": None}, {"model_max_length": 20}),
        ({}, {"max_len": 20}),
        ({}, {"max_len": 20, "model_max_length": 12}),
        ({}, {"max_len": 20, "model_max_length": None}),
        ({}, {"model_max_length": 1e30}),
        ({}, {"model_max_length": 20, "truncation_side": "left"}),
        ({"max_seq_length": 9}, {"truncation_side": "left"}),
        ({"tokenizer_args": {"model_max_length": 11}, "max_seq_length": 9}, {}),
        ({"processor_kwargs": {"model_max_length": 11, "truncation_side": "left"}}, {"truncation_side": "right"}),
        ({"processor_kwargs": {"truncation_side": "right"}, "tokenizer_args": {}}, {"truncation_side": "left"}),
        ({"processing_kwargs": {"text": {"max_length": 7, "padding": "max_length", "truncation": True}}}, {}),
        ({"processing_kwargs": {"text": {"max_length": 7}, "common": {"max_length": 12}, "image": {"x": 1}}}, {}),
        ({"max_seq_length": 12, "transformer_task": "feature-extraction", "unpad_inputs": False}, {}),
        ({"model_args": {"attn_implementation": "eager"}, "backend": "onnx", "cache_dir": "x"}, {}),
        (
            {
                "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
                "module_output_name": "token_embeddings",
            },
            {},
        ),
    ],
    ids=str,
)
def test_where_texts_are_cut(folder: Path, settings: dict[str, Any], tokenizer: dict[str, Any]) -> None:
    put(folder, SETTINGS, settings)
    put(folder, "tokenizer_config.json", {"do_lower_case": True, **tokenizer})
    put(folder, PROMPTS, {"prompts": E5, "default_prompt_name": "query"})
    assert_same(folder)


@pytest.mark.parametrize("said", [{}, {"truncation_side": "right"}, {"truncation_side": "left"}], ids=str)
@pytest.mark.parametrize("direction", ["right", "left"])
def test_the_side_in_the_tokenizer_itself(folder: Path, direction: str, said: dict[str, Any]) -> None:
    inner = BertTokenizerFast(str(folder / "vocab.txt")).backend_tokenizer
    inner.enable_truncation(9, direction=direction)
    inner.save(str(folder / "tokenizer.json"))
    put(folder, "tokenizer_config.json", {"do_lower_case": True, **said})
    assert_same(folder)


def test_without_modules_no_other_file_counts(folder: Path) -> None:
    shutil.rmtree(folder / "1_Pooling")
    (folder / "modules.json").unlink()
    put(folder, SETTINGS, {"max_seq_length": 9})
    put(folder, PROMPTS, {"prompts": E5, "default_prompt_name": "query", "truncate_dim": 3})
    ours, theirs = engine_of(folder, task="embed", pooling="mean"), sentence_transformer(folder)
    assert_equal(ours.embed(TEXTS), theirs.encode(TEXTS))


FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "length": (SETTINGS, {"max_seq_length": "16"}, "max_seq_length='16' is not a whole number of tokens"),
    "float": (SETTINGS, {"max_seq_length": 16.0}, "max_seq_length=16.0 is not a whole number of tokens"),
    "zero": (SETTINGS, {"tokenizer_args": {"model_max_length": 0}}, "model_max_length=0 is not a whole number"),
    "case": (SETTINGS, {"do_lower_case": 1}, "do_lower_case=1 is neither true nor false"),
    "unknown": (SETTINGS, {"max_length": 3}, "'max_length' is no setting of sentence-transformers"),
    "task": (SETTINGS, {"transformer_task": "fill-mask"}, "transformer_task='fill-mask' is not supported"),
    "query": (SETTINGS, {"query_length": 3}, "query_length=3 is not supported"),
    "tokenizer": (SETTINGS, {"tokenizer_args": {"do_lower_case": False}}, "put it into tokenizer_config.json"),
    "config": (SETTINGS, {"config_args": {"hidden_act": "relu"}}, "config_args sets hidden_act='relu'"),
    "call": (SETTINGS, {"processing_kwargs": {"text": {"add_special_tokens": False}}}, "add_special_tokens=False"),
    "uncut": (SETTINGS, {"processing_kwargs": {"common": {"truncation": False}}}, "sets truncation=False"),
    "side": (SETTINGS, {"processor_kwargs": {"truncation_side": "top"}}, "truncation_side='top' is neither"),
    "list": (SETTINGS, {"processing_kwargs": [1]}, r"processing_kwargs=\[1\] is not an object"),
    "layer": (SETTINGS, {"modality_config": {"text": {"method_output_name": "hidden_states"}}}, "'hidden_states'"),
    "pooled twice": (
        SETTINGS,
        {"modality_config": {"text": {"method_output_name": "pooler_output"}}},
        "modules.json pools pooler_output",
    ),
    "prompts": (PROMPTS, {"prompts": ["a"]}, r"prompts=\['a'\] is not an object"),
    "prompt": (PROMPTS, {"prompts": {"q": 3}}, "the prompt 'q' is 3, not a text"),
    "default": (PROMPTS, {"prompts": E5, "default_prompt_name": "q"}, r"'q' is none of the prompts \('query', 'pass"),
    "no default": (PROMPTS, {"default_prompt_name": "q"}, r"'q' is none of the prompts \(there are none\)"),
    "size": (PROMPTS, {"truncate_dim": -4}, "truncate_dim=-4 is not a whole number from 1"),
    "kind": (PROMPTS, {"model_type": "CrossEncoder"}, "model_type='CrossEncoder' is not supported beside a pooling"),
    "include": (POOLING, {"pooling_mode": "mean", "include_prompt": 0}, "include_prompt=0 is neither true nor false"),
    "normalize": ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "only 'sentence_embedding'"),
    "tokenizer side": ("tokenizer_config.json", {"truncation_side": None}, "truncation_side=None is neither"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_would_change_vectors_is_refused_by_name(folder: Path, fault: str) -> None:
    name, data, message = FAULTS[fault]
    put(folder, name, data)
    with pytest.raises(CheckpointError, match=message) as caught:
        engine_of(folder)
    assert name in str(caught.value) or "modules.json" in str(caught.value)


CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"prompt": "querry"}, "prompt='querry' is none of the prompts query, passage; did you mean query?"),
    "far": ({"prompt": "x"}, "prompt='x' is none of the prompts query, passage; give prompt_text for one of your own"),
    "empty": ({"prompt": ""}, "prompt='' is none of the prompts"),
    "kind": ({"prompt": 3}, "prompt=3 is none of the prompts"),
    "two": ({"prompt": "query", "prompt_text": "a"}, "prompt='query' goes without prompt_text='a'"),
    "no text": ({"prompt_text": 3}, "prompt_text=3 is not a text"),
    "surrogate": ({"prompt_text": "\ud800"}, "has a lone surrogate"),
    "large": ({"dim": 33}, "dim=33 is not between 1 and 32"),
    "none": ({"dim": 0}, "dim=0 is not between 1 and 32"),
    "float": ({"dim": 8.0}, "dim=8.0 is not a whole number"),
    "scaled": ({"normalize": False}, "scales vectors to length 1; export it again with normalize=False"),
    "no switch": ({"normalize": 1}, "normalize=1 is not True or False"),
    "misspelt": ({"promt": "query"}, "option 'promt' is not known; did you mean prompt?"),
    "no room": ({"prompt_text": "cat " * 9, "max_tokens": 9, "long_texts": "mean"}, "leaves no room beside 2 special"),
}


@pytest.fixture(scope="module")
def e5(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return an engine with two prompts."""
    folder = Path(shutil.copytree(checkpoint, tmp_path_factory.mktemp("e5") / "folder"))
    put(folder, PROMPTS, {"prompts": E5, "default_prompt_name": "query"})
    return engine_of(folder)


@pytest.mark.parametrize("call", CALLS)
def test_calls_that_cannot_be_are_refused(e5: Any, call: str) -> None:
    options, message = CALLS[call]
    with pytest.raises(InputError) as caught:
        e5.embed(["a"], **options)
    assert message in str(caught.value)


def test_token_ids_get_no_default_prompt_and_refuse_others(e5: Any) -> None:
    assert_equal(e5.embed([[2, 5, 3]]), e5.embed([[2, 5, 3]], prompt_text=""))
    for options in ({"prompt": "query"}, {"prompt_text": "a"}):
        with pytest.raises(InputError, match="text 1 is token ids, before which no prompt is put"):
            e5.embed(["a", [2, 5, 3]], **options)


def test_a_prompt_stands_before_every_window(e5: Any) -> None:
    words = "the cat sat on a mat and the dog ran in rain".split()
    long = e5.embed([" ".join(words)], prompt_text="moon ", long_texts="mean", max_tokens=7)
    parts = ["moon " + " ".join(words[start : start + 4]) for start in (0, 4, 8)]
    mean = e5.embed(parts, prompt_text="").mean(0, keepdims=True)
    assert_equal(long, mean / (mean**2).sum() ** 0.5)
    cut = e5.embed([" ".join(words)], prompt_text="moon ", long_texts="mean", max_tokens=7, dim=5)
    assert_equal(cut, long[:, :5])
    assert_equal(e5.embed(["the cat"], long_texts="mean"), e5.embed(["the cat"]))


def test_windows_leave_the_prompt_out_of_the_pooling(folder: Path) -> None:
    put(folder, POOLING, {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": False})
    engine, options = engine_of(folder), {"prompt_text": "moon ", "max_tokens": 7, "long_texts": "mean"}
    words = "the cat sat on a mat and the dog".split()
    parts = engine.embed([" ".join(words[start : start + 4]) for start in (0, 4, 8)], prompt_text="moon ")
    mean = (parts * [[4], [4], [1]]).sum(0, keepdims=True)
    assert_equal(engine.embed([" ".join(words)], **options), mean / (mean**2).sum() ** 0.5)


@pytest.mark.parametrize(
    "settings", [{"prompts": {"q": 3}}, {"default_prompt": "q"}, {"include_prompt": 1}, {"dim": 99}]
)
def test_a_damaged_manifest_is_refused(e5: Any, settings: dict[str, Any]) -> None:
    manifest = dataclasses.replace(e5.bundle.manifest, settings={"pooling": "mean", **settings})
    with pytest.raises(EdgebertError, match=next(iter(settings))):
        type(e5)(dataclasses.replace(e5.bundle, manifest=manifest), session=e5._session)


def test_the_pooler_of_the_module(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "folder", pooling=None)
    config = BertConfig.from_pretrained(folder)
    BertModel(config).save_pretrained(folder)
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    put(folder, "modules.json", [module])
    put(
        folder,
        SETTINGS,
        {
            "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}},
            "module_output_name": "sentence_embedding",
            "max_seq_length": 12,
        },
    )
    put(folder, PROMPTS, {"prompts": E5, "default_prompt_name": "query", "truncate_dim": 7})
    assert_same(folder)
    update(folder, PROMPTS, truncate_dim=None)
    (folder / "modules.json").unlink()
    ours = engine_of(folder, task="embed", pooling="pooler")
    theirs = BertModel.from_pretrained(folder).eval()
    row = [2, 5, 6, 7, 3]
    with torch.no_grad():
        assert_equal(ours.embed([row]), theirs(torch.tensor([row])).pooler_output)
