"""What all commands that run an engine have in common: the right bundle, texts from anywhere, errors, signals."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import edgebert_runtime
from edgebert.cli import COMMANDS
from tests.support.patience import PATIENCE
from tests.support.verbs import ALSO, VERBS

# These answer each text before they have read all.
STREAMING = ("embed", "classify", "tag", "fill-mask", "generate", "translate", "score")
READING = (*STREAMING, "rerank")
ARGUMENTS = {"rerank": ["query"], "answer": ["question"]}
TASKS = {verb: task for task, verb in reversed(VERBS.items())}
TASKS |= {verb: TASKS[others[0]] for verb, others in ALSO.items()}
LEADS = {"embed": "1.0 65.0 0.1", "classify": "high\t0.7", "tag": "1\t0\t1\tNAME\t0.33333334\tA"}


def call(verb: str, *args: object) -> list[object]:
    """Return the arguments that run the command on a bundle of its task."""
    return [verb, TASKS[verb], *ARGUMENTS.get(verb, []), *args]


def test_each_task_has_a_command() -> None:
    assert VERBS.keys() == edgebert_runtime.ENGINES.keys()
    assert set(TASKS) <= set(COMMANDS)


@pytest.mark.parametrize("task", VERBS)
@pytest.mark.parametrize("verb", TASKS)
def test_the_wrong_command_names_the_right_one(run: Any, engine: Any, verb: str, task: str) -> None:
    arguments = {"choose": ["p", "a", "b"], "rerank": ["q", "a"], "answer": ["q", "--context", "c"]}.get(verb, ["A\t_"])
    result = run(verb, f"{task}/", *arguments, *(["--pairs"] if verb == "classify" else []))
    if VERBS[task] in ALSO.get(verb, (verb,)):
        assert (result.exit_code, result.stderr) == (0, "")
    else:
        assert (result.exit_code, result.stdout) == (1, "")
        right = f"{task} is a bundle of task {task}; run 'edgebert {VERBS[task]}'"
        assert result.stderr == f"edgebert: error: {right}\n"


def test_a_task_that_no_command_runs(run: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "task", "unheard-of")
    monkeypatch.setattr(edgebert_runtime, "load", lambda *_args, **_options: engine)
    assert "b is a bundle of task unheard-of; run 'edgebert info'" in run("embed", "b", "a").stderr


@pytest.mark.parametrize("verb", READING)
def test_texts_come_from_anywhere(run: Any, engine: Any, tmp_path: Path, verb: str) -> None:
    (tmp_path / "t.txt").write_text("A _\nB\tc\n\n")
    outputs = [
        run(*call(verb, "A _", "B\tc", "")),
        run(*call(verb, "--input", tmp_path / "t.txt")),
        run(*call(verb), stdin="A _\r\nB\tc\n\n"),
    ]
    assert {output.exit_code for output in outputs} == {0}
    assert outputs[0].stdout != ""
    assert len({output.output for output in outputs}) == 1
    result = run(*call(verb, "A", "--input", tmp_path / "t.txt"))
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("verb", READING)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_no_texts_are_no_results(run: Any, engine: Any, verb: str, options: list[str]) -> None:
    result = run(*call(verb, *options), stdin="")
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize("verb", [*READING, "answer"])
def test_closed_standard_input(start: Any, verb: str) -> None:
    process = start(*call(verb), stdin=None, preexec_fn=lambda: os.close(0))
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, b"")
    assert b"Standard input is closed" in err


@pytest.mark.parametrize("verb", READING)
def test_invalid_utf8_names_the_line(run: Any, engine: Any, verb: str) -> None:
    result = run(*call(verb), stdin=b"fine\nbad \xff here\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "line 2 of standard input is not UTF-8" in result.stderr
    assert run(*call(verb, "--encoding-errors", "replace"), stdin=b"fine\nbad \xff here\n").exit_code == 0


@pytest.mark.parametrize("verb", READING)
def test_errors_of_the_engine_name_the_text(run: Any, engine: Any, small_reads: None, verb: str) -> None:
    result = run(*call(verb), stdin="x\n" * 3000 + "boom\n")
    assert (result.exit_code, result.stderr) == (
        1,
        "edgebert: error: line 3001 of standard input is bad: it says boom\n",
    )
    assert run(*call(verb, "x", "boom")).stderr == "edgebert: error: text 2 is bad: it says boom\n"


@pytest.mark.parametrize("verb", STREAMING)
def test_order_is_kept_in_bounded_memory(run: Any, engine: Any, small_reads: None, verb: str) -> None:
    count = 3000
    result = run(*call(verb), stdin="".join(f"N{i} _ a b c\n" for i in range(count)))
    assert result.exit_code == 0
    sizes = [call["texts"] for call in engine.calls]
    assert sum(sizes) == count
    assert max(sizes) < count / 2
    lines = result.stdout.splitlines()
    if verb == "tag":
        assert [line.split("\t")[0::5] for line in lines] == [[str(i + 1), f"N{i}"] for i in range(count)]
    elif verb == "fill-mask":
        assert [line.split("\t")[0] for line in lines[::3]] == [str(i + 1) for i in range(count)]
    else:
        assert len(lines) == count


@pytest.mark.parametrize("verb", LEADS)
def test_a_slow_writer_gets_answers_at_once(start: Any, verb: str) -> None:
    process = start(*call(verb))
    for _ in range(2):
        process.stdin.write(b"A\n")
        process.stdin.flush()
        line = process.stdout.readline().decode().rstrip("\n")
        assert line.split("\t")[1:] == LEADS[verb].split("\t")[1:]
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


@pytest.mark.parametrize("verb", READING)
def test_a_reader_that_leaves_is_no_error(start: Any, tmp_path: Path, verb: str) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("Hello _ world\n" * 50_000)
    process = start(*call(verb, "--input", texts))
    assert process.stdout.readline() != b""
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=PATIENCE) == 141
    process.stdin.close()
    process.stderr.close()


@pytest.mark.parametrize("verb", STREAMING)
def test_interrupted_while_the_engine_works(start: Any, verb: str) -> None:
    process = start(*call(verb))
    process.stdin.write(b"A _\n")
    process.stdin.flush()
    assert process.stdout.readline() != b""
    process.stdin.write(b"slow\n")
    process.stdin.flush()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, b"edgebert: interrupted\n")
