"""The plan of a search: constraints and token limits of its prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgebert_runtime.errors import EdgebertError, InputError, LimitError
from edgebert_runtime.generation.hypotheses import FinishReason
from edgebert_runtime.generation.options import Options
from edgebert_runtime.generation.step_model import Bools, Floats, Ids
from edgebert_runtime.generation.token_constraints import TokenConstraints, as_ids


@dataclass(frozen=True)
class SearchPlan:
    """The options of a search as they hold for its prompts.

    ``max_new_tokens`` (prompts,) is the limit of each prompt; ``eos`` (n,) are the end-of-sequence tokens.
    """

    prompts: Sequence[Sequence[int]]
    options: Options
    constraints: TokenConstraints
    max_new_tokens: Ids
    eos: Ids

    @classmethod
    def of(
        cls,
        logits: Floats,
        prompts: Sequence[Sequence[int]],
        options: Options,
        limit: int | Sequence[int] | None,
        decode: bool,
    ) -> SearchPlan:
        """Make the plan for the first ``logits`` (prompts, vocab) of a model with ``limit`` positions.

        ``limit`` may be one number for each prompt.

        Raises:
            InputError: if an option names a token that the model does not have, or no length is set.
            LimitError: if a prompt leaves no room for a new token.
        """
        if len(logits) != len(prompts):
            raise EdgebertError(f"{len(logits)} rows of logits were given for {len(prompts)} prompts")
        if options.stop and not decode:
            raise InputError("needs a tokenizer to turn tokens into text", option="stop", value=list(options.stop))
        check_vocabulary(options, logits.shape[1])
        lengths = np.array([len(prompt) for prompt in prompts], dtype=np.int64)
        limits = limit if isinstance(limit, Sequence) else [limit] * len(prompts)
        numbers = enumerate(zip(lengths.tolist(), limits, strict=True))
        most = np.array([token_limit(i, length, options, total) for i, (length, total) in numbers], dtype=np.int64)
        constraints = TokenConstraints.from_options(options, lengths, most)
        return cls(prompts, options, constraints, most, as_ids(options.eos_token_id))

    def finish_reason(self, token: int, prompt: int, length: int, stopped: bool = False) -> FinishReason | None:
        """Return why a sequence of ``length`` new tokens ends with ``token``, or None."""
        if token in self.options.eos_token_id:
            return "stop"
        if stopped:
            return "stop_string"
        return "length" if length >= self.max_new_tokens[prompt] else None

    def ends(self, tokens: Ids) -> Bools:
        """Return a mask of the ``tokens``, of any shape, that end a sequence."""
        mask: Bools = (tokens[..., None] == self.eos).any(axis=-1)
        return mask


def token_limit(prompt: int, length: int, options: Options, limit: int | None) -> int:
    """Return the most new tokens after a prompt of ``length`` tokens."""
    if limit is not None and length >= limit:
        message = f"has {length} tokens and leaves no room in the model's {limit}"
        raise LimitError(message, index=prompt, item="prompt", hint="shorten it")
    if options.max_length is not None and length >= options.max_length:
        raise LimitError(
            f"has {length} tokens, {{max_length}} counts them and leaves no room",
            index=prompt,
            item="prompt",
            hint="raise it, or give {max_new_tokens} instead",
            options={"max_length": options.max_length, "max_new_tokens": ...},
        )
    rooms = [total - length for total in (options.max_length, limit) if total is not None]
    if options.max_new_tokens is not None:
        rooms.append(options.max_new_tokens)
    if not rooms:
        raise InputError(
            "neither {max_new_tokens} nor {max_length} was given; the model has no limit that would end it",
            options={"max_new_tokens": ..., "max_length": ...},
        )
    return min(rooms)


def check_vocabulary(options: Options, vocab_size: int) -> None:
    """Make sure that every token that an option names is one of the model's.

    Raises:
        InputError: naming the option and the token.
    """
    for name, token in named_tokens(options):
        if token >= vocab_size:
            raise InputError(f"names token {token}, the vocabulary is 0 to {vocab_size - 1}", option=name)


def named_tokens(options: Options) -> Iterator[tuple[str, int]]:
    """Yield each token that an option names, with the option."""
    if options.forced_bos_token_id is not None:
        yield "forced_bos_token_id", options.forced_bos_token_id
    for name in ("forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "eos_token_id"):
        yield from ((name, token) for token in getattr(options, name))
    for words in options.bad_words_ids:
        yield from (("bad_words_ids", token) for token in words)


def no_allowed_token(prompt: int, generated: int) -> InputError:
    """Return the error for a prompt after which the options leave no token."""
    return InputError(
        f"has no allowed token left after {generated} new ones",
        index=prompt,
        item="prompt",
        hint="loosen {no_repeat_ngram_size}, bad_words_ids, suppress_tokens, {min_new_tokens} or "
        "prefix_allowed_tokens_fn",
        options={"no_repeat_ngram_size": ..., "min_new_tokens": ...},
    )
