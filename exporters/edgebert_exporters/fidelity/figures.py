"""Figures as text."""

from __future__ import annotations


def told_apart(value: float, limit: float, digits: int = 4, style: str = "f") -> str:
    """Return ``value`` with digits enough to differ from ``limit``.

    ``style`` is ``f``, decimal places, or ``g``, significant digits.
    """
    for places in range(digits, 17):
        text = f"{value:.{places}{style}}"
        rounded = float(text)
        if (rounded < limit) == (value < limit) and (rounded > limit) == (value > limit):
            return text
    return repr(value)
