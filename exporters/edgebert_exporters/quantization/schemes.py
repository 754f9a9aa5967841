"""The ways in which weights can be stored, and which of them suits a model.

===============  ==========  ===============================================  =====================================
scheme           rows        weights                                          for
===============  ==========  ===============================================  =====================================
``int8``         ``many``    int8, per-channel (``int8_per_channel.py``)      encoders; encoder-decoders; decoders
                                                                              with batches or long prompts
``int8``         ``few``     8 bits in blocks of 128 (``blockwise.py``)       decoders
``int4``         ``few``     4 bits in blocks of 64 (``gptq.py``);            where every byte counts
                             the token embedding has 8 in blocks of 128
``int8-static``              int8, per-channel, and one scale for each        engines that know standard operators
                             activation (``static_qdq.py``)                   only; bundles for the target portable
``fp16``                     float16, the arithmetic too (``float16.py``)     GPUs
===============  ==========  ===============================================  =====================================

The encoder of a model that translates reads many rows at once always: it is stored for ``many``, whatever its decoder
is stored for.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgebert_exporters.quantization.activation_ranges import METHODS
from edgebert_exporters.quantization.blockwise import BLOCK_SIZES, DEFAULT_BLOCK
from edgebert_exporters.quantization.embeddings import TABLE_BLOCK
from edgebert_runtime.errors import QuantizationError

SCHEMES = ("int8", "int4", "int8-static", "fp16")
# Tasks whose models write text, a token at a time.
WRITING = ("generate", "translate")
ROWS = ("few", "many")
ROUNDINGS = ("nearest", "gptq")
# In 8 bits the nearest number is near enough.
DEFAULT_ROUNDING = {8: "nearest", 4: "gptq"}
# Least agreement with float32 unless another is given.
MIN_AGREEMENT = {"int8": 0.99, "int4": 0.95, "int8-static": 0.99, "fp16": 0.999}
SAFE_CPUS = {
    "many": "x86-64 with AVX2 or newer and Arm64 through edgebert, which sets session.x64quantprecision where a CPU "
    "has no VNNI; another program must set it there too, or 8-bit products overflow",
    "few": "x86-64 with AVX2 or newer and Arm64 with dot products, with VNNI or without; on other CPUs the weights are "
    "turned into float32 first, which is right but slow",
    "half": "every CPU that ONNX Runtime supports, which turns the numbers into float32 first; made for GPUs",
}


@dataclass(frozen=True)
class Form:
    """How one weight is stored.

    Its ``bits`` are 32 or 16, of a float, or 8 or 4, with a scale for each column, or for each ``block`` of the numbers
    that make one output. Blocks may have ``zero_points``, and ``rounding`` says how their integers are found.
    ``ranges`` is how the range of the activations is found where they have one scale for good.
    """

    bits: int
    block: int | None = None
    zero_points: bool = False
    rounding: str = "nearest"
    ranges: str | None = None

    def __str__(self) -> str:
        if self.bits > 8:
            return f"float{self.bits}"
        return f"int{self.bits}" + (f" in blocks of {self.block}" if self.block else "")


FLOAT32, FLOAT16, COLUMNS = Form(32), Form(16), Form(8)


@dataclass(frozen=True)
class Scheme:
    """One way to store the weights of a model, all in one ``form``."""

    name: str
    rows: str
    form: Form

    @property
    def block_size(self) -> int | None:
        """Return how many weights share a scale, None where a column does."""
        return self.form.block

    @property
    def table_block(self) -> int:
        """Return the size of the blocks of the table of tokens, at most."""
        return self.block_size if self.block_size is not None and self.name == "int8" else TABLE_BLOCK

    @property
    def safe_cpus(self) -> str:
        """Return where a graph of this scheme computes what its report promises."""
        return SAFE_CPUS["half" if self.form == FLOAT16 else "few" if self.form.block else "many"]


def scheme_of(graph: str, chosen: Scheme) -> Scheme:
    """Return how the weights of one graph of a bundle are stored."""
    return Scheme("int8", "many", COLUMNS) if graph == "encoder" and chosen.rows == "few" else chosen


def choose_scheme(
    task: str,
    name: str,
    block_size: int | None = None,
    rows: str | None = None,
    zero_points: bool = False,
    rounding: str | None = None,
    method: str | None = None,
) -> Scheme:
    """Return the scheme that these options mean for a model of ``task``; None is what suits it.

    Raises:
        QuantizationError: naming the option that does not exist, or that the scheme does not have.
    """
    for option, given, known in (
        ("scheme", name, SCHEMES),
        ("rows", rows, ROWS),
        ("rounding", rounding, ROUNDINGS),
        ("calibration_method", method, tuple(METHODS)),
    ):
        if given is not None and given not in known:
            raise QuantizationError(f"{option} {given!r} is not one of {', '.join(known)}")
    if block_size is not None and (type(block_size) is not int or block_size not in BLOCK_SIZES):
        raise QuantizationError(f"block_size={block_size!r:.60} is not one of {', '.join(map(str, BLOCK_SIZES))}")
    in_blocks = {"block_size": block_size, "zero_points": zero_points or None, "rounding": rounding}
    if name in ("fp16", "int8-static"):
        refuse(f"scheme {name}", rows=rows, **in_blocks)
    if name != "int8-static":
        refuse(f"scheme {name}", calibration_method=method)
    if name == "fp16":
        return Scheme(name, "any", FLOAT16)
    if name == "int8-static":
        return Scheme(name, "any", Form(8, ranges=method or next(iter(METHODS))))
    if name == "int4" and rows == "many":
        raise QuantizationError("rows many is for the scheme int8, not for int4; leave it out")
    few = rows == "few" or name == "int4" or task == "generate" or any(in_blocks.values())
    if rows == "many" or not few:
        refuse("rows many, where a column has one scale", **in_blocks)
        return Scheme(name, "many", COLUMNS)
    bits = int(name[-1])
    rounding = rounding or DEFAULT_ROUNDING[bits]
    return Scheme(name, "few", Form(bits, block_size or DEFAULT_BLOCK[bits], zero_points, rounding))


def refuse(what: str, **options: object) -> None:
    """Refuse options that were given although ``what`` has no use for them."""
    for option, given in options.items():
        if given is not None:
            raise QuantizationError(f"{option} {given} is not for {what}; leave it out")
