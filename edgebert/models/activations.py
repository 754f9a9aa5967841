"""The activation functions, under the names that config.json has for them.

They are those of transformers without parameters of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional


def tanh_gelu(x: Tensor) -> Tensor:
    """Return the GELU of Hendrycks and Gimpel (2016) by its tanh approximation."""
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_10": lambda x: functional.gelu(x).clip(-10, 10),
    "gelu_accurate": tanh_gelu,
    "gelu_fast": tanh_gelu,
    "gelu_new": tanh_gelu,
    "gelu_python": functional.gelu,
    "gelu_python_tanh": tanh_gelu,
    "gelu_pytorch_tanh": tanh_gelu,
    "hardswish": functional.hardswish,
    "laplace": lambda x: 0.5 * (1 + torch.erf((x - 0.707107) / (0.282095 * math.sqrt(2)))),
    "leaky_relu": functional.leaky_relu,
    "linear": lambda x: x,
    "mish": functional.mish,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x).square(),
    "relu6": functional.relu6,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "sqrtsoftplus": lambda x: functional.softplus(x).sqrt(),
    "swish": functional.silu,
    "tanh": torch.tanh,
}
