"""Tiny checkpoints with random weights, of every model type and task, in the files that published ones have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.config.model_factory import CONFIGS, Config, Reference, build
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.heads.head_detection import head_config
from edgebert.checkpoints.weights.name_mapping import to_published
from edgebert.models.bert.model import BertConfig
from edgebert.models.checkpoint_tables import HeadNames
from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert.models.seq2seq.model import Seq2Seq
from tests.support.tiny_tokenizers import SPECIALS, TARGETS, VOCAB, WORDS, vocabulary, write_tokenizer

__all__ = ["CLASSES", "CONFIG", "LABELS", "SPECIALS", "VOCAB", "WORDS", "sizes", "tiny_model", "write_checkpoint"]

# Every size is another number, so that no two can be mistaken for each other.
CONFIG: dict[str, Any] = {
    "vocab_size": len(VOCAB),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "type_vocab_size": 3,
}
DECODER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 72,
    "max_position_embeddings": 64,
}
SEQ2SEQ: dict[str, Any] = {
    "hidden_size": 48,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "encoder_intermediate_size": 72,
    "decoder_intermediate_size": 80,
    "max_position_embeddings": 40,
    "hidden_act": "silu",
    "scale_embedding": True,
}
BART = {**SEQ2SEQ, "hidden_act": "gelu", "positions": "learned", "position_offset": 2, "embedding_norm": True}
# What differs for the other types. All encoders take texts of 40 tokens.
TYPES: dict[str, dict[str, Any]] = {
    "bert": {},
    **{
        name: {"max_position_embeddings": 42, "position_offset": 2, "type_vocab_size": 1}
        for name in ("roberta", "xlm-roberta", "camembert")
    },
    "distilbert": {"type_vocab_size": 0},
    "electra": {"embedding_size": 24},
    "albert": {"embedding_size": 24, "shared_layers": True, "num_hidden_layers": 3},
}
OTHERS: dict[str, dict[str, Any]] = {
    "gpt2": DECODER,
    "marian": SEQ2SEQ,
    "bart": BART,
    "mbart": {**BART, "norm": "pre", "final_norm": True},
    "elmo": {"hidden_size": 36, "num_hidden_layers": 2, "max_tokens": 40},
    "seq2seq": {**SEQ2SEQ, "norm": "pre", "final_norm": True, "decoder_vocab_size": len(TARGETS["seq2seq"])},
}
CLASSES = {
    "bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert",
    "distilbert": "DistilBert", "electra": "Electra", "albert": "Albert", "gpt2": "GPT2", "marian": "Marian",
    "bart": "Bart", "mbart": "MBart", "seq2seq": "Seq2Seq",
    "elmo": "Elmo",
}  # fmt: skip
ENDINGS = {
    "embed": "Model", "classify": "ForSequenceClassification", "next-sentence": "ForNextSentencePrediction",
    "rerank": "ForSequenceClassification", "multiple-choice": "ForMultipleChoice", "tag": "ForTokenClassification",
    "answer": "ForQuestionAnswering", "fill-mask": "ForMaskedLM",
    "generate": "LMHeadModel", "translate": "ForConditionalGeneration",
}  # fmt: skip
LABELS: dict[str, tuple[str, ...]] = {
    "classify": ("bad", "fair", "good"),
    "tag": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
}
OUTPUTS = {"next-sentence": 2, "rerank": 1, "multiple-choice": 1, "answer": 2}


def write_checkpoint(
    folder: Path,
    *,
    task: str = "embed",
    model_type: str = "bert",
    labels: Sequence[str] | None = None,
    settings: dict[str, Any] | None = None,
    pooling: str | None = "mean",
    normalize: bool = True,
    generation: dict[str, Any] | None = None,
    **changed: Any,
) -> Path:
    """Write a checkpoint and return the folder.

    ``changed`` are fields of the configuration that are not those of :func:`sizes`, ``settings`` more keys of
    config.json, ``generation`` what generation_config.json holds. ``labels`` are those of classify and tag; an
    ELECTRA without any for tag is the discriminator.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIGS[MODEL_TYPES[model_type].family](**{**sizes(model_type), **changed})
    discriminator = task == "tag" and model_type == "electra" and labels is None
    heads = [None] if task in ("embed", "translate") else HEADS[model_type][task]
    names = heads[0 if task != "tag" or discriminator else -1]
    labels = None if discriminator else labels or LABELS.get(task)
    model = tiny_model(config, names, len(labels) if labels else OUTPUTS.get(task, 2))
    save_file(to_published(model.state_dict(), model_type, names), folder / "model.safetensors")
    ending = "ForPreTraining" if discriminator else ENDINGS[task]
    architecture = "MarianMTModel" if model_type == "marian" else f"{CLASSES[model_type]}{ending}"
    published = describe(model_type, config, architecture, labels)
    if task == "rerank":
        published["sentence_transformers"] = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    (folder / "config.json").write_text(json.dumps({**published, **(settings or {})}))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    write_tokenizer(folder, model_type, config.vocab_size)
    if task == "embed" and pooling is not None:
        write_modules(folder, pooling, normalize, config.hidden_size)
    return folder


