"""A tiny encoder and decoder in NumPy, behind the signatures that exported graphs have; its bundle, and what to expect.

The decoder reads and writes caches as a graph does, so that a row or column in the wrong place changes its logits. What
is expected comes from :class:`Anew`, which has no caches, rows or padding: it computes one target after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgebert_runtime import Bundle, Translator
from edgebert_runtime.bundle.manifest import FileEntry, GraphSpec, Limits, Manifest, TensorSpec, Weights
from edgebert_runtime.generation import Hypothesis, Options, search
from tests.runtime.fakes import wordpiece

LAYERS, HEADS, DIM = 2, 2, 8
HEAD = DIM // HEADS
POSITIONS = 48
PAD, EOS, START = 0, 3, 2
DECODING: dict[str, Any] = {"decoder_start_token_id": START, "eos_token_id": EOS, "pad_token_id": PAD}
CROSS = [f"cross_key_values.{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
PAST = [name.replace("cross_key_values", "past_key_values") for name in CROSS]


class Model:
    """Random weights, and the steps of one source and one target with them."""

    def __init__(self, source_size: int, target_size: int) -> None:
        make = np.random.default_rng(3).standard_normal
        self.source, self.target = make((source_size, DIM)), make((target_size, DIM))
        self.positions = 0.5 * make((POSITIONS, DIM))
        self.cross = make((len(CROSS), DIM, DIM)) / DIM**0.5
        self.qkv = make((LAYERS, 4, DIM, DIM)) / DIM**0.5
        self.head = 1.5 * make((DIM, target_size)) / DIM**0.5
        self.ending = 0.7 * (np.arange(target_size) == EOS)  # likelier with every token
        self.known: dict[tuple[tuple[int, ...], tuple[int, ...]], Any] = {}

    def encode(self, ids: Sequence[int]) -> list[Any]:
        """Return keys and values (heads, source, head) of all layers."""
        hidden = self.source[list(ids)]
        hidden = hidden + np.cumsum(hidden, 0) / np.arange(1, len(ids) + 1)[:, None]
        return [split(hidden @ weight) for weight in self.cross]

    def step(self, token: int, position: int, past: Any, cross: Any) -> tuple[Any, Any]:
        """Return the logits after a token, and its keys and values (heads, head) for the past of a target.

        ``past`` are keys and values (heads, position, head) of the tokens before it.
        """
        x, new = self.target[token] + self.positions[position], []
        for layer in range(LAYERS):
            query, key, value, second = (split(x[None] @ weight) for weight in self.qkv[layer])
            keys, values = (np.concatenate(pair, 1) for pair in zip(past[2 * layer :], (key, value), strict=False))
            new += [key[:, 0], value[:, 0]]
            x = x + attend(query, keys, values)
            x = x + attend(second, *cross[2 * layer : 2 * layer + 2])
            x = x / np.linalg.norm(x) * DIM**0.5
        return x @ self.head + position * self.ending, new

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Any:
        """Return the logits (vocab,) after the tokens of a target."""
        return self.after(tuple(source), tuple(target))[0]

    def after(self, source: tuple[int, ...], target: tuple[int, ...]) -> Any:
        """Return logits, and the keys and values of a target."""
        if not target:
            return None, [np.zeros((HEADS, 0, HEAD))] * len(PAST)
        if (source, target) not in self.known:
            _, past = self.after(source, target[:-1])
            logits, new = self.step(target[-1], len(target) - 1, past, self.encode(source))
            grown = [np.concatenate([old, item[:, None]], 1) for old, item in zip(past, new, strict=True)]
            self.known[source, target] = logits.astype(np.float32), grown
        return self.known[source, target]


def split(x: Any) -> Any:
    """Take (n, dim) to (heads, n, head)."""
    return x.reshape(len(x), HEADS, HEAD).transpose(1, 0, 2)


def attend(query: Any, keys: Any, values: Any) -> Any:
    """Return what a query (heads, 1, head) finds, as (dim,)."""
    scores = query @ keys.transpose(0, 2, 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ values).reshape(-1)


class Encoder:
    """The session of the encoder. Behind the tokens of a source stands what would spoil every result."""

    def __init__(self, model: Model) -> None:
        self.model, self.shapes = model, []  # type: ignore[var-annotated]

    def run(self, names: Any, feeds: Any) -> Any:
        ids, mask = feeds["input_ids"], feeds["attention_mask"]
        assert list(names) == CROSS
        assert ids.dtype == mask.dtype == np.int64
        self.shapes.append(ids.shape)
        outputs = [np.full((len(ids), HEADS, ids.shape[1], HEAD), 1e3, np.float32) for _ in CROSS]
        for row, (some, real) in enumerate(zip(ids, mask.sum(1), strict=True)):
            for output, part in zip(outputs, self.model.encode(some[:real]), strict=True):
                output[row, :, :real] = part
        return outputs


class Decoder:
    """The session of the decoder, for either target. ``calls`` are (rows, sources, outputs, count) of each run."""

    def __init__(self, model: Model, shared: bool) -> None:
        self.model, self.shared = model, shared
        self.calls: list[tuple[int, int, tuple[str, ...], int]] = []

    def run(self, names: Any, feeds: Any) -> Any:
        ids, mask, (position,), (count,) = (
            feeds[name] for name in ("input_ids", "encoder_attention_mask", "position", "top_k")
        )
        rows, sources = len(ids), len(mask)
        assert ids.shape == (rows, 1)
        assert rows % sources == 0
        assert all(feeds[name].dtype == np.int64 for name in ("input_ids", "encoder_attention_mask", "position"))
        assert all(feeds[name].shape == (sources, HEADS, mask.shape[1], HEAD) for name in CROSS)
        assert all(feeds[name].shape[:2] == (rows, HEADS) for name in PAST)
        self.calls.append((rows, sources, tuple(name for name in names if "present" not in name), int(count)))
        logits, new_past = [], []
        for row in range(rows):
            cross = [feeds[name][row // (rows // sources)][:, mask[row // (rows // sources)] == 1] for name in CROSS]
            results, new = self.model.step(ids[row, 0], position, self.past(feeds, row, position), cross)
            logits.append(results)
            new_past.append(new)
        outputs = {"logits": np.array(logits, np.float32), **self.presents(feeds, new_past, position)}
        logprobs = outputs["logits"] - np.log(np.exp(outputs["logits"]).sum(1, keepdims=True))
        outputs["top_ids"] = np.argsort(-logprobs, 1, "stable")[:, :count]
        outputs["top_logprobs"] = np.take_along_axis(logprobs, outputs["top_ids"], 1)
        return [outputs[name] for name in names]

    def past(self, feeds: Any, row: int, position: int) -> list[Any]:
        """Return the keys and values (heads, position, head) of a row."""
        if not self.shared:
            assert all(feeds[name].shape[2] == position for name in PAST)
            return [feeds[name][row] for name in PAST]
        table = feeds["cache_indirection"]
        assert table.dtype == np.int32
        assert all(table.shape == (1, len(feeds[name]), feeds[name].shape[2]) for name in PAST)
        owners = table[0, row, :position]
        assert (owners < len(table[0])).all()  # the kernel refuses others
        return [feeds[name][owners, :, np.arange(position)].transpose(1, 0, 2) for name in PAST]

    def presents(self, feeds: Any, new_past: Any, position: int) -> dict[str, Any]:
        """Return keys and values with the new ones among them."""
        outputs = {}
        for place, name in enumerate(PAST):
            new = np.array([item[place] for item in new_past], np.float32)[:, :, None]
            if self.shared:
                outputs[name.replace("past_key_values", "present")] = present = feeds[name].copy()
                present[:, :, position : position + 1] = new
            else:
                outputs[name.replace("past_key_values", "present")] = np.concatenate([feeds[name], new], 2)
        return outputs


def specs(names: Sequence[str], dtype: str, shape: tuple[int | str, ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, dtype, shape) for name in names)


def graph_specs(shared: bool, vocab_size: int) -> dict[str, GraphSpec]:
    """Return the signatures of both graphs."""
    cross = specs(CROSS, "float32", ("prompts", HEADS, "source", HEAD))
    past = specs(PAST, "float32", ("rows", HEADS, "max_sequence" if shared else "past_sequence", HEAD))
    presents = [name.replace("past_key_values", "present") for name in PAST]
    present = specs(presents, "float32", ("rows", HEADS, "max_sequence" if shared else "total_sequence", HEAD))
    inputs = [
        *specs(["input_ids"], "int64", ("rows", 1)),
        *specs(["position", "top_k"], "int64", (1,)),
        *specs(["encoder_attention_mask"], "int64", ("prompts", "source")),
        *cross,
        *past,
        *(specs(["cache_indirection"], "int32", (1, "rows", "max_sequence")) if shared else ()),
    ]
    outputs = [
        *specs(["logits"], "float32", ("rows", vocab_size)),
        *specs(["top_ids"], "int64", ("rows", "k")),
        *specs(["top_logprobs"], "float32", ("rows", "k")),
        *present,
    ]
    read = specs(["input_ids", "attention_mask"], "int64", ("batch", "sequence"))
    return {
        "encoder": GraphSpec("encoder.onnx", read, cross),
        "decoder": GraphSpec("decoder.onnx", tuple(inputs), tuple(outputs)),
    }


def fake_translation_bundle(
    folder: Path,
    *,
    shared: bool = True,
    target: Any = None,
    settings: dict[str, Any] | None = None,
    decoding: dict[str, Any] | None = None,
) -> Bundle:
    """Write tokenizers into ``folder``: one, or with a ``target`` two."""
    folder.mkdir(parents=True, exist_ok=True)
    source, files = wordpiece(), {}
    size = target_size = source.get_vocab_size()
    if target is None:
        source.save(str(folder / "tokenizer.json"))
    else:
        target_size = target.get_vocab_size()
        for name, tokenizer in (("source_tokenizer.json", source), ("target_tokenizer.json", target)):
            tokenizer.save(str(folder / name))
            files[name] = FileEntry(0, "")
    manifest = Manifest(
        "0", "seq2seq", "translate", "cpu", {}, graph_specs(shared, target_size), settings or {},
        Limits(size, POSITIONS, POSITIONS), Weights("fp32", 0), files, DECODING if decoding is None else decoding,
    )  # fmt: skip
    return Bundle(folder, manifest)


def fake_translator(folder: Path, **options: Any) -> Translator:
    """Return an engine over the model."""
    bundle = fake_translation_bundle(folder, **options)
    model = Model(bundle.manifest.limits.vocab_size, int(bundle.graph("decoder").outputs[0].shape[-1]))
    return Translator(bundle, sessions=(Encoder(model), Decoder(model, options.get("shared", True))))


def sessions(engine: Translator) -> tuple[Encoder, Decoder]:
    """Return the sessions of a fake engine."""
    encoder, decoder = engine._session, engine._decoder
    assert isinstance(encoder, Encoder)
    assert isinstance(decoder, Decoder)
    return encoder, decoder


class Anew:
    """The model under a search: every row by itself, from its source and the tokens of its target."""

    def __init__(self, model: Model, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> None:
        self.model = model
        self.rows = list(zip(sources, targets, strict=True))

    def logits(self) -> Any:
        return np.stack([self.model.logits(*row) for row in self.rows])

    def step(self, parents: Any, tokens: Any) -> Any:
        self.rows = [
            (self.rows[parent][0], [*self.rows[parent][1], token])
            for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True)
        ]
        return self.logits()


def expected(
    engine: Translator, sources: Sequence[list[int]], targets: Sequence[list[int]], **options: Any
) -> list[list[Hypothesis]]:
    """Return what a search over the model finds for the token ids of sources, after those of targets."""
    rows = Anew(sessions(engine)[0].model, sources, targets)
    chosen = Options.read(engine.decoding, **options)
    limit = [
        min(POSITIONS, len(target) + 3 * len(source) + 16) for source, target in zip(sources, targets, strict=True)
    ]
    if chosen.max_new_tokens is not None or chosen.max_length is not None:
        limit = [POSITIONS] * len(sources)
    return search(rows, rows.logits(), targets, chosen, limit=limit, decode=engine._decode, keys=sources)
