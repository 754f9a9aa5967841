"""The options of a search, by the names of transformers' ``generate``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from edgebert_runtime.errors import InputError
from edgebert_runtime.generation.option_parsers import CHECKS

Mode = Literal["greedy", "sample", "beam"]
AllowedTokens = Callable[[int, "list[int]"], Iterable[int]]

SAMPLING_ONLY = ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed")
BEAM_ONLY = ("length_penalty", "early_stopping")
LENGTHS = (("max_new_tokens", "max_length"), ("min_new_tokens", "min_length"))
# Defaults of a bundle that are no options of a call: its engine makes the prompts, and fills no row.
ENGINE_ONLY = ("decoder_start_token_id", "bos_token_id", "pad_token_id")


@dataclass(frozen=True)
class Options:
    """The options of a search. An option without effect is refused; None leaves it out.

    ``max_new_tokens`` and ``min_new_tokens`` count new tokens only; ``max_length`` and ``min_length`` count those of
    the prompt too. ``forced_bos_token_id`` is the first new token, ``forced_eos_token_id`` the last one at the length
    limit. ``stop`` are strings at which text ends.
    ``prefix_allowed_tokens_fn`` gets the number of a prompt and its tokens so far, and returns the token ids that may
    come next.

    Raises:
        InputError: naming an option and its value, where it is impossible, or has no effect beside the others.
    """

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    max_length: int | None = None
    min_length: int | None = None
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    do_sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    bad_words_ids: Sequence[Sequence[int]] = ()
    forced_bos_token_id: int | None = None
    forced_eos_token_id: Sequence[int] = ()
    suppress_tokens: Sequence[int] = ()
    begin_suppress_tokens: Sequence[int] = ()
    prefix_allowed_tokens_fn: AllowedTokens | None = None
    stop: Sequence[str] = ()
    eos_token_id: Sequence[int] = ()

    def __post_init__(self) -> None:
        values = {name: native(name, getattr(self, name)) for name in CHECKS}
        for name, value in values.items():
            if value is not None and value != ():
                object.__setattr__(self, name, CHECKS[name](name, value))
        check_mode(self)
        check_lengths(self)
        check_endings(self)

    @classmethod
    def read(cls, defaults: Mapping[str, Any] | None = None, /, **call: Any) -> Options:
        """Return the options of a call over the defaults of a bundle.

        A default without effect in the mode of the call is left out. An option of the call is refused.

        Raises:
            InputError: for an unknown name, with the nearest known one, and whatever :class:`Options` refuses.
        """
        call = {name: native(name, value) for name, value in call.items()}
        for name in call:
            if name not in CHECKS:
                raise unknown(name, "")
        plain = {name: native(name, value) for name, value in (defaults or {}).items()}
        options = {**applicable(present(plain), call), **call}
        return cls(**{name: value for name, value in options.items() if value is not None})

    @property
    def mode(self) -> Mode:
        """The kind of search."""
        return "beam" if self.num_beams > 1 else "sample" if self.do_sample else "greedy"

    @property
    def penalty(self) -> float:
        """The exponent of the length in a score."""
        return 1.0 if self.length_penalty is None else self.length_penalty


def native(name: str, value: Any) -> Any:
    """Return NumPy scalars and arrays, in lists too, as Python numbers and lists.

    Raises:
        InputError: for masked elements, which are no numbers.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(native(name, item) for item in value)
    if np.ma.is_masked(value):
        raise InputError("has masked elements", option=name, hint="give its compressed()")
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def present(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of a bundle that are set. 0 and an empty list can mean unset."""
    for name in defaults:
        if name not in CHECKS and name not in ENGINE_ONLY:
            raise unknown(name, "the bundle's ")
    unset: tuple[object, ...] = (None, [], ())
    return {
        name: value
        for name, value in defaults.items()
        if name in CHECKS and value not in unset and (name, value) != ("top_k", 0)
    }


def applicable(defaults: dict[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that have an effect beside the options of a call."""
    names = {name for name, value in call.items() if value is not None}
    chosen = dict(defaults)
    for new, total in LENGTHS:
        if new in names or (new in chosen and total not in names):
            chosen.pop(total, None)
        if total in names:
            chosen.pop(new, None)
    if call.get("do_sample") is True and "num_beams" not in names:
        chosen.pop("num_beams", None)
    if "num_beams" in names and call["num_beams"] != 1 and "do_sample" not in names:
        chosen.pop("do_sample", None)
    merged = {**chosen, **call}
    beams = merged.get("num_beams") not in (None, 1)
    sample = merged.get("do_sample") is True
    idle = (() if beams else BEAM_ONLY) + (() if sample else SAMPLING_ONLY)
    if not (beams or sample) or merged.get("num_beams") != defaults.get("num_beams"):
        idle += ("num_return_sequences",)
    if merged.get("eos_token_id") is None:
        idle += ("min_length", "min_new_tokens")
    return {name: value for name, value in chosen.items() if name not in idle}


def unknown(name: str, whose: str) -> InputError:
    """Return the error for an unknown option."""
    if name in ENGINE_ONLY:
        return InputError("is the bundle's own, and no option of a call; leave it out", option=name)
    near = difflib.get_close_matches(name, CHECKS, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else f"; the options are {', '.join(CHECKS)}"
    return InputError(f"{whose}option {name!r:.60} is not known{hint}")


def check_mode(options: Options) -> None:
    """Refuse options of another kind of search."""
    beams, count = options.num_beams, options.num_return_sequences
    if options.do_sample and beams > 1:
        raise InputError(
            "has no effect with {do_sample}",
            option="num_beams",
            value=beams,
            hint="leave one of them out",
            options={"do_sample": True},
        )
    for name in () if options.do_sample else SAMPLING_ONLY:
        if (value := getattr(options, name)) is not None:
            alone = {"do_sample": True}
            raise InputError("has no effect without {do_sample}", option=name, value=value, options=alone)
    for name in () if beams > 1 else BEAM_ONLY:
        if (value := getattr(options, name)) is not None:
            message = "has no effect without {num_beams} of 2 or more"
            raise InputError(message, option=name, value=value, options={"num_beams": ...})
    if count > 1 and options.mode == "greedy":
        raise InputError(
            "is too many: the most likely tokens make one sequence",
            option="num_return_sequences",
            value=count,
            hint="add {do_sample} or {num_beams}",
            options={"do_sample": True, "num_beams": count},
        )
    if count > beams > 1:
        raise InputError(
            "is more than {num_beams}",
            option="num_return_sequences",
            value=count,
            hint="a beam search keeps no more",
            options={"num_beams": beams},
        )


def check_lengths(options: Options) -> None:
    """Refuse lengths that contradict each other."""
    for new, total in LENGTHS:
        if getattr(options, new) is not None and getattr(options, total) is not None:
            raise InputError(
                f"and {{{total}}} both set a length",
                option=new,
                value=getattr(options, new),
                hint="give one of them; the second counts the prompt too",
                options={total: getattr(options, total)},
            )
    for high, low in zip(*LENGTHS, strict=True):
        most, least = getattr(options, high), getattr(options, low)
        if most is not None and least is not None and least > most:
            raise InputError(f"is more than {{{high}}}", option=low, value=least, options={high: most})


def check_endings(options: Options) -> None:
    """Refuse a least length where no token ends a sequence."""
    for name in ("min_new_tokens", "min_length"):
        if getattr(options, name) and not options.eos_token_id:
            value = getattr(options, name)
            raise InputError("has no effect without eos_token_id", option=name, value=value)