def sizes(model_type: str = "bert") -> dict[str, Any]:
    """Return the fields of the configuration of a tiny model of this type."""
    common = {**CONFIG, **TYPES[model_type]} if model_type in TYPES else OTHERS[model_type]
    return {**common, "vocab_size": len(vocabulary(model_type))}


def describe(model_type: str, config: Config, architecture: str, labels: Sequence[str] | None) -> dict[str, Any]:
    """Return what config.json says."""
    kind = MODEL_TYPES[model_type]
    data = {key: getattr(config, field) for key, field in kind.keys.items()}
    if data.get("embedding_size", 1) is None:
        data["embedding_size"] = config.hidden_size
    if kind.no_special_tokens:
        end = vocabulary(model_type).index("<|endoftext|>")
        data |= {"bos_token_id": end, "eos_token_id": end}
    if kind.default_pad_id is not None and isinstance(config, BertConfig):
        data["pad_token_id"] = config.position_offset - 1
    if isinstance(config, Seq2SeqConfig):
        data |= describe_target(model_type, config)
    if labels:
        data["id2label"] = {str(number): label for number, label in enumerate(labels)}
    return {"model_type": model_type, "architectures": [architecture], **data}


def describe_target(model_type: str, config: Seq2SeqConfig) -> dict[str, Any]:
    """Return what config.json says of the tables of embeddings, and of the tokens that targets begin and end with."""
    tokens = vocabulary(model_type)
    end, pad = tokens.index("</s>"), tokens.index("<pad>")
    data: dict[str, Any] = {"eos_token_id": end, "forced_eos_token_id": end, "pad_token_id": pad}
    if model_type == "marian":
        data |= {"decoder_start_token_id": pad, "bad_words_ids": [[pad]]}
    else:
        data |= {"decoder_start_token_id": end, "bos_token_id": tokens.index("<s>")}
    if config.decoder_vocab_size is not None:
        data |= {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": config.decoder_vocab_size}
    return {**data, "is_encoder_decoder": True, "tie_word_embeddings": config.tied_head}


def tiny_model(config: Config, names: HeadNames | None = None, outputs: int = 2, tied: bool = True) -> Reference:
    """Return a model with random weights large enough that every part of it matters to the result."""
    outputs = config.vocab_size if names and names.vocabulary else outputs
    model = build(config, None if names is None else head_config(names, config, outputs, tied))
    randomize(model)
    return model


def randomize(model: nn.Module) -> None:
    """Give a model random weights, the same each time.

    Those of a decoder are such that the likeliest next token is seldom the last one again; one that attends to a
    source has norms for that which turn some of the signs around.
    """
    generator = torch.Generator().manual_seed(9 if isinstance(model, Seq2Seq) else 7)
    scales = {
        "gpt2.layers": 0.2,
        "gpt2.token_embedding": 0.2,
        "gpt2.position_embedding": 0.8,
        "gpt2.norm": 0.1,
        "layers": 0.1,
        "": 0.4,
    }
    if isinstance(model, Seq2Seq):
        scales = {"norm.weight": 1.0, "layers": 0.1, "token_embedding": 0.2, "position_embedding": 1.5, "": 0.1}
    for name, tensor in model.state_dict().items():
        scale = next(scale for part, scale in scales.items() if part in name)
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * scale)
        if name.endswith("norm.weight") and not isinstance(model, Seq2Seq):
            tensor.add_(1)


def write_modules(folder: Path, pooling: str, normalize: bool, size: int) -> None:
    """Write the files in which sentence-transformers says how token vectors become one."""
    names = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{name}"}
        for i, name in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last": "lasttoken"}
    modes |= {"mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens"}
    flags = {f"pooling_mode_{mode}": name == pooling for name, mode in modes.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": size, **flags}))
