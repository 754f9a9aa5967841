"""Find the tensors of a checkpoint, fit them to a model, load.

Fitting looks at names, dtypes and shapes only. A model is loaded with exactly its own tensors: nothing is left at
random values and nothing is passed over in silence.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import safetensors
import torch
from torch import Tensor

from edgebert.checkpoints.config.head_tables import head_prefixes
from edgebert.checkpoints.config.model_factory import Config, Reference, build
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.folder import CheckpointFolder, is_plain, some
from edgebert.checkpoints.weights.name_mapping import canonical, copies, is_transposed, numberless, published_names
from edgebert.checkpoints.weights.safetensors_header import FLOATS, MAX_HEADER_BYTES, TensorInfo, read_header
from edgebert.checkpoints.weights.torch_pickle import read_pickle, read_pickle_header
from edgebert.models.bert.heads import HeadConfig
from edgebert.models.checkpoint_tables import HeadNames
from edgebert_runtime.errors import CheckpointError

SINGLE = "model.safetensors"
PICKLE = "pytorch_model.bin"
INDEX = ".index.json"
OTHER_PICKLES = ("model.pt", "pytorch_model.pt", "model.bin")
FOREIGN = ("tf_model.h5", "flax_model.msgpack", "bert_model.ckpt.index", "model.onnx")
CONVERT = (
    'python -c "import json, torch, safetensors.torch as s; s.save_file({{k: v.clone().contiguous() for n in {names} '
    "for k, v in torch.load(n, map_location='cpu', weights_only=True).items()}}, 'model.safetensors')\""
)
# How far constants in half precision may be from exact ones.
ROUNDING = 5e-3
SHARDS = "set(json.load(open('{name}'))['weight_map'].values())"


@dataclass(frozen=True)
class WeightFiles:
    """The tensors of a folder, and the file of each."""

    files: dict[str, str]
    tensors: dict[str, TensorInfo]
    pickled: bool = False


@dataclass(frozen=True)
class Model:
    """A model to load, and the published names of its tensors."""

    model_type: str
    config: Config
    head: HeadConfig | None = None
    names: HeadNames | None = None

    def build(self) -> Reference:
        """Return the model without allocating its weights."""
        with torch.device("meta"):
            return build(self.config, self.head)


@dataclass(frozen=True)
class Fit:
    """The mapping from tensors of the files to the model's."""

    sources: dict[str, tuple[str, ...]]
    ignored: tuple[str, ...]
    copies: dict[str, str]


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
    if others := [name for name in FOREIGN if folder.has(name)]:
        raise CheckpointError(f"{SINGLE} is missing; {others[0]} is not read: save the model from PyTorch as {SINGLE}")
    raise CheckpointError(f"{SINGLE} is missing (found {folder.names()}); download the checkpoint again")


def conversion(name: str) -> str:
    """Return the command that converts pickles to safetensors."""
    return CONVERT.format(names=SHARDS.format(name=name) if name.endswith(INDEX) else [name])


def read_shards(
    folder: CheckpointFolder, index: str, reader: Callable[[CheckpointFolder, str], dict[str, TensorInfo]]
) -> WeightFiles:
    """Read the headers of all shards, and check the index."""
    listed = folder.json(index, cap=MAX_HEADER_BYTES).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise CheckpointError(f"{index} has no weight_map; download it again")
    shards = list(dict.fromkeys(map(str, listed.values())))
    if unsafe := [repr(name) for name in listed.values() if not is_plain(name)]:
        raise CheckpointError(
            f"{index} names {some(unsafe)}: no plain file in the folder; is the checkpoint to be trusted?"
        )
    if missing := [name for name in shards if not folder.has(name)]:
        raise CheckpointError(f"{index} lists {some(missing)}, which the folder lacks; download the missing files")
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
        raise CheckpointError(f"{index} does not fit its files: {some(problems)}; download the checkpoint again")
    return WeightFiles(shard_of, tensors)


def by_canonical(weights: WeightFiles, model_type: str) -> dict[str, str]:
    """Map canonical names to the names in the files."""
    names: dict[str, str] = {}
    for name in weights.tensors:
        names.setdefault(canonical(name, model_type), name)
    return names


