"""The results of a bundle against those of transformers or sentence-transformers on the same checkpoint.

Texts go through the tokenizer and the model of each, and the end results are compared: vectors, scores, tokens and
text.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgebert_exporters.fidelity.comparison import cosines
from edgebert_exporters.fidelity.figures import told_apart
from edgebert_exporters.inference.sample_texts import sample_texts
from edgebert_exporters.progress import Progress
from edgebert_exporters.verification.parity import TOLERANCE
from edgebert_exporters.verification.reference_library import (
    SENTENCE_TRANSFORMERS,
    Library,
    numbers_of,
    open_library,
    quiet,
)
from edgebert_runtime import load
from edgebert_runtime.errors import InputError, ParityError
from edgebert_runtime.task_specs import MULTIPLE_CHOICE
from edgebert_runtime.tasks.translator import Translator

Floats = NDArray[np.float64]

TEXTS = 6
OTHER_TEXT = "The café's 2 boats — naïve, red & white — left at 7:45!"
NEW_TOKENS = 12
MAX_ANSWER_TOKENS = 15


@dataclass(frozen=True)
class Result:
    """One result: the numbers of the bundle and of the library, and their words (tokens, text, labels)."""

    numbers: tuple[Any, Any] = ((), ())
    words: tuple[Any, Any] = ((), ())


def softmax(logits: Floats) -> Floats:
    """Return probabilities over the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def sigmoid(logits: Floats) -> Floats:
    """Return a probability for each number."""
    return np.asarray(1 / (1 + np.exp(-logits)))


ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "single_label": softmax,
    "softmax": softmax,
    "multi_label": sigmoid,
    "sigmoid": sigmoid,
    "regression": lambda logits: logits,
    "identity": lambda logits: logits,
}
POOLINGS: dict[str, Callable[[Floats], Floats]] = {
    "cls": lambda hidden: hidden[0],
    "last": lambda hidden: hidden[-1],
    "mean": lambda hidden: hidden.mean(0),
    "max": lambda hidden: hidden.max(0),
    "mean_sqrt_len_tokens": lambda hidden: hidden.sum(0) / np.sqrt(len(hidden)),
    "weightedmean": lambda hidden: np.average(hidden, 0, np.arange(1, len(hidden) + 1)),
}


def embed(engine: Any, library: Library, text: str, _following: str) -> Result:
    """Compare vectors."""
    if library.name == SENTENCE_TRANSFORMERS:
        return Result((engine.embed([text])[0], library.model.encode([text])[0]))
    outputs, settings = library.run(text), engine.bundle.manifest.settings
    pooling, dim = settings["pooling"], engine.embed([text], prompt_text="").shape[1]
    hidden = numbers_of(outputs.last_hidden_state[0])
    vector = numbers_of(outputs.pooler_output[0]) if pooling == "pooler" else POOLINGS[pooling](hidden)
    vector = vector / np.linalg.norm(vector) if settings["normalize"] else vector
    return Result((engine.embed([text], prompt_text="")[0], vector[:dim]))


def classify(engine: Any, library: Library, text: str, _following: str) -> Result:
    """Compare the scores of all labels."""
    activation = ACTIVATIONS[engine.bundle.manifest.settings["problem_type"]]
    return Result((engine.classify([text])[0].scores, activation(library.logits(text))))


def next_sentence(engine: Any, library: Library, text: str, following: str) -> Result:
    """Compare the scores of a pair."""
    return Result((engine.classify([text], [following])[0].scores, softmax(library.logits(text, following))))


def rerank(engine: Any, library: Library, text: str, following: str) -> Result:
    """Compare the score of a pair."""
    actual = engine.score([(text, following)])[0]
    if library.name == SENTENCE_TRANSFORMERS:
        scores = np.asarray(library.model.predict([(text, following)]), np.float64).reshape(-1)
        return Result(([actual], softmax(scores)[-1:] if len(scores) > 1 else scores))
    scores = ACTIVATIONS[engine.bundle.manifest.settings["activation"]](library.logits(text, following))
    return Result(([actual], scores[-1:]))


def choose(engine: Any, library: Library, text: str, following: str) -> Result:
    """Compare the scores of two choices."""
    endings = [following, following.swapcase()]
    choices = sorted(engine.choose(text, endings), key=lambda choice: choice.index)
    rows = library.tokenizer([text] * 2, endings, return_tensors="pt", padding=True)
    outputs = library.model(**{name: tensor[None] for name, tensor in rows.items()})
    return Result(([choice.score for choice in choices], softmax(numbers_of(outputs.logits[0]))))


