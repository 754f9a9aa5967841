"""docs/integrations.md: every block runs with the real package, in an environment that has no PyTorch."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

import edgebert
from tests.support.documents import DOCS, ROOT, blocks, commands, run
from tests.support.patience import PATIENCE

PAGE = (DOCS / "integrations.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", PAGE, flags=re.S | re.M))
PACKAGES = {
    "LangChain": "langchain-core",
    "LlamaIndex": "llama-index-core",
    "Haystack": "haystack-ai",
    "Chroma": "chromadb",
    "FastAPI": "fastapi",
}
TEXTS = ["The harbor was frozen.", "Bread is made of flour."]
# Printed at the end of each block: something that only the library itself can know.
CHECKS = {
    "LangChain": (
        "assert (lambda text: embeddings.model.tokenizer.count_tokens([text])[0])('ships in winter') > 3\n"
        "print(len(store.store), store.embeddings.embed_query('ships in winter'))"
    ),
    "LlamaIndex": "print(len(index.docstore.docs), index._embed_model.get_query_embedding('ships in winter'))",
    "Haystack": (
        "vector = pipeline.get_component('embedder').run('ships in winter')['embedding']\n"
        "print(store.count_documents(), vector)"
    ),
    "Chroma": (
        "again = chromadb.PersistentClient('chroma').get_collection('texts')\n"
        "assert again.query(query_texts=['flour'], n_results=1)['ids']\n"
        "print(again.count(), texts._embedding_function.embed_query(['ships in winter'])[0].tolist())"
    ),
    "FastAPI": (
        "from fastapi.testclient import TestClient\n"
        "with TestClient(app) as client:\n"
        "    answer = client.post('/embed', json={'texts': ['ships in winter']}).json()['vectors']\n"
        "    assert client.post('/embed', json={'texts': 'one'}).status_code == 422\n"
        "    print(2, answer[0])"
    ),
}
# Libraries that report their use, and would wait for a network.
QUIET = {"HAYSTACK_TELEMETRY_ENABLED": "False", "ANONYMIZED_TELEMETRY": "False", "LANGSMITH_TRACING": "false"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(pytestconfig: pytest.Config) -> Path:
    """Return the interpreter of an environment with the packages at the pinned versions, kept between runs."""
    constraints = (ROOT / "constraints.txt").read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    version = hashlib.sha256(constraints + sys.version.encode()).hexdigest()[:16]
    folder = pytestconfig.cache.mkdir("edgebert") / f"integrations-{version}"
    done, executable = folder / "done", folder / "bin" / "python"
    if not done.exists():
        venv.create(folder, clear=True)
        command = [sys.executable, "-m", "pip", "--python", str(executable), "install", "--quiet", "--no-compile"]
        command += ["-c", "constraints.txt", "--group", "integrations", "-e", ".[cpu]"]
        installed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
        assert installed.returncode == 0, installed.stderr
        done.touch()
    return executable


@pytest.fixture(scope="module")
def folder(checkpoint: Path, task_bundle: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as after the commands of the page; tiny models stand for MiniLM and the reranker."""
    folder = tmp_path_factory.mktemp("integrations")
    (folder / "minilm").symlink_to(checkpoint)
    (folder / "examples").mkdir()
    (folder / "examples" / "reranker.bundle").symlink_to(task_bundle("rerank"))  # type: ignore[operator]
    (export, _), (examples, _) = commands(PAGE)
    assert examples.startswith("python samples/example_bundles.py")  # tests/test_docs.py runs it
    run(export, folder)
    return folder


def test_every_section_has_a_package_and_a_block() -> None:
    assert list(SECTIONS) == list(PACKAGES) == list(CHECKS)
    for section, package in PACKAGES.items():
        assert f"pip install {package}" in SECTIONS[section]
        assert len(blocks(SECTIONS[section], "python")) == 1


@pytest.mark.parametrize("section", PACKAGES)
def test_the_block_runs_with_the_real_package(python: Path, folder: Path, tmp_path: Path, section: str) -> None:
    (block,) = blocks(SECTIONS[section], "python")
    program = tmp_path / "program.py"
    package = PACKAGES[section]
    program.write_text(
        f"{block}\n{CHECKS[section]}\nimport importlib.metadata, sys\n"
        f"print(importlib.metadata.version({package!r}), 'torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [str(python), str(program)],
        cwd=folder,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    *printed, checked, environment = done.stdout.splitlines()
    count, _, vector = checked.partition(" ")
    assert int(count) == 2
    engine = edgebert.Embedder.load(folder / "encoder.bundle")
    np.testing.assert_allclose(json.loads(vector), engine.embed_query(["ships in winter"])[0], atol=1e-5)
    if section != "FastAPI":  # it serves, and prints nothing
        found = [text for text in TEXTS if text in printed[-1]]
        assert len(found) == (2 if section == "Haystack" else 1)
    version, loaded = environment.split()
    assert f"{package}=={version}" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert loaded == "False"
