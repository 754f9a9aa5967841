"""Map our tensor names to published ones, and back."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from torch import Tensor

from edgebert.checkpoints.config.head_tables import POOLER
from edgebert.checkpoints.config.model_factory import Config
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.models.checkpoint_tables import HeadNames
from edgebert.models.seq2seq.config import Seq2SeqConfig

# The prefix that a training wrapper puts before every name, and those that others put before a part of the model.
WRAPPER = "module."
INNER_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
# The names that TensorFlow has for the parameters of a layer norm.
TENSORFLOW_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}


def canonical(name: str, model_type: str) -> str:
    """Return a published name without prefixes, in the newer spelling."""
    for wrapper in INNER_WRAPPERS:
        name = name.replace(wrapper, "")
    prefixes = (WRAPPER, MODEL_TYPES[model_type].prefix)
    while prefix := next((p for p in prefixes if name.startswith(p)), None):
        name = name[len(prefix) :]
    for old, new in TENSORFLOW_ENDINGS.items():
        if name.endswith(old):
            name = name[: -len(old)] + new
    return name


@lru_cache(maxsize=16)
def wrapper_prefix(names: tuple[str, ...], model_type: str) -> str:
    """Return the prefix common to all ``names`` without which most of them are those of this type, empty if none."""
    parts = os.path.commonprefix([name.split(".")[:-1] for name in names])
    prefixes = ["".join(f"{part}." for part in parts[:count]) for count in range(len(parts) + 1)]
    kind = MODEL_TYPES[model_type]
    modules = {module for table in (kind.tensors, kind.separate_tensors) for row in table.values() for module in row}
    modules = {numberless(module) for module in modules}

    def fitting(prefix: str) -> int:
        plain = (canonical(name.removeprefix(prefix), model_type) for name in names)
        return sum(numberless(name).rpartition(".")[0] in modules for name in plain)

    return max(prefixes, key=fitting, default="")


def published_names(
    ours: str, model_type: str = "bert", head: HeadNames | None = None, separate: bool = False
) -> tuple[str, ...]:
    """Return the published tensors that stacked make ``ours``.

    They have no prefixes, and stand in the order of stacking.

    ``separate`` says that source and target have a table of embeddings each.
    """
    kind = MODEL_TYPES[model_type]
    tensors = kind.separate_tensors if separate else kind.tensors
    module, _, leaf = ours.rpartition(".")
    if not module:
        return tensors[ours]
    if head is not None:
        part, _, module = module.partition(".")
        if part == "head" and leaf == "bias" and module in ("", "out") and head.vocabulary:
            return head.biases[:1]
        if part == "head":
            return (f"{getattr(head, module or 'out')}.{leaf}",)
    layer = re.search(r"\d+", module)
    return tuple(f"{source}.{leaf}".format(layer and layer.group()) for source in tensors[numberless(module)])


def constants(config: Config) -> dict[str, str]:
    """Return published tensors that may stand for our constants, which are sinusoidal positions."""
    if not isinstance(config, Seq2SeqConfig) or config.positions != "sinusoidal":
        return {}
    return {f"{side}.embed_positions.weight": f"{side}.embeddings.sinusoids" for side in ("encoder", "decoder")}


def numberless(name: str) -> str:
    """Return a name with ``{}`` for the layer number."""
    return re.sub(r"\d+", "{}", name)


def is_transposed(ours: str, model_type: str) -> bool:
    """Say whether the tensor ``ours`` is published as (in, out).

    The prefix of its family is optional.
    """
    kind = MODEL_TYPES[model_type]
    module, _, leaf = ours.removeprefix(f"{kind.family}.").rpartition(".")
    return leaf == "weight" and numberless(module) in kind.transposed


def to_published(
    state: dict[str, Tensor], model_type: str = "bert", head: HeadNames | None = None
) -> dict[str, Tensor]:
    """Map a state dict to published tensors, the inverse of loading."""
    published: dict[str, Tensor] = {}
    kind = MODEL_TYPES[model_type]
    for ours, tensor in state.items():
        names = published_names(ours, model_type, head, "target_token_embedding.weight" in state)
        below = head is not None and (ours.startswith(f"{kind.family}.") or names[0].startswith(POOLER))
        if kind.family == "seq2seq":
            below = ours not in ("head.weight", "output_bias")
        prefix = kind.prefix if below else ""
        parts = [
            part.t().contiguous() if is_transposed(ours, model_type) else part for part in tensor.chunk(len(names))
        ]
        published |= zip((prefix + name for name in names), parts, strict=True)
    return published
