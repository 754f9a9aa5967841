"""The schemes of weight storage, and the default of each task.

===============  ===========  ==========================================  ========================================
scheme           granularity  weights                                     for
===============  ===========  ==========================================  ========================================
``int8``         ``channel``  int8, a scale per output channel            encoders; encoder-decoders; decoders with
                              (``int8_per_channel.py``)                   batches or long prompts
``int8``         ``block``    8 bits, a scale per block of 128            decoders
                              (``blockwise.py``)
``int4``         ``block``    4 bits, a scale per block of 64             where every byte counts
                              (``gptq.py``); token embedding: 8 bits,
                              blocks of 128
``int8-static``               int8, a scale per channel, and one per      engines with standard operators only;
                              activation (``static_qdq.py``)              bundles for the target portable
``fp16``                      float16, the arithmetic too                 GPUs
                              (``float16.py``)
===============  ===========  ==========================================  ========================================

The encoder of an encoder-decoder always reads many tokens at once: its weights are per-channel, whatever the
granularity of its decoder.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgebert_exporters.quantization.activation_ranges import METHODS
from edgebert_exporters.quantization.blockwise import BLOCK_SIZES, DEFAULT_BLOCK
from edgebert_exporters.quantization.embeddings import EMBEDDING_BLOCK
from edgebert_runtime.bundle.manifest import CpuRequirements
from edgebert_runtime.errors import QuantizationError

SCHEMES = ("int8", "int4", "int8-static", "fp16")
GRANULARITIES = ("block", "channel")
ALGORITHMS = ("rtn", "gptq")
# Round to nearest is near enough in 8 bits.
DEFAULT_ALGORITHM = {8: "rtn", 4: "gptq"}
# Least fidelity to float32 unless another is given.
MIN_FIDELITY = {"int8": 0.99, "int4": 0.95, "int8-static": 0.99, "fp16": 0.999}
# Without VNNI the int8 kernels of x86-64 overflow, unless this entry makes them exact.
EXACT_PRODUCTS = {"session.x64quantprecision": "1"}
CPU_REQUIREMENTS = {
    "channel": CpuRequirements(("x86-64 with AVX2", "Arm64"), session_config=EXACT_PRODUCTS),
    "block": CpuRequirements(("x86-64 with AVX2", "Arm64 with dot products")),
    "float16": CpuRequirements(),
}


@dataclass(frozen=True)
class WeightFormat:
    """Storage of one weight: float32, float16, int8 or int4.

    Integers have a scale per ``block``, or per output channel without one. Blocks may be ``asymmetric``, with a zero
    point; ``algorithm`` finds their integers. ``ranges`` is the method that finds static activation ranges, None where
    activation scales are dynamic.
    """

    bits: int
    block: int | None = None
    asymmetric: bool = False
    algorithm: str = "rtn"
    ranges: str | None = None

    def __str__(self) -> str:
        if self.bits > 8:
            return f"float{self.bits}"
        return f"int{self.bits}" + (f" in blocks of {self.block}" if self.block else "")


FLOAT32, FLOAT16, INT8_PER_CHANNEL = WeightFormat(32), WeightFormat(16), WeightFormat(8)


@dataclass(frozen=True)
class Scheme:
    """A way to store the weights of a model, all in one ``format``."""

    name: str
    granularity: str
    format: WeightFormat

    @property
    def block_size(self) -> int | None:
        """Return the weights per scale; None where a channel has one."""
        return self.format.block

    @property
    def embedding_block(self) -> int:
        """Return the largest block of the token embedding."""
        return self.block_size if self.block_size is not None and self.name == "int8" else EMBEDDING_BLOCK

    @property
    def cpu_requirements(self) -> CpuRequirements:
        """Return the CPUs on which the figures of a report hold."""
        return CPU_REQUIREMENTS["float16" if self.format == FLOAT16 else "block" if self.format.block else "channel"]


def scheme_for_graph(graph: str, scheme: Scheme) -> Scheme:
    """Return the scheme of one graph of a bundle; encoders are always per-channel."""
    blockwise_encoder = graph == "encoder" and scheme.granularity == "block"
    return Scheme("int8", "channel", INT8_PER_CHANNEL) if blockwise_encoder else scheme


def resolve_scheme(
    task: str,
    name: str,
    block_size: int | None = None,
    granularity: str | None = None,
    asymmetric: bool = False,
    algorithm: str | None = None,
    method: str | None = None,
) -> Scheme:
    """Return the scheme of these options; None is the default of the ``task``.

    Raises:
        QuantizationError: if an option does not exist or does not belong to the scheme.
    """
    check_value("scheme", name, SCHEMES)
    check_value("granularity", granularity, GRANULARITIES)
    check_value("algorithm", algorithm, ALGORITHMS)
    check_value("calibration_method", method, tuple(METHODS))
    if block_size is not None and (type(block_size) is not int or block_size not in BLOCK_SIZES):
        sizes = ", ".join(map(str, BLOCK_SIZES))
        raise QuantizationError(f"is not one of {sizes}", option="block_size", value=block_size)
    block_options = {"block_size": block_size, "asymmetric": asymmetric or None, "algorithm": algorithm}
    if name in ("fp16", "int8-static"):
        refuse("scheme", name, granularity=granularity, **block_options)
    if name != "int8-static":
        refuse("scheme", name, calibration_method=method)
    if name == "fp16":
        return Scheme(name, "any", FLOAT16)
    if name == "int8-static":
        return Scheme(name, "any", WeightFormat(8, ranges=method or next(iter(METHODS))))
    if name == "int4" and granularity == "channel":
        refuse("scheme", name, granularity=granularity)
    blockwise = granularity == "block" or name == "int4" or task == "generate" or any(block_options.values())
    if granularity == "channel" or not blockwise:
        refuse("granularity", granularity, **block_options)
        return Scheme(name, "channel", INT8_PER_CHANNEL)
    bits = int(name[-1])
    block, algorithm = block_size or DEFAULT_BLOCK[bits], algorithm or DEFAULT_ALGORITHM[bits]
    return Scheme(name, "block", WeightFormat(bits, block, asymmetric, algorithm))


def check_value(option: str, value: str | None, allowed: tuple[str, ...]) -> None:
    """Refuse a value that an option does not have; None is its default."""
    if value is not None and value not in allowed:
        raise QuantizationError(f"is not one of {', '.join(allowed)}", option=option, value=value)


def refuse(setting: str, chosen: str | None, **options: object) -> None:
    """Refuse options that the value ``chosen`` of ``setting`` does not have."""
    for option, value in options.items():
        if value is not None:
            raise QuantizationError(
                f"is not for {{{setting}}}", option=option, value=value, hint="leave it out", options={setting: chosen}
            )
