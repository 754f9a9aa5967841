"""Figures as text, never rounded to a number that means something else."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any

# The figures of fidelity in words. A row is for tasks with all of its figures; of each label the first such row counts.
MEASURES = (
    ("fidelity", "correlation with {reference} {correlation:.4f}"),
    ("fidelity", "cosine to {reference} {cosine_mean:.4f} on average, {cosine_min:.4f} at least"),
    ("neighbors", "{nearest_neighbor_changes:.1%} of {texts} texts have a new nearest neighbor"),
    (
        "top result",
        "the same in {top1_agreement:.1%} of the outputs of {texts} texts; all of it in {unflipped:.1%} of them",
    ),
    ("top result", "the same in {top1_agreement:.1%} of the outputs of {texts} texts"),
    ("divergence", "Kullback-Leibler {kl_mean:.2e} on average"),
    ("perplexity", "{perplexity_before:.2f} -> {perplexity_after:.2f}"),
    ("bits a byte", "{bits_per_byte_before:.3f} -> {bits_per_byte_after:.3f}"),
    ("generated", "{token_agreement:.1%} of the tokens are the same"),
)


class Figure(float):
    """A share, a cosine or a ratio: its text differs from 0 and from 1 where it does.

    A format such as ``.4f`` or ``.1%`` names the fewest digits.
    """

    def __format__(self, spec: str) -> str:
        if spec.endswith("%"):
            return f"{told_apart(100 * self, 0, 100, digits=int(spec[1:-1]))}%"
        if spec.endswith("f"):
            return told_apart(self, 0, 1, digits=int(spec[1:-1]))
        return super().__format__(spec)


def told_apart(value: float, *limits: float, digits: int = 4, style: str = "f") -> str:
    """Return ``value`` with digits enough to differ from each of the ``limits`` that it is not.

    ``style`` is ``f``, decimal places, or ``g``, significant digits.
    """
    value = float(value)
    for places in range(digits, 17):
        text = f"{value:.{places}{style}}"
        rounded = float(text)
        if all((rounded < limit) == (value < limit) and (rounded > limit) == (value > limit) for limit in limits):
            return text
    return repr(value)


def fidelity_rows(fidelity: Mapping[str, Any], reference: str) -> dict[str, str]:
    """Return the figures of fidelity to a ``reference`` in words, by label."""
    figures = {name: Figure(value) if isinstance(value, float) else value for name, value in fidelity.items()}
    figures["reference"] = reference
    if "flip_rate" in figures:
        figures["unflipped"] = Figure(1 - figures["flip_rate"])
    rows = dict[str, str]()
    for label, text in MEASURES:
        if all(name in figures for _, name, _, _ in Formatter().parse(text) if name):
            rows.setdefault(label, text.format(**figures))
    return rows
