"""Export a PyTorch module as an ONNX graph for one target."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Collection, Iterator

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgebert.models.operators import rendering
from edgebert_exporters.graphs.graph_editor import GraphEditor
from edgebert_exporters.graphs.kernel_check import kernel_problems
from edgebert_exporters.graphs.signatures import Signature, arguments, past_of
from edgebert_runtime.bundle.manifest import TensorSpec
from edgebert_runtime.errors import ExportError

log = logging.getLogger("edgebert")

TARGETS = ("cpu", "portable")
# Every onnxruntime that pyproject.toml admits loads these, and so do older ones on phones and in browsers.
OPSET = 21
IR_VERSION = 10
# The indices of PyTorch's four gates in ONNX's order.
GATES = (0, 3, 1, 2)
# Dimensions of example inputs of a seq2seq decoder: all different, and none equal to a constant.
EXAMPLE_SIZES = {"rows": 6, "prompts": 3, "source": 7, "past_sequence": 5, "max_sequence": 11}


def render(module: torch.nn.Module, signature: Signature, target: str) -> ir.Model:
    """Export ``module`` with the dynamic dimensions of ``signature``, in the operators of ``target``.

    Raises:
        ExportError: if PyTorch cannot export it, or a dimension that should be dynamic came out fixed.
    """
    names = {d for spec in signature.inputs for d in spec.shape if isinstance(d, str)}
    # The exporter infers sums and multiples itself.
    dims = {d: torch.export.Dim.AUTO if d in derived(names) else torch.export.Dim(d) for d in names}
    shapes = {s.name: {i: dims[d] for i, d in enumerate(s.shape) if isinstance(d, str)} for s in signature.inputs}
    with rendering(target), quiet("torch.onnx.export"), torch.no_grad():
        try:
            program = torch.onnx.export(
                module.eval(),
                (),
                kwargs=arguments(example(signature)),  # by name, whatever the order of the arguments
                dynamo=True,
                opset_version=OPSET,
                input_names=[s.name for s in signature.inputs],
                output_names=[s.name for s in signature.outputs],
                dynamic_shapes=arguments(shapes),
                verbose=False,
            )
        except Exception as error:  # its stages raise all kinds
            raise ExportError(f"PyTorch could not export {type(module).__name__}: {first_line(error)}") from error
    assert program is not None
    model = program.model
    model.ir_version = IR_VERSION
    transpose_weights(model)
    standard_lstms(model)
    RemoveUnusedNodesPass()(model)
    strip(model)
    check_signature(model, signature)
    if target == "portable":
        check_portable(model)
    if problems := kernel_problems(model):
        raise ExportError(
            f"ONNX Runtime has no kernel for this graph: {'; '.join(problems)}",
            hint="use {target}",
            options={"target": "portable"},
        )
    return model


def example(signature: Signature) -> dict[str, torch.Tensor]:
    """Return example inputs: two rows of seven tokens, the second with three of padding; three chosen tokens.

    For a decoder, four of the seven columns are new. All sizes differ and are at least two: the exporter takes equal
    sizes for the same dimension, and 1 for a constant.
    """
    past = past_of(signature.inputs)
    if any(spec.name == "encoder_attention_mask" for spec in signature.inputs):
        return {spec.name: example_of(spec, number) for number, spec in enumerate(signature.inputs)}
    columns = 11 if past and past[0].shape[2] == "max_sequence" else 3
    values = {
        "input_ids": torch.arange(14).reshape(2, 7) % 5,
        "attention_mask": torch.tensor([[1] * 7, [1] * 4 + [0] * 3]),
        "token_type_ids": torch.zeros(2, 7, dtype=torch.int64),
        "pooling_mask": torch.tensor([[0] * 2 + [1] * 5, [1] * 7]),
        "logits_indices": torch.tensor([7, 1, 5, 3, 2] if past else [8, 1, 5]),
        "top_k": torch.tensor([2]),
    }
    for number, spec in enumerate(past):
        values[spec.name] = torch.full((2, int(spec.shape[1]), columns, int(spec.shape[3])), number / len(past))
    if past:
        values["input_ids"] = values["input_ids"][:, :4]
    return {spec.name: values[spec.name] for spec in signature.inputs}


def example_of(spec: TensorSpec, number: int) -> torch.Tensor:
    """Return an example of input ``number`` of a seq2seq decoder: three sources with two rows each."""
    shape = [EXAMPLE_SIZES[d] if isinstance(d, str) else d for d in spec.shape]
    if spec.dtype == "float32":
        return torch.full(shape, number / 100)  # all different: the exporter merges equal ones
    value = {"encoder_attention_mask": 1, "top_k": 2, "position": EXAMPLE_SIZES["past_sequence"]}.get(spec.name, 0)
    return torch.full(shape, value, dtype=torch.int32 if spec.dtype == "int32" else torch.int64)


def derived(names: Collection[str]) -> tuple[str, ...]:
    """Return the dimensions that follow from others: the columns of a mask, the rows of the sources."""
    return (("total_sequence",) if "past_sequence" in names else ()) + (
        ("rows", "prompts") if "prompts" in names else ()
    )


def transpose_weights(model: ir.Model) -> None:
    """Transpose the weights of Attention nodes from PyTorch's (out, in) to (in, out); shared ones once."""
    weights = {node.inputs[1] for node in model.graph if node.op_type == "Attention"}
    for weight in weights:
        if weight is not None and weight.const_value is not None:
            array = np.ascontiguousarray(weight.const_value.numpy().T)
            weight.const_value, weight.shape = ir.tensor(array, name=weight.name), ir.Shape(array.shape)


