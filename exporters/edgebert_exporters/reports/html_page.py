"""A page of HTML in one file: its style and its parts, without scripts, fonts or other files."""

from __future__ import annotations

import contextlib
import html
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

from edgebert_exporters.bundles.atomic_folder import explain
from edgebert_runtime.errors import ExportError

Row = tuple[str, str]

# No text is smaller than 12px, and no drawing scales its text. tests/exporters/reports computes the contrasts.
STYLE = """
:root { color-scheme: light dark; --ink: #1b2430; --soft: #54606f; --line: #d5dbe3; --paper: #ffffff;
  --panel: #f4f6f9; --bar: #2b66b1; --base: #7d8897; --warn: #8a4b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7ebf0; --soft: #a9b3bf; --line: #35404c; --paper: #12171d;
  --panel: #1b222b; --bar: #6ea8ee; --base: #7f8b9b; --warn: #f0b35a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 3rem; font: 16px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
h1, h2, th, td, dd, figcaption, li { unicode-bidi: isolate; }
.lead { color: var(--soft); margin: .2rem 0 1.2rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .75rem; margin: 0; }
.cards div { background: var(--panel); border: 1px solid var(--line); border-radius: .4rem; padding: .7rem .9rem; }
.cards dt { color: var(--soft); font-size: .85rem; } .cards dd { margin: 0; }
.cards dd:first-of-type { font-size: 1.5rem; font-weight: 600; line-height: 1.3; }
.cards dd + dd { font-size: .85rem; color: var(--soft); }
.notes { border: 1px solid var(--warn); border-left-width: .4rem; border-radius: .3rem; padding: .5rem .9rem;
  margin: 1.2rem 0; }
.notes h2 { margin: 0; font-size: 1rem; color: var(--warn); } .notes ul { margin: .2rem 0; padding-left: 1.2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } .facts th { width: 13rem; }
.wide { overflow-x: auto; } .wide table { width: auto; min-width: 100%; }
.wide th, .wide td { min-width: 9rem; max-width: 20rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 23rem), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .8rem .9rem .5rem; border: 1px solid var(--line); border-radius: .4rem;
  break-inside: avoid; min-width: 0; }
figcaption b { display: block; } figcaption span { display: block; color: var(--soft); font-size: .85rem; }
.bars { table-layout: fixed; margin-top: .4rem; font-size: .85rem; } .bars .name { width: 34%; }
.bars .number { width: 7.4rem; } .bars th { font-weight: 400; line-height: 1.3; } .bars th, .bars td { border: 0; }
.bars th, .bars td { vertical-align: middle; padding: .15rem .6rem .15rem 0; }
.bars td:last-child { padding-right: 0; line-height: 1.3; } .bars td small { display: block; font-size: .75rem; }
.bars td small, .bars .axis td { color: var(--soft); } .bars tr.axis td { vertical-align: top; font-size: .75rem; }
svg { display: block; width: 100%; overflow: visible; } .bars svg { height: 1.4rem; }
svg text { font-size: .75rem; fill: var(--soft); } svg .count { fill: var(--ink); }
.base { fill: var(--base); } .bar { fill: var(--bar); } .part { opacity: .55; }
.tick { stroke: var(--line); } .range { stroke: var(--ink); stroke-width: 1.5; }
footer { color: var(--soft); font-size: .85rem; margin-top: 2rem; }
@media (max-width: 40rem) { .facts th, .facts td { display: block; width: auto; padding-right: 0; }
  .facts th { border: 0; padding-bottom: 0; } .facts td { padding-top: 0; }
  .cards { grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); } }
@media print { :root { color-scheme: light; --ink: #000000; --soft: #444444; --line: #bbbbbb; --paper: #ffffff;
  --panel: #ffffff; --bar: #2b66b1; --base: #7d8897; --warn: #8a4b00; }
  body { max-width: none; padding: 0; font-size: 11pt; } tr, .cards div { break-inside: avoid; }
  h2 { break-after: avoid; } .wide { overflow: visible; }
  .charts { grid-template-columns: 1fr 1fr; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
# A browser then loads and runs nothing, even if a name were not escaped.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def check_page(file: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot be written, before any work is done.

    Raises:
        ExportError: if its folder does not exist, or it is a folder.
    """
    target = Path(file)
    if not target.absolute().parent.is_dir():
        raise ExportError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
    if target.is_dir():
        raise ExportError(f"cannot write {target}: it is a folder; choose another name")


def write_text(file: str | os.PathLike[str], text: str) -> None:
    """Write a page to ``file``, whole or not at all.

    Raises:
        ExportError: if that cannot be written.
    """
    check_page(file)
    target = Path(file)
    temporary = target.with_name(f".{target.name}.edgebert-{secrets.token_hex(8)}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, target)
    except OSError as error:
        raise ExportError(f"cannot write {target}: {explain(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def document(title: str, parts: Iterable[str]) -> str:
    """Return the page of these parts."""
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{escape(title)}</title>'
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def escape(text: str) -> str:
    """Return a text for HTML; controls, also those of the direction of writing, are spelled out."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return html.escape(shown)


def heading(title: str, lead: str) -> str:
    """Return the title of a page and the line below it."""
    return f'<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p></header>'


def section(title: str, content: str) -> str:
    """Return a section of the page, or nothing without content."""
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def cards(figures: Iterable[tuple[str, str, str]]) -> str:
    """Return the main figures: the name, the value and a remark of each."""
    entries = [
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(remark)}</dd></div>"
        for name, value, remark in figures
    ]
    return f'<dl class="cards">{"".join(entries)}</dl>'


def note_list(title: str, notes: Sequence[str]) -> str:
    """Return notes in a box, or nothing without any."""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<aside class="notes"><h2>{escape(title)}</h2><ul>{items}</ul></aside>' if items else ""


def charts(drawn: Iterable[str]) -> str:
    """Return drawings side by side, as many as there is room for, or nothing without any."""
    content = "".join(drawn)
    return f'<div class="charts">{content}</div>' if content else ""


def facts(rows: Iterable[Row]) -> str:
    """Return a table with a name and a text per row, or nothing without rows."""
    lines = [f'<tr><th scope="row">{escape(name)}</th><td>{escape(content)}</td></tr>' for name, content in rows]
    return f'<table class="facts">{"".join(lines)}</table>' if lines else ""


def grid(header: Sequence[str], rows: Iterable[Sequence[str]], label: str) -> str:
    """Return a table with a row of headings; on a narrow screen it scrolls by itself."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = [
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    ]
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide" role="region" tabindex="0" aria-label="{escape(label)}">{table}</div>'


def megabytes(count: float) -> str:
    """Write a number of bytes."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
