"""Decide which tables of embeddings and heads are one tensor.

config.json says which are tied. Files may contradict it: a tensor that differs from the one it is tied to is used as
it stands, and one that is missing is the one it is tied to. That is how transformers 5 reads them. Equal tensors are
one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import cache

import torch

from edgebert.checkpoints.config.config_reader import ModelConfig
from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.weights.safetensors_header import FLOATS
from edgebert.checkpoints.weights.weight_files import WeightFiles, open_file
from edgebert.models.seq2seq.config import Seq2SeqConfig

SHARED, SOURCE, TARGET, HEAD = (
    f"{name}.weight" for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
)
# The order in which transformers takes a table for a shared one that is missing.
USERS = (HEAD, TARGET, SOURCE)

Equal = Callable[[str, str], bool]


def share_tables(folder: CheckpointFolder, model: ModelConfig, weights: WeightFiles) -> tuple[ModelConfig, WeightFiles]:
    """Complete a configuration, and the tensors of the files, by which tables are shared.

    Raises:
        CheckpointError: if a file cannot be read.
    """
    names = weights.by_canonical(model.model_type)

    @cache
    def equal(first: str, second: str) -> bool:
        """Say whether two tensors of the files are the same."""
        pair = names[first], names[second]
        infos = [weights.tensors[name] for name in pair]
        if infos[0].shape != infos[1].shape or any(info.dtype not in FLOATS for info in infos):
            return False
        with ExitStack() as stack:
            tensors = [open_file(folder, weights.files[name], weights.pickled, stack)(name) for name in pair]
            dtype = torch.promote_types(*(tensor.dtype for tensor in tensors))
            return torch.equal(*(tensor.to(dtype) for tensor in tensors))

    if isinstance(config := model.model, Seq2SeqConfig):
        model, tables = encoder_decoder_tables(model, config, names, equal)
    else:
        model, tables = head_tables(model, names, equal)
    return model, dataclasses.replace(weights, tables=tables)


def head_tables(model: ModelConfig, names: Collection[str], equal: Equal) -> tuple[ModelConfig, dict[str, str]]:
    """Say whether the head over the vocabulary is the token embedding, and return what the latter is made of."""
    kind = MODEL_TYPES[model.model_type]
    heads = [head.out for heads in HEADS[model.model_type].values() for head in heads if head.vocabulary]
    if not heads:
        return model, {}
    ours = next(name for name in kind.tensors if name.endswith("token_embedding"))
    head, table = (f"{name}.weight" for name in (heads[0], *kind.tensors[ours]))
    separate = head in names and table in names
    tied = equal(head, table) if separate else model.tied_head
    tables = {f"{ours}.weight": head} if model.tied_head and head in names and not separate else {}
    return dataclasses.replace(model, tied_head=tied), tables


def encoder_decoder_tables(
    model: ModelConfig, config: Seq2SeqConfig, names: Collection[str], equal: Equal
) -> tuple[ModelConfig, dict[str, str]]:
    """Complete the configuration of an encoder-decoder, and return the tensors of its tables.

    Also whether logits have a bias is what its tensors say.
    """
    if model.shares_vocabulary:
        table = next((name for name in (SHARED, *USERS) if name in names), SHARED) if model.tied_head else SHARED
        instead = {SOURCE: table, TARGET: table, HEAD: table if model.tied_head else HEAD}
    else:
        instead = {SOURCE: SOURCE, TARGET: TARGET, HEAD: TARGET if model.tied_head else HEAD}
        if model.tied_head and TARGET not in names and HEAD in names:
            instead[TARGET] = HEAD
    source, target, head = (user if user in names else instead[user] for user in (SOURCE, TARGET, HEAD))

    def same(first: str, second: str) -> bool:
        return first == second or (first in names and second in names and equal(first, second))

    separate = not (model.shares_vocabulary and same(source, target))
    if separate:
        rows = config.decoder_vocab_size or config.vocab_size
        tables = {"token_embedding.weight": source, "target_token_embedding.weight": target}
    else:
        rows, tables = None, {"token_embedding.weight": source}
    tied = same(head, target)
    bias = "final_logits_bias" in names
    config = dataclasses.replace(config, decoder_vocab_size=rows, tied_head=tied, output_bias=bias)
    return dataclasses.replace(model, model=config, tied_head=tied or head != HEAD), tables | {"head.weight": head}