def standard_lstms(model: ir.Model) -> None:
    """Replace the nodes of :func:`~edgebert.models.operators.lstm` by the standard LSTM.

    Weights become (1, 4 * hidden, in), with their gates in the order input, output, forget, cell instead of input,
    forget, cell, output. The two biases become one, (1, 8 * hidden).
    """
    editor = GraphEditor(model)
    for node in [node for node in model.graph if (node.domain, node.op_type) == ("edgebert", "LSTM")]:
        x, *weights, lengths = node.inputs
        arrays = [value.const_value.numpy() for value in weights if value is not None and value.const_value is not None]
        first, second, *biases = (np.concatenate([np.split(array, 4)[gate] for gate in GATES]) for array in arrays)
        name = (
            weights[0].name.removesuffix("weight_ih_l0")
            if weights[0] is not None and weights[0].name is not None
            else ""
        )
        parts = {"weight_ih": first, "weight_hh": second, "bias": np.concatenate(biases)}
        inputs = [editor.initializer(f"{name}{part}", array[None]) for part, array in parts.items()]
        lstm = ir.Node("", "LSTM", [x, *inputs, lengths], attributes=list(node.attributes.values()))
        editor.graph.insert_before(node, lstm)
        editor.replace(node, lstm.outputs[0])


def strip(model: ir.Model) -> None:
    """Remove the exporter's notes: stack traces with local paths, module names, versions.

    The same checkpoint then gives the same bytes on every machine.
    """
    model.producer_name, model.producer_version, model.doc_string = "edgebert", None, None
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.graph.name = "edgebert"
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        values.extend(node.outputs)
    for value in values:
        value.metadata_props.clear()
        value.doc_string = None
    model.functions.clear()
    used = {node.domain for node in model.graph.all_nodes()} | {""}
    for domain in [d for d in model.opset_imports if d not in used]:
        del model.opset_imports[domain]
    for domain in used - {""}:
        model.opset_imports.setdefault(domain, 1)


def check_signature(model: ir.Model, signature: Signature) -> None:
    """Refuse a graph whose dynamic dimensions were frozen, or whose tensors have other names."""
    for kind, specs, values in (
        ("inputs", signature.inputs, model.graph.inputs),
        ("outputs", signature.outputs, model.graph.outputs),
    ):
        names = [value.name for value in values]
        if names != [spec.name for spec in specs]:
            raise ExportError(f"the {kind} came out as {names} instead of {[spec.name for spec in specs]}")
    free = derived({d for spec in signature.inputs for d in spec.shape if isinstance(d, str)})
    for spec, value in zip(signature.inputs, model.graph.inputs, strict=True):
        actual = tuple(d.value if isinstance(d, ir.SymbolicDim) else d for d in value.shape or ())
        # Derived dimensions come out dynamic, under names of the exporter.
        named = tuple(
            d if d in free and not isinstance(f, int) else f for f, d in zip(actual, spec.shape, strict=False)
        )
        if named != spec.shape:
            raise ExportError(f"input {spec.name} came out with shape {actual} instead of {spec.shape}")
        value.shape = ir.Shape(spec.shape)
    for spec, value in zip(signature.outputs, model.graph.outputs, strict=True):
        value.shape = ir.Shape(spec.shape)  # the exporter does not know all shapes through contrib operators


def check_portable(model: ir.Model) -> None:
    """Refuse a portable graph with operators outside the ONNX standard."""
    foreign = sorted({f"{n.domain}::{n.op_type}" for n in model.graph.all_nodes() if n.domain != ""})
    if foreign:
        raise ExportError(f"the portable target came out with operators outside the standard: {', '.join(foreign)}")


@contextlib.contextmanager
def quiet(what: str) -> Iterator[None]:
    """Redirect warnings, prints and log records of other libraries to our log at DEBUG (``-v -v``)."""
    printed = io.StringIO()
    torch_log = logging.getLogger("torch.onnx")
    level, torch_level = torch_log.level, logging.root.manager.disable
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        if not log.isEnabledFor(logging.DEBUG):
            torch_log.setLevel(logging.ERROR)
            logging.disable(logging.WARNING)
        try:
            yield
        finally:
            torch_log.setLevel(level)
            logging.disable(torch_level)
    for message in [str(w.message) for w in caught] + printed.getvalue().splitlines():
        if message.strip():
            log.debug("%s: %s", what, message)


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an error's text, or its class."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
