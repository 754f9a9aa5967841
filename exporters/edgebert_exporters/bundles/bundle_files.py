"""Write the files of a bundle into a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx_ir as ir

from edgebert_exporters.graphs.signatures import Signature
from edgebert_runtime.bundle.manifest import MANIFEST_NAME, FileEntry, GraphSpec, Manifest
from edgebert_runtime.bundle.reader import sha256
from edgebert_runtime.errors import ExportError
from edgebert_runtime.inputs.tokenizer import TOKENIZER_NAME
from edgebert_runtime.tasks.base.bundle_tokenizers import TOKENIZERS

WEIGHTS_NAME = "weights.bin"
# Protocol buffers, and so ONNX files, end at 2 GiB. A little room is left for the graph itself.
MAX_INLINE_BYTES = (1 << 31) - (16 << 20)
# Below this size one file is handier than two, and memory-mapped weights gain nothing.
SMALL_MODEL_BYTES = 1 << 20
# Smaller weights stay in the graph.
SMALL_BYTES = 1024


def weight_bytes(model: ir.Model) -> int:
    """Return the bytes of the weights of a graph."""
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def bytes_of(models: Iterable[ir.Model]) -> int:
    """Return the bytes of the distinct weights of several graphs."""
    return sum(tensor.nbytes for tensor in {fingerprint(tensor): tensor for tensor in tensors(models)}.values())


def tensors(models: Iterable[ir.Model]) -> list[ir.TensorProtocol]:
    """Return the weights of graphs."""
    values = [value for model in models for value in model.graph.initializers.values()]
    return [value.const_value for value in values if value.const_value is not None]


def fingerprint(tensor: ir.TensorProtocol) -> str:
    """Return a hash of the bytes of a weight, whatever its shape."""
    return hashlib.sha256(tensor.tobytes()).hexdigest()


def write_graphs(
    models: dict[str, ir.Model], folder: Path, signatures: Mapping[str, Signature], *, single_file: bool
) -> dict[str, GraphSpec]:
    """Write graphs, with their weights inside or in ``weights.bin``; return the entries of the manifest.

    Weights that several graphs share are in ``weights.bin`` once.

    Raises:
        ExportError: if a single file was asked for and the weights are too large for one.
    """
    for name, model in models.items():
        size = weight_bytes(model)
        if single_file and size > MAX_INLINE_BYTES:
            raise ExportError(
                f"{name}.onnx would have {size:,} bytes, more than the {MAX_INLINE_BYTES:,} of a single ONNX file; "
                "export for the target cpu, which keeps the weights in a file of their own"
            )
    # Unchanged weights still lie in a file of the source bundle.
    models = {name: ir.external_data.load_to_model(model) for name, model in models.items()}
    if not single_file and bytes_of(models.values()) >= SMALL_MODEL_BYTES:
        move_weights(models.values(), folder)
    for name, model in models.items():
        ir.save(model, folder / f"{name}.onnx")
    return {name: GraphSpec(f"{name}.onnx", signatures[name].inputs, signatures[name].outputs) for name in models}


def move_weights(models: Iterable[ir.Model], folder: Path) -> None:
    """Move the weights of graphs to ``weights.bin``, small ones excepted."""
    values = [value for model in models for value in model.graph.initializers.values()]
    large = [value for value in values if value.const_value is not None and value.const_value.nbytes > SMALL_BYTES]
    keys = [fingerprint(value.const_value) for value in large if value.const_value is not None]
    first = {key: value.const_value for key, value in reversed(list(zip(keys, large, strict=True)))}
    distinct = [first[key] for key in dict.fromkeys(keys)]
    moved = ir.external_data.convert_tensors_to_external([t for t in distinct if t is not None], folder, WEIGHTS_NAME)
    places = dict(zip(dict.fromkeys(keys), moved, strict=True))
    for key, value in zip(keys, large, strict=True):
        there, old = places[key], value.const_value
        assert old is not None
        place = (there.location, there.offset, there.length, old.dtype)
        shape = ir.Shape(old.numpy().shape)
        value.const_value = ir.ExternalTensor(*place, shape=shape, name=old.name or "", base_dir=folder)


def write_tokenizers(folder: Path, source: str, target: str | None) -> None:
    """Write one tokenizer, or one for sources and one for targets."""
    names = TOKENIZERS if target is not None else (TOKENIZER_NAME,)
    for name, text in zip(names, (source, target), strict=False):
        (folder / name).write_text(text or "", encoding="utf-8")


def copy_tokenizers(source: Path, folder: Path) -> None:
    """Copy the tokenizers of one bundle to another."""
    for name in (TOKENIZER_NAME, *TOKENIZERS):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def list_files(folder: Path) -> dict[str, FileEntry]:
    """Return size and SHA-256 of every file in the folder, without the manifest."""
    files = sorted(file for file in folder.iterdir() if file.name != MANIFEST_NAME)
    return {file.name: FileEntry(file.stat().st_size, sha256(file)) for file in files}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``edgebert.json``, whole or not at all."""
    temporary = folder / f"{MANIFEST_NAME}.new"
    temporary.write_text(manifest.to_json(), encoding="utf-8")
    os.replace(temporary, folder / MANIFEST_NAME)
