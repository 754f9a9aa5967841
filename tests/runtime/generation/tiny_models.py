"""Tiny random models of transformers: how it generates with them, and the same models as a search sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers

from edgebert_runtime.generation.step_model import Floats, Ids

VOCAB, PAD, START = 50, 0, 1


def gpt2(seed: int) -> Any:
    """Return a decoder of two layers."""
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None
    )
    return randomise(transformers.GPT2LMHeadModel(config), seed)


def marian(seed: int) -> Any:
    """Return an encoder and a decoder of two layers, with a bias on the logits."""
    config = transformers.MarianConfig(vocab_size=VOCAB, pad_token_id=PAD, decoder_start_token_id=START, **SEQ2SEQ)
    model = randomise(transformers.MarianMTModel(config), seed)
    torch.manual_seed(seed)
    model.final_logits_bias.normal_()
    return model


def bart(seed: int) -> Any:
    """Return an encoder and a decoder of two layers."""
    config = transformers.BartConfig(vocab_size=VOCAB, pad_token_id=PAD, decoder_start_token_id=START, **SEQ2SEQ)
    return randomise(transformers.BartForConditionalGeneration(config), seed)


SEQ2SEQ: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "forced_eos_token_id": None,
}


def randomise(model: Any, seed: int) -> Any:
    """Give a model weights that make it sure of some tokens, and different after every prompt."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.5 if "wte" in name or "shared" in name else 0.2)
    model.generation_config = transformers.GenerationConfig(pad_token_id=PAD, decoder_start_token_id=START)
    return model.eval()


class Rows:
    """A model of transformers without a cache: every row is computed as a whole, without padding."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], sources: Sequence[Sequence[int]] | None = None):
        self.model = model
        self.sources = sources
        self.rows = [list(prompt) for prompt in prompts]
        self.origins = list(range(len(prompts)))
        self.calls: list[int] = []
        self.logits = self.compute()

    def step(self, parents: Ids, tokens: Ids) -> Floats:
        """Continue rows."""
        self.rows = [[*self.rows[parent], token] for parent, token in zip(parents, tokens.tolist(), strict=True)]
        self.origins = [self.origins[parent] for parent in parents]
        self.calls.append(len(parents))
        return self.compute()

    def compute(self) -> Floats:
        """Return the logits (rows, vocab) of the last token of every row."""
        logits = np.empty((len(self.rows), VOCAB), dtype=np.float32)
        for length in set(map(len, self.rows)):
            which = [row for row, tokens in enumerate(self.rows) if len(tokens) == length]
            inputs = {"decoder_input_ids" if self.sources else "input_ids": [self.rows[row] for row in which]}
            tensors = {name: torch.tensor(ids) for name, ids in inputs.items()}
            if self.sources:
                tensors |= padded([self.sources[self.origins[row]] for row in which], left=False)
            with torch.no_grad():
                logits[which] = self.model(**tensors, use_cache=False).logits[:, -1].numpy()
        return logits


def padded(rows: Sequence[Sequence[int]], left: bool) -> dict[str, torch.Tensor]:
    """Return input_ids and attention_mask (rows, width)."""
    width = max(map(len, rows))
    fill = [[PAD] * (width - len(row)) for row in rows]
    ids = [[*pads, *row] if left else [*row, *pads] for row, pads in zip(rows, fill, strict=True)]
    mask = [
        [0] * len(p) + [1] * len(r) if left else [1] * len(r) + [0] * len(p) for r, p in zip(rows, fill, strict=True)
    ]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def generate(
    model: Any, rows: Sequence[Sequence[int]], **options: Any
) -> list[list[tuple[list[int], float, list[float]]]]:
    """Return the tokens, the score and the log-probabilities that transformers gives for each prompt or source.

    The score is that of a beam search, and the log-probabilities are the model's own, of a search without beams.
    """
    seq2seq = model.config.is_encoder_decoder
    eos = options.get("eos_token_id")
    ends = [eos] if isinstance(eos, int) else list(eos or [])
    out = run(model, rows, **options)
    start = 1 if seq2seq else max(map(len, rows))
    results = []
    for number, sequence in enumerate(out.sequences[:, start:].tolist()):
        place = next((i for i, token in enumerate(sequence) if token in ends), len(sequence) - 1)
        tokens = sequence[: place + 1]
        beams = options.get("num_beams", 1) > 1
        score = float(out.sequences_scores[number]) if beams else 0.0
        steps = zip(out.logits, tokens, strict=False)
        logprobs = [] if beams else [float(logits[number].log_softmax(-1)[token]) for logits, token in steps]
        results.append((tokens, score, logprobs))
    count = options.get("num_return_sequences", 1)
    return [results[i : i + count] for i in range(0, len(results), count)]


def sample(model: Any, rows: Sequence[Sequence[int]], **options: Any) -> Any:
    """Return what transformers gives where it draws tokens: sequences, logits and scores."""
    return run(model, rows, do_sample=True, **options)


def run(model: Any, rows: Sequence[Sequence[int]], prefix_allowed_tokens_fn: Any = None, **options: Any) -> Any:
    """Let transformers generate, and return all that it tells."""
    config = transformers.GenerationConfig(
        pad_token_id=PAD, decoder_start_token_id=START, return_dict_in_generate=True, output_scores=True,
        output_logits=True, **options,
    )  # fmt: skip
    inputs = padded(rows, left=not model.config.is_encoder_decoder)
    with torch.no_grad():
        return model.generate(**inputs, generation_config=config, prefix_allowed_tokens_fn=prefix_allowed_tokens_fn)
