"""Bar charts as SVG. Colours are CSS classes, which the page defines for light and dark."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence

# In units of the drawing: its width, the column of labels, the room for a number behind a bar, and a line.
WIDTH, LABELS, NUMBERS, LINE = 720, 210, 90, 22
BAR = 14
STEP_HEIGHT = 140
MOST_LETTERS = 30

# A row: its label, and the value of each of its series.
Group = tuple[str, Mapping[str, float]]


def bars(title: str, groups: Sequence[Group], number: Callable[[float], str]) -> str:
    """Draw a bar with its number for each series of each group, all on one scale."""
    names = list(dict.fromkeys(name for _, series in groups for name in series))
    largest = max((value for _, series in groups for value in series.values()), default=0.0)
    parts, top = [], 0
    for label, series in groups:
        parts.append(text(LABELS - 8, top + BAR, cut(label), "end"))
        for name, value in series.items():
            width = scaled(value, largest)
            parts.append(rectangle(LABELS, top + 2, width, BAR, names.index(name), f"{label}, {name}: {number(value)}"))
            parts.append(text(LABELS + width + 6, top + BAR, number(value)))
            top += LINE - 4
        top += 8
    return figure(title, names, parts, top)


def stacked(title: str, groups: Sequence[Group], number: Callable[[float], str]) -> str:
    """Draw one bar for each group, stacked from its series, with their sum."""
    names = list(dict.fromkeys(name for _, series in groups for name in series))
    largest = max((sum(series.values()) for _, series in groups), default=0.0)
    parts, top = [], 0
    for label, series in groups:
        parts.append(text(LABELS - 8, top + BAR, cut(label), "end"))
        left = float(LABELS)
        for name, value in series.items():
            width = scaled(value, largest)
            parts.append(rectangle(left, top + 2, width, BAR, names.index(name), f"{label}, {name}: {number(value)}"))
            left += width
        parts.append(text(left + 6, top + BAR, number(sum(series.values()))))
        top += LINE + 4
    return figure(title, names, parts, top)


def histogram(title: str, low: float, high: float, counts: Sequence[int]) -> str:
    """Draw a column for each of the counts of equal steps from ``low`` to ``high``."""
    width, largest = (WIDTH - 2 * NUMBERS) / len(counts), max(counts)
    parts = []
    for place, count in enumerate(counts):
        height = STEP_HEIGHT * count / largest
        start = low + (high - low) * place / len(counts)
        left = NUMBERS + place * width
        parts.append(
            rectangle(left, LINE + STEP_HEIGHT - height, max(1, width - 2), height, 0, f"{start:.6g}: {count}")
        )
        if count:
            parts.append(text(left + width / 2, LINE + STEP_HEIGHT - height - 5, str(count), "middle"))
    bottom = LINE + STEP_HEIGHT + 16
    parts += [text(NUMBERS, bottom, f"{low:.6g}"), text(WIDTH - NUMBERS, bottom, f"{high:.6g}", "end")]
    return figure(title, [], parts, bottom + 6)


def scaled(value: float, largest: float) -> float:
    """Return the length of a bar."""
    return max(0.0, value) / largest * (WIDTH - LABELS - NUMBERS) if largest > 0 else 0.0


def figure(title: str, names: Sequence[str], parts: Sequence[str], height: float) -> str:
    """Return parts as a drawing, with a legend of several series."""
    legend = "".join(
        f'<span><i class="s{place}"></i>{html.escape(name)}</span>'
        for place, name in enumerate(names)
        if len(names) > 1
    )
    safe = html.escape(title)
    return (
        f"<figure><figcaption>{safe}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{safe}">{"".join(parts)}</svg>'
        f'<p class="legend">{legend}</p></figure>'
    )


def rectangle(left: float, top: float, width: float, height: float, series: int, hint: str) -> str:
    """Draw a rectangle in the colour of a series, with a tooltip."""
    place = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="s{series}" {place}><title>{html.escape(hint)}</title></rect>'


def text(left: float, base: float, content: str, anchor: str = "start") -> str:
    """Draw a line of text."""
    return f'<text x="{left:.1f}" y="{base:.1f}" text-anchor="{anchor}">{html.escape(content)}</text>'


def cut(label: str) -> str:
    """Return the end of a long label; the beginnings of names are alike."""
    return label if len(label) <= MOST_LETTERS else f"…{label[1 - MOST_LETTERS :]}"
