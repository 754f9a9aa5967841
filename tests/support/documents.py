"""What the documentation shows: code blocks, commands with the lines below them, links and terms."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
# Ends a line that is shown in part.
CUT = " ..."


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.S | re.M)


def prose(text: str) -> str:
    """Return a document without its code: blocks, indented lines and words in backticks."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    text = re.sub(r"^    .*$", "", text, flags=re.M)
    return re.sub(r"`[^`]*`", "", text)


def sentences(text: str) -> list[str]:
    """Return the sentences of a document, without headings, tables and code."""
    plain = re.sub(r"^[|#].*$", "", prose(text), flags=re.M)
    paragraphs = re.split(r"\n\s*\n|\n\* ", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", plain))
    parts = [part for text in paragraphs for part in re.split(r"(?<=[.:;!?])\s+", " ".join(text.split()))]
    return [part for part in parts if len(part.split()) > 2]


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Return each command of the console blocks with the lines that stand below it."""
    shown: list[tuple[str, list[str]]] = []
    for line in "".join(blocks(text, "console")).splitlines():
        if line.startswith("$ "):
            shown.append((line[2:].split("  #")[0].strip(), []))
        else:
            shown[-1][1].append(line)
    return shown


def run(command: str, folder: Path) -> list[str]:
    """Run a command as a reader would, with our own interpreter first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert process.returncode == 0, f"{command}: {process.stderr}"
    return process.stdout.rstrip().splitlines()


def skeleton(line: str) -> str:
    """Return a line without its figures."""
    return re.sub(r"\s+", " ", re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?", "#", line)).strip()


def assert_same(printed: list[str], shown: list[str], command: str) -> None:
    """Compare the lines that a command printed with those that a document shows, but for the figures."""
    assert len(printed) == len(shown), f"{command} prints {len(printed)} lines, the document shows {len(shown)}"
    for line, expected in zip(printed, shown, strict=True):
        if expected.endswith(CUT):
            assert skeleton(line).startswith(skeleton(expected.removesuffix(CUT)))
        else:
            assert skeleton(line) == skeleton(expected)


def anchors(text: str) -> set[str]:
    """Return the fragments by which GitHub links to the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    """Return the links of a document that lead to no file, or to no heading of one."""
    text = document.read_text(encoding="utf-8")
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)):
        if re.match(r"https?://", link):
            continue
        place, _, fragment = link.partition("#")
        target = (document.parent / place).resolve() if place else document
        if not target.exists() or (fragment and fragment not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def named_paths(text: str) -> set[str]:
    """Return the files and folders of the repository that a document names in backticks."""
    return set(re.findall(r"`((?:\.?\w[\w-]*/)+(?:[\w-]+\.\w+)?)`", text))
