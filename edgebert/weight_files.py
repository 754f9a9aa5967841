"""Find the tensors of a checkpoint folder, fit them to a model, and load them.

Fitting looks at names, dtypes and shapes only. A model is loaded with exactly its own tensors: nothing is left at
random values and nothing is passed over in silence.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import safetensors
import torch
from torch import Tensor

from edgebert.checkpoint_files import CheckpointFolder, is_plain, some
from edgebert.models.bert import Bert, BertConfig
from edgebert.safetensors_header import FLOATS, MAX_HEADER_BYTES, TensorInfo, read_header
from edgebert.weight_names import BERT_TENSORS, BUFFERS, HEADS, OLD_ENDINGS, POOLER, PREFIXES
from edgebert_runtime.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "pytorch_model.pt", "model.bin")
FOREIGN = ("tf_model.h5", "flax_model.msgpack", "bert_model.ckpt.index", "model.onnx")
CONVERT = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone().contiguous() for k, v in '
    "torch.load('pytorch_model.bin', map_location='cpu', weights_only=True).items()}, 'model.safetensors')\""
)


@dataclass(frozen=True)
class WeightFiles:
    """The tensors of a folder: the file that each stands in, and what it is."""

    files: dict[str, str]
    tensors: dict[str, TensorInfo]

    def has_pooler(self) -> bool:
        """Say whether any tensor of the pooler is there."""
        return any(canonical(name).startswith(POOLER) for name in self.tensors)


@dataclass(frozen=True)
class Fit:
    """Which tensors of the files make each tensor of the model, and which belong to heads and are left over."""

    sources: dict[str, tuple[str, ...]]
    ignored: tuple[str, ...]


def find_weights(folder: CheckpointFolder) -> WeightFiles:
    """Find the tensors of ``model.safetensors`` or of the shards that its index lists.

    Raises:
        CheckpointError: if there are none, or a file is missing, damaged, or outside the folder.
    """
    if folder.has(SINGLE):
        tensors = read_header(folder, SINGLE)
        return WeightFiles(dict.fromkeys(tensors, SINGLE), tensors)
    if folder.has(INDEX):
        return read_shards(folder)
    if pickles := [name for name in PICKLES if folder.has(name)]:
        raise CheckpointError(
            f"{pickles[0]} is a pickle, which can hold program code and is not read; convert it: {CONVERT}"
        )
    if others := [name for name in FOREIGN if folder.has(name)]:
        raise CheckpointError(f"{SINGLE} is missing; {others[0]} is not read: save the model from PyTorch as {SINGLE}")
    raise CheckpointError(f"{SINGLE} is missing (found {folder.names()}); download the checkpoint again")


def read_shards(folder: CheckpointFolder) -> WeightFiles:
    """Read the headers of all shards and compare them with the index."""
    listed = folder.json(INDEX, cap=MAX_HEADER_BYTES).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise CheckpointError(f"{INDEX} has no weight_map; download it again")
    shards = list(dict.fromkeys(map(str, listed.values())))
    if unsafe := [repr(name) for name in listed.values() if not is_plain(name)]:
        raise CheckpointError(
            f"{INDEX} names {some(unsafe)}: no plain file in the folder; is the checkpoint to be trusted?"
        )
    if missing := [name for name in shards if not folder.has(name)]:
        raise CheckpointError(f"{INDEX} lists {some(missing)}, which the folder lacks; download the missing files")
    found: dict[str, str] = {}
    tensors: dict[str, TensorInfo] = {}
    problems = []
    for shard in shards:
        for name, info in read_header(folder, shard).items():
            if name in found:
                problems.append(f"tensor {name!r:.120} stands in {found[name]} and in {shard}")
            elif listed.get(name) != shard:
                problems.append(f"{shard} holds tensor {name!r:.120}, which {INDEX} does not list there")
            found[name], tensors[name] = shard, info
    problems += [f"{shard} lacks tensor {name!r:.120}" for name, shard in listed.items() if name not in found]
    if problems:
        raise CheckpointError(f"{INDEX} does not fit its files: {some(problems)}; download the checkpoint again")
    return WeightFiles(found, tensors)


def canonical(name: str) -> str:
    """Return a published tensor's name without prefixes of wrappers and in the newer spelling."""
    while prefix := next((p for p in PREFIXES if name.startswith(p)), None):
        name = name[len(prefix) :]
    for old, new in OLD_ENDINGS.items():
        if name.endswith(old):
            name = name[: -len(old)] + new
    return name


