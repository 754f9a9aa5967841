"""Weights in blocks in a graph, and tables of embeddings: what they become, and the nodes that read them.

Tables that tokens are looked up in become uint8 with a scale for each block of a row. Where a language model's head
multiplies by the table, it multiplies by the very same bytes. For many rows at once such a table is int8 with a scale
for each token, as :mod:`edgebert_exporters.quantization.int8_per_channel` has its weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from edgebert_exporters.graphs.graph_editor import CONTRIB, GraphEditor
from edgebert_exporters.quantization.blockwise import Blocks, quantize_blocks
from edgebert_exporters.quantization.int8_per_channel import multiply, quantize_columns, rounding_of
from edgebert_exporters.quantization.weight_discovery import Floats, Linear, Table, Weight

# Numbers of a row of a table that have one scale, at most and at least; the kernels take powers of two only.
TABLE_BLOCK, LEAST_BLOCK = 128, 16


def table_block(dim: int, most: int = TABLE_BLOCK) -> int | None:
    """Return how many numbers of a row of ``dim`` have one scale, None if no block that kernels take divides it."""
    block = min(dim & -dim, most)
    return block if block >= LEAST_BLOCK else None


def rewrite_blocks(editor: GraphEditor, linears: Sequence[Linear], blocks: Blocks, bits: int) -> None:
    """Store the weight that layers share as ``blocks`` (out, blocks, bytes)."""
    name = linears[0].name
    held, scales = (
        editor.initializer(f"{name}.uint{bits}", blocks.integers),
        editor.initializer(f"{name}.scale", blocks.scale),
    )
    zeros = None if blocks.zeros is None else editor.initializer(f"{name}.zero", blocks.zeros)
    for linear in linears:
        product(editor, linear, held, scales, zeros, bits)


def rewrite_table(editor: GraphEditor, weight: Weight, most: int = TABLE_BLOCK) -> None:
    """Quantize a table of embeddings to 8 bits in blocks of ``most``, with the layers that multiply by it."""
    rows, dim = weight.tables[0].weight.shape
    block = table_block(dim, most)
    assert block is not None
    integers, scale, _ = quantize_blocks(weight.tables[0].weight, 8, block)
    tied = bool(weight.linears)
    # The lookup takes a table in blocks or in rows, the product in blocks only.
    held = editor.initializer(f"{weight.name}.uint8", integers if tied else integers.reshape(rows, dim))
    scales = editor.initializer(f"{weight.name}.scale", scale)
    for table in weight.tables:
        lookup(editor, table, held, scales, integers.shape)
    for linear in weight.linears:
        product(editor, linear, held, scales, None, 8)


def rewrite_tied_rows(editor: GraphEditor, weight: Weight, largest: Mapping[str, Floats]) -> None:
    """Quantize a table of embeddings, and the layers that multiply by it, to int8 with a scale for each token.

    ``largest`` is what :func:`edgebert_exporters.quantization.int8_per_channel.rewrite_columns` takes.
    """
    integers, scale = quantize_columns(weight.tables[0].weight.T)
    held = editor.initializer(f"{weight.name}.int8", np.ascontiguousarray(integers.T))  # (vocab, dim)
    scales = editor.initializer(f"{weight.name}.scale", scale)
    for table in weight.tables:
        lookup_rows(editor, table, held, scales)
    for linear in weight.linears:
        multiply(editor, linear, linear.input, held, scale, rounding_of(linear, largest, None))


def lookup_rows(editor: GraphEditor, table: Table, held: ir.Value, scales: ir.Value) -> None:
    """Gather rows of an int8 table (rows, dim) with ``scales`` (rows,), by indices (batch, seq)."""
    node = table.node
    found = editor.insert(node, "Cast", editor.insert(node, "Gather", held, table.indices), to=int(ir.DataType.FLOAT))
    own = editor.insert(node, "Unsqueeze", editor.insert(node, "Gather", scales, table.indices), editor.last_axis())
    editor.replace(node, editor.insert(node, "Mul", found, own))


def lookup(editor: GraphEditor, table: Table, held: ir.Value, scales: ir.Value, shape: tuple[int, ...]) -> None:
    """Gather rows of a quantized table, ``shape`` (rows, blocks, block), by indices (batch, seq)."""
    node, in_blocks = table.node, held.shape is not None and len(held.shape) == 3
    if in_blocks:
        size = editor.initializer(f"{table.name}.scale_shape", np.array([*shape[:2], 1]))
        scales = editor.insert(node, "Reshape", scales, size)
    options = {"bits": 8, "block_size": shape[2], "gather_axis": 0, "quantize_axis": 2 if in_blocks else 1}
    found = editor.insert(node, "GatherBlockQuantized", held, table.indices, scales, domain=CONTRIB, **options)
    if in_blocks:
        row = editor.initializer(
            f"{table.name}.row_shape", np.array([0, 0, shape[1] * shape[2]])
        )  # 0 leaves a size alone
        found = editor.insert(node, "Reshape", found, row)
    editor.replace(node, found)


def product(
    editor: GraphEditor, linear: Linear, held: ir.Value, scales: ir.Value, zeros: ir.Value | None, bits: int
) -> None:
    """Multiply by rows ``held`` (out, blocks, bytes); the input is rounded to 8 bits in blocks as well."""
    assert held.const_value is not None
    dim, rows = linear.weight.shape
    block = held.const_value.numpy().shape[2] * 8 // bits
    options = {"bits": bits, "block_size": block, "K": dim, "N": rows, "accuracy_level": 4}
    inputs = [linear.input, held, scales] + ([] if zeros is None and linear.bias is None else [zeros])
    inputs += [] if linear.bias is None else [None, linear.bias]
    editor.finish(linear.node, editor.insert(linear.node, "MatMulNBits", *inputs, domain=CONTRIB, **options))
