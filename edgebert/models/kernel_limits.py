"""The limits of ONNX Runtime's CPU kernels for the operators of ``com.microsoft`` that edgebert writes.

They were found by running every operator alone with many sizes, on onnxruntime 1.28 and 1.32. No model is refused for
the shape of its layers: a limit has a route.

======================================  ==================================  =====================================
operator                                limit                               route
======================================  ==================================  =====================================
GroupQueryAttention                     head width a multiple of 8          heads padded with zeros, true scale
MatMulNBits                             blocks of 16, 32, 64, 128 or 256    last block padded with zeros
GatherBlockQuantized                    blocks of a power of two, from 16   embedding left in float32, with a
                                                                            reason in ``weights.skipped``
Attention, MultiHeadAttention,          heads of any number and width       none needed
DecoderMaskedMultiHeadAttention,
QAttention
QGemm, DynamicQuantizeLSTM              any width                           none needed
======================================  ==================================  =====================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Numbers of a node by name: its attributes, and the head_dim of its KV cache.
Sizes = Mapping[str, object]


@dataclass(frozen=True)
class KernelLimits:
    """The limits of one operator.

    ``multiples`` maps a size to the number that divides it, ``choices`` an attribute to its values, and ``inputs`` the
    number of an input to its dtype and its ranks.
    """

    multiples: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: Mapping[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def problems(self, sizes: Sizes) -> list[str]:
        """Return a clause for each size that the kernel refuses."""
        odd = [
            f"{name} {size} is no multiple of {factor}"
            for name, factor in self.multiples.items()
            if isinstance(size := sizes.get(name), int) and size % factor
        ]
        return odd + [
            f"{name} {sizes[name]} is not one of {', '.join(map(str, values))}"
            for name, values in self.choices.items()
            if name in sizes and sizes[name] not in values
        ]

    def input_problems(self, number: int, dtype: str, rank: int | None) -> list[str]:
        """Return a clause for a constant input that the kernel refuses."""
        if number not in self.inputs:
            return []
        expected, ranks = self.inputs[number]
        problems = [] if dtype == expected else [f"input {number} is {dtype}, not {expected}"]
        return problems + ([] if rank is None or rank in ranks else [f"input {number} has rank {rank}"])


BLOCKS = (16, 32, 64, 128, 256)
INT8_WEIGHT = {1: ("int8", (2,))}

KERNELS: dict[str, KernelLimits] = {
    "Attention": KernelLimits(),
    "MultiHeadAttention": KernelLimits(),
    "DecoderMaskedMultiHeadAttention": KernelLimits(choices={"past_present_share_buffer": (1,)}),
    "GroupQueryAttention": KernelLimits(multiples={"head_dim": 8}),
    "QAttention": KernelLimits(inputs=INT8_WEIGHT),
    "QGemm": KernelLimits(inputs={3: ("int8", (2,))}),
    "MatMulNBits": KernelLimits(choices={"bits": (4, 8), "block_size": BLOCKS}, inputs={1: ("uint8", (3,))}),
    "GatherBlockQuantized": KernelLimits(
        choices={"bits": (4, 8), "block_size": BLOCKS, "gather_axis": (0,)}, inputs={0: ("uint8", (2, 3))}
    ),
    "DynamicQuantizeLSTM": KernelLimits(inputs={1: ("int8", (3,)), 2: ("int8", (3,))}),
}


def padded_head_dim(head_dim: int) -> int:
    """Return the least width of a head, at least ``head_dim``, that GroupQueryAttention takes."""
    factor = KERNELS["GroupQueryAttention"].multiples["head_dim"]
    return -(-head_dim // factor) * factor
