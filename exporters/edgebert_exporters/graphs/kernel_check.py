"""Compare the nodes of a graph with the limits of the kernels that will run them."""

from __future__ import annotations

import onnx_ir as ir

from edgebert.models.kernel_limits import KERNELS
from edgebert_exporters.graphs.graph_editor import CONTRIB

# The number of the input that holds a KV cache (batch, heads, columns, head_dim).
CACHES = {"GroupQueryAttention": 3}


def kernel_problems(model: ir.Model) -> list[str]:
    """Return a clause for each node outside the ONNX standard that ONNX Runtime's CPU kernels refuse.

    Equal ones appear once.
    """
    problems: dict[str, None] = {}
    for node in model.graph.all_nodes():
        if node.domain == "":
            continue
        if node.domain != CONTRIB or node.op_type not in KERNELS:
            problems[f"{node.domain}::{node.op_type} is no operator of edgebert"] = None
            continue
        problems |= dict.fromkeys(f"{node.op_type}: {clause}" for clause in node_problems(node))
    return list(problems)


def node_problems(node: ir.Node) -> list[str]:
    """Return a clause for each attribute and input of a node that its kernel refuses."""
    limits = KERNELS[node.op_type]
    sizes: dict[str, object] = {name: attribute.value for name, attribute in node.attributes.items()}
    if (place := CACHES.get(node.op_type)) is not None:
        cache = node.inputs[place]
        sizes["head_dim"] = cache.shape[-1] if cache is not None and cache.shape is not None else None
    problems = limits.problems(sizes)
    for number, value in enumerate(node.inputs):
        if value is not None and value.const_value is not None:
            tensor = value.const_value
            problems += limits.input_problems(number, tensor.dtype.name.lower(), len(tensor.shape))
    return problems
