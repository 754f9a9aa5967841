"""Measure the layout and the language of the source: ``python -m tests.support.style`` prints the figures.

Each figure has a limit, and ``tests/test_style.py`` fails above it.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("edgebert", "exporters", "runtime")
SCRIPTS = ("samples", "benchmarks")
# Names that do not say what they hold.
VAGUE = frozenset(
    "found made held kept given wanted one other known seen asked another rest both hoped".split()
)  # fmt: skip
# Ways to ask which kind of model is at hand. One object for each kind answers instead.
KIND_QUESTION = re.compile(
    r"""task (==|!=|in|not in) [("]|isinstance\([^)]*(ForcedTargets|TeacherForced)|\bpast_of\("""
    r"""|"(decoder|encoder)" in """
)
# The name of a task that a task's own code need not repeat: it stands in the table of tasks.
TASK_LITERAL = "multiple-choice"
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
TABLE = re.compile(r"^=[= ]+=$.*^=[= ]+=$", flags=re.S | re.M)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Figure:
    """One measured figure: its name, its value, the largest value allowed, and where it is worst."""

    name: str
    value: float
    limit: float
    where: str = ""

    @property
    def within(self) -> bool:
        """Whether the value is within its limit."""
        return self.value <= self.limit


def parsed(*folders: str) -> Iterator[tuple[str, ast.Module, str]]:
    """Yield path, syntax tree and text of each module below the folders."""
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            yield str(file.relative_to(ROOT)), ast.parse(text), text


def vague_names(tree: ast.Module) -> list[str]:
    """Return the variables and arguments of a module whose names say nothing, with their lines."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            names.append(f"{node.lineno}:{node.id}")
        elif isinstance(node, ast.arg) and node.arg in VAGUE:
            names.append(f"{node.lineno}:{node.arg}")
    return names


def docstring_sentences(tree: ast.Module) -> list[str]:
    """Return the sentences of all docstrings of a module; tables and ``Raises:`` sections are left out."""
    sentences: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and (text := ast.get_docstring(node)):
            prose = TABLE.sub("", text.partition("Raises:")[0])
            sentences += [part for part in SENTENCE_END.split(" ".join(prose.split())) if part]
    return sentences


def function_lengths(tree: ast.Module) -> dict[str, int]:
    """Return the most lines of the functions of each name, docstrings aside."""
    lengths: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, Function):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            start = body[0].lineno if body else node.lineno
            lengths[node.name] = max(lengths.get(node.name, 0), (node.end_lineno or start) - start + 1)
    return lengths


def import_circle() -> list[str]:
    """Return the modules of an import circle in the product, none if there is no circle."""
    modules = {}
    for path, tree, _ in parsed(*PRODUCT):
        name = re.sub(r"^(exporters|runtime)/", "", path)[:-3].replace("/", ".").removesuffix(".__init__")
        modules[name] = tree
    graph = {name: set(imported(tree, modules)) for name, tree in modules.items()}
    while leaves := [name for name, targets in graph.items() if not targets & graph.keys() - {name}]:
        for name in leaves:
            del graph[name]
    return sorted(graph)


def imported(tree: ast.Module, modules: Collection[str]) -> Iterator[str]:
    """Yield those of ``modules`` that a module imports when it is loaded."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & set(modules)
            if node.module in modules and not names <= set(modules):
                yield node.module


def literals(tree: ast.Module, value: str) -> int:
    """Return how often a string stands in the code of a module, docstrings aside."""
    return sum(isinstance(node, ast.Constant) and node.value == value for node in ast.walk(tree))


def layout() -> list[Figure]:
    """Return the figures of folders, files and functions of the product."""
    modules, files, functions = Counter[str](), Counter[str](), Counter[str]()
    for path, tree, text in parsed(*PRODUCT):
        modules[str(Path(path).parent)] += Path(path).name != "__init__.py"
        files[path] = text.count("\n")
        functions.update({f"{path}:{name}": lines for name, lines in function_lengths(tree).items()})
    questions = Counter({path: len(KIND_QUESTION.findall(text)) for path, _, text in parsed("exporters")})
    tasks = Counter({path: literals(tree, TASK_LITERAL) for path, tree, _ in parsed(*PRODUCT)})
    circle = import_circle()
    figures = [
        Figure("modules in the import circles of the product", len(circle), 0, " ".join(circle)),
        Figure("questions for the kind of model in the exporters", questions.total(), 8, worst(questions)),
        Figure(f"places of the task {TASK_LITERAL!r}", tasks.total(), 1, worst(tasks)),
    ]
    for name, counts, limit in (
        ("modules in a folder", modules, 16),
        ("lines of a file", files, 350),
        ("lines of a function", functions, 45),
    ):
        ((where, most),) = counts.most_common(1)
        figures.append(Figure(name, most, limit, where))
    return figures


def worst(counts: Counter[str]) -> str:
    """Return the three largest counts with their files."""
    return ", ".join(f"{path} ({count})" for path, count in counts.most_common(3) if count)


def language() -> list[Figure]:
    """Return the figures of names and docstrings of the product, the samples and the benchmarks."""
    vague, lengths, first_lines, questions = Counter[str](), list[int](), list[int](), Counter[str]()
    for path, tree, _ in parsed(*PRODUCT, *SCRIPTS):
        vague[path] = len(vague_names(tree))
        sentences = docstring_sentences(tree)
        lengths += [len(sentence.split()) for sentence in sentences]
        questions[path] = sum(sentence.startswith("What ") for sentence in sentences)
        first_lines += [
            len((ast.get_docstring(node) or "").partition("\n")[0].split())
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node)
        ]
    tests = Counter({path: len(vague_names(tree)) for path, tree, _ in parsed("tests")})
    return [
        Figure("vague names", vague.total(), 60, worst(vague)),
        Figure("vague names in tests", tests.total(), 60, worst(tests)),
        Figure("words of a docstring sentence, median", statistics.median(lengths), 11),
        Figure("words of a docstring's first line, median", statistics.median(first_lines), 12),
        Figure("docstring sentences with the subject 'what'", questions.total(), 0, worst(questions)),
    ]


def main() -> None:
    """Print every figure beside its limit."""
    for figure in (*layout(), *language()):
        mark = "ok " if figure.within else "TOO MUCH"
        print(f"{mark:8} {figure.value:6g} of at most {figure.limit:4g}  {figure.name}  {figure.where}")


if __name__ == "__main__":
    main()
