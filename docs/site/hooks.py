"""Hooks of MkDocs: the pages of the repository that stand outside docs/, and the links to them."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# The pages of the site by the documents that they are made of.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "THIRD_PARTY.md": "third_party.md",
    "samples/README.md": "samples.md",
    "benchmarks/README.md": "measuring.md",
}
# Links to a folder lead to its page.
FOLDERS = {posixpath.dirname(source): page for source, page in PAGES.items() if "/" in source}
# [label](path#fragment) to a place in the repository
LINK = re.compile(r"\[([^]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
CODE = re.compile(r"(^```.*?^```$)", flags=re.S | re.M)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of documents outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to documents of the repository into links to pages; other files lose their links."""
    source = {name: document for document, name in PAGES.items()}.get(page.file.src_uri)
    folder = posixpath.dirname(source if source is not None else f"docs/{page.file.src_uri}")
    parts = CODE.split(markdown)
    return "".join(part if part.startswith("```") else linked(part, folder, page.file.src_uri) for part in parts)


def linked(text: str, folder: str, page: str) -> str:
    """Rewrite the links of a text that stands in ``folder`` of the repository and on ``page`` of the site."""

    def rewrite(match: re.Match[str]) -> str:
        label, link, fragment = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(folder, link))
        target = PAGES.get(path) or FOLDERS.get(path) or (path[5:] if path.startswith("docs/") else None)
        if target is None:
            return label if (ROOT / path).exists() else match[0]
        return f"[{label}]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{fragment})"

    return LINK.sub(rewrite, text)
