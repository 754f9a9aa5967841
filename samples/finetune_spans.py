"""Fine-tune all-MiniLM-L6-v2 to find the definition of a word in a text or to say that it is not there; ship it.

    python samples/finetune_spans.py spans

The data come from WordNet. A question is a word, and its context defines four words in sentences of three forms and in
any order. The answer is the definition. In a third of the cases the word is not among the four. Its place is then that
of ``[CLS]`` (Devlin et al., 2019, section 4.3). Words are held out with their definitions, and the contexts of
the test have no others. The measure is exact match of characters. The task is easy, since the context repeats the
word; harder tasks are trained in the same way.

``--quick`` takes seconds and no network: a tiny untrained encoder, and words of ``samples/sentences.txt``. It learns
little. ``wordnet_classifier.py`` says where WordNet comes from.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

import edgebert
from edgebert.training import TrainingConfig
from edgebert.training.bert_finetuning import new_head, span_examples, span_loss
from edgebert.training.examples import batches

sys.path.insert(0, str(Path(__file__).parent))
from fetch_minilm import fetch  # noqa: E402
from finetuning import REPORTS, engines, save, tiny_encoder  # noqa: E402
from training_run import command_line, is_held_out, learn, run_sample, say, sentences  # noqa: E402
from wordnet_classifier import FILES, fetch_wordnet, read_definitions  # noqa: E402

FORMS = ("{}: {}.", "{} means {}.", "by {} one means {}.")
ENTRIES = 4  # words that a context explains
ABSENT = 1 / 3  # the share of questions without an answer
LENGTHS = range(3, 11)  # how many words a definition may have
MAX_TOKENS = 128
MAX_ANSWER_TOKENS = 30
BATCH = 16


class Entry(NamedTuple):
    """A word and its definition."""

    word: str
    gloss: str


class Question(NamedTuple):
    """A word, a context, and the place of the definition in it: (start, end), or None."""

    word: str
    context: str
    answer: tuple[int, int] | None


@dataclass(frozen=True)
class Scores:
    """Shares of right answers: with an answer, without one, and of all questions."""

    exact: float
    absent: float
    total: float

    @classmethod
    def of(cls, answers: Sequence[tuple[int, int] | None], questions: Sequence[Question]) -> Scores:
        """Compare answers with the right ones."""
        hits = [
            (answer == question.answer, question.answer) for answer, question in zip(answers, questions, strict=True)
        ]
        there = [hit for hit, answer in hits if answer]
        nowhere = [hit for hit, answer in hits if not answer]
        return cls(
            sum(there) / max(1, len(there)), sum(nowhere) / max(1, len(nowhere)), sum(there + nowhere) / len(hits)
        )

    def __str__(self) -> str:
        return f"{self.exact:11.2%} {self.absent:10.2%} {self.total:8.2%}"


def main(
    folder: Path, encoder: Path, training: Sequence[Question], tests: Sequence[Question], config: TrainingConfig
) -> dict[str, Scores]:
    """Train on questions, save the checkpoint in ``folder``, and return the scores of the test by model."""
    model, start = new_head(encoder, "answer")
    tokenizer = Tokenizer.from_str(start.tokenizer_json)
    words, contexts, answers = zip(*training, strict=True)
    examples = span_examples(tokenizer, words, contexts, answers, max_tokens=MAX_TOKENS)
    say(f"{len(training):,} questions to train on, {len(tests):,} to test")
    learn(model, batches(examples, BATCH), span_loss, config, reports=REPORTS)
    save(folder, model, tokenizer, "answer", {"architectures": ["BertForQuestionAnswering"]})
    return report(engines(folder, model, [question.context for question in training[:400]]), tests)


def report(models: dict[str, tuple[edgebert.Answerer, float]], tests: Sequence[Question]) -> dict[str, Scores]:
    """Print and return the scores of each model, beside one that never answers."""
    scores = {"never an answer": Scores.of([None] * len(tests), tests)}
    say(f"\n  {len(tests):,} questions     size   speed    exact match  no answer      all")
    say(f"  {'never an answer':<36}{scores['never an answer']}")
    for name, (model, megabytes) in models.items():
        start = time.perf_counter()
        spans = answer(model, tests)
        speed = len(tests) / (time.perf_counter() - start)
        scores[name] = Scores.of(spans, tests)
        say(f"  {name:<12} {megabytes:9.1f} MB {speed:6.0f}/s  {scores[name]}")
    return scores


def answer(model: edgebert.Answerer, questions: Sequence[Question]) -> list[tuple[int, int] | None]:
    """Return where an engine finds the answers, None for nowhere."""
    answers = model.answer_many(
        [(question.word, question.context) for question in questions],
        max_answer_tokens=MAX_ANSWER_TOKENS,
        handle_impossible_answer=True,
    )
    return [(best.start, best.end) if best.text else None for (best, *_) in answers]


def ask(entries: Sequence[Entry], count: int, seed: int, size: int = ENTRIES) -> list[Question]:
    """Make questions, each about one of ``size`` entries of its context, or about another entry."""
    drawn, questions = random.Random(seed), list[Question]()
    while len(questions) < count:
        chosen = drawn.sample(entries, size + 1)
        there = drawn.random() >= ABSENT
        subject = chosen[0] if there else chosen[size]
        context, answer = "", None
        for entry in drawn.sample(chosen[:size], size):
            sentence = drawn.choice(FORMS).format(*entry)
            if entry is subject:
                end = len(context) + len(sentence) - 1
                answer = (end - len(entry.gloss), end)
            context += f"{sentence} "
        questions.append(Question(subject.word, context.rstrip(), answer))
    return questions


def read_entries(folder: Path) -> list[Entry]:
    """Return plain words with their first definition in WordNet, if it is neither short nor long."""
    words = [
        line.split()[4]
        for name in FILES
        for line in (folder / name).read_text(encoding="utf-8").splitlines()
        if not line.startswith("  ")
    ]
    glosses: dict[str, str] = {}
    for word, (gloss, _) in zip(words, read_definitions(folder), strict=True):
        if re.fullmatch("[a-z]{3,}", word) and re.fullmatch(r"[\w ,'-]+\w", gloss):
            glosses.setdefault(word, gloss)
    return [Entry(word, gloss) for word, gloss in glosses.items() if len(gloss.split()) in LENGTHS]


def split(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Hold out one word in twenty for the test."""
    parts: tuple[list[Entry], list[Entry]] = ([], [])
    for entry in entries:
        parts[is_held_out(entry.word)].append(entry)
    return parts


