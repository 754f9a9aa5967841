"""Find the files that hold the tensors of a checkpoint, and read from them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import safetensors
import torch
from torch import Tensor

from edgebert.checkpoints.folder import CheckpointFolder, is_plain, some
from edgebert.checkpoints.weights.name_mapping import canonical, wrapper_prefix
from edgebert.checkpoints.weights.other_formats import OTHER_PICKLES
from edgebert.checkpoints.weights.safetensors_header import MAX_HEADER_BYTES, TensorInfo, read_header
from edgebert.checkpoints.weights.torch_pickle import read_pickle, read_pickle_header
from edgebert_runtime.errors import CheckpointError

SINGLE = "model.safetensors"
PICKLE = "pytorch_model.bin"
INDEX = ".index.json"
CONVERT = (
    'python -c "import json, torch, safetensors.torch as s; s.save_file({{k: v.clone().contiguous() for n in {names} '
    "for k, v in torch.load(n, map_location='cpu', weights_only=True).items()}}, 'model.safetensors')\""
)
SHARDS = "set(json.load(open('{name}'))['weight_map'].values())"


@dataclass(frozen=True)
class WeightFiles:
    """The tensors of a folder, and the file of each.

    ``tables`` are the tensors, by their canonical names, that our tables of embeddings and heads are made of, where
    their usual ones are not.
    """

    files: dict[str, str]
    tensors: dict[str, TensorInfo]
    pickled: bool = False
    tables: Mapping[str, str] = field(default_factory=dict, compare=False)

    def canonical_names(self, model_type: str) -> dict[str, str]:
        """Map the names in the files to published ones without prefixes, in the newer spelling."""
        prefix = wrapper_prefix(tuple(self.tensors), model_type)
        return {name: canonical(name.removeprefix(prefix), model_type) for name in self.tensors}

    def by_canonical(self, model_type: str) -> dict[str, str]:
        """Map canonical names to the names in the files, the first where there are several."""
        names: dict[str, str] = {}
        for name, plain in self.canonical_names(model_type).items():
            names.setdefault(plain, name)
        return names


def find_weights(folder: CheckpointFolder, allow_pickle: bool = False) -> WeightFiles:
    """Find the tensors in safetensors files, or in pickles if allowed.

    Raises:
        CheckpointError: if there are none, or a file is missing, damaged, outside the folder, or not allowed.
    """
    kinds = {SINGLE: read_header, PICKLE: read_pickle_header}
    for name, reader in kinds.items():
        pickled = name == PICKLE
        file_name = next((file for file in (name, name + INDEX) if folder.has(file)), None)
        if file_name and pickled and not allow_pickle:
            raise CheckpointError(
                f"{file_name} is a pickle, which can hold program code and is not read; convert it, which is safer: "
                f"{conversion(file_name)}",
                hint="or have it read as tensors and nothing else with {allow_pickle}",
                options={"allow_pickle": True},
            )
        if file_name == name:
            tensors = reader(folder, name)
            return WeightFiles(dict.fromkeys(tensors, name), tensors, pickled)
        if file_name:
            return dataclasses.replace(read_shards(folder, file_name, reader), pickled=pickled)
    if pickles := [name for name in OTHER_PICKLES if folder.has(name)]:
        raise CheckpointError(
            f"{pickles[0]} is a pickle, which can hold program code and is not read; convert it: "
            f"{conversion(pickles[0])}"
        )
    raise CheckpointError(
        f"{SINGLE} is missing (found {folder.names()}); download it, or save the model with "
        "save_pretrained(safe_serialization=True)"
    )


def conversion(name: str) -> str:
    """Return the command that converts pickles to safetensors."""
    return CONVERT.format(names=SHARDS.format(name=name) if name.endswith(INDEX) else [name])


def read_shards(
    folder: CheckpointFolder, index: str, reader: Callable[[CheckpointFolder, str], dict[str, TensorInfo]]
) -> WeightFiles:
    """Read the headers of all shards, and check the index."""
    listed = folder.json(index, cap=MAX_HEADER_BYTES).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise CheckpointError(f"{index} has no weight_map; save or download it again")
    shards = list(dict.fromkeys(map(str, listed.values())))
    if unsafe := [repr(name) for name in listed.values() if not is_plain(name)]:
        raise CheckpointError(
            f"{index} names {some(unsafe)}: no plain file in the folder; is the checkpoint to be trusted?"
        )
    if missing := [name for name in shards if not folder.has(name)]:
        raise CheckpointError(
            f"{index} lists {some(missing)}, which the folder lacks; save or download the missing files"
        )
    shard_of: dict[str, str] = {}
    tensors: dict[str, TensorInfo] = {}
    problems = []
    for shard in shards:
        for name, info in reader(folder, shard).items():
            if name in shard_of:
                problems.append(f"tensor {name!r:.120} stands in {shard_of[name]} and in {shard}")
            elif listed.get(name) != shard:
                problems.append(f"{shard} holds tensor {name!r:.120}, which {index} does not list there")
            shard_of[name], tensors[name] = shard, info
    problems += [f"{shard} lacks tensor {name!r:.120}" for name, shard in listed.items() if name not in shard_of]
    if problems:
        raise CheckpointError(
            f"{index} does not fit its files: {some(problems)}; save or download the checkpoint again"
        )
    return WeightFiles(shard_of, tensors)


def open_file(folder: CheckpointFolder, name: str, pickled: bool, stack: ExitStack) -> Callable[[str], Tensor]:
    """Open a weight file; return a getter of tensors by name."""
    if pickled:
        return read_pickle(folder, name).__getitem__
    try:
        file = stack.enter_context(safetensors.safe_open(os.path.realpath(folder.path / name), framework="pt"))
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"{name} cannot be read ({error}); save or download it again") from error
    get: Callable[[str], Tensor] = file.get_tensor
    return get


def read(get: Callable[[str], Tensor], name: str, broken: list[str]) -> Tensor:
    """Return a float32 copy; add it to ``broken`` if not finite."""
    tensor = get(name).to(torch.float32, copy=True)
    if count := int((~torch.isfinite(tensor)).sum()):
        broken.append(f"{name} ({count} of {tensor.numel()})")
    return tensor
