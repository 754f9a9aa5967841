"""Integer products: int8 weights with a scale for each column, times activations of 8 bits, for many rows at once.

What a row gives does not depend on the other rows of its batch, bit for bit. For that, no scale may be taken from a
whole batch; where the scale of an activation comes from depends on where the activation does:

* **From a LayerNormalization or an attention**, which mixes what normalised rows were made into, rows have about the
  same size, whatever the text: one :class:`Fixed` scale, set on sample texts, serves all. Behind a normalisation a few
  channels have large numbers always. All channels are balanced against their weights by :func:`smoothing` (Xiao et
  al., 2023, SmoothQuant), which leaves the product as it is.
* **From anything else**, a Gelu above all, one row may be many times larger than the next: each has a scale of its
  own (:class:`Moving`). A Gelu is never below -0.17, so that the integers can be nearly all for what is above 0.

On all-MiniLM-L6-v2 the mean cosine to float32 is 0.999, where one scale for each batch reaches 0.993, and 0.998 with
the same smoothing; the time differs by a tenth at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.graphs.graph_editor import CONTRIB, GraphEditor
from edgebert_exporters.quantization.weight_discovery import Floats, Linear

# Share of the difficulty that moves from the activations to the weights; 0.5 to 0.85 give nearly the same.
SMOOTHING = 0.7
# How much larger than on the sample texts a number may be before it is cut off.
MARGIN = 1.1
# Where activations come from whose rows have about the same size.
NORMALISED = "LayerNormalization"
EVEN = (
    NORMALISED,
    "Attention",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "DecoderMaskedMultiHeadAttention",
    "QAttention",
)


@dataclass(frozen=True)
class Fixed:
    """One scale for all rows (static, per tensor): activation = (integer - 128) * ``step``."""

    step: float


@dataclass(frozen=True)
class Moving:
    """A scale for each row (dynamic, per token): its largest number becomes the integer ``zero`` + ``steps``.

    Where there is a ``floor``, no number is below it; otherwise magnitudes count.
    """

    zero: int = 128
    steps: int = 127
    floor: float | None = None

    @property
    def least(self) -> float:
        """Return the largest number that a row is taken to have at least; one that is all zeros stays so."""
        return 1e-30 if not self.floor else -self.floor * self.steps / self.zero


Rounding = Fixed | Moving
# How rows are rounded that come from an activation which never goes far below 0.
BOUNDED = {"Gelu": Moving(16, 239, -0.17), "Relu": Moving(0, 255, 0.0)}


def quantize_columns(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Round a weight (in, out) to int8 with one scale for each column (out,): weight = integers * scale."""
    scale = np.abs(weight).max(0) / 127
    scale = np.where(scale >= np.finfo(np.float32).tiny, scale, 1).astype(np.float32)  # no scale of few bits
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.int8), scale


def smoothing(largest_input: Floats, weight: Floats, strength: float = SMOOTHING) -> Floats:
    """Return the factor (in,) by which each channel of the input is divided and each row of the weight multiplied.

    ``largest_input`` (in,) is the largest magnitude of each channel on sample texts. The factors have a geometric
    mean of 1.
    """
    inputs = np.maximum(largest_input, 1e-5).astype(np.float64)
    weights = np.maximum(np.abs(weight).max(1), 1e-5)
    logs = strength * np.log(inputs) - (1 - strength) * np.log(weights)
    factor: Floats = np.exp(logs - logs.mean()).astype(np.float32)
    return factor


def common_factor(linears: Sequence[Linear], largest: Mapping[str, Floats]) -> Floats | None:
    """Return the factor (in,) for the inputs of layers that share a weight, None if they are best left as they are.

    The last of the layers decides: the first may follow the embeddings, the others follow each other.
    """
    if linears[-1].producer != NORMALISED:
        return None
    return smoothing(np.maximum.reduce([largest[linear.input_name] for linear in linears]), linears[-1].weight)


def rounding_of(linear: Linear, largest: Mapping[str, Floats], factor: Floats | None) -> Rounding:
    """Say how the input of a layer is rounded, after it was divided by ``factor``."""
    channels = largest[linear.input_name] / (1 if factor is None else factor)
    if linear.producer in EVEN:
        return Fixed(max(float(channels.max()), 1e-30) * MARGIN / 127)
    bounded = BOUNDED.get(linear.producer)
    # Where all numbers are small, the floor of the activation is not near, and magnitudes are what counts.
    return bounded if bounded is not None and channels.max() >= bounded.least else Moving()


def rewrite_columns(editor: GraphEditor, linears: Sequence[Linear], largest: Mapping[str, Floats]) -> None:
    """Quantize layers that share one weight.

    ``largest`` has the largest magnitudes (in,) of the channels of their inputs on sample texts, by the names of the
    inputs.
    """
    name, weight = linears[0].name, linears[0].weight
    factor = common_factor(linears, largest)
    integers, scale = quantize_columns(weight if factor is None else weight * factor[:, None])
    roundings = [rounding_of(linear, largest, factor) for linear in linears]
    # The kernel that has the linear layer of an attention inside takes the weight as it is, the others as (out, in).
    inside = all(linear.node.op_type == "Attention" for linear in linears) and all(
        isinstance(rounding, Fixed) for rounding in roundings
    )
    held = editor.initializer(f"{name}.int8", integers if inside else np.ascontiguousarray(integers.T))
    for linear, rounding in zip(linears, roundings, strict=True):
        source = linear.input
        if factor is not None:
            source = editor.insert(linear.node, "Mul", source, editor.initializer(f"{name}.smoothing", 1 / factor))
        if inside and isinstance(rounding, Fixed):
            attention(editor, linear, source, held, scale, rounding)
        else:
            multiply(editor, linear, source, held, scale, rounding)


