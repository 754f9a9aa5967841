"""The base of the engines of generative models: options of a search, token ids to text, results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

from edgebert_runtime.decoders.causal_signature import CausalSignature
from edgebert_runtime.errors import DeviceError, InputError
from edgebert_runtime.generation import FinishReason, Hypothesis, Options, Step, read_text
from edgebert_runtime.generation.search_plan import SearchPlan
from edgebert_runtime.inputs.validation import Errors, check_progress
from edgebert_runtime.tasks.base.engine import Engine, Progress
from edgebert_runtime.tasks.base.text_encoder import TextReading

# Numbers of results for which type checkers know that each is a list.
Several = Literal[2, 3, 4, 5, 6, 7, 8, 9, 10]


class GenerationOptions(TypedDict, total=False):
    """The options of a search by keyword: those of :class:`~edgebert_runtime.generation.Options`.

    They have the names of transformers' ``generate``. None is the same as leaving an option out of the call and out of
    the bundle. ``num_return_sequences`` is a parameter of its own, as it decides the type of the result.
    """

    max_new_tokens: int | None
    min_new_tokens: int | None
    max_length: int | None
    min_length: int | None
    num_beams: int | None
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    seed: int | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    bad_words_ids: Sequence[Sequence[int]] | None
    forced_bos_token_id: int | None
    forced_eos_token_id: int | Sequence[int] | None
    suppress_tokens: int | Sequence[int] | None
    begin_suppress_tokens: int | Sequence[int] | None
    prefix_allowed_tokens_fn: Callable[[int, list[int]], Iterable[int]] | None
    stop: str | Sequence[str] | None
    eos_token_id: int | Sequence[int] | None


@dataclass(frozen=True)
class Generation:
    """A continuation of a prompt, or a translation of a text.

    ``text`` is the new text only, or the whole translation. ``tokens`` and ``token_logprobs``, ``score`` and
    ``finish_reason`` are those of :class:`~edgebert_runtime.generation.Hypothesis`.
    """

    text: str
    tokens: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    score: float
    finish_reason: FinishReason


@dataclass(frozen=True)
class PreparedPrompt:
    """A prompt to continue with options of its own: its tokens, and the plan of its search.

    It takes ``rows`` rows of the KV cache, each of ``final_length`` tokens at most. ``decode`` turns new tokens into
    text.
    """

    ids: list[int]
    options: Options
    plan: SearchPlan
    rows: int
    final_length: int
    decode: Callable[[Sequence[int]], str]


class TextGenerationEngine(Engine):
    """An engine that generates text token by token.

    ``decoding`` are the bundle's own options of the search. Those of a call go before.
    """

    decoding: dict[str, Any]
    _graph: CausalSignature

    def _cpu_only(self) -> DeviceError | None:
        """Return the reason that the model does not run on CUDA.

        ONNX Runtime copies bound inputs to a GPU when they are bound, not when a graph runs. A graph that writes its
        KV cache in place stays bound from step to step, and would read the inputs of the first step for ever.
        """
        if not self._graph.in_place:
            return None
        return DeviceError(
            f"{self.bundle.path} is a decoder that writes its KV cache in place, which gives wrong text on cuda",
            hint="use {device}; on cuda run encoders, or a decoder exported with {target}, which is slow there",
            options={"device": "cpu", "target": "portable"},
        )

    def _read_settings(self) -> None:
        """Read the bundle's options."""
        self.decoding = dict(self.bundle.manifest.decoding)
        Options.read({"max_new_tokens": 1, **self.decoding})

    def _check_call(
        self, encoding_errors: Errors, special_tokens: bool, progress: Progress | None = None
    ) -> TextReading:
        """Make sure that the engine can be used, and check the options that all methods take.

        Raises:
            EdgebertError: if the engine is closed, or was loaded in another process.
            InputError: naming the option.
        """
        self._check_usable()
        check_progress(progress)
        return TextReading.checked(encoding_errors, special_tokens)

    def _search_options(self, count: int | None, options: dict[str, Any], defaults: dict[str, Any]) -> Options:
        """Return the options of a search for ``count`` results, on top of the bundle's and ``defaults``.

        Raises:
            InputError: naming the option.
        """
        own = {name: value for name, value in self.decoding.items() if name != "num_return_sequences"}
        if count is not None:
            options = {**options, "num_return_sequences": count}
        return Options.read({**defaults, **own}, **options)

    def results(self, prompt: PreparedPrompt, hypotheses: Sequence[Hypothesis]) -> list[Generation]:
        """Return the results of a prepared prompt."""
        return [self._generation(hypothesis, prompt.options) for hypothesis in hypotheses]

    def _decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens left out."""
        text: str = self._target.inner.decode(list(ids), skip_special_tokens=True)
        return text

    def _generation(self, hypothesis: Hypothesis, options: Options, prefix: Sequence[int] = ()) -> Generation:
        """Turn a hypothesis into a result whose text begins with the tokens ``prefix``."""
        text = read_text(hypothesis, lambda ids: self._decode([*prefix, *ids]), options.stop)
        return Generation(
            text, hypothesis.tokens, hypothesis.token_logprobs, hypothesis.score, hypothesis.finish_reason
        )


def check_stream(options: Options) -> None:
    """Refuse options whose text is known at the end only.

    Raises:
        InputError: naming the option.
    """
    if options.num_return_sequences > 1:
        count = options.num_return_sequences
        raise InputError("cannot be streamed", option="num_return_sequences", value=count, hint="leave it out")
    if options.mode == "beam":
        raise InputError("cannot be streamed", option="num_beams", value=options.num_beams, hint="leave it out")


def text_pieces(steps: Iterator[Step]) -> Iterator[str]:
    """Yield the text of the only row while it comes."""
    for step in steps:
        if step.pieces[0]:
            yield step.pieces[0]


def with_call_numbers(options: Options, numbers: Sequence[int]) -> Options:
    """Give ``prefix_allowed_tokens_fn`` the number of a prompt in the whole call, not that of its row in the batch."""
    allowed = options.prefix_allowed_tokens_fn
    if allowed is None:
        return options
    return replace(options, prefix_allowed_tokens_fn=lambda row, tokens: allowed(numbers[row], tokens))
