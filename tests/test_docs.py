"""Every command and every Python block of docs/ runs, links lead somewhere, and the glossary has every term."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import click
import example_bundles
import pyarrow.parquet
import pytest

import edgebert
from edgebert.cli import COMMANDS, main
from edgebert_exporters.fidelity.figures import MEASURES
from edgebert_runtime import Bundle
from tests.support.documents import (
    DOCS,
    README,
    ROOT,
    blocks,
    broken_links,
    commands,
    named_paths,
    prose,
    run,
    sentences,
)
from tests.support.verbs import VERBS

COMMAND_LINE = (DOCS / "command_line.md").read_text(encoding="utf-8")
TASKS = (DOCS / "tasks.md").read_text(encoding="utf-8")
GENERATION = (DOCS / "generation.md").read_text(encoding="utf-8")
TRANSLATION = (DOCS / "translation.md").read_text(encoding="utf-8")
ASYNCIO = (DOCS / "asyncio.md").read_text(encoding="utf-8")
GLOSSARY = (DOCS / "glossary.md").read_text(encoding="utf-8")
# The tasks that have a page of their own.
PAGES = {"generate": GENERATION, "translate": TRANSLATION}
# The pages that other files run: the README's test, that of benchmarks/quality.py, and a test of its own for each page.
RUN_ELSEWHERE = {"demo.md", "bundle.md", "quantization.md", "own_transformer.md", "integrations.md", "deploying.md"}
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
# The folders from which documents name files.
ROOTS = (ROOT, ROOT / "edgebert", ROOT / "runtime" / "edgebert_runtime", ROOT / "exporters" / "edgebert_exporters")
# Pages whose commands take too long for a test; their links and options are checked.
LOGS = [ROOT / "samples" / "README.md", ROOT / "benchmarks" / "README.md", ROOT / "THIRD_PARTY.md"]
BUNDLES = {
    "sentiment.bundle": "classify",
    "nsp.bundle": "next-sentence",
    "reranker.bundle": "rerank",
    "swag.bundle": "multiple-choice",
    "ner.bundle": "tag",
    "qa.bundle": "answer",
    "mlm.bundle": "fill-mask",
    "encoder.bundle": "embed",
    "gpt.bundle": "generate",
    "mt.bundle": "translate",
}
CONTEXT = "the cat sat on a mat in the farm. they ran in rain and sun to the ship in the moon."
# Options whose help text needs no term, and those that mean the same in every program.
PLAIN = {
    *("--help", "--verbose", "--quiet", "--debug", "--json", "--force", "--input", "--output", "--device", "--threads"),
    *("--allow-pickle", "--labels", "--max-batch-tokens"),
}
# The commands whose options are terms of the field.
TECHNICAL = ("export", "quantize", "embed", "generate", "translate")
MEDIAN_WORDS = 11
MOST_SENTENCES = 4
MOST_WORDS = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the samples, text files, and the bundles that the first commands of the pages make."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "samples").symlink_to(ROOT / "samples")
    for name in ("passages.txt", "long.txt", "texts.txt"):
        (folder / name).write_text(f"{CONTEXT}\n" * 3, encoding="utf-8")
    for text in (TASKS, *PAGES.values()):
        run(commands(text)[0][0], folder)
    (folder / "reviews.csv").write_text('id,text\n7,"the cat, and\nthe dog"\n8,sun\n', encoding="utf-8")
    (folder / "endings.csv").write_text("start,ending0,ending1\nthe cat,sat,ran\n", encoding="utf-8")
    article, question = {"url": "a", "data": {"body": CONTEXT}}, {"question": "the cat", "context": CONTEXT}
    (folder / "articles.jsonl").write_text(f"{json.dumps(article)}\n", encoding="utf-8")
    vectors = pyarrow.array([[0.0, 1.0]], pyarrow.list_(pyarrow.float32(), 2))
    pyarrow.parquet.write_table(pyarrow.table({"id": ["a"], "vector": vectors}), folder / "vectors.parquet")
    (folder / "questions.jsonl").write_text(f"{json.dumps(question)}\n", encoding="utf-8")
    return folder


@pytest.mark.slow
def test_the_first_commands_make_every_bundle(folder: Path) -> None:
    made = {file.name: Bundle.open(file).manifest.task for file in folder.glob("*.bundle")}
    assert made == BUNDLES


@pytest.mark.slow
def test_every_command_runs(folder: Path) -> None:
    verbs: set[str] = set()
    for text in (TASKS, *PAGES.values(), COMMAND_LINE):
        for command, shown in commands(text)[text is not COMMAND_LINE :]:
            assert not shown, "outputs would be those of models that learned little"
            output = run(command, folder)
            if "--output" not in command:
                assert output
                may_be_empty = ("generate", "translate", "_source")
                assert all(line.strip() for line in output) or any(word in command for word in may_be_empty)
            verbs.update(verb for verb in VERBS.values() if f"edgebert {verb} " in command)
    assert verbs == set(VERBS.values())


@pytest.mark.slow
@pytest.mark.parametrize("text", [TASKS, *PAGES.values(), ASYNCIO, COMMAND_LINE], ids=str.split)
def test_every_python_block_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(folder)
    names = {"edgebert": edgebert, "passages": CONTEXT.split(". "), "context": CONTEXT}
    scripts = blocks(text, "python")
    assert scripts
    for script in scripts:
        exec(script, names)


def test_no_page_has_commands_that_no_test_runs() -> None:
    here = {"tasks.md", "generation.md", "translation.md", "asyncio.md", "command_line.md"}
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        if commands(text):
            assert page.name in here | RUN_ELSEWHERE, page.name
        if blocks(text, "python"):
            assert page.name in here | RUN_ELSEWHERE, page.name


def test_every_task_is_documented() -> None:
    for task, verb in VERBS.items():
        if task in PAGES:
            assert f"$ edgebert {verb} " in PAGES[task]
            continue
        assert f"| {task} |" in TASKS
        assert f"$ edgebert {verb} " in TASKS or f"| edgebert {verb} " in TASKS


def test_the_documents_say_where_each_bundle_comes_from() -> None:
    sources = dict[str, str]()
    for line in TASKS.splitlines():
        if line.startswith("| `") and ".bundle` " in line:
            names, source = line.strip("| ").split(" | ")
            sources |= dict.fromkeys(re.findall(r"`([\w.]+)`", names), source)
    assert set(sources) == {name for name, task in BUNDLES.items() if task not in PAGES}
    scripts = {script for source in sources.values() for script in re.findall(r"python (samples/\w+\.py)", source)}
    assert len(scripts) >= 4
    assert all((ROOT / script).is_file() for script in scripts)


# Bundles and checkpoints as commands and programs name them.
FOLDER = r"(?<![\w./-])[\w-]+\.(?:bundle|int8|int4|block|fp16|mixed)(?![\w.-])"


def made_by(command: str) -> set[str]:
    """Return the bundles that a command or a line of Python makes."""
    if "example_bundles.py" in command:
        return set(example_bundles.NAMES.values())
    patterns = (r"edgebert (?:export|quantize) \S+ (\S+)", r"export_checkpoint\(\"[^\"]+\", \"([^\"]+)\"")
    return {name for pattern in patterns for name in re.findall(pattern, command)}


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: str(page.name))
def test_pages_use_only_bundles_that_they_or_a_page_named_first_make(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    before = re.findall(r"\]\(([\w./]+\.md)\)", text.partition("\n## ")[0])
    documents = [(DOCS / name).read_text(encoding="utf-8") for name in before]
    made = set[str]().union(*(made_by(command) for document in documents for command, _ in commands(document)))
    for language, block in re.findall(r"^```(console|python)\n(.*?)^```", text, flags=re.S | re.M):
        for line in block.splitlines():
            if language == "console" and not line.startswith("$ "):
                continue
            new = made_by(line)
            assert set(re.findall(FOLDER, line)) - made - new == set(), f"{page.name}: {line}"
            made |= new


def test_every_line_of_a_report_is_explained() -> None:
    text = (DOCS / "quantization.md").read_text(encoding="utf-8")
    labels = re.findall(r"^\| (`.*?) \|", text, flags=re.M)
    explained = {label for cell in labels for label in re.findall(r"`(.+?)`", cell)}
    assert {label for label, _ in MEASURES} | {"weights", "batches"} <= explained


def test_the_first_limit_of_fidelity_is_one_that_minilm_keeps() -> None:
    text = (DOCS / "quantization.md").read_text(encoding="utf-8")
    shown = re.search(r"cosine to float32 ([\d.]+)", (DOCS / "demo.md").read_text(encoding="utf-8"))
    limits = [limit for command, _ in commands(text) for limit in re.findall(r"--min-\w+ ([\d.]+)", command)]
    assert shown
    assert float(limits[0]) < float(shown[1])


@pytest.mark.parametrize("document", [*DOCUMENTS, *LOGS], ids=lambda document: str(document.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []
    for path in named_paths(document.read_text(encoding="utf-8")):
        assert path.startswith(("X/", "FOLDER/")) or any((root / path).exists() for root in ROOTS), path


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_no_sentence_has_what_for_a_subject(document: Path) -> None:
    assert re.findall(r"(?:^|[.:;|*]\s+)(What \w+ \w+)(?![^.]*\?)", prose(document.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("document", [*DOCUMENTS, LOGS[0]], ids=lambda document: str(document.relative_to(ROOT)))
def test_half_of_the_sentences_are_short(document: Path) -> None:
    lengths = [len(sentence.split()) for sentence in sentences(document.read_text(encoding="utf-8"))]
    assert statistics.median(lengths) <= MEDIAN_WORDS
    assert max(lengths) <= MOST_WORDS


def entries() -> dict[str, str]:
    """Return the definition of each term of the glossary."""
    parts = re.split(r"^## (.+)$", GLOSSARY, flags=re.M)[1:]
    return {term: " ".join(text.split()) for term, text in zip(parts[::2], parts[1::2], strict=True)}


def options_of(name: str) -> set[str]:
    """Return the long options of a command."""
    command = main.get_command(click.Context(main), name)
    assert command is not None, name
    options = [option for parameter in command.params for option in parameter.opts + parameter.secondary_opts]
    return {option for option in options if option.startswith("--")}


def test_terms_are_in_order_and_their_definitions_short() -> None:
    terms = list(entries())
    assert terms == sorted(terms, key=str.lower)
    for term, text in entries().items():
        sentences = re.split(r"(?<=[.)])\s+(?=[A-Z`0-9])", text)
        assert 1 <= len(sentences) <= MOST_SENTENCES, term
        assert all(len(sentence.split()) <= MOST_WORDS for sentence in sentences), term


@pytest.mark.parametrize("command", TECHNICAL)
def test_the_glossary_has_every_option(command: str) -> None:
    options = options_of(command) - PLAIN
    terms = {option for option in options if option.replace("--no-", "--", 1) not in options - {option}}
    assert [option for option in sorted(terms) if not re.search(rf"{option}(?![a-z-])", GLOSSARY)] == []


def test_commands_have_the_options_of_their_command() -> None:
    checked = 0
    for document in [*DOCUMENTS, *LOGS]:
        for line, _ in commands(document.read_text(encoding="utf-8")):
            for name, arguments in re.findall(r"(?:^|[|;&] *)edgebert ([a-z-]+)([^|;&]*)", line):
                assert set(re.findall(r"(?<!\S)--[a-z][a-z-]+", arguments)) <= options_of(name), line
                checked += 1
    assert checked > 40


def test_every_option_of_the_documents_exists() -> None:
    options = set().union(*map(options_of, COMMANDS), {"--help", "--write", "--quick", "--model"})
    for document in DOCUMENTS:
        text = re.sub(r"^```dockerfile\n.*?^```", "", document.read_text(encoding="utf-8"), flags=re.S | re.M)
        text = re.sub(r"^\$ \S*python -m (pip|venv) .*$", "", text, flags=re.M)  # they have options of their own
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= options, document.name