def fit(model: Model, weights: WeightFiles) -> Fit:
    """Fit the tensors of the files to the model.

    Raises:
        CheckpointError: naming all missing, unexpected and misshapen tensors.
    """
    kind, head = model.model_type, model.names
    by_name = by_canonical(weights, kind)
    first = set(by_name.values())
    twice = [f"{by_name[canonical(name, kind)]} and {name}" for name in weights.tensors if name not in first]
    again = {name: ours for name, ours in copies(model.config).items() if name in by_name}
    expected, constants = shapes(model)
    sources, missing, wrong = {}, [], []
    for ours, shape in expected.items():
        names = published_names(ours, kind, head, "target_token_embedding.weight" in expected)
        if names[0] not in by_name:
            names = tuple(name for name, copied in again.items() if copied == ours)[:1] or names
        part = (shape[0] // len(names), *shape[1:])
        part = part[::-1] if is_transposed(ours, kind) else part
        missing += [name for name in names if name not in by_name]
        present = [by_name[name] for name in names if name in by_name]
        wrong += [fault for name in present if (fault := shape_error(name, weights.tensors[name], part))]
        sources[ours] = tuple(present)
    used = {name for names in sources.values() for name in names}
    repeated = {by_name[name]: ours for name, ours in again.items() if by_name[name] not in used}
    sizes = {**expected, **constants}
    wrong += [
        fault for name, ours in repeated.items() if (fault := shape_error(name, weights.tensors[name], sizes[ours]))
    ]
    ignorable = {*MODEL_TYPES[kind].buffers, *again}
    if head and head.vocabulary:
        ignorable |= {f"{head.out}.weight", *head.biases, f"{head.out}.bias"}
    left = sorted(name for plain, name in by_name.items() if name not in used and numberless(plain) not in ignorable)
    ignored = [name for name in left if canonical(name, kind).startswith(head_prefixes(kind))]
    unexpected = [name for name in left if name not in ignored]
    kinds = {"missing": missing, "unexpected": unexpected, "not as config.json says": wrong, "twice": twice}
    if problems := [f"tensors {kind}: {some(names)}" for kind, names in kinds.items() if names]:
        raise CheckpointError("; ".join([*problems, "use the config.json and the weights of one and the same model"]))
    return Fit(sources, tuple(ignored), repeated)


def shapes(model: Model) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Return the shapes of the model's tensors and constants."""
    built = model.build()
    weights = {name: tuple(tensor.shape) for name, tensor in built.state_dict().items()}
    return weights, {name: tuple(tensor.shape) for name, tensor in built.named_buffers() if name not in weights}


def shape_error(name: str, info: TensorInfo, shape: tuple[int, ...]) -> str | None:
    """Return the fault of a tensor's shape or dtype, or None."""
    if info.shape != shape:
        return f"{name} has shape {list(info.shape)}, should have {list(shape)}"
    if info.dtype not in FLOATS:
        return f"{name} is {info.dtype}, should be one of {', '.join(FLOATS)}"
    return None


def load(folder: CheckpointFolder, model: Model, weights: WeightFiles) -> Reference:
    """Return the model with its weights, in float32, for inference.

    Raises:
        CheckpointError: if a file cannot be read, has changed, holds numbers that are none, or contradicts itself.
    """
    if find_weights(folder, weights.pickled) != weights:
        raise CheckpointError("the weights changed while they were read; open the checkpoint again")
    built, fitted = model.build(), fit(model, weights)
    state: dict[str, Tensor] = {}
    broken: list[str] = []
    with ExitStack() as stack:
        files = {name: open_file(folder, name, weights.pickled, stack) for name in set(weights.files.values())}
        for ours, names in fitted.sources.items():
            parts = [read(files[weights.files[name]], name, broken) for name in names]
            parts = [part.t().contiguous() for part in parts] if is_transposed(ours, model.model_type) else parts
            state[ours] = torch.cat(parts) if len(parts) > 1 else parts[0]
        copied = {name: read(files[weights.files[name]], name, broken) for name in fitted.copies}
    if broken:
        raise CheckpointError(f"weights are NaN or infinite: {some(broken)}; train the model or download it again")
    built.load_state_dict(state, strict=True, assign=True)
    check_copies(built, fitted, copied)
    return built.eval()


def check_copies(built: Reference, fitted: Fit, copied: dict[str, Tensor]) -> None:
    """Check that repeated tensors equal the model's.

    Constants may have been rounded to half precision.

    Raises:
        CheckpointError: naming those that do not.
    """
    weights, constants = built.state_dict(), dict(built.named_buffers())
    same = {
        name: torch.equal(copied[name], weights[ours])
        if ours in weights
        else torch.allclose(copied[name], constants[ours], atol=ROUNDING)
        for name, ours in fitted.copies.items()
    }
    if different := [name for name, equal in same.items() if not equal and fitted.copies[name] in weights]:
        raise CheckpointError(
            f"{some(different)} should be the table of embeddings once more, and is another; if each is used, "
            'config.json should say "tie_word_embeddings": false'
        )
    if different := [name for name, equal in same.items() if not equal]:
        raise CheckpointError(f"{some(different)} holds no sinusoids, and others are not supported")


def open_file(folder: CheckpointFolder, name: str, pickled: bool, stack: ExitStack) -> Callable[[str], Tensor]:
    """Open a weight file; return a getter of tensors by name."""
    if pickled:
        return read_pickle(folder, name).__getitem__
    try:
        file = stack.enter_context(safetensors.safe_open(os.path.realpath(folder.path / name), framework="pt"))
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"{name} cannot be read ({error}); download it again") from error
    get: Callable[[str], Tensor] = file.get_tensor
    return get


def read(get: Callable[[str], Tensor], name: str, broken: list[str]) -> Tensor:
    """Return a float32 copy; add it to ``broken`` if not finite."""
    tensor = get(name).to(torch.float32, copy=True)
    if count := int((~torch.isfinite(tensor)).sum()):
        broken.append(f"{name} ({count} of {tensor.numel()})")
    return tensor
