"""Whatever stops an export, and whenever, the destination is the old bundle or the new one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import edgebert_exporters.bundles.atomic_folder as staging
from edgebert_exporters.bundles.atomic_folder import staged
from edgebert_runtime.errors import ExportError


def fill(folder: Path, content: str) -> None:
    (folder / "edgebert.json").write_text(content)
    (folder / "model.onnx").write_text(content)


def content_of(folder: Path) -> set[str]:
    return {file.read_text() for file in folder.iterdir()}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with staged(tmp_path / "bundle") as folder:
        fill(folder, "old")
    return tmp_path / "bundle"


def test_folder_appears_complete(old: Path) -> None:
    assert content_of(old) == {"old"}
    assert [p.name for p in old.parent.iterdir()] == ["bundle"]
    assert old.stat().st_mode & 0o777 == 0o777 & ~staging.current_umask()


def test_force_replaces(old: Path) -> None:
    with staged(old, force=True) as folder:
        fill(folder, "new")
        assert content_of(old) == {"old"}
    assert content_of(old) == {"new"}
    assert [p.name for p in old.parent.iterdir()] == ["bundle"]


def test_without_an_exchange_of_the_system(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "exchange", lambda *_: False)
    with staged(old, force=True) as folder:
        fill(folder, "new")
    assert content_of(old) == {"new"}
    assert [p.name for p in old.parent.iterdir()] == ["bundle"]


def test_interrupted_as_soon_as_there_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported: list[object] = []
    real = os.mkdir

    def mkdir(path: str, *args: int) -> None:
        real(path, *args)
        exported.append(path)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(KeyboardInterrupt), staged(tmp_path / "bundle"):
        pass
    assert len(exported) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt(), MemoryError()])
def test_failure_leaves_the_old(error: BaseException, old: Path) -> None:
    with pytest.raises(type(error)):  # noqa: PT012
        with staged(old, force=True) as folder:
            fill(folder, "new")
            raise error
    assert content_of(old) == {"old"}
    assert [p.name for p in old.parent.iterdir()] == ["bundle"]


def no_force(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    fill(tmp_path / "b", "old")
    return tmp_path / "b"


def not_a_bundle(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("ten years of work")
    return tmp_path / "b"


def a_file(tmp_path: Path) -> Path:
    (tmp_path / "b").write_text("")
    return tmp_path / "b"


def a_link(tmp_path: Path) -> Path:
    (tmp_path / "real").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "real")
    return tmp_path / "b"


@pytest.mark.parametrize(
    ("make", "force", "message"),
    [
        (no_force, False, "exists; use force=True to replace it"),
        (not_a_bundle, True, "is not an edgebert bundle"),
        (a_file, True, "is not a folder"),
        (a_link, True, "is a link to .*; give the folder itself"),
        (lambda tmp_path: tmp_path / "no" / "b", False, "no does not exist; create it first"),
    ],
)
def test_destinations_that_are_refused(make: Callable[[Path], Path], force: bool, message: str, tmp_path: Path) -> None:
    target = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ExportError, match=message), staged(target, force=force):
        pytest.fail("work began")
    assert sorted(tmp_path.rglob("*")) == before


CALLS = ("fsync", "rename", "chmod", "open")


@pytest.mark.parametrize("n", range(1, 5))
@pytest.mark.parametrize("name", CALLS)
def test_every_failing_system_call(name: str, n: int, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = getattr(os, name), 0

    def failing(*args: object, **kwargs: object) -> object:
        nonlocal count
        count += 1
        if count == n:
            raise OSError(28, "No space left on device")
        return real(*args, **kwargs)

    message = ""
    monkeypatch.setattr(os, name, failing)
    try:
        with staged(old, force=True) as folder:
            fill(folder, "new")
    except ExportError as error:
        message = str(error)
    monkeypatch.undo()
    assert count < n or "No space left on device; free some space" in message
    assert content_of(old) in ({"old"}, {"new"}) if message else content_of(old) == {"new"}


# Writes a bundle again and again, each time in a process of its own that dies at a later system call.
KILLED = """
import os, sys
from pathlib import Path
from edgebert_exporters.bundles.atomic_folder import staged
def fill(folder):
    for name in ("edgebert.json", "model.onnx"):
        (folder / name).write_text("new")
def write(n):
    count = 0
    def killing(real):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count == n:
                os.kill(os.getpid(), 9)
            return real(*args, **kwargs)
        return call
    for name in ("fsync", "rename", "chmod", "open", "close", "rmdir", "unlink"):
        setattr(os, name, killing(getattr(os, name)))
    with staged(sys.argv[1], force=True) as folder:
        fill(folder)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        write(int(line))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_killed_at_every_step_leaves_old_or_new_and_the_next_export_cleans_up(old: Path) -> None:
    outcomes = []
    command = [sys.executable, "-c", KILLED, str(old)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        for n in range(1, 100):
            process.stdin.write(f"{n}\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            assert code in (0, -signal.SIGKILL)
            outcomes.append(content_of(old))
            if code == 0:
                break
    assert code == 0, "the export never got to its end"
    assert all(outcome in ({"old"}, {"new"}) for outcome in outcomes)
    assert outcomes[0] == {"old"}
    assert len(outcomes) > 10
    assert [p.name for p in old.parent.iterdir()] == ["bundle"]


def test_an_export_that_runs_is_left_alone(tmp_path: Path) -> None:
    with staged(tmp_path / "bundle") as first:
        fill(first, "first")
        with staged(tmp_path / "bundle") as second:
            fill(second, "second")
            assert first.exists()
        assert content_of(tmp_path / "bundle") == {"second"}
        (tmp_path / "bundle").rename(tmp_path / "moved")
    assert content_of(tmp_path / "bundle") == {"first"}


def test_a_folder_that_appears_meanwhile_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"it waits for {seconds} s"))
    with staged(tmp_path / "bundle") as folder:
        fill(folder, "mine")
        (tmp_path / "bundle").mkdir()
        fill(tmp_path / "bundle", "theirs")
    assert content_of(tmp_path / "bundle") == {"mine"}
