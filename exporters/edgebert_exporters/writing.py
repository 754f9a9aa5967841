"""Write the files of a bundle into a folder."""

from __future__ import annotations

import os
from pathlib import Path

import onnx_ir as ir

from edgebert_exporters.signature import Signature
from edgebert_runtime.bundle import sha256
from edgebert_runtime.errors import ExportError
from edgebert_runtime.manifest import MANIFEST_NAME, FileEntry, GraphSpec, Manifest

WEIGHTS_NAME = "weights.bin"
# ONNX files are protocol buffers, which end at 2 GiB. A little room is left for the graph itself.
MAX_INLINE_BYTES = (1 << 31) - (16 << 20)
# Below this size one file is handier than two, and mapping the weights into memory gains nothing.
SMALL_MODEL_BYTES = 1 << 20


def weight_bytes(model: ir.Model) -> int:
    """Return the bytes that the weights of a graph take, each counted once."""
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def write_graph(model: ir.Model, folder: Path, name: str, signature: Signature, *, single_file: bool) -> GraphSpec:
    """Write ``name``.onnx, with the weights inside or in ``weights.bin``, and return its entry for the manifest.

    Raises:
        ExportError: if a single file was asked for and the weights are too large for one.
    """
    size = weight_bytes(model)
    if single_file and size > MAX_INLINE_BYTES:
        raise ExportError(
            f"{name}.onnx would have {size:,} bytes, more than the {MAX_INLINE_BYTES:,} of a single ONNX file; "
            "export for the target cpu, which keeps the weights in a file of their own"
        )
    # Weights that stayed as they were still lie in a file of the bundle that they came from.
    model = ir.external_data.load_to_model(model)
    external = None if single_file or size < SMALL_MODEL_BYTES else WEIGHTS_NAME
    ir.save(model, folder / f"{name}.onnx", external_data=external, size_threshold_bytes=1024)
    return GraphSpec(f"{name}.onnx", signature.inputs, signature.outputs)


def list_files(folder: Path) -> dict[str, FileEntry]:
    """Return size and SHA-256 of every file in the folder but the manifest."""
    files = sorted(file for file in folder.iterdir() if file.name != MANIFEST_NAME)
    return {file.name: FileEntry(file.stat().st_size, sha256(file)) for file in files}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``edgebert.json``, whole or not at all."""
    temporary = folder / f"{MANIFEST_NAME}.new"
    temporary.write_text(manifest.to_json(), encoding="utf-8")
    os.replace(temporary, folder / MANIFEST_NAME)