def attention(
    editor: GraphEditor, linear: Linear, source: ir.Value, held: ir.Value, scale: Floats, fixed: Fixed
) -> None:
    """Quantize the linear layer inside an attention, with an int8 weight ``held`` (in, out)."""
    node, mask = linear.node, linear.node.inputs[3]
    step, zero = step_of(editor, linear.name, fixed), editor.initializer("zero.128", np.array(128, np.uint8))
    quantized = editor.insert(node, "QuantizeLinear", source, step, zero)
    scales = editor.initializer(f"{linear.name}.scale", scale)
    inputs = [quantized, held, linear.bias, step, scales, mask, zero]
    made = ir.Node(CONTRIB, "QAttention", inputs, attributes=list(node.attributes.values()))
    editor.graph.insert_before(node, made)
    editor.replace(node, made.outputs[0])


def step_of(editor: GraphEditor, name: str, fixed: Fixed) -> ir.Value:
    """Return the constant with the step of the inputs of the weight called ``name``."""
    step = np.array(fixed.step, np.float32)
    return editor.initializer(f"{name}.step.{step.tobytes().hex()}", step)


def multiply(
    editor: GraphEditor, linear: Linear, source: ir.Value, held: ir.Value, scale: Floats, rounding: Rounding
) -> None:
    """Multiply by an int8 weight ``held`` (out, in) with a scale (out,) for each of its rows."""
    node, name = linear.node, linear.name
    scales = editor.initializer(f"{name}.scale", scale)
    zeros = editor.initializer(f"{name}.zero", np.zeros(scale.shape, np.int8))
    apart = linear.input.shape is not None and len(linear.input.shape) == 3  # batch and sequence
    rows = editor.flat(node, source, linear.weight.shape[0]) if apart else source
    if isinstance(rounding, Fixed):
        step, zero = step_of(editor, name, rounding), editor.initializer("zero.128", np.array(128, np.uint8))
        inputs = [editor.insert(node, "QuantizeLinear", rows, step, zero), step, zero, held, scales, zeros]
        bias = whole_bias(linear, rounding.step * scale.astype(np.float64))
        if bias is not None:
            inputs.append(editor.initializer(f"{name}.bias.{step.name}", bias))
        product = editor.insert(node, "QGemm", *inputs, domain=CONTRIB, transB=1)
    else:
        quantized, steps, zero = row_by_row(editor, node, rows, rounding)
        inputs = [quantized, editor.initializer("one", np.array(1, np.float32)), zero, held, scales, zeros]
        product = editor.insert(node, "QGemm", *inputs, domain=CONTRIB, transB=1)
        product, bias = editor.insert(node, "Mul", product, steps), None
    if linear.bias is not None and bias is None:
        product = editor.insert(node, "Add", product, linear.bias)
    editor.finish(node, product)


def whole_bias(linear: Linear, unit: npt.NDArray[np.float64]) -> npt.NDArray[np.int32] | None:
    """Return the bias (out,) as whole numbers of ``unit`` (out,), None if there is none or they would not be exact."""
    if linear.bias is None or linear.bias.const_value is None:
        return None
    bias = linear.bias.const_value.numpy().astype(np.float64)
    whole = np.rint(bias / unit)
    exact = np.abs(whole).max() < 2**30 and np.abs(whole * unit - bias).max() <= 1e-6 * np.abs(bias).max()
    return whole.astype(np.int32) if exact else None


def row_by_row(
    editor: GraphEditor, before: ir.Node, rows: ir.Value, moving: Moving
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return rows (n, dim) as uint8, the steps (n, 1) by which they were rounded, and what stands for zero.

    Layers that read the same rows share this.
    """
    key = (rows, f"{moving}")
    if key not in editor.cache:
        sizes = rows if moving.floor is not None else editor.insert(before, "Abs", rows)
        largest = editor.insert(before, "ReduceMax", sizes, editor.last_axis(), keepdims=0)  # (n,)
        least = editor.initializer(f"least.{moving.zero}", np.array(moving.least, np.float32))
        unit = editor.initializer(f"unit.{moving.zero}", np.array(1 / moving.steps, np.float32))
        steps = editor.insert(before, "Mul", editor.insert(before, "Max", largest, least), unit)
        zero = editor.initializer(f"zero.{moving.zero}", np.array(moving.zero, np.uint8))
        zeros = editor.insert(before, "Expand", zero, editor.insert(before, "Shape", steps))
        quantized = editor.insert(before, "QuantizeLinear", rows, steps, zeros, axis=0)
        editor.cache[key] = quantized, editor.insert(before, "Unsqueeze", steps, editor.last_axis()), zero
    quantized, column, zero = editor.cache[key]
    return quantized, column, zero
