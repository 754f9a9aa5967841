"""Fit the tensors of a checkpoint to a model, and load them.

Fitting looks at names, dtypes and shapes only. A model is loaded with exactly its own tensors: nothing is left at
random values and nothing is passed over in silence.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from edgebert.checkpoints.config.head_tables import head_prefixes
from edgebert.checkpoints.config.model_factory import Config, Reference, build
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.folder import CheckpointFolder, some
from edgebert.checkpoints.weights.name_mapping import constants, is_transposed, numberless, published_names
from edgebert.checkpoints.weights.other_formats import unmerged
from edgebert.checkpoints.weights.safetensors_header import FLOATS, TensorInfo
from edgebert.checkpoints.weights.weight_files import WeightFiles, find_weights, open_file, read
from edgebert.models.bert.heads import HeadConfig
from edgebert.models.checkpoint_tables import HeadNames
from edgebert_runtime.errors import CheckpointError


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
    """The mapping from tensors of the files to the model's, and to its constants."""

    sources: dict[str, tuple[str, ...]]
    ignored: tuple[str, ...]
    constants: dict[str, str]


def fit(model: Model, weights: WeightFiles) -> Fit:
    """Fit the tensors of the files to the model.

    Raises:
        CheckpointError: naming all missing, unexpected and misshapen tensors.
    """
    kind, head = model.model_type, model.names
    by_name, plain_names = weights.by_canonical(kind), weights.canonical_names(kind)
    first = set(by_name.values())
    twice = [f"{by_name[plain_names[name]]} and {name}" for name in weights.tensors if name not in first]
    expected, buffers = shapes(model)
    sources, missing, wrong = {}, [], []
    for ours, shape in expected.items():
        names = source_names(ours, model, weights, "target_token_embedding.weight" in expected)
        part = (shape[0] // len(names), *shape[1:])
        part = part[::-1] if is_transposed(ours, kind) else part
        missing += [name for name in names if name not in by_name]
        present = [by_name[name] for name in names if name in by_name]
        wrong += [fault for name in present if (fault := shape_error(name, weights.tensors[name], part))]
        sources[ours] = tuple(present)
    used = {name for names in sources.values() for name in names}
    saved = {by_name[name]: ours for name, ours in constants(model.config).items() if name in by_name}
    wrong += [
        fault for name, ours in saved.items() if (fault := shape_error(name, weights.tensors[name], buffers[ours]))
    ]
    ignorable = {*MODEL_TYPES[kind].buffers}
    if head and head.vocabulary:
        ignorable |= {f"{head.out}.weight", *head.biases, f"{head.out}.bias"}
    left = sorted(
        name
        for plain, name in by_name.items()
        if name not in used and name not in saved and numberless(plain) not in ignorable
    )
    ignored = [name for name in left if plain_names[name].startswith(head_prefixes(kind))]
    unexpected = [name for name in left if name not in ignored]
    if fault := unmerged(unexpected):
        raise CheckpointError(fault)
    kinds = {"missing": missing, "unexpected": unexpected, "not as config.json says": wrong, "twice": twice}
    if problems := [f"tensors {kind}: {some(names)}" for kind, names in kinds.items() if names]:
        raise CheckpointError("; ".join([*problems, "use the config.json and the weights of one and the same model"]))
    return Fit(sources, tuple(ignored), saved)


def source_names(ours: str, model: Model, weights: WeightFiles, separate: bool) -> tuple[str, ...]:
    """Return the published tensors that stacked make ``ours``.

    ``separate`` says that source and target have a table of embeddings each.
    """
    kind = MODEL_TYPES[model.model_type]
    table = weights.tables.get(ours.removeprefix(f"{kind.family}."))
    if table and (kind.family == "seq2seq" or (model.names and model.names.vocabulary)):
        return (table,)
    return published_names(ours, model.model_type, model.names, separate)


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
        tables = {ours: read(files[weights.files[name]], name, broken) for name, ours in fitted.constants.items()}
    if broken:
        raise CheckpointError(f"weights are NaN or infinite: {some(broken)}; train the model or download it again")
    built.load_state_dict(state, strict=True, assign=True)
    for name, buffer in built.named_buffers():
        if name in tables:
            buffer.copy_(tables[name])
    return built.eval()
