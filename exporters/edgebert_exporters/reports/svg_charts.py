"""Charts of one unit each, whose text is never scaled. Colours are CSS classes, which the page defines.

Bars are rows of a table: a name, a bar and its number, so that a reader needs no colour, and names may be long. Lengths
are percentages, and sizes of letters those of the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgebert_exporters.fidelity.figures import told_apart
from edgebert_exporters.reports.html_page import escape

# Pixels of a histogram: its columns, and the room above and below them for text.
COLUMNS_HEIGHT, ABOVE, BELOW = 140, 40, 40
MOST_TICKS = 4


@dataclass(frozen=True)
class Bar:
    """A row of a bar chart.

    ``text`` is the number in words and ``remark`` a line below it. ``low`` and ``high`` are the ends of a range that
    is drawn over the bar; ``part`` of the value is drawn paler. The ``base`` is the row that others are compared with.
    """

    name: str
    value: float
    text: str
    remark: str = ""
    low: float | None = None
    high: float | None = None
    part: float = 0.0
    base: bool = False


@dataclass(frozen=True)
class Chart:
    """Bars of one figure: its title, its conditions, its unit, and a ``legend`` for the drawing alone."""

    title: str
    about: str
    unit: str
    bars: Sequence[Bar]
    legend: str = ""

    def draw(self) -> str:
        """Return the drawing."""
        return bar_chart(self.title, f"{self.about} {self.legend}".strip(), self.unit, self.bars)


def bar_chart(title: str, about: str, unit: str, bars: Sequence[Bar]) -> str:
    """Draw bars on one scale from 0, in ``unit``; ``about`` says what is drawn, and how to read it.

    Lines mark the ticks. Only the ends have numbers: a narrow drawing has no room for more.
    """
    ticks = nice_ticks(max((bar.value if bar.high is None else max(bar.value, bar.high) for bar in bars), default=0.0))
    rows = "".join(bar_row(bar, ticks) for bar in bars)
    numbers = f'<text x="0" y="14">0</text><text x="100%" y="14" text-anchor="end">{ticks[-1]:.6g}</text>'
    axis = f'<tr class="axis"><td></td><td><svg aria-hidden="true">{numbers}</svg></td><td>{escape(unit)}</td></tr>'
    columns = '<colgroup><col class="name"><col><col class="number"></colgroup>'
    return framed(title, about, f'<table class="bars">{columns}<tbody>{rows}{axis}</tbody></table>')


def bar_row(bar: Bar, ticks: Sequence[float]) -> str:
    """Draw the row of a bar."""
    largest = ticks[-1]
    kind = "base" if bar.base else "bar"
    solid, whole = percent(bar.value - bar.part, largest), percent(bar.value, largest)
    shapes = [
        f'<line class="tick" x1="{percent(t, largest)}" x2="{percent(t, largest)}" y1="0" y2="100%"/>' for t in ticks
    ]
    if bar.part:
        shapes.append(f'<rect class="{kind} part" x="0" y="15%" width="{whole}" height="70%"/>')
    shapes.append(f'<rect class="{kind}" x="0" y="15%" width="{solid}" height="70%"/>')
    if bar.low is not None and bar.high is not None:
        low, high = percent(bar.low, largest), percent(bar.high, largest)
        ends = [(low, high, "50%", "50%"), (low, low, "30%", "70%"), (high, high, "30%", "70%")]
        shapes += [f'<line class="range" x1="{a}" x2="{b}" y1="{c}" y2="{d}"/>' for a, b, c, d in ends]
    remark = f"<small>{escape(bar.remark)}</small>" if bar.remark else ""
    drawing = f'<svg aria-hidden="true">{"".join(shapes)}</svg>'
    return f'<tr><th scope="row">{escape(bar.name)}</th><td>{drawing}</td><td>{escape(bar.text)}{remark}</td></tr>'


def histogram(title: str, about: str, axis: str, counts: Sequence[int], ends: tuple[float, float], name: str) -> str:
    """Draw a column for each of the counts of equal steps between two ``ends``; ``name`` is unique on the page."""
    largest, width = max(counts), 100 / len(counts)
    bottom = ABOVE + COLUMNS_HEIGHT
    parts = ['<text x="0" y="12">texts</text>']
    for place, count in enumerate(counts):
        height = COLUMNS_HEIGHT * count / largest
        top = bottom - height
        parts.append(
            f'<rect class="bar" x="{place * width + width * 0.06:.2f}%" y="{top:.1f}" width="{width * 0.88:.2f}%" '
            f'height="{height:.1f}"/>'
        )
        if count:
            middle = f"{(place + 0.5) * width:.2f}%"
            parts.append(f'<text class="count" x="{middle}" y="{top - 5:.1f}" text-anchor="middle">{count}</text>')
    parts.append(f'<line class="range" x1="0" x2="100%" y1="{bottom}" y2="{bottom}"/>')
    low, high = ends
    texts = [told_apart(low, high, 0, 1, digits=5), told_apart(high, low, 0, 1, digits=5)]
    places = [("0", "start", texts[0]), ("100%", "end", texts[1])] if low != high else [("50%", "middle", texts[0])]
    parts += [f'<text x="{x}" y="{bottom + 16}" text-anchor="{anchor}">{text}</text>' for x, anchor, text in places]
    parts.append(f'<text x="50%" y="{bottom + 34}" text-anchor="middle">{escape(axis)}</text>')
    drawing = (
        f'<svg role="img" height="{bottom + BELOW}" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(about)}</desc>'
        f"{''.join(parts)}</svg>"
    )
    return framed(title, about, drawing)


def framed(title: str, about: str, drawing: str) -> str:
    """Return a drawing with its caption."""
    return f"<figure><figcaption><b>{escape(title)}</b><span>{escape(about)}</span></figcaption>{drawing}</figure>"


def percent(value: float, largest: float) -> str:
    """Return a length as a share of the drawing."""
    return f"{100 * min(1.0, max(0.0, value) / largest):.2f}%"


def nice_ticks(largest: float) -> list[float]:
    """Return 0 and at most :data:`MOST_TICKS` multiples of 1, 2, 2.5 or 5 times a power of ten, up to the largest."""
    if not 0 < largest < math.inf:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(largest))
    steps = (scale * factor for scale in (power / 10, power) for factor in (1, 2, 2.5, 5))
    step = next(step for step in steps if math.ceil(largest / step - 1e-9) <= MOST_TICKS)
    return [step * i for i in range(math.ceil(largest / step - 1e-9) + 1)]
