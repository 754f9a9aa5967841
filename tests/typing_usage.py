"""Every public call as users spell it: checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import edgebert
import edgebert_runtime
from edgebert import (
    Answer,
    Answerer,
    Bundle,
    Choice,
    Classification,
    Classifier,
    EdgebertError,
    Embedder,
    EmbedOptions,
    EmbedResult,
    Entity,
    Filling,
    Generation,
    GenerationOptions,
    Generator,
    MaskFiller,
    MultipleChoice,
    Prefix,
    Ranked,
    Reranker,
    Scored,
    Tagger,
    TextOptions,
    Translator,
)
from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert.models.bert.heads import HeadConfig, HeadedBert
from edgebert.models.bert.model import Bert, BertConfig
from edgebert.models.elmo.model import Elmo, ElmoConfig
from edgebert.models.gpt2.heads import Gpt2Classifier, Gpt2LanguageModel
from edgebert.models.gpt2.model import Gpt2Config
from edgebert.models.pooling import SentenceEncoder
from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert.models.seq2seq.model import Seq2Seq
from edgebert_exporters import compare_bundles, export_checkpoint, measure_sensitivity, quantize_bundle, verify_bundle
from edgebert_runtime.benchmark import measure
from edgebert_runtime.bundle.manifest import GraphSpec, Manifest
from edgebert_runtime.decoders.slot_cache import SlotCache
from edgebert_runtime.tasks.base.text_engine import PreparedPrompt


def show(done: int, total: int | None) -> None:
    """Take the progress of an engine."""


def step(name: str, done: int, total: int) -> None:
    """Take the progress of an export."""


def loading(folder: Path) -> None:
    assert_type(edgebert.__version__, str)
    embedder = edgebert.Embedder.load("bundle/")
    edgebert.Embedder.load(folder, device="cuda:1", threads=4, verify="size").embed(["a text"])
    assert_type(edgebert_runtime.load(folder), edgebert.AnyEngine)
    edgebert.load(folder, verify="none")  # type: ignore[arg-type]
    bundle = Bundle.open(folder, "size")
    assert_type(bundle, Bundle)
    assert_type(bundle.path, Path)
    assert_type(bundle.manifest, Manifest)
    assert_type(bundle.graph("model"), GraphSpec)
    assert_type(bundle.manifest.limits.max_tokens, int)
    assert_type(Manifest.from_json(bundle.manifest.to_json()), Manifest)
    assert_type(Embedder(bundle, device="auto", threads=None), Embedder)
    assert_type(embedder.embed(["a text"]), NDArray[np.float32])


def closing(folder: Path) -> None:
    shared: TextOptions = {"max_tokens": 8, "truncate": False, "max_batch_tokens": 512, "encoding_errors": "strict"}
    with Embedder.load(folder) as embedder:
        assert_type(embedder, Embedder)
        embedder.embed(["a text"], **shared)
    embedder.close()
    search: GenerationOptions = {"do_sample": True, "top_p": 0.9, "stop": ["\n"]}
    with edgebert.Translator.load(folder, threads=2) as translator:
        translator.translate(["a text"], **search)
    translator.close()


def embedding(engine: Embedder, ids: NDArray[np.int64]) -> None:
    assert_type(engine.embed(["a text", "another"]), NDArray[np.float32])
    engine.embed([[101, 7592, 102], ids], max_tokens=64, truncate=False, max_batch_tokens=4096, progress=show)
    engine.embed((line for line in ["a", "b"]), encoding_errors="replace")
    engine.embed(["a"], long_texts="mean", stride=16)
    chosen: EmbedOptions = {"prompt": "query", "dim": 64, "normalize": True}
    engine.embed(["a"], **chosen)
    assert_type(engine.embed_query(["a"], progress=show), NDArray[np.float32])
    assert_type(engine.embed_documents(["a"], prompt_text="passage: "), NDArray[np.float32])
    engine.embed(["a"], encoding_errors="ignore")  # type: ignore[arg-type]
    result = engine.embed_detailed(["a"], max_tokens=8, truncate=True, encoding_errors="strict", progress=show)
    assert_type(result, EmbedResult)
    assert_type(result.vectors, NDArray[np.float32])
    assert_type(result.token_counts, NDArray[np.int64])
    assert_type(result.truncated, NDArray[np.bool_])
    assert_type(engine.stream(["a"], max_tokens=8, truncate=True), Iterator[NDArray[np.float32]])
    assert_type((engine.dim, engine.threads, engine.max_tokens, engine.default_tokens), tuple[int, int, int, int])
    names: tuple[str, ...] = Embedder.tasks
    assert_type(names, tuple[str, ...])
    assert_type(engine.device, str)
    assert_type(engine.fallback, str | None)
    assert_type(engine.bundle, Bundle)
    assert_type(measure(engine, seconds=2.5), dict[str, Any])


def tokenizing(engine: Embedder, folder: Path) -> None:
    tokenizer = edgebert.Tokenizer.load(folder)
    assert_type(engine.tokenizer, edgebert.Tokenizer)
    assert_type(tokenizer.count_tokens(["a text"], ["another"], special_tokens=True), list[int])
    tokens: edgebert.Tokens = tokenizer.tokenize("a text", side="source")
    assert_type((tokens.ids, tokens.offsets), tuple[tuple[int, ...], tuple[tuple[int, int], ...]])
    assert_type(tokenizer.decode(tokens.ids), str)
    pieces: list[edgebert.TextPiece] = tokenizer.split("a text", 64, overlap=8)
    assert_type((pieces[0].text, pieces[0].num_tokens), tuple[str, int])


def classifying(engine: Classifier) -> None:
    assert_type((engine.labels, engine.problem_type), tuple[tuple[str, ...], str])
    (classification,) = engine.classify(["a text"], ["another"], max_tokens=8, truncate=False, progress=show)
    assert_type(classification, Classification)
    assert_type((classification.label, classification.score, classification.truncated), tuple[str, float, bool])
    assert_type(classification.scores, NDArray[np.float32])
    assert_type(engine.stream(iter(["a text"]), encoding_errors="replace"), Iterator[Classification])
    engine.classify(["a text"], max_length=8)  # type: ignore[call-arg]


def ranking(engine: Reranker, chooser: MultipleChoice) -> None:
    assert_type(engine.activation, str)
    (best,) = engine.rerank("a query", ["a passage"], top_k=1, max_batch_tokens=4096)
    assert_type(best, Ranked)
    assert_type((best.index, best.score, best.text, best.truncated), tuple[int, float, str, bool])
    assert_type(engine.score([("a query", "a passage")]), NDArray[np.float32])
    assert_type(chooser.choose("a prompt", ["a choice", "another"])[0], Choice)
    assert_type(chooser.choose_many([("a prompt", ["a choice", "another"])]), list[list[Choice]])


def reading(tagger: Tagger, answerer: Answerer) -> None:
    assert_type(tagger.labels, tuple[str, ...])
    entity = tagger.tag(["a text"], aggregation="first", stride=4, progress=show)[0][0]
    assert_type(entity, Entity)
    assert_type((entity.label, entity.score, entity.start), tuple[str, float, int])
    assert_type((entity.end, entity.text), tuple[int, str])
    assert_type(tagger.stream(["a text"]), Iterator[list[Entity]])
    answer = answerer.answer("a question", "a context", top_k=2, handle_impossible_answer=True, stride=8)[0]
    assert_type(answer, Answer)
    assert_type(answerer.answer_many([("a question", "a context")], max_answer_tokens=9), list[list[Answer]])


def filling(engine: MaskFiller) -> None:
    assert_type(engine.mask_token, str)
    filling = engine.fill(["a [MASK]"], top_k=3, targets=["text", 17])[0][0][0]
    assert_type(filling, Filling)
    assert_type((filling.token, filling.token_id, filling.score), tuple[str, int, float])
    assert_type((filling.text, filling.start, filling.end), tuple[str, int, int])
    assert_type(engine.stream(["a [MASK]"]), Iterator[list[list[Filling]]])


def generating(engine: Generator) -> None:
    assert_type(engine.decoding, dict[str, Any])
    prefix = engine.prefix("what all have in common")
    assert_type(prefix, Prefix)
    assert_type((prefix.ids, prefix.past), tuple[tuple[int, ...], tuple[NDArray[np.float32], ...]])
    continuations: list[Generation] = engine.generate(
        ["a prompt"], prefix=prefix, prompt_lookup=True, max_new_tokens=8, progress=show
    )
    assert_type(
        (continuations[0].text, continuations[0].tokens, continuations[0].token_logprobs),
        tuple[str, tuple[int, ...], tuple[float, ...]],
    )
    assert_type(
        (continuations[0].score, continuations[0].finish_reason), tuple[float, Literal["stop", "stop_string", "length"]]
    )
    options: GenerationOptions = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": "never"}
    assert_type(engine.generate(["a prompt"], num_return_sequences=2, **options), list[list[Generation]])
    assert_type(engine.generate(["a prompt"], num_return_sequences=1, **options), list[Generation])
    count = len(continuations)
    assert_type(engine.generate(["a prompt"], num_return_sequences=count), list[Generation] | list[list[Generation]])
    engine.generate(["a prompt"], num_beam=4)  # type: ignore[call-overload]
    prepared = engine.prepare("a prompt", max_new_tokens=3)
    assert_type(prepared, PreparedPrompt)
    assert_type(engine.results(prepared, []), list[Generation])
    assert_type(engine.slot_cache(2), SlotCache)
    assert_type(engine.stream("a prompt", do_sample=True, temperature=0.8, seed=1), Iterator[str])
    (scored,) = engine.score(["a text"], max_batch_tokens=512)
    assert_type(scored, Scored)
    assert_type((scored.tokens, scored.token_logprobs), tuple[tuple[int, ...], tuple[float, ...]])
    assert_type((scored.score, scored.perplexity), tuple[float, float])
    assert_type(Scored.of([1], [-0.5]), Scored)


def translating(engine: Translator) -> None:
    assert_type((engine.languages, engine.source_language), tuple[tuple[str, ...], str])
    assert_type(engine.target_language, str)
    translations = engine.translate(["a text"], target_prefix="so", num_beams=4, progress=show)
    assert_type(translations, list[Generation])
    assert_type(engine.translate(["a text"], num_return_sequences=3, num_beams=4), list[list[Generation]])
    assert_type(translations[0].text, str)
    engine.translate(["a", [5, 6, 2]], target_prefix=["so", [7]], source_language="en_XX", target_language="de_DE")
    engine.translate(
        (line for line in ["a. b."]), split_sentences=True, max_batch_tokens=512, encoding_errors="replace"
    )
    assert_type(engine.stream("a text", do_sample=True, split_sentences=True), Iterator[str])
    (scored,) = engine.score([("a text", "its translation")], target_language="de_DE")
    assert_type(scored, Scored)
    engine.score(["a text"])  # type: ignore[list-item]


class Session:
    """A session of the caller's own."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        """Run nothing."""
        return [np.zeros((len(feeds["input_ids"]), 3), np.float32)]


