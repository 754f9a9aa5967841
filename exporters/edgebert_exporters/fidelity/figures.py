"""Figures as text, never rounded to a number that means something else."""

from __future__ import annotations


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
