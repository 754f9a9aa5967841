"""What engines that write text share: the options of a search, and the results of what it finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgebert_runtime.errors import InputError
from edgebert_runtime.generation import FinishReason, Hypothesis, Options, Step, read_text
from edgebert_runtime.inputs.tokenizer import Tokenizer
from edgebert_runtime.inputs.validation import check_whole
from edgebert_runtime.tasks.engine import Engine


@dataclass(frozen=True)
class Generation:
    """What continues a prompt, or translates a text.

    ``text`` is the new text only, or the whole translation. ``tokens`` and ``token_logprobs``, ``score`` and
    ``finish_reason`` are those of :class:`~edgebert_runtime.generation.Hypothesis`.
    """

    text: str
    tokens: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    score: float
    finish_reason: FinishReason


class Writer(Engine):
    """An engine that writes texts token by token. ``decoding`` are the bundle's own options of the search."""

    def _setup(self) -> None:
        """Read the bundle's options."""
        self.decoding: dict[str, Any] = dict(self.bundle.manifest.decoding)
        Options.read({"max_new_tokens": 1, **self.decoding})

    def _writing(self) -> Tokenizer:
        """Return the tokenizer of the texts that are written."""
        return self._tokenizer

    def _decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens left out."""
        text: str = self._writing().inner.decode(list(ids), skip_special_tokens=True)
        return text

    def _generation(self, found: Hypothesis, options: Options, before: Sequence[int] = ()) -> Generation:
        """Turn what a search found after the tokens ``before`` into a result."""
        text = read_text(found, lambda ids: self._decode([*before, *ids]), options.stop)
        return Generation(text, found.tokens, found.token_logprobs, found.score, found.finish_reason)


def check_budget(asked: int | None, default: int) -> int:
    """Return the tokens of a batch."""
    return default if asked is None else check_whole("max_batch_tokens", asked, 1, None)


def check_stream(options: Options) -> None:
    """Refuse what has no text before its end.

    Raises:
        InputError: naming the option.
    """
    if options.num_return_sequences > 1:
        raise InputError(f"num_return_sequences={options.num_return_sequences} cannot be streamed; leave it out")
    if options.mode == "beam":
        raise InputError(f"num_beams={options.num_beams} cannot be streamed; leave it out")


def pieces(steps: Iterator[Step]) -> Iterator[str]:
    """Yield the text of the only row while it comes."""
    for step in steps:
        if step.pieces[0]:
            yield step.pieces[0]


def numbered(options: Options, numbers: Sequence[int]) -> Options:
    """Let the caller's function over allowed tokens see the numbers that the rows of a batch have in the whole call."""
    allowed = options.prefix_allowed_tokens_fn
    if allowed is None:
        return options
    return replace(options, prefix_allowed_tokens_fn=lambda row, tokens: allowed(numbers[row], tokens))