def tag(engine: Any, library: Library, text: str, _following: str) -> Result:
    """Compare the label and the score of each token."""
    logits = library.logits(text)
    if logits.ndim == 1:  # the discriminator of ELECTRA has one number for two labels
        logits = np.stack([np.zeros_like(logits), logits], 1)
    real = [number is not None for number in library.tokenizer(text).sequence_ids()]
    best, scores = logits[real].argmax(1), softmax(logits[real]).max(1)
    outside = [engine.labels[label] in ("O", "original") for label in best]
    pairs = [(engine.labels[label], score) for label, score, out in zip(best, scores, outside, strict=True) if not out]
    entities = engine.tag([text], aggregation="none")[0]
    words = [entity.label for entity in entities], [label for label, _ in pairs]
    return Result(([entity.score for entity in entities], [score for _, score in pairs]), words)


def answer(engine: Any, library: Library, text: str, following: str) -> Result:
    """Compare the score of the best span, and whether it is the same place."""
    outputs, row = library.run(text, following), library.tokenizer(text, following, return_offsets_mapping=True)
    places = [place for place, number in enumerate(row.sequence_ids()) if number == 1]
    start, end = (numbers_of(tensor[0]) for tensor in (outputs.start_logits, outputs.end_logits))
    table = np.triu(start[places, None] + end[None, places] + 1e9) - 1e9
    table = np.where(np.tri(len(places), k=MAX_ANSWER_TOKENS - 1) > 0, table, -np.inf)
    first, last = np.unravel_index(table.argmax(), table.shape)
    total = sum(np.logaddexp.reduce(side[[0, *places]]) for side in (start, end))
    (actual,) = engine.answer(text, following, max_answer_tokens=MAX_ANSWER_TOKENS)
    offsets = [row["offset_mapping"][place] for place in places]
    inside = actual.start <= offsets[first][1] and offsets[last][0] <= actual.end  # our spans are of whole words
    return Result(([actual.score], [np.exp(table.max() - total)]), (inside, True))


def fill_mask(engine: Any, library: Library, text: str, _following: str) -> Result:
    """Compare the best tokens of a masked word, and their scores."""
    mask = engine.bundle.manifest.settings["mask_token"]
    first, _, others = text.split(" ", 2)
    masked = f"{first} {mask} {others}"
    place = library.tokenizer(masked).input_ids.index(library.tokenizer.convert_tokens_to_ids(mask))
    scores = softmax(library.logits(masked)[place])
    fillings = engine.fill([masked])[0][0]
    actual = [filling.score for filling in fillings]
    theirs = [scores[filling.token_id] for filling in fillings]
    return Result(([*actual, *actual], [*theirs, *np.sort(scores)[::-1][: len(fillings)]]))


def generate(engine: Any, library: Library, text: str, _following: str) -> Result:
    """Compare the tokens and the text that follow."""
    inputs = library.tokenizer(text, return_tensors="pt")
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "num_beams": 1}
    (actual,) = engine.generate([text], **options)
    out = library.model.generate(**inputs, tokenizer=library.tokenizer, **options)
    tokens = out[0, inputs["input_ids"].shape[1] :].tolist()
    spelled = library.tokenizer.decode(tokens, skip_special_tokens=True)
    return Result(words=((list(actual.tokens), actual.text), (tokens, spelled)))


def translate(engine: Translator, library: Library, text: str, _following: str) -> Result:
    """Compare the tokens and the text of a translation, in the languages of the bundle or the first that it has."""
    style = engine.bundle.manifest.settings["language_style"]
    source, target = engine.source_language or engine.languages[:1], engine.target_language or engine.languages[-1:]
    source, target = (name if isinstance(name, str) else "".join(name) for name in (source, target))
    ours: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "num_beams": 1}
    theirs = dict(ours)
    if style:
        ours["target_language"] = target
    if style.startswith("bart"):
        ours["source_language"] = library.tokenizer.src_lang = source
        token = library.tokenizer.convert_tokens_to_ids(target)
        theirs["forced_bos_token_id" if style == "bart50" else "decoder_start_token_id"] = token
    spelled = f">>{target}<< {text}" if style == "token" else text
    (actual,) = engine.translate([text], **ours)
    out = library.model.generate(
        **library.tokenizer(spelled, return_tensors="pt"), tokenizer=library.tokenizer, **theirs
    )
    tokens = out[0, 1:].tolist()
    return Result(
        words=((list(actual.tokens), actual.text), (tokens, library.tokenizer.decode(tokens, skip_special_tokens=True)))
    )


