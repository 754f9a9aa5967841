"""Turn texts into vectors with a bundle of the task ``embed``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.inputs.prompts import Prompt, Prompts
from edgebert_runtime.inputs.validation import Item, check_choice, check_flag, check_text, check_whole, iterate
from edgebert_runtime.task_specs import EMBED
from edgebert_runtime.tasks.base.batch_pipeline import BatchEngine, Floats, Request
from edgebert_runtime.tasks.base.engine import Progress
from edgebert_runtime.tasks.base.model_inputs import ModelInput, WorkItem
from edgebert_runtime.tasks.base.text_encoder import token_windows
from edgebert_runtime.tasks.base.text_options import CheckedOptions, TextOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

OUTPUT = "sentence_embedding"
MIN_NORM = 1e-12
NO_PROMPT = Prompt()

LongTexts = Literal["truncate", "mean"]
Embedded = tuple[Floats, int, bool]  # vector, number of tokens, truncated


class EmbedOptions(TextOptions, total=False):
    """The options of every method of :class:`Embedder` by keyword.

    ``prompt`` names a prompt of the bundle, ``prompt_text`` is one of your own. Without either, the bundle's default
    prompt stands before each text; ``prompt_text=""`` switches it off. Token ids get no default prompt, and are refused
    beside another.

    ``dim`` cuts vectors to their first numbers, after everything else; by default to the bundle's ``dim``.
    ``normalize=True`` scales them to length 1 after the cut: cut vectors are shorter. ``normalize=False`` refuses a
    bundle that scales them itself.

    With ``long_texts="truncate"`` a text of more than ``max_tokens`` tokens is cut, and one warning says how many were.
    With ``long_texts="mean"`` it is split into windows of ``max_tokens`` that share ``stride`` tokens, each with the
    prompt before it. Its vector is the mean of theirs, each weighted by its tokens without special ones and prompt. The
    mean has length 1 if the bundle normalizes, and is cut last.
    """

    prompt: str | None
    prompt_text: str | None
    dim: int | None
    normalize: bool | None
    long_texts: LongTexts
    stride: int


@dataclass(frozen=True)
class EmbedResult:
    """Vectors (n, dim), the tokens that were read of each text (n,), and whether it was cut (n,).

    ``engine.tokenizer.count_tokens`` has the numbers before the cut.
    """

    vectors: Floats
    token_counts: NDArray[np.int64]
    truncated: NDArray[np.bool_]


@dataclass(frozen=True)
class EmbedRequest(Request):
    """A call, checked. Vectors have ``dim`` numbers; ``normalize`` scales them once more."""

    long_texts: LongTexts
    stride: int
    prompt: Prompt
    dim: int
    normalize: bool


@dataclass(frozen=True)
class EmbedItem(WorkItem):
    """A text: the rows of its windows, their weights in the mean, and the number of its tokens."""

    weights: tuple[int, ...]
    token_count: int


class Embedder(BatchEngine[EmbedRequest, EmbedItem, Floats, Embedded]):
    """Sentence vectors of ``dim`` numbers. Threads may share an engine; it pickles as its folder and options.

    The model gives ``max_dim`` numbers, of which a call may ask for any. ``prompts.texts`` are the prompts by name.

    ``session`` replaces the ONNX Runtime session by anything that has its ``run``.

    Raises:
        BundleError: if the bundle is of another task.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (EMBED,)
    _outputs = (OUTPUT,)

    def _read_settings(self) -> None:
        """Read the prompts, the size of a vector, and whether it has length 1."""
        width, settings = self._shapes[OUTPUT][-1], self.bundle.manifest.settings
        if len(self._shapes[OUTPUT]) != 2 or not isinstance(width, int):
            raise BundleError(
                f"{self.bundle.path} has the output {OUTPUT}, but not of shape (batch, dim); export again"
            )
        dim = settings.get("dim", width)
        if type(dim) is not int or not 1 <= dim <= width:
            raise BundleError(f"{self.bundle.path} has the setting dim={dim!r:.40}, not 1 to {width}; export again")
        self.dim, self.max_dim = dim, width
        self.prompts = Prompts.read(settings, str(self.bundle.path))
        self._normalize = bool(settings.get("normalize"))

    def embed(
        self, texts: Iterable[Item], *, progress: Progress | None = None, **options: Unpack[EmbedOptions]
    ) -> Floats:
        """Return the vectors (n, dim) of ``texts``, in their order.

        A list of token ids may stand for a text. It is taken as it is. ``progress`` is called with the number done and
        the total, None where it is not known. :class:`EmbedOptions` are the other options.

        Raises:
            InputError: naming the text or option that cannot be used.
            LimitError: for a text that is too long, with ``truncate=False``.
        """
        result = self._embed(texts, progress, options)
        if truncated := int(result.truncated.sum()):
            max_tokens = options.get("max_tokens") or self.default_tokens
            self._warn_truncated(truncated, len(result.truncated), max_tokens)
        return result.vectors

    def embed_query(
        self, texts: Iterable[Item], *, progress: Progress | None = None, **options: Unpack[EmbedOptions]
    ) -> Floats:
        """Return vectors as :meth:`embed` does, with the prompt called ``query``.

        Without such a prompt there is none, not even the default. So does ``encode_query`` of sentence-transformers.
        """
        return self.embed(texts, progress=progress, **self._with_prompt("query", options))

    def embed_documents(
        self, texts: Iterable[Item], *, progress: Progress | None = None, **options: Unpack[EmbedOptions]
    ) -> Floats:
        """Return vectors as :meth:`embed` does, with the prompt called ``document``.

        Without such a prompt there is none, not even the default; one called ``passage`` or ``corpus`` is for
        ``prompt=``. So does ``encode_document`` of sentence-transformers 6.
        """
        return self.embed(texts, progress=progress, **self._with_prompt("document", options))

    def embed_detailed(
        self, texts: Iterable[Item], *, progress: Progress | None = None, **options: Unpack[EmbedOptions]
    ) -> EmbedResult:
        """Return vectors as :meth:`embed` does, with token counts and truncation. Nothing is logged."""
        return self._embed(texts, progress, options)

    def stream(self, texts: Iterable[Item], **options: Unpack[EmbedOptions]) -> Iterator[Floats]:
        """Yield the vector (dim,) of each text in order, reading at most two windows of 512 texts ahead."""
        windows = self._run(iterate(texts, "stream([text])"), self._request(options))
        return (vector for results in windows for vector, _, _ in results)

    def _with_prompt(self, name: str, options: EmbedOptions) -> EmbedOptions:
        """Add the prompt called ``name``, or none, to options without a prompt."""
        if options.get("prompt") is not None or options.get("prompt_text") is not None:
            return options
        return {**options, "prompt": name} if name in self.prompts.texts else {**options, "prompt_text": ""}

    def _request(self, options: EmbedOptions) -> EmbedRequest:
        """Check the options of a call."""
        self._check_usable()
        count = self._tokenizer.num_special_tokens
        checked = CheckedOptions.read(options, self._limits, count, EmbedOptions.__annotations__)
        prompt, name, text = NO_PROMPT, options.get("prompt"), options.get("prompt_text")
        if self.prompts.default or name is not None or text is not None:
            prompt = self.prompts.of_call(
                name, text, self._tokenizer, checked.max_tokens, self._encoder.cuts_left, checked.special_tokens
            )
        long_texts, stride = options.get("long_texts", "truncate"), options.get("stride", 0)
        check_choice("long_texts", long_texts, ("truncate", "mean"))
        stride = check_whole("stride", stride, 0, None)
        if long_texts == "mean":
            room = checked.max_tokens - count - prompt.num_tokens
            if room < 1:
                fault = f"leaves no room beside {count} special tokens and a prompt of {prompt.num_tokens}"
                raise InputError(fault, option="max_tokens", value=checked.max_tokens)
            token_windows(0, room, stride)
        elif stride:
            windows = {"long_texts": "mean"}
            raise InputError("has an effect with {long_texts} only", option="stride", value=stride, options=windows)
        dim = self.dim
        if (call_dim := options.get("dim")) is not None:
            dim = check_whole("dim", call_dim, 1, self.max_dim)
        scales = (normalize := options.get("normalize")) is not None and self._scales(normalize)
        return EmbedRequest(checked, long_texts, stride, prompt, dim, scales)

    def _scales(self, normalize: bool) -> bool:
        """Say whether a call scales its vectors.

        Raises:
            InputError: if it wants vectors unscaled that the graph has scaled.
        """
        if not check_flag("normalize", normalize) and self._normalize:
            fault = "is not possible: the graph of the bundle scales vectors to length 1"
            hint, options = "export it again with {normalize}", {"normalize": False}
            raise InputError(fault, option="normalize", value=False, hint=hint, options=options)
        return bool(normalize)

    def _embed(self, texts: Iterable[Item], progress: Progress | None, options: EmbedOptions) -> EmbedResult:
        """Compute the vectors of a call."""
        request = self._request(options)
        results = self._collect(self._run(iterate(texts, "embed([text])"), request), texts, progress)
        vectors = np.empty((len(results), request.dim), np.float32)
        token_counts = np.empty(len(results), np.int64)
        truncated = np.empty(len(results), np.bool_)
        for number, result in enumerate(results):
            vectors[number], token_counts[number], truncated[number] = result
        return EmbedResult(vectors, token_counts, truncated)

    def _tokenize(self, item: Item, index: int, request: EmbedRequest) -> EmbedItem:
        """Turn a text into a row, or into a row for each of its windows."""
        options, prompt = request.options, request.prompt
        if request.long_texts == "mean" and isinstance(item, str):
            return self._windows(item, index, request)
        row = self._encoder.row(item, index, options, prompt.text)
        if prompt.unpooled and isinstance(item, str):
            row = replace(row, unpooled=prompt.unpooled)
        elif prompt.asked_for and not isinstance(item, str):
            hint = "put those of the prompt there yourself, or leave the prompt out"
            raise InputError("is token ids, before which no prompt is put", index=index, hint=hint)
        return EmbedItem(index, (row,), (1,), len(row.ids))

    def _windows(self, text: str, index: int, request: EmbedRequest) -> EmbedItem:
        """Turn a text into windows, each with the tokens of the prompt before its own."""
        prompt, template = request.prompt, self._tokenizer.single
        whole = prompt.text + check_text(text, index, request.options.encoding_errors)
        ids = self._tokenizer.in_vocabulary(self._encoder.encoding(whole, index, request.options).ids)
        room = request.options.max_tokens - template.num_special_tokens
        first = prompt.num_tokens if len(ids) > room else 0
        before, own = ids[:first], ids[first:]
        windows = token_windows(len(own), room - first, request.stride)
        rows = [ModelInput(template.join([*before, *own[a:b]]).ids, unpooled=prompt.unpooled) for a, b in windows]
        weights = tuple(max(1, end - start) for start, end in windows)
        return EmbedItem(index, rows, weights, len(ids) + template.num_special_tokens)

    def _read_outputs(self, row: ModelInput, outputs: tuple[Floats, ...], request: EmbedRequest) -> Floats:
        """Return the vector of a row, cut unless others are to be averaged with it first."""
        width = request.dim if request.long_texts == "truncate" else self.max_dim
        vector: Floats = outputs[0][:width].copy()
        return vector

    def _finish(self, work: EmbedItem, values: list[Floats], request: EmbedRequest) -> Embedded:
        """Return the vector of a text, the mean of those of its windows."""
        vector, truncated = values[0], work.rows[0].truncated
        if request.long_texts == "truncate" and not request.normalize:
            return vector, work.token_count, truncated
        if len(values) > 1:
            vector = np.average(values, 0, np.array(work.weights, np.float32)).astype(np.float32)
            if self._normalize:
                vector = scaled(vector)
        if len(vector) > request.dim:
            vector = vector[: request.dim]
        return (scaled(vector) if request.normalize else vector), work.token_count, truncated


def scaled(vector: Floats) -> Floats:
    """Return a vector (dim,) scaled to length 1."""
    result: Floats = vector / np.float32(max(float(np.linalg.norm(vector)), MIN_NORM))
    return result
