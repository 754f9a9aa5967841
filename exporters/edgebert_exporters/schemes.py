"""The ways in which weights can be stored, and which of them suits a model.

==========  ==========  ============================================  ===================================
scheme      rows        weights                                       for
==========  ==========  ============================================  ===================================
``int8``    ``many``    int8 with a scale for each column, see        encoders; decoders that take batches
                        :mod:`edgebert_exporters.int8`                or long prompts
``int8``    ``few``     8 bits in blocks of 128, see                  decoders
                        :mod:`edgebert_exporters.blocks`
``int4``    ``few``     4 bits in blocks of 32; the table of tokens   decoders where every byte counts
                        has 8 bits in blocks of 128
``int8``    ``each``    int8 with a scale for each column, and one    the encoders of models that translate,
                        for each row of the input                     whatever their decoders have
==========  ==========  ============================================  ===================================
"""

from __future__ import annotations

from dataclasses import dataclass

from edgebert_exporters.blocks import BLOCK_SIZES, DEFAULT_BLOCK
from edgebert_exporters.int8 import TABLE_BLOCK
from edgebert_runtime.errors import QuantizationError

BITS = {"int8": 8, "int4": 4}
SCHEMES = tuple(BITS)
# Tasks whose models write text, a token at a time.
WRITING = ("generate", "translate")
ROWS = ("few", "many")
# Least agreement with float32 unless another is given.
MIN_AGREEMENT = {"int8": 0.99, "int4": 0.95}
SAFE_CPUS = {
    "many": "x86-64 with AVX2 or newer and Arm64 through edgebert, which sets session.x64quantprecision where a CPU "
    "has no VNNI; another program must set it there too, or 8-bit products overflow",
    "few": "x86-64 with AVX2 or newer and Arm64 with dot products, with VNNI or without; on other CPUs the weights are "
    "turned into float32 first, which is right but slow",
}


@dataclass(frozen=True)
class Scheme:
    """One way to store weights; ``block_size`` is None where a column has one scale."""

    name: str
    rows: str
    block_size: int | None

    @property
    def bits(self) -> int:
        """Return the bits of a weight."""
        return BITS[self.name]

    @property
    def table_block(self) -> int:
        """Return the size of the blocks of the table of tokens, at most."""
        return self.block_size if self.block_size is not None and self.name == "int8" else TABLE_BLOCK

    @property
    def safe_cpus(self) -> str:
        """Return where a bundle computes what its report promises."""
        return SAFE_CPUS["few" if self.rows == "few" else "many"]


def scheme_of(graph: str, chosen: Scheme) -> Scheme:
    """Return how the weights of one graph of a bundle are stored.

    The encoder of a model that translates reads many rows at once always, and each gets a scale of its own.
    """
    return Scheme("int8", "each", None) if graph == "encoder" else chosen


def choose_scheme(task: str, name: str, block_size: int | None, rows: str | None) -> Scheme:
    """Return the scheme that these options mean for a model of ``task``; None is what suits it.

    Raises:
        QuantizationError: naming the option that does not exist, or that this task or scheme does not have.
    """
    if name not in SCHEMES:
        raise QuantizationError(f"scheme {name!r} is not one of {', '.join(SCHEMES)}")
    if rows is not None and rows not in ROWS:
        raise QuantizationError(f"rows {rows!r} is not one of {', '.join(ROWS)}")
    if block_size is not None and (type(block_size) is not int or block_size not in BLOCK_SIZES):
        raise QuantizationError(f"block_size={block_size!r:.60} is not one of {', '.join(map(str, BLOCK_SIZES))}")
    if task not in WRITING:
        for option, given in (("scheme", name != "int8" and name), ("rows", rows), ("block_size", block_size)):
            if given:
                raise QuantizationError(
                    f"{option} {given} is for models that write text, and this one's task is {task}; leave it out"
                )
        return Scheme(name, "many", None)
    if rows != "many":
        return Scheme(name, "few", block_size or DEFAULT_BLOCK[BITS[name]])
    if name != "int8":
        raise QuantizationError(f"rows many is for the scheme int8, not for {name}; leave it out")
    if block_size is not None:
        raise QuantizationError(f"block_size {block_size} is for rows few: with rows many a column has one scale")
    return Scheme(name, rows, None)
