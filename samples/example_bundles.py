"""Train a small model for each encoder task in seconds and export it: the bundles of docs/tasks.md.

    python samples/example_bundles.py .

No network is needed. The models learn from ``samples/sentences.txt`` and a few phrases below, so their results show the
form of a result and little skill. ``pretrain_bert.py``, ``finetune_tagger.py`` and ``finetune_spans.py``, whose quick
runs are a part of this one, train real ones.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from torch.nn import functional

from edgebert.checkpoints import open_checkpoint
from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.heads.head_detection import head_config
from edgebert.models.bert.heads import HeadedBert
from edgebert.training import Loss, TrainingConfig, initialize
from edgebert.training.bert_finetuning import classification_loss
from edgebert.training.examples import Batch, Example, batches, join, reader, text_examples
from edgebert_exporters import export_checkpoint

sys.path.insert(0, str(Path(__file__).parent))
import finetune_spans  # noqa: E402
import finetune_tagger  # noqa: E402
import pretrain_bert  # noqa: E402
from finetuning import save, tiny_encoder  # noqa: E402
from training_run import beside, learn, run_sample, say, sentences  # noqa: E402

SUBJECTS = ("The film", "This play", "The story", "A book of his", "Her last novel", "The concert")
PRAISE = ("was a joy.", "moved me to tears.", "is worth every minute.", "made me laugh.", "I would see again.")
BLAME = ("was a bore.", "put me to sleep.", "is two hours of nothing.", "made no sense.", "I would rather forget.")
LABELS = ("negative", "positive")
PROMPTS = {"query": "query: ", "document": "passage: "}
CHOICES = 4
MAX_TOKENS = 64
CONFIG = TrainingConfig(
    steps=120, learning_rate=2e-3, warmup_steps=10, schedule="linear", weight_decay=0.01, betas=(0.9, 0.999)
)
BATCH = 16


class Head(NamedTuple):
    """A task that is trained here: outputs, examples, loss, and keys of config.json."""

    outputs: int
    examples: Callable[[tokenizers.Tokenizer], list[Example]]
    loss: Callable[[HeadedBert, Batch], Loss]
    config: Mapping[str, Any]


def opinions(tokenizer: tokenizers.Tokenizer) -> list[Example]:
    """Return sentences about works of art, with their sentiment."""
    rows = [
        (f"{subject} {end}", label)
        for label, ends in enumerate((BLAME, PRAISE))
        for subject in SUBJECTS
        for end in ends
    ]
    texts, labels = zip(*rows, strict=True)
    return text_examples(tokenizer, texts, labels, max_tokens=MAX_TOKENS)


def passages(tokenizer: tokenizers.Tokenizer) -> list[Example]:
    """Return pairs of a word and a sentence, and whether the word is in it."""
    drawn, lines = random.Random(0), sentences()
    words = [max(line.split(), key=len).strip(".,;") for line in lines]
    pairs = [(word, lines[number], 1) for number, word in enumerate(words)]
    pairs += [(word, line, 0) for word in words if word not in (line := drawn.choice(lines))]
    queries, texts, labels = zip(*pairs, strict=True)
    return text_examples(tokenizer, queries, labels, pairs=texts, max_tokens=MAX_TOKENS)


def continuations(tokenizer: tokenizers.Tokenizer) -> list[Example]:
    """Return beginnings of sentences, each with its end among others."""
    drawn, read = random.Random(0), reader(tokenizer)
    halves = [(line[: len(line) // 2], line[len(line) // 2 :]) for line in sentences()]
    examples = []
    for start, end in halves:
        ends = [drawn.choice(halves)[1] for _ in range(CHOICES - 1)]
        best = drawn.randrange(CHOICES)
        ends.insert(best, end)
        examples.append(Example(tuple(join(read, MAX_TOKENS, start, choice) for choice in ends), [best]))
    return examples


def relevance_loss(model: HeadedBert, batch: Batch) -> Loss:
    """Return the cross-entropy of a sigmoid for each pair."""
    logits = model(*batch[:3])[:, 0].float()
    labels = batch.labels[:, 0].float()
    return Loss(functional.binary_cross_entropy_with_logits(logits, labels), len(labels), batch.tokens)


def choice_loss(model: HeadedBert, batch: Batch) -> Loss:
    """Return the cross-entropy of the best choice of each example."""
    logits = model(*batch[:3]).float().reshape(-1, CHOICES)
    return Loss(functional.cross_entropy(logits, batch.labels[:, 0]), len(logits), batch.tokens)


CLASSIFIER = {"architectures": ["BertForSequenceClassification"]}
HEADS_TRAINED = {
    "classify": Head(
        len(LABELS),
        opinions,
        classification_loss,
        {**CLASSIFIER, "id2label": dict(enumerate(LABELS)), "problem_type": "single_label_classification"},
    ),
    "rerank": Head(
        1,
        passages,
        relevance_loss,
        {**CLASSIFIER, "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}},
    ),
    "multiple-choice": Head(1, continuations, choice_loss, {"architectures": ["BertForMultipleChoice"]}),
}
# The name that docs/tasks.md gives to the bundle of each task.
NAMES = {
    "classify": "sentiment.bundle",
    "rerank": "reranker.bundle",
    "multiple-choice": "swag.bundle",
    "tag": "ner.bundle",
    "answer": "qa.bundle",
    "fill-mask": "mlm.bundle",
    "next-sentence": "nsp.bundle",
    "embed": "encoder.bundle",
}


def train_head(encoder: Path, task: str, folder: Path) -> Path:
    """Train the head of a task on an encoder, save it as a checkpoint in ``folder``, and return that."""
    head, opened = HEADS_TRAINED[task], open_checkpoint(encoder, task="embed")
    bert: Any = opened.load_model()
    model = HeadedBert(bert, head_config(HEADS["bert"][task][0], bert.config, head.outputs))
    initialize(model.head)
    tokenizer = tokenizers.Tokenizer.from_str(opened.tokenizer_json)
    learn(model, batches(head.examples(tokenizer), BATCH), head.loss, CONFIG, reports=2)
    return save(folder, model, tokenizer, task, head.config)


def add_pooling(checkpoint: Path) -> Path:
    """Add the files by which sentence-transformers pools and prompts, and return the checkpoint."""
    names = (("", "Transformer"), ("1_Pooling", "Pooling"))
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (path, name) in enumerate(names)
    ]
    width = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["hidden_size"]
    (checkpoint / "1_Pooling").mkdir(exist_ok=True)
    for name, content in (
        ("modules.json", modules),
        ("1_Pooling/config.json", {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}),
        ("config_sentence_transformers.json", {"prompts": PROMPTS}),
    ):
        (checkpoint / name).write_text(json.dumps(content))
    return checkpoint


def main(folder: Path) -> None:
    """Write the bundle of each task into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".training-") as scratch:
        work = Path(scratch)
        phrases = [f"{subject} {end}" for subject in SUBJECTS for end in PRAISE + BLAME]
        encoder = tiny_encoder(work / "encoder", [*sentences(), *phrases])
        tagger, answerer, bert = work / "tag", work / "answer", work / "bert"
        finetune_tagger.main(tagger, *finetune_tagger.quick(tagger), finetune_tagger.QUICK)
        finetune_spans.main(answerer, *finetune_spans.quick(answerer), finetune_spans.QUICK)
        pretrain_bert.main(bert, pretrain_bert.read(None, quick=True), *pretrain_bert.QUICK)
        bundles = {
            task: export_checkpoint(train_head(encoder, task, work / task), work / f"{task}.bundle", task=task).path
            for task in HEADS_TRAINED
        }
        bundles |= {"tag": beside(tagger, "bundle")[0], "answer": beside(answerer, "bundle")[0]}
        bundles |= {task: beside(bert, task)[0] for task in ("fill-mask", "next-sentence")}
        bundles["embed"] = export_checkpoint(add_pooling(bert), work / "embed.bundle", task="embed").path
        for task, name in NAMES.items():
            shutil.rmtree(folder / name, ignore_errors=True)
            bundles[task].rename(folder / name)
            say(f"{task:<15} {folder / name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the bundles are put")
    parser.add_argument("--threads", type=int, default=1)  # more are slower, for models as small
    run_sample(parser, lambda options: main(options.folder))