def published_names(ours: str) -> tuple[str, ...]:
    """Return the published tensors that, stacked in this order, make the tensor ``ours``."""
    module, _, leaf = ours.rpartition(".")
    layer = re.search(r"\d+", module)
    row = BERT_TENSORS[re.sub(r"\d+", "{}", module)]
    return tuple(f"{source}.{leaf}".format(layer and layer.group()) for source in row)


def to_published(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take our state dict to published names, the inverse of loading."""
    published: dict[str, Tensor] = {}
    for ours, tensor in state.items():
        names = published_names(ours)
        published |= zip(names, tensor.chunk(len(names)), strict=True)
    return published


def fit(config: BertConfig, weights: WeightFiles) -> Fit:
    """Fit the tensors of the files to the model of ``config``.

    Raises:
        CheckpointError: naming all missing, unexpected and misshapen tensors.
    """
    by_name: dict[str, str] = {}
    twice = []
    for name in weights.tensors:
        if (first := by_name.setdefault(canonical(name), name)) != name:
            twice.append(f"{first} and {name}")
    sources, missing, wrong = {}, [], []
    for ours, shape in shapes(config).items():
        names = published_names(ours)
        part = (shape[0] // len(names), *shape[1:])
        missing += [name for name in names if name not in by_name]
        found = [by_name[name] for name in names if name in by_name]
        wrong += [fault for name in found if (fault := misfit(name, weights.tensors[name], part))]
        sources[ours] = tuple(found)
    used = {name for names in sources.values() for name in names}
    left = sorted(name for plain, name in by_name.items() if name not in used and plain not in BUFFERS)
    ignored = [name for name in left if canonical(name).startswith(HEADS)]
    unexpected = [name for name in left if name not in ignored]
    kinds = {"missing": missing, "unexpected": unexpected, "not as config.json says": wrong, "twice": twice}
    if problems := [f"tensors {kind}: {some(names)}" for kind, names in kinds.items() if names]:
        raise CheckpointError("; ".join([*problems, "use the config.json and the weights of one and the same model"]))
    return Fit(sources, tuple(ignored))


def shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the model's tensors without allocating any."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in Bert(config).state_dict().items()}


def misfit(name: str, info: TensorInfo, shape: tuple[int, ...]) -> str | None:
    """Say what is wrong with a tensor that should have ``shape`` and be of floats."""
    if info.shape != shape:
        return f"{name} has shape {list(info.shape)}, should have {list(shape)}"
    if info.dtype not in FLOATS:
        return f"{name} is {info.dtype}, should be one of {', '.join(FLOATS)}"
    return None


def load(folder: CheckpointFolder, config: BertConfig, weights: WeightFiles) -> Bert:
    """Return the model with the weights of the files, in float32 and ready for inference.

    Raises:
        CheckpointError: if a file cannot be read, has changed, or holds numbers that are none.
    """
    if find_weights(folder) != weights:
        raise CheckpointError("the weights changed while they were read; open the checkpoint again")
    sources = fit(config, weights).sources
    state: dict[str, Tensor] = {}
    broken: list[str] = []
    with ExitStack() as stack:
        opened = {name: stack.enter_context(opener(folder, name)) for name in set(weights.files.values())}
        for ours, names in sources.items():
            parts = [read(opened[weights.files[name]], name, broken) for name in names]
            state[ours] = torch.cat(parts) if len(parts) > 1 else parts[0]
    if broken:
        raise CheckpointError(f"weights are NaN or infinite: {some(broken)}; train the model or download it again")
    with torch.device("meta"):
        model = Bert(config)
    model.load_state_dict(state, strict=True, assign=True)
    return model.eval()


def opener(folder: CheckpointFolder, name: str) -> Any:
    """Open a safetensors file that was checked before."""
    try:
        return safetensors.safe_open(os.path.realpath(folder.path / name), framework="pt")
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"{name} cannot be read ({error}); download it again") from error


def read(file: Any, name: str, broken: list[str]) -> Tensor:
    """Return a tensor as float32 of its own memory, noting in ``broken`` if it holds NaN or infinity."""
    tensor: Tensor = file.get_tensor(name).to(torch.float32, copy=True)
    if count := int((~torch.isfinite(tensor)).sum()):
        broken.append(f"{name} ({count} of {tensor.numel()})")
    return tensor
