"""Check a call against its model, and work out what holds for each prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgebert_runtime.errors import EdgebertError, InputError, LimitError
from edgebert_runtime.generation.hypothesis import FinishReason
from edgebert_runtime.generation.options import Options
from edgebert_runtime.generation.step_model import Bools, Floats, Ids
from edgebert_runtime.generation.token_constraints import Rules, as_ids, rules_of


@dataclass(frozen=True)
class Plan:
    """What a search does with its prompts.

    ``room`` (prompts,) is the number of new tokens that each may get; ``eos`` (n,) are the tokens that end one.
    """

    prompts: Sequence[Sequence[int]]
    options: Options
    rules: Rules
    room: Ids
    eos: Ids

    @classmethod
    def of(
        cls,
        logits: Floats,
        prompts: Sequence[Sequence[int]],
        options: Options,
        limit: int | Sequence[int] | None,
        decode: bool,
    ) -> Plan:
        """Make one for the first ``logits`` (prompts, vocab) of a model that has ``limit`` positions.

        Several limits are those of each prompt.

        Raises:
            InputError: if an option names a token that the model does not have, or no length is set.
            LimitError: if a prompt leaves no room for a new token.
        """
        if len(logits) != len(prompts):
            raise EdgebertError(f"{len(logits)} rows of logits were given for {len(prompts)} prompts")
        if options.stop and not decode:
            raise InputError(f"stop={list(options.stop)!r:.60} needs a tokenizer to turn tokens into text")
        check_vocabulary(options, logits.shape[1])
        lengths = np.array([len(prompt) for prompt in prompts], dtype=np.int64)
        limits = limit if isinstance(limit, Sequence) else [limit] * len(prompts)
        rooms = [room_after(i, int(n), options, most) for i, (n, most) in enumerate(zip(lengths, limits, strict=True))]
        room = np.array(rooms, dtype=np.int64)
        return cls(prompts, options, rules_of(options, lengths, room), room, as_ids(options.eos_token_id))

    def reason(self, token: int, prompt: int, length: int, stopped: bool = False) -> FinishReason | None:
        """Return why ``token``, the last of ``length`` new ones of a prompt, ends them, or None."""
        if token in self.options.eos_token_id:
            return "stop"
        if stopped:
            return "stop_string"
        return "length" if length >= self.room[prompt] else None

    def ends(self, tokens: Ids) -> Bools:
        """Say which of ``tokens``, of any shape, end a sequence."""
        found: Bools = (tokens[..., None] == self.eos).any(axis=-1)
        return found


def room_after(prompt: int, length: int, options: Options, limit: int | None) -> int:
    """Return how many new tokens may follow a prompt of ``length`` tokens."""
    if limit is not None and length >= limit:
        raise LimitError(f"prompt {prompt} has {length} tokens and leaves no room in the model's {limit}; shorten it")
    if options.max_length is not None and length >= options.max_length:
        raise LimitError(
            f"prompt {prompt} has {length} tokens, max_length={options.max_length} counts them and leaves no room; "
            "raise it, or give max_new_tokens instead"
        )
    rooms = [options.max_new_tokens]
    rooms += [total - length for total in (options.max_length, limit) if total is not None]
    known = [room for room in rooms if room is not None]
    if not known:
        raise InputError("neither max_new_tokens nor max_length was given; the model has no limit that would end it")
    return min(known)


def check_vocabulary(options: Options, vocab_size: int) -> None:
    """Make sure that every token that an option names is one of the model's.

    Raises:
        InputError: naming the option and the token.
    """
    for name, token in named_tokens(options):
        if token >= vocab_size:
            raise InputError(f"{name} names token {token}, the vocabulary is 0 to {vocab_size - 1}")


def named_tokens(options: Options) -> Iterator[tuple[str, int]]:
    """Yield each token that an option names, with the option."""
    for name in ("forced_bos_token_id", "pad_token_id"):
        if (single := getattr(options, name)) is not None:
            yield name, single
    for name in ("forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "eos_token_id"):
        yield from ((name, token) for token in getattr(options, name))
    for words in options.bad_words_ids:
        yield from (("bad_words_ids", token) for token in words)


def stuck(prompt: int, generated: int) -> InputError:
    """Return the error for a prompt after which the options leave no token."""
    return InputError(
        f"the options forbid every token after {generated} new tokens of prompt {prompt}; loosen no_repeat_ngram_size, "
        "bad_words_ids, suppress_tokens, min_new_tokens or prefix_allowed_tokens_fn"
    )
