"""A program over all tasks as users write it: mypy knows the type of everything in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import edgebert
from edgebert_runtime.generation.option_parsers import CHECKS
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[1]

PROGRAM = '''"""Search, classify, rerank, tag, answer, fill, generate and translate."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import edgebert
from edgebert import Embedder, EdgebertError, GenerationOptions, Generator, TextOptions


def nearest(folder: Path, query: str, texts: Sequence[str]) -> str:
    shared: TextOptions = {"max_tokens": 128, "encoding_errors": "replace"}
    with Embedder.load(folder, device="auto", threads=2) as embedder:
        vectors = embedder.embed(texts, long_texts="mean", **shared)
        scores = vectors @ embedder.embed([query], **shared)[0]
        reveal_type(vectors)
        reveal_type(embedder.embed_detailed(texts).truncated)
        reveal_type((embedder.dim, embedder.device, embedder.fallback, embedder.threads, embedder.max_tokens))
    return texts[int(scores.argmax())]


def continued(folder: str, prompts: list[str], count: int) -> list[str]:
    generator = Generator.load(folder)
    options: GenerationOptions = {"max_new_tokens": 8, "do_sample": True, "seed": 1}
    single = generator.generate(prompts, prompt_lookup=True, max_new_tokens=8)
    several = generator.generate(prompts, num_return_sequences=3, **options)
    either = generator.generate(prompts, num_return_sequences=count, **options)
    reveal_type(single)
    reveal_type(several)
    reveal_type(either)
    reveal_type(generator.score(prompts)[0].perplexity)
    reveal_type(generator.prefix("One. "))
    generator.close()
    return [single[0].text, several[0][1].text, "".join(generator.stream(prompts[0], top_k=5, do_sample=True))]


def translated(text: str) -> str:
    translator = edgebert.Translator.load("marian/")
    reveal_type(translator.translate([text], num_return_sequences=2, num_beams=4))
    reveal_type((translator.languages, translator.score([(text, text)])[0].token_logprobs))
    return translator.translate([text], target_language="de", split_sentences=True)[0].text


def read(text: str) -> None:
    reveal_type(edgebert.Classifier.load("classifier/").classify([text], [text])[0].scores)
    reveal_type(edgebert.Reranker.load("reranker/").rerank(text, [text], top_k=1))
    reveal_type(edgebert.MultipleChoice.load("chooser/").choose(text, ["a", "b"])[0].index)
    reveal_type([(entity.label, entity.start) for entity in edgebert.Tagger.load("tagger/").tag([text])[0]])
    reveal_type(edgebert.Answerer.load("answerer/").answer("Who?", text, top_k=2)[0])
    reveal_type(edgebert.MaskFiller.load("filler/").fill([text], targets=["a", 7])[0][0][0].token_id)


def main(folder: Path) -> int:
    try:
        engine = edgebert.load(folder)
        if isinstance(engine, edgebert.Tagger):
            reveal_type(engine.labels)
        reveal_type(engine)
        print(type(engine).__name__, engine.bundle.manifest.task)
    except EdgebertError as error:
        reveal_type((error.option, error.index, error.hint))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
'''
# NumPy's arrays have shapes of any length.
SHAPE = "tuple[Any, ...], "


def test_a_program_over_all_tasks_is_typed(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout
    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert len(revealed) == PROGRAM.count("reveal_type(")
    types = [text.replace("builtins.", "").replace(SHAPE, "") for text in revealed]
    assert [text for text in types if "Any" in text] == []
    for expected in (
        "list[edgebert_runtime.tasks.base.text_engine.Generation]",
        "tuple[int, str, str | None, int, int]",
    ):
        assert expected in types


def test_the_options_of_a_search_are_all_typed() -> None:
    assert {*edgebert.GenerationOptions.__annotations__, "num_return_sequences"} == set(CHECKS)
