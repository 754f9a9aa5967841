"""Figures as text."""

from __future__ import annotations


def told_apart(value: float, limit: float, digits: int = 4) -> str:
    """Return ``value`` with so many decimal places, or with as many more as put it on its side of ``limit``."""
    for places in range(digits, 17):
        text = f"{value:.{places}f}"
        rounded = float(text)
        if (rounded < limit) == (value < limit) and (rounded > limit) == (value > limit):
            return text
    return repr(value)
