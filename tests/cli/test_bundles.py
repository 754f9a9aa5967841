"""The commands that make and show bundles, from a checkpoint to vectors."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import edgebert_runtime
from edgebert_runtime import Bundle
from tests.cli.stopping import stop
from tests.cli.watching import watch


def test_export_says_what_was_made_and_verified(run: Any, checkpoint: Path, tmp_path: Path) -> None:
    result = run("export", checkpoint, tmp_path / "b", "--pooling", "max", "--no-normalize")
    assert (result.exit_code, result.stderr) == (0, "")
    for part in (
        str(tmp_path / "b"),
        "embed (bert, target cpu)",
        "pooling    max",
        "normalize  no",
        "36 batches, off by",
        " kB in ",
    ):
        assert part in result.stdout
    again = run("export", checkpoint, tmp_path / "b", "--pooling", "mean")
    assert again.exit_code == 1
    assert "--force" in again.stderr
    forced = run("export", checkpoint, tmp_path / "b", "--pooling", "mean", "--target", "portable", "--force", "--json")
    manifest = json.loads(forced.stdout)
    assert manifest["settings"]["pooling"] == "mean"
    assert manifest["target"] == "portable"
    assert manifest["bytes"] == sum(entry["bytes"] for entry in manifest["files"].values())
    assert manifest["verification"]["batches"] > 0


def test_export_hands_its_options_on(
    run: Any, fp32_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called_with = watch(monkeypatch, "export_checkpoint", fp32_bundle)
    assert run("export", "c", "b").exit_code == 0
    names = ("task", "pooling", "normalize", "dim", "problem_type", "labels", "reference")
    plain = {**dict.fromkeys(names), "target": "cpu", "strict": False, "allow_pickle": False, "force": False}
    assert called_with == {"args": (Path("c"), Path("b")), **plain}
    (tmp_path / "names.txt").write_text("good news\nbad news\n")
    options = [
        "--task",
        "classify",
        "--problem-type",
        "multi_label",
        "--labels",
        tmp_path / "names.txt",
        "--allow-pickle",
        "--strict",
    ]
    assert run("export", "c", "b", *options).exit_code == 0
    expected = {
        "task": "classify",
        "problem_type": "multi_label",
        "labels": ["good news", "bad news"],
        "allow_pickle": True,
        "strict": True,
    }
    assert called_with == {"args": (Path("c"), Path("b")), **plain, **expected}


def test_pickles_are_read_if_the_user_says_so(run: Any, checkpoint: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint, tmp_path / "pickled"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    refused = run("export", folder, tmp_path / "b")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "--allow-pickle" in refused.stderr
    assert run("export", folder, tmp_path / "b", "--allow-pickle").exit_code == 0
    assert run("verify", tmp_path / "b", folder).exit_code == 1
    assert "reference" in run("verify", tmp_path / "b", folder, "--allow-pickle").stdout


def test_export_of_no_checkpoint_fails_and_leaves_nothing(run: Any, tmp_path: Path) -> None:
    result = run("export", tmp_path / "none", tmp_path / "b", "--pooling", "mean")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_info(run: Any, fp32_bundle: Path, int8_bundle: Path) -> None:
    text = run("info", fp32_bundle).stdout
    for part in ("embed (bert, target cpu)", "fp32", "up to 40 a text", "CPUs", "off by", "model.onnx"):
        assert part in text
    text = run("info", int8_bundle).stdout
    for part in ("int8", "report", "cosine to float32", "skipped (float32)"):
        assert part in text
    manifest = json.loads(run("info", int8_bundle, "--json").stdout)
    assert manifest["limits"]["max_tokens"] == 40
    assert manifest["files"].keys() == Bundle.open(int8_bundle).manifest.files.keys()


def test_verify_repeats_what_the_export_did(run: Any, portable_bundle: Path, checkpoint: Path) -> None:
    result = run("verify", portable_bundle, checkpoint)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "reference    36 batches, off by" in result.stdout
    assert "unoptimized  36 batches, off by" in result.stdout


def test_verify(run: Any, fp32_bundle: Path, int8_bundle: Path, checkpoint: Path) -> None:
    result = run("verify", fp32_bundle, checkpoint)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "verified" in result.stdout
    assert "reference  36 batches, off by" in result.stdout
    assert "reference" in json.loads(run("verify", int8_bundle, checkpoint, "--json").stdout)
    assert "reference" not in json.loads(run("verify", fp32_bundle, "--json").stdout)


def test_a_damaged_bundle_is_refused(run: Any, fp32_bundle: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(fp32_bundle, tmp_path / "broken"))
    tokenizer = broken / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes().replace(b"a", b"b"))
    for command in (["verify", broken], ["embed", broken, "a"], ["bench", broken]):
        result = run(*command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"edgebert: error: {tokenizer} has SHA-256")


def test_embed_gives_the_vectors_of_the_library(run: Any, fp32_bundle: Path, tmp_path: Path) -> None:
    texts = ["a b", "", "c" * 3, "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 2]
    expected = edgebert_runtime.Embedder.load(fp32_bundle).embed_detailed(texts)
    stdin = "".join(f"{text}\n" for text in texts)
    result = run("embed", fp32_bundle, "--output", tmp_path / "v.npy", stdin=stdin)
    assert result.stderr == "edgebert: texts cut because they were too long: 1 (see --max-tokens)\n"
    assert np.load(tmp_path / "v.npy").tolist() == expected.vectors.tolist()
    rows = [json.loads(line) for line in run("embed", fp32_bundle, "--json", stdin=stdin).stdout.splitlines()]
    assert np.array([row["vector"] for row in rows], np.float32).tolist() == expected.vectors.tolist()
    assert [row["tokens"] for row in rows] == expected.token_counts.tolist()
    lines = run("embed", fp32_bundle, *texts).stdout.splitlines()
    assert [[np.float32(word) for word in line.split()] for line in lines] == expected.vectors.tolist()


def test_embed_refuses_what_the_engine_refuses(run: Any, fp32_bundle: Path) -> None:
    result = run("embed", fp32_bundle, "--no-truncate", "--max-tokens", "4", stdin="a\na b c d\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("edgebert: error: line 2 of standard input has 6 tokens, the limit is 4")
    result = run("embed", fp32_bundle, "--device", "warp")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: Invalid value for '--device': 'warp' is not one of 'cpu', 'cuda', 'cuda:N'" in result.stderr
    assert run("embed", fp32_bundle, "a", "\udcff").stderr.startswith("edgebert: error: text 2 has the lone surrogate")
    assert run("embed", fp32_bundle, "\udcff", "--encoding-errors", "replace").exit_code == 0


def test_bench(run: Any, fp32_bundle: Path) -> None:
    result = run("bench", fp32_bundle, "--seconds", "0.05", "--threads", "1", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["threads"] == 1
    assert "throughput" in run("bench", fp32_bundle, "--seconds", "0.05").stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_export_leaves_nothing(checkpoint: Path, tmp_path: Path, number: int, code: int) -> None:
    command = [sys.executable, "-m", "edgebert", "export", str(checkpoint), str(tmp_path / "b"), "--pooling", "mean"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert stop(process, tmp_path, number) == code
