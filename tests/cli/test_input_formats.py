"""Every format of an input gives the results of plain lines, and keeps ids and fields."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROWS: list[dict[str, Any]] = [{"text": "a b", "id": 7}, {"text": "", "id": 8}, {"text": 'ü日本, "x";y', "id": 9}]


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def table(rows: list[dict[str, Any]], delimiter: str) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


FORMATS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "x.jsonl": json_lines,
    "x.ndjson": lambda rows: b"\xef\xbb\xbf" + json_lines(rows).replace(b"\n", b"\r\n\r\n"),
    "comma.csv": lambda rows: table(rows, ","),
    "semicolon.csv": lambda rows: b"\xef\xbb\xbf" + table(rows, ";"),
    "x.tsv": lambda rows: table(rows, "\t"),
    "x.parquet": parquet,
}


def vectors_of(output: str) -> list[list[float]]:
    return [json.loads(line)["vector"] for line in output.splitlines()]


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12), min_size=1, max_size=6))
def test_each_format_gives_the_results_of_lines(
    run: Any, engine: Any, tmp_path: Path, name: str, texts: list[str]
) -> None:
    rows = [{"text": text, "id": number} for number, text in enumerate(texts)]
    (tmp_path / name).write_bytes(FORMATS[name](rows))
    expected = run("embed", "b", "--json", stdin="".join(f"{text}\n" for text in texts))
    actual = run("embed", "b", "--json", "--input", tmp_path / name)
    assert (actual.exit_code, actual.stderr) == (0, "")
    assert vectors_of(actual.stdout) == vectors_of(expected.stdout)


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9), max_size=5)
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_texts_with_a_nul_behind_each_may_have_lines(run: Any, engine: Any, texts: list[str]) -> None:
    data = "".join(f"{text}\0" for text in texts).encode()
    result = run("embed", "b", "--json", "--input-format", "nul", stdin=data)
    assert [int(vector[0]) for vector in vectors_of(result.stdout)] == [len(text) for text in texts]


@pytest.mark.parametrize("name", FORMATS)
def test_ids_and_fields_are_kept(run: Any, engine: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FORMATS[name](ROWS))
    result = run("embed", "b", "--json", "--input", tmp_path / name, "--id", "id")
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["index"] for row in objects] == [0, 1, 2]
    assert [int(row["id"]) for row in objects] == [7, 8, 9]
    assert [row["input"]["text"] for row in objects] == [row["text"] for row in ROWS]


def test_a_result_never_overwrites_a_field(run: Any, engine: Any) -> None:
    row = {"text": "a", "vector": "mine", "index": 99, "nested": {"deep": [1, None]}}
    (line,) = run("embed", "b", "--json", "--input-format", "jsonl", stdin=json_lines([row])).stdout.splitlines()
    assert json.loads(line)["input"] == row
    assert json.loads(line)["index"] == 0


def test_fields_with_dots_and_pairs(run: Any, engine: Any) -> None:
    row = {"data": {"body": ["first", "second text"]}, "other": "x"}
    options = ("--input-format", "jsonl", "--json")
    result = run("embed", "b", *options, "--field", "data.body.1", stdin=json_lines([row]))
    assert vectors_of(result.stdout)[0][0] == len("second text")
    pairs = ("--pairs", "--field", "data.body.0", "--field", "other")
    assert run("classify", "classify", *options, *pairs, stdin=json_lines([row])).exit_code == 0
    alone = run("classify", "classify", *options, "--pairs", "--field", "other", stdin=json_lines([row]))
    assert alone.exit_code != 0
    assert "takes 2 of --field, not 1" in alone.stderr


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.jsonl", b'{"text": "a"}\n{"text": 5}\n', "line 2 of {file} has the field 'text' = 5, not a text"),
        ("r.jsonl", b'{"text": "a"}\n\n{"txt": "b"}\n', "line 3 of {file}"),
        ("r.jsonl", b'{"text": "a"}\n{"text"\n', "line 2 of {file}"),
        ("r.jsonl", b'["a"]\n', "line 1 of {file}"),
        ("r.csv", b"text,id\na,1\nb\n", "line 3 of {file} has 1 cell, the header has 2"),
        ("r.csv", b"body,id\na,1\n", "text"),
        ("r.parquet", b"no such thing", "{file}"),
    ],
)
def test_a_bad_row_is_named(run: Any, engine: Any, tmp_path: Path, name: str, content: bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    result = run("embed", "b", "--input", file)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert message.format(file=file) in result.stderr


@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.jsonl"])
def test_vectors_go_into_files_that_appear_whole(run: Any, engine: Any, tmp_path: Path, name: str) -> None:
    source, file = tmp_path / "r.jsonl", tmp_path / name
    source.write_bytes(json_lines(ROWS))
    options = ("--input", source, "--id", "id", "--output", file)
    result = run("embed", "b", *options)
    assert (result.exit_code, result.stdout) == (0, "")
    expected = np.array([[3, ord("a"), 0.1], [0, 0, 0.1], [10, ord("ü"), 0.1]], np.float32)
    if name == "v.npy":
        vectors = np.load(file)
        assert vectors.dtype == np.float32
    elif name == "v.parquet":
        columns = pyarrow.parquet.read_table(file)
        assert columns.schema.field("vector").type == pyarrow.list_(pyarrow.float32(), 3)
        assert [int(number) for number in columns["id"].to_pylist()] == [7, 8, 9]
        vectors = np.array(columns["vector"].to_pylist(), np.float32)
    else:
        vectors = np.array(vectors_of(file.read_text()), np.float32)
    assert np.array_equal(vectors, expected)
    before = file.read_bytes()
    source.write_bytes(json_lines([*ROWS, {"text": "boom", "id": 10}]))
    assert run("embed", "b", *options).exit_code == 1
    assert file.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"r.jsonl", name}


def test_parquet_without_pyarrow_names_the_package(
    run: Any, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.parquet").write_bytes(parquet(ROWS))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    result = run("embed", "b", "--input", tmp_path / "x.parquet")
    assert result.exit_code == 1
    assert "pip install" in result.stderr
    assert result.stderr.count("\n") == 1
