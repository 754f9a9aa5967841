"""docs/troubleshooting.md shows messages as they are: each row is provoked and compared."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import edgebert
from edgebert_exporters import export_checkpoint, quantize_bundle
from edgebert_runtime.errors import EdgebertError
from tests.support.documents import DOCS, ROOT

PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
# Message, and what stands behind it in the first column.
ROWS = re.findall(r"^\| `(.+?)`([^|]*)\| .+? \| .+? \|$", PAGE, flags=re.M)
# Rows that other tests provoke, with the file: these need another installation, another machine, or a large model.
ELSEWHERE = {
    "is not installed; run: pip install": "tests/test_wheel.py",
    "slower than float32": "exporters/edgebert_exporters/reports/thresholds.py",
}
Trigger = Callable[["Place"], object]


class Place:
    """The folders of a test: checkpoints and bundles to read, and copies to damage."""

    def __init__(self, folder: Path, bundles: Callable[[str], Path], checkpoint: Path, int8: Path) -> None:
        self.folder, self.bundle, self.checkpoint, self.int8 = folder, bundles, checkpoint, int8

    def copy(self, source: Path) -> Path:
        """Return a copy that may be damaged."""
        return Path(shutil.copytree(source, self.folder / f"copy-{len(list(self.folder.iterdir()))}"))

    def changed(self, source: Path, name: str, **keys: Any) -> Path:
        """Return a copy in which a JSON file has other keys."""
        copied = self.copy(source)
        data = json.loads((copied / name).read_text(encoding="utf-8"))
        (copied / name).write_text(json.dumps({**data, **keys}))
        return copied

    def export(self, checkpoint: Path, **options: Any) -> object:
        """Export a checkpoint."""
        return export_checkpoint(checkpoint, self.folder / "out", **options)

    def embedder(self) -> edgebert.Embedder:
        """Return an engine that embeds."""
        return edgebert.Embedder.load(self.bundle("embed"))


def pickled(place: Place) -> object:
    copied = place.copy(place.checkpoint)
    (copied / "model.safetensors").rename(copied / "pytorch_model.bin")
    return place.export(copied)


def pointer(place: Place) -> object:
    copied = place.copy(place.checkpoint)
    (copied / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n")
    return place.export(copied)


def without_tokenizer(place: Place) -> object:
    copied = place.copy(place.checkpoint)
    (copied / "vocab.txt").unlink()
    return place.export(copied)


def damaged(place: Place) -> object:
    file = place.copy(place.bundle("embed")) / "model.onnx"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    return edgebert.load(file.parent)


def incomplete(place: Place) -> object:
    file = place.copy(place.bundle("embed")) / "model.onnx"
    file.unlink()
    return edgebert.load(file.parent)


def forked(place: Place) -> object:
    engine = place.embedder()
    engine._process -= 1  # as in a child
    return engine.embed(["cat"])


def closed(place: Place) -> object:
    with place.embedder() as engine:
        pass
    return engine.embed(["cat"])


def cut(place: Place) -> object:
    """Raise the warning of a call as an error, so that it is compared like the others."""
    texts = ["cat " * 100, *["cat"] * 4]
    with records() as messages:
        place.embedder().embed(texts)
    raise EdgebertError(messages[0].replace("40", "256"))


class records(logging.Handler):  # noqa: N801
    """The log messages of edgebert within a ``with``."""

    def __enter__(self) -> list[str]:
        self.messages = list[str]()
        logging.getLogger("edgebert").addHandler(self)
        return self.messages

    def __exit__(self, *_: object) -> None:
        logging.getLogger("edgebert").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


TRIGGERS: list[Trigger] = [
    lambda place: place.export(Path("sentence-transformers/all-MiniLM-L6-v2")),
    lambda place: place.export(place.changed(place.checkpoint, "config.json", model_type="llama")),
    pickled,
    pointer,
    without_tokenizer,
    lambda place: place.export(place.checkpoint, task="classify"),
    lambda place: export_checkpoint(place.checkpoint, place.bundle("embed")),
    lambda place: quantize_bundle(place.bundle("embed"), place.folder / "out", scheme="int4", min_fidelity=0.999999),
    lambda place: quantize_bundle(place.int8, place.folder / "out"),
    lambda place: edgebert.load(place.checkpoint),
    damaged,
    incomplete,
    lambda place: edgebert.load(place.changed(place.bundle("embed"), "edgebert.json", format_version=1)),
    lambda place: edgebert.Classifier.load(place.bundle("embed")),
    lambda place: edgebert.load(place.bundle("embed"), device="cuda"),
    lambda place: place.embedder().embed("cat"),
    cut,
    lambda place: place.embedder().embed(["cat " * 100], truncate=False),
    lambda place: place.embedder().embed(["cat"], max_tokens=4000),
    lambda place: place.embedder().embed(["\ud800"]),
    lambda place: edgebert.Generator.load(place.bundle("generate")).generate(["the cat"], temperature=0.5),
    forked,
    closed,
]


def provoked() -> Iterator[str]:
    """Yield the messages of the page that are provoked here."""
    for message, behind in ROWS:
        if not any(start in message for start in ELSEWHERE):
            assert behind.strip() in ("", "as a warning"), message
            yield message


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, task_bundle: Callable[[str], Path], checkpoint: Path, int8_bundle: Path
) -> Place:
    return Place(tmp_path_factory.mktemp("trouble"), task_bundle, checkpoint, int8_bundle)


def test_every_message_is_provoked() -> None:
    assert len(list(provoked())) == len(TRIGGERS) == len(ROWS) - len(ELSEWHERE)
    for start, file in ELSEWHERE.items():
        assert start in (ROOT / file).read_text(encoding="utf-8")
        assert any(start in message for message, _ in ROWS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "trigger"), list(zip(provoked(), TRIGGERS, strict=True)), ids=[*map(str, range(1, len(TRIGGERS) + 1))]
)
def test_the_message_is_the_one_on_the_page(place: Place, message: str, trigger: Trigger) -> None:
    shutil.rmtree(place.folder / "out", ignore_errors=True)
    with pytest.raises(EdgebertError) as raised:
        trigger(place)
    pattern = ".*".join(map(re.escape, message.split("...")))
    assert re.search(f"{pattern}$" if not message.endswith("...") else pattern, str(raised.value)), raised.value
    assert "\n" not in str(raised.value)
    assert os.linesep not in message
