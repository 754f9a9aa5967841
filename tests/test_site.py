"""The site of the documentation builds without a warning, has an entry for every public name, and fetches nothing."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

import edgebert
import edgebert.training
import edgebert_exporters
from tests.support.documents import DOCS, ROOT
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.slow
# Attributes of elements that a browser loads by itself.
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href"}


class Page(HTMLParser):
    """The anchors of a page, and the addresses that a browser loads to show it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = set[str]()
        self.loads = list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if anchor := values.get("id"):
            self.anchors.add(anchor)
        if (address := values.get(LOADED.get(tag, ""))) and values.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as ``make docs`` does, in its strict mode, and return its folder."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """Return every page of the site."""
    files = sorted(site.rglob("*.html"))
    return {file.relative_to(site).as_posix(): Page(file.read_text(encoding="utf-8")) for file in files}


def public(package: ModuleType) -> Iterator[tuple[str, set[str]]]:
    """Yield each public name and method of a package, with the anchors that it may have."""
    for name in package.__all__:
        item = getattr(package, name)
        if name.startswith("__") or isinstance(item, ModuleType):
            continue
        homes = {package.__name__, getattr(item, "__module__", "")}
        yield f"{package.__name__}.{name}", {f"{home}.{name}" for home in homes}
        if inspect.isclass(item) and not issubclass(item, Exception):
            for method in (key for key, value in vars(item).items() if inspect.isroutine(value) and key[0] != "_"):
                yield f"{package.__name__}.{name}.{method}", {f"{home}.{name}.{method}" for home in homes}


def test_every_public_name_has_an_entry(pages: dict[str, Page]) -> None:
    anchors = set().union(*(page.anchors for name, page in pages.items() if name.startswith("api/")))
    names = [item for package in (edgebert, edgebert_exporters, edgebert.training) for item in public(package)]
    assert len(names) > 60
    assert [name for name, places in names if not places & anchors] == []


def test_every_error_has_an_entry(pages: dict[str, Page]) -> None:
    anchors = pages["api/bundles.html"].anchors
    kinds = [kind for _, kind in inspect.getmembers(edgebert.errors, inspect.isclass)]
    assert len(kinds) > 10
    assert [kind.__name__ for kind in kinds if f"{kind.__module__}.{kind.__name__}" not in anchors] == []


def test_every_document_is_a_page(pages: dict[str, Page]) -> None:
    documents = {file.relative_to(DOCS).with_suffix(".html").as_posix() for file in DOCS.rglob("*.md")}
    assert documents | {"index.html", "samples.html", "contributing.html", "changelog.html"} <= set(pages)


def test_no_page_loads_from_another_host(pages: dict[str, Page], site: Path) -> None:
    loads = [address for page in pages.values() for address in page.loads]
    assert loads
    assert [address for address in loads if re.match(r"(https?:)?//", address)] == []
    styles = [file.read_text(encoding="utf-8") for file in site.rglob("*.css")]
    assert styles
    assert not any(re.search(r"url\(['\"]?https?:", style) for style in styles)


def test_the_search_finds_every_engine(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert all(f'"{page}.html' in index for page in ("api/engines", "tasks", "glossary", "samples"))
    assert "edgebert.Embedder" in index


def test_reference_links_of_docstrings_are_shown_as_code(site: Path) -> None:
    for file in (site / "api").glob("*.html"):
        assert not re.search(r":(class|func|meth|mod|data):", file.read_text(encoding="utf-8")), file.name
