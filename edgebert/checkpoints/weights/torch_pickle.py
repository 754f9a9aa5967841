"""Read tensors from a pickle of PyTorch without running code.

A pickle is a program. ``torch.load(weights_only=True)`` runs one that does nothing but build tensors and refuses every
other; there is no fall-back, and even so a pickle is read only when the caller says so.
"""

from __future__ import annotations

import os
import pickle
import re
import warnings
import zipfile

import torch
from torch import Tensor

from edgebert.checkpoints.folder import CheckpointFolder, foreign, some
from edgebert.checkpoints.weights.safetensors_header import TensorInfo
from edgebert_runtime.errors import CheckpointError

DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
# What PyTorch says of a pickle that it does not run, and where the advice to run it all the same begins and ends.
FORBIDDEN = re.compile(
    r"(?:nsupported (?:global: )?GLOBAL|for unrecognized function|unsupported class|but got) (<.*?>|[\w.]+)"
)
ADVICE = re.compile(
    r"Weights only load failed.*(?:WeightsUnpickler error:|trusted source\.) *| (?:Please use|Check the) .*"
)


def read_pickle(folder: CheckpointFolder, name: str) -> dict[str, Tensor]:
    """Return the tensors of the pickle ``name``, zipped or not.

    Raises:
        CheckpointError: if it holds anything but tensors by name, or is damaged.
    """
    with folder.stream(name) as stream:  # makes sure that it is a plain file in the folder
        start = stream.read(256)
        zipped = zipfile.is_zipfile(stream)
    what = foreign(start)
    if not start or (what and "pickle" not in what):
        raise CheckpointError(f"{name} is {what or 'empty'}; save or download it again")
    path = os.path.realpath(folder.path / name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about storages of old versions
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except Exception as error:  # a damaged pickle raises whatever the last byte read leads to
        raise CheckpointError(f"{name} {refusal(error)}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{name} holds {type(state).__name__!r:.60} and not tensors by name; save a state_dict()")
    if others := [f"{key!r:.60} ({type(value).__name__})" for key, value in state.items() if not is_plain(key, value)]:
        raise CheckpointError(
            f"{name} holds other things than dense tensors by name: {some(others)}; save the state_dict() of the "
            "model alone"
        )
    return {key: value.detach() for key, value in state.items()}


def read_pickle_header(folder: CheckpointFolder, name: str) -> dict[str, TensorInfo]:
    """Return what the tensors of the pickle ``name`` are."""
    return {
        key: TensorInfo(DTYPES.get(tensor.dtype, str(tensor.dtype)), tuple(tensor.shape))
        for key, tensor in read_pickle(folder, name).items()
    }


def is_plain(key: object, value: object) -> bool:
    """Say whether an entry is a named dense CPU tensor."""
    return (
        isinstance(key, str)
        and isinstance(value, Tensor)
        and value.layout is torch.strided
        and not value.is_quantized
        and value.device.type == "cpu"
    )


def refusal(error: Exception) -> str:
    """Say why PyTorch did not read a pickle."""
    text = ADVICE.sub("", " ".join(str(error).split()))
    if isinstance(error, pickle.UnpicklingError) and (match := FORBIDDEN.search(text)):
        return (
            f"asks for {match.group(1):.120}, which builds no tensor: it was not run, and the file is not read; "
            "is the checkpoint to be trusted? Use model.safetensors, or save the state_dict() of the model alone"
        )
    return f"cannot be read as a pickle of PyTorch ({type(error).__name__}: {text:.200}); save or download it again"
