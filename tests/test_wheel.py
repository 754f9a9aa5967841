"""The wheel as users get it: built from the sdist, installed without torch, used from outside the repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import edgebert
from edgebert.cli import main
from tests.support.patience import PATIENCE
from tests.support.verbs import VERBS

ROOT = Path(__file__).parents[1]
SOURCES = {"edgebert": ROOT, "edgebert_exporters": ROOT / "exporters", "edgebert_runtime": ROOT / "runtime"}
ABSENT = ("torch", "onnx", "onnx_ir", "onnxscript", "safetensors", "transformers")
TEXTS = ["the cat sat on a mat", "mail ran in the rain , and sun ?", "", "naïve école 日本", "moon " * 40]

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Install:
    """A virtual environment with the wheel, and an empty folder to work in."""

    venv: Path
    folder: Path

    def run(self, *command: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program of the virtual environment, with nothing else in the environment."""
        program, *args = map(str, command)
        return subprocess.run(
            [str(self.venv / "bin" / program), *args],
            input=stdin,
            env={"PATH": f"{self.venv / 'bin'}:{os.defpath}", "HOME": str(self.folder), "LANG": "C.UTF-8"},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def output(self, *command: object, stdin: str = "") -> str:
        """Run a program that must succeed and say nothing on standard error."""
        done = self.run(*command, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def python(self, code: str, *args: object) -> Any:
        """Run Python, with warnings as errors, on code that prints JSON."""
        return json.loads(self.output("python", "-W", "error", "-c", code, *args))


def call(*command: object, **environment: str) -> None:
    """Run a build tool of this Python, showing what it says if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel out of it; return their folder."""
    folder = tmp_path_factory.mktemp("built")
    call("build", "--outdir", folder, ROOT, PIP_CONSTRAINT=str(ROOT / "constraints.txt"))
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    """Return the wheel."""
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Install the wheel with the extra cpu, and nothing for export, as a device would have it."""
    venv = tmp_path_factory.mktemp("venv")
    call("venv", "--without-pip", venv)
    requirement = f"edgebert[cpu] @ {wheel.as_uri()}"
    call("pip", "--python", venv / "bin" / "python", "install", "-c", ROOT / "constraints.txt", requirement)
    return Install(venv, tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture(params=["fp32_bundle", "int8_bundle"])
def bundle(request: pytest.FixtureRequest) -> Path:
    """Return each of two bundles."""
    path: Path = request.getfixturevalue(request.param)
    return path


def package_files() -> Iterator[str]:
    """Yield the names in the wheel of all files of the three packages."""
    for name, root in SOURCES.items():
        for file in (root / name).rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                yield file.relative_to(root).as_posix()


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"edgebert-{edgebert.__version__}.dist-info"
    metadata = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert names == {*package_files(), *metadata}
    assert {f"{name}/py.typed" for name in SOURCES} < names
    assert "edgebert_exporters/sample_texts.txt" in names


def test_the_metadata_says_what_users_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"edgebert-{edgebert.__version__}.dist-info/METADATA").decode()
    metadata = Parser().parsestr(text)
    assert (metadata["Name"], metadata["Version"]) == ("edgebert", edgebert.__version__)
    assert (metadata["Requires-Python"], metadata["License-Expression"]) == (">=3.10", "Apache-2.0")
    assert metadata.get_all("Provides-Extra") == ["cpu", "cuda", "export", "parquet"]
    plain = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.partition(">=")[0] for line in plain) == ["click", "numpy", "tokenizers"]


def test_the_sdist_holds_what_its_tests_need(built: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "constraints.txt", "LICENSE", "tests/conftest.py", "samples/demo.py"} < names
    assert {"README.md", "CONTRIBUTING.md", "THIRD_PARTY.md", "docs/glossary.md"} < names  # the README links to them
    assert not [name for name in names if name.startswith((".", "dist/")) and name != ".gitignore"]


def test_nothing_for_export_is_there(installed: Install) -> None:
    code = "import importlib.util as u, json, sys; print(json.dumps([n for n in sys.argv[1:] if u.find_spec(n)]))"
    assert installed.python(code, *ABSENT) == []
    assert installed.python(code, *SOURCES) == list(SOURCES)
    code = "import edgebert, edgebert_runtime, json; print(json.dumps([edgebert.__file__, edgebert_runtime.__file__]))"
    assert all(file.startswith(str(installed.venv)) for file in installed.python(code))


def test_version_help_and_doctor(installed: Install) -> None:
    assert installed.output("edgebert", "--version") == f"edgebert, version {edgebert.__version__}\n"
    assert installed.output("python", "-m", "edgebert", "--help").startswith("Usage: python -m edgebert ")
    assert "Usage: edgebert embed " in installed.output("edgebert", "embed", "--help")
    report = installed.output("edgebert", "doctor")
    assert report.endswith("nothing is broken\n")
    assert 'pip install "edgebert[export]"' in report


def test_the_library_gives_the_same_vectors(installed: Install, bundle: Path) -> None:
    code = (
        "import edgebert, json, sys; engine = edgebert.load(sys.argv[1]);"
        f"vectors = engine.embed({TEXTS!r}).tolist();"
        f"print(json.dumps([vectors, sorted(set({ABSENT!r}) & set(sys.modules))]))"
    )
    done = installed.run("python", "-c", code, bundle)
    assert (done.returncode, done.stderr) == (0, "1 of 5 texts were cut to 40 tokens\n")
    vectors, loaded = json.loads(done.stdout)
    np.testing.assert_allclose(vectors, edgebert.Embedder.load(bundle).embed(TEXTS), rtol=0, atol=1e-5)
    assert loaded == []


def test_the_command_line_embeds(installed: Install, bundle: Path) -> None:
    texts = TEXTS[:4]
    expected = edgebert.Embedder.load(bundle).embed(texts)
    lines = installed.output("edgebert", "embed", bundle, "--json", stdin="".join(f"{text}\n" for text in texts))
    rows = [json.loads(line) for line in lines.splitlines()]
    np.testing.assert_allclose([row["vector"] for row in rows], expected, rtol=0, atol=1e-5)
    file = installed.folder / "vectors.npy"
    assert installed.output("edgebert", "embed", bundle, "--output", file, *texts) == ""
    np.testing.assert_allclose(np.load(file), expected, rtol=0, atol=1e-5)


def test_the_command_line_shows_checks_and_measures(installed: Install, bundle: Path) -> None:
    scheme = edgebert.Bundle.open(bundle).manifest.weights.scheme
    assert f"  {scheme}" in installed.output("edgebert", "info", bundle)
    assert json.loads(installed.output("edgebert", "info", bundle, "--json"))["weights"]["scheme"] == scheme
    assert json.loads(installed.output("edgebert", "verify", bundle, "--json"))["golden_cosine"] > 0.999
    measured = json.loads(installed.output("edgebert", "bench", bundle, "--seconds", "0.1", "--json"))
    assert measured["throughput"]["tokens_per_second"] > 0


CALLS: dict[str, list[str]] = {
    "embed": ["the cat sat"],
    "classify": ["the cat sat"],
    "next-sentence": ["--pairs", "the cat sat\tthe dog ran"],
    "rerank": ["the cat", "sat on a mat", "ran in rain"],
    "multiple-choice": ["the cat", "sat on a mat", "ran in rain"],
    "tag": ["the cat sat on a mat"],
    "answer": ["the cat", "--context", "the cat sat on a mat"],
    "fill-mask": ["the [MASK] sat", "--top-k", "2"],
    "generate": ["the cat", "--max-new-tokens", "3", "--json"],
    "translate": ["the cat", "--max-new-tokens", "3", "--json"],
}


@pytest.mark.parametrize("task", CALLS)
def test_every_task_runs_without_what_exports_it(
    installed: Install, task_bundle: Callable[[str], Path], task: str
) -> None:
    args = [VERBS[task], str(task_bundle(task)), *CALLS[task]]
    expected = CliRunner().invoke(main, args).output.splitlines()
    printed = installed.output("edgebert", *args).splitlines()
    assert printed
    figures = re.compile(r"[\d.e+-]+")
    assert [figures.sub("#", line) for line in printed] == [figures.sub("#", line) for line in expected]


def test_every_task_is_tried() -> None:
    assert set(CALLS) == set(VERBS)


@pytest.mark.parametrize("command", ["export", "quantize", "verify"])
def test_what_needs_torch_says_how_to_get_it(
    installed: Install, checkpoint: Path, fp32_bundle: Path, command: str
) -> None:
    args: dict[str, list[object]] = {
        "export": [checkpoint, "out"],
        "quantize": [fp32_bundle, "out"],
        "verify": [fp32_bundle, checkpoint],
    }
    done = installed.run("edgebert", command, *args[command])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("edgebert: error: the package ")
    assert done.stderr.endswith('is not installed; run: pip install "edgebert[export]"\n')
    assert not (installed.folder / "out").exists()


def test_a_copy_of_the_runtime_needs_three_packages(installed: Install, fp32_bundle: Path, tmp_path: Path) -> None:
    here = "import json, numpy; print(json.dumps(numpy.__path__[0]))"
    site = Path(installed.python(here)).parent
    for name in ("numpy", "numpy.libs", "onnxruntime", "tokenizers"):
        if (site / name).exists():
            (tmp_path / name).symlink_to(site / name)
    copied = shutil.copytree(SOURCES["edgebert_runtime"] / "edgebert_runtime", tmp_path / "edgebert_runtime")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import edgebert_runtime, json;"
        f"vectors = edgebert_runtime.Embedder.load(sys.argv[2]).embed({TEXTS[:4]!r}).tolist();"
        "print(json.dumps([edgebert_runtime.__file__, vectors, 'edgebert' in sys.modules]))"
    )
    text = installed.output("python", "-I", "-S", "-c", code, tmp_path, fp32_bundle)
    file, vectors, whole = json.loads(text)
    assert (file, whole) == (str(Path(copied, "__init__.py")), False)
    np.testing.assert_allclose(vectors, edgebert.Embedder.load(fp32_bundle).embed(TEXTS[:4]), rtol=0, atol=1e-5)
