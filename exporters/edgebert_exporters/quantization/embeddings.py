"""Quantized embeddings, and the nodes that read blockwise weights.

Embeddings become uint8 in blocks of a row. Where the head of a language model multiplies by the token embedding, it
multiplies by the same bytes. Per-channel models store such an embedding as int8 with a scale per token, as
:mod:`edgebert_exporters.quantization.int8_per_channel` does with weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from edgebert.models.kernel_limits import KERNELS
from edgebert_exporters.graphs.graph_editor import CONTRIB, GraphEditor
from edgebert_exporters.quantization.blockwise import Blocks, quantize_blocks
from edgebert_exporters.quantization.int8_per_channel import activation_quantization, insert_qgemm, to_int8
from edgebert_exporters.quantization.weight_discovery import Floats, Linear, Lookup, Weight

# The largest and the smallest block of a row; the kernels take powers of two only.
EMBEDDING_BLOCK, MIN_EMBEDDING_BLOCK = 128, min(KERNELS["GatherBlockQuantized"].choices["block_size"])


def embedding_block(dim: int, most: int = EMBEDDING_BLOCK) -> int | None:
    """Return the block size for rows of ``dim`` numbers.

    None says that no block of the kernels divides them.
    """
    block = min(dim & -dim, most)
    return block if block >= MIN_EMBEDDING_BLOCK else None


def quantize_blockwise(editor: GraphEditor, linears: Sequence[Linear], blocks: Blocks, bits: int) -> None:
    """Store the weight that layers share as ``blocks`` (out, blocks, bytes)."""
    name = linears[0].name
    integers = editor.initializer(f"{name}.uint{bits}", blocks.integers)
    scales = editor.initializer(f"{name}.scale", blocks.scale)
    zeros = None if blocks.zeros is None else editor.initializer(f"{name}.zero", blocks.zeros)
    for linear in linears:
        insert_matmul_nbits(editor, linear, integers, scales, zeros, bits)


def quantize_embedding(editor: GraphEditor, weight: Weight, most: int = EMBEDDING_BLOCK) -> None:
    """Quantize an embedding to 8 bits in blocks of at most ``most``.

    Layers that multiply by it share its bytes.
    """
    rows, dim = weight.lookups[0].weight.shape
    block = embedding_block(dim, most)
    assert block is not None
    array, scale, _ = quantize_blocks(weight.lookups[0].weight, 8, block)
    # The lookup takes an embedding in blocks or in rows, the product in blocks only.
    integers = editor.initializer(f"{weight.name}.uint8", array if weight.linears else array.reshape(rows, dim))
    scales = editor.initializer(f"{weight.name}.scale", scale)
    for lookup in weight.lookups:
        insert_gather_block_quantized(editor, lookup, integers, scales, array.shape)
    for linear in weight.linears:
        insert_matmul_nbits(editor, linear, integers, scales, None, 8)


def quantize_embedding_per_token(editor: GraphEditor, weight: Weight, peaks: Mapping[str, Floats]) -> None:
    """Quantize an embedding to int8 with a scale per token.

    Layers that multiply by it share its bytes. ``peaks`` is that of
    :func:`edgebert_exporters.quantization.int8_per_channel.quantize_per_channel`.
    """
    array, scale = to_int8(weight.lookups[0].weight.T)
    integers = editor.initializer(f"{weight.name}.int8", np.ascontiguousarray(array.T))  # (vocab, dim)
    scales = editor.initializer(f"{weight.name}.scale", scale)
    for lookup in weight.lookups:
        insert_gather_per_token(editor, lookup, integers, scales)
    for linear in weight.linears:
        quantization = activation_quantization(linear, peaks, None)
        insert_qgemm(editor, linear, linear.input, integers, scale, quantization)


def insert_gather_per_token(editor: GraphEditor, lookup: Lookup, integers: ir.Value, scales: ir.Value) -> None:
    """Gather rows of an int8 embedding (rows, dim) with ``scales`` (rows,)."""
    node = lookup.node
    rows = editor.insert(node, "Gather", integers, lookup.indices)
    floats = editor.insert(node, "Cast", rows, to=int(ir.DataType.FLOAT))
    scale = editor.insert(node, "Gather", scales, lookup.indices)
    column = editor.insert(node, "Unsqueeze", scale, editor.last_axis())
    editor.replace(node, editor.insert(node, "Mul", floats, column))


def insert_gather_block_quantized(
    editor: GraphEditor, lookup: Lookup, integers: ir.Value, scales: ir.Value, shape: tuple[int, ...]
) -> None:
    """Gather rows of a blockwise embedding of ``shape`` (rows, blocks, block)."""
    node, in_blocks = lookup.node, integers.shape is not None and len(integers.shape) == 3
    if in_blocks:
        size = editor.initializer(f"{lookup.name}.scale_shape", np.array([*shape[:2], 1]))
        scales = editor.insert(node, "Reshape", scales, size)
    options = {"bits": 8, "block_size": shape[2], "gather_axis": 0, "quantize_axis": 2 if in_blocks else 1}
    rows = editor.insert(node, "GatherBlockQuantized", integers, lookup.indices, scales, domain=CONTRIB, **options)
    if in_blocks:
        row = editor.initializer(f"{lookup.name}.row_shape", np.array([0, 0, shape[1] * shape[2]]))  # 0: as it was
        rows = editor.insert(node, "Reshape", rows, row)
    editor.replace(node, rows)


def insert_matmul_nbits(
    editor: GraphEditor, linear: Linear, integers: ir.Value, scales: ir.Value, zeros: ir.Value | None, bits: int
) -> None:
    """Multiply by blocks ``integers`` (out, blocks, bytes).

    The kernel rounds the input to 8 bits in blocks as well.
    """
    assert integers.const_value is not None
    dim, rows = linear.weight.shape
    block = integers.const_value.numpy().shape[2] * 8 // bits
    options = {"bits": bits, "block_size": block, "K": dim, "N": rows, "accuracy_level": 4}
    inputs = [linear.input, integers, scales] + ([] if zeros is None and linear.bias is None else [zeros])
    inputs += [] if linear.bias is None else [None, linear.bias]
    editor.finish(linear.node, editor.insert(linear.node, "MatMulNBits", *inputs, domain=CONTRIB, **options))