def excerpt() -> list[Entry]:
    """Return the longest word of each sample sentence with the beginning of the sentence."""
    glosses: dict[str, str] = {}
    for sentence in sentences():
        plain = re.findall("[a-z]+", sentence.lower())
        glosses.setdefault(max(plain, key=len), " ".join(plain[:5]))
    return [Entry(word, gloss) for word, gloss in glosses.items()]


def real(folder: Path, wordnet: Path | None, count: int, tests: int) -> tuple[Path, list[Question], list[Question]]:
    """Return the encoder, and questions to train on and to test."""
    parts = split(read_entries(wordnet or fetch_wordnet(folder.with_name("wordnet"))))
    return fetch(folder.with_name("minilm")), ask(parts[0], count, 0), ask(parts[1], tests, 1)


def quick(folder: Path) -> tuple[Path, list[Question], list[Question]]:
    """Return a tiny encoder, and questions about one sentence each."""
    parts = split(excerpt())
    encoder = tiny_encoder(folder.with_name(f"{folder.name}.encoder"), sentences())
    return encoder, ask(parts[0], 1600, 0, 1), ask(parts[1], 100, 1, 1)


STEPS, TESTS = 400, 2000
FULL = TrainingConfig(
    steps=STEPS,
    learning_rate=2e-4,
    warmup_steps=40,
    schedule="linear",
    min_lr_ratio=0.0,
    weight_decay=0.01,
    betas=(0.9, 0.999),
)
QUICK = TrainingConfig(
    steps=240, learning_rate=2e-3, warmup_steps=20, schedule="linear", weight_decay=0.01, betas=(0.9, 0.999)
)


def run(options: argparse.Namespace) -> None:
    """Fine-tune and ship as the command line says, and show three questions with their answers."""
    data = quick(options.folder) if options.quick else real(options.folder, options.wordnet, STEPS * BATCH, TESTS)
    main(options.folder, *data, QUICK if options.quick else FULL)
    answerer = edgebert.Answerer.load(options.folder.with_name(f"{options.folder.name}.int8"))
    for question, place in zip(data[2][:3], answer(answerer, data[2][:3]), strict=True):
        answered = question.context[slice(*place)] if place else "(no answer)"
        say(f"\n  {question.context}\n  {question.word}? {answered}")


if __name__ == "__main__":
    parser = command_line(__doc__, "where the checkpoint is saved; bundles are put beside it")
    parser.add_argument("--wordnet", type=Path, help="folder with data.noun and others")
    run_sample(parser, run)