def own_session(bundle: Bundle) -> None:
    Embedder(bundle, session=Session())
    Embedder(bundle, session=object())  # type: ignore[arg-type]
    Translator(bundle, sessions=(Session(), Session()))


def exporting(folder: Path) -> None:
    assert_type(export_checkpoint("checkpoint/", "bundle/"), Bundle)
    export_checkpoint(
        folder, folder, task="embed", target="portable", pooling="cls", normalize=True, force=True, progress=step
    )
    assert_type(quantize_bundle("bundle/", "small/"), Bundle)
    quantize_bundle(
        folder,
        folder,
        scheme="int8",
        granularity="block",
        block_size=64,
        asymmetric=True,
        algorithm="gptq",
        exclude=["*.0.*"],
        calibration=["a"],
        eval="examples.jsonl",
        min_fidelity=0.9,
        max_slowdown=1.0,
        force=True,
        progress=step,
    )
    quantize_bundle(folder, folder, scheme="int8-static", calibration_method="mse")
    quantize_bundle(folder, folder, mixed_precision=0.005)
    assert_type(measure_sensitivity(folder, granularity="channel", exclude=[], calibration=None), list[dict[str, Any]])
    assert_type(compare_bundles(["a/", folder]), dict[str, Any])
    compare_bundles([folder] * 2, texts=["a"], texts_name="a.txt", seconds=1, device="cpu", threads=1, progress=step)
    assert_type(verify_bundle("bundle/"), dict[str, Any])
    assert_type(verify_bundle(folder, folder, progress=step), dict[str, Any])


def references(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert_type(checkpoint, Checkpoint)
    assert_type(checkpoint.config, BertConfig | ElmoConfig | Gpt2Config | Seq2SeqConfig)
    assert_type(checkpoint.head, HeadConfig | None)
    model = checkpoint.load_model()
    assert_type(model, Bert | HeadedBert | Elmo | Gpt2LanguageModel | Gpt2Classifier | Seq2Seq)
    if isinstance(model, Bert):
        SentenceEncoder(model, "mean", True)
    if isinstance(model, Elmo):
        SentenceEncoder(model, "mean", True)
    open_checkpoint(folder, task="classify", allow_pickle=True, problem_type="multi_label", labels=["a", "b"])


def catching(folder: Path) -> str:
    try:
        edgebert.load(folder)
    except (edgebert.errors.DeviceError, edgebert.errors.IntegrityError):
        return "a kind of error"
    except EdgebertError as error:
        return str(error)
    try:
        edgebert.Embedder.load(folder).embed(["a"])
    except ValueError as error:  # InputError is one
        return str(error)
    return ""