COMPARISONS: dict[str, Callable[[Any, Library, str, str], Result]] = {
    "embed": embed,
    "classify": classify,
    "next-sentence": next_sentence,
    "rerank": rerank,
    MULTIPLE_CHOICE: choose,
    "tag": tag,
    "answer": answer,
    "fill-mask": fill_mask,
    "generate": generate,
    "translate": translate,
}


def compare_with_library(bundle: Path, checkpoint: Path, name: str, progress: Progress) -> dict[str, Any]:
    """Run texts through a bundle and through a library on its checkpoint; return the figures.

    Texts that the bundle refuses are left out. Callers have checked that the library is there and has the task.

    Raises:
        ExportError: if the library cannot open the checkpoint.
        ParityError: if a float32 bundle gives other results, or a quantized one less alike than its report says.
    """
    with load(bundle, verify="size") as engine, quiet():
        manifest = engine.bundle.manifest
        library, compare = open_library(name, checkpoint, manifest.task), COMPARISONS[manifest.task]
        samples = sample_texts()
        texts = [*samples[:TEXTS], OTHER_TEXT]
        texts += [" ".join(samples)] * (name == SENTENCE_TRANSFORMERS and manifest.task == "embed")  # is cut
        results = []
        for number, text in enumerate(texts):
            pair = text, samples[TEXTS + number]
            if library.tokenizer is not None:
                pair = shortened(library, pair, engine.default_tokens - NEW_TOKENS)
            with contextlib.suppress(InputError):
                results.append((text, compare(engine, library, *pair)))
            progress(f"verify {name}", number + 1, len(texts))
    if not results:
        raise ParityError(f"the bundle refuses every text of the comparison with {name}")
    version = f"{name} {importlib.metadata.version(name)}"
    return figures_of(results, version, None if manifest.weights.scheme == "fp32" else manifest.report)


def shortened(library: Library, pair: tuple[str, str], room: int) -> tuple[str, str]:
    """Return two texts of at most ``room`` tokens together: words are taken from the end of the longer."""
    first, second = (text.split(" ") for text in pair)
    while len(library.tokenizer(" ".join(first), " ".join(second)).input_ids) > room and len(first) + len(second) > 5:
        (first if len(first) > len(second) else second).pop()
    return " ".join(first), " ".join(second)


def figures_of(results: list[tuple[str, Result]], version: str, report: dict[str, Any] | None) -> dict[str, Any]:
    """Return the figures of a comparison; ``report`` is that of a quantized bundle.

    Raises:
        ParityError: naming the first text with other tokens or words, or the text with the largest error.
    """
    figures: dict[str, Any] = {"library": version, "texts": len(results)}
    if any(result.words != Result().words for _, result in results):
        figures["identical"] = sum(result.words[0] == result.words[1] for _, result in results)
    if report is None:
        check_words(results, version)
    pairs = [(text, np.ravel(result.numbers[0]), np.ravel(result.numbers[1])) for text, result in results]
    pairs = [(text, actual, theirs) for text, actual, theirs in pairs if len(actual) == len(theirs) > 0]
    if not pairs:
        return figures
    if report is not None:
        return figures | {"cosine": check_cosine(pairs, version, report["min_fidelity"])}
    largest = max(float(np.abs(theirs).max()) for _, _, theirs in pairs)
    errors = [float(np.abs(actual - theirs).max()) / max(largest, 1e-6) for _, actual, theirs in pairs]
    worst = int(np.argmax(errors))
    if not errors[worst] <= TOLERANCE:
        raise ParityError(
            f"the bundle differs from {version} by {errors[worst]:.1e} of the largest number (allowed {TOLERANCE:.0e}) "
            f"for the text {pairs[worst][0]!r:.60}; are tokenizer and settings those of the model?"
        )
    return figures | {"max_error": errors[worst], "tolerance": TOLERANCE}


def check_words(results: list[tuple[str, Result]], version: str) -> None:
    """Make sure that tokens, words and the count of numbers are the same."""
    for text, result in results:
        if result.words[0] != result.words[1] or np.size(result.numbers[0]) != np.size(result.numbers[1]):
            actual, theirs = result.words if result.words[0] != result.words[1] else result.numbers
            raise ParityError(f"{version} gives {theirs!r:.160} for the text {text!r:.60}, the bundle {actual!r:.160}")


def check_cosine(pairs: list[tuple[str, Floats, Floats]], version: str, least: float) -> float:
    """Return the mean cosine of a quantized bundle to the library, at least that of its report."""
    cosine = float(np.mean([cosines(actual[None], theirs[None])[0] for _, actual, theirs in pairs]))
    if not cosine >= least:
        text = told_apart(cosine, least)
        raise ParityError(f"the bundle has a mean cosine of {text} to {version}, its report says {least}")
    return cosine
