"""Prompts: short texts before a text, which say to a model of sentence vectors what the text is."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.inputs.tokenizer import ModelTokenizer


@dataclass(frozen=True)
class Prompt:
    """The prompt of a call.

    ``num_tokens`` counts its own tokens, ``unpooled`` the first ones of a row that are not pooled. ``asked_for`` says
    whether the call named it.
    """

    text: str = ""
    num_tokens: int = 0
    unpooled: int = 0
    asked_for: bool = False


@dataclass(frozen=True)
class Prompts:
    """The prompts of a bundle by name, the text of the default one, and whether prompts are pooled."""

    texts: Mapping[str, str]
    default: str
    include: bool

    @classmethod
    def read(cls, settings: Mapping[str, Any], bundle: str) -> Prompts:
        """Read the prompts among the settings of ``bundle``.

        Raises:
            BundleError: if they are malformed.
        """
        texts, default = settings.get("prompts", {}), settings.get("default_prompt")
        include = settings.get("include_prompt", True)
        named = isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values())
        if not named or (default is not None and default not in texts) or not isinstance(include, bool):
            raise BundleError(
                f"{bundle} has the settings prompts={texts!r:.60}, default_prompt={default!r:.40} and "
                f"include_prompt={include!r:.20}, which do not fit together; export again"
            )
        return cls(texts, "" if default is None else texts[default], include)

    def choose(self, name: str | None, text: str | None) -> str:
        """Return the prompt called ``name``, the ``text`` given, or the default.

        Raises:
            InputError: if both are given, or there is none of this name.
        """
        if text is not None:
            if name is not None:
                raise InputError(
                    "goes without {prompt_text}", option="prompt", value=name, options={"prompt_text": text}
                )
            return check_prompt(text)
        if name is None:
            return self.default
        if not isinstance(name, str) or name not in self.texts:
            raise self.unknown(name)
        return self.texts[name]

    def unknown(self, name: object) -> InputError:
        """Return the error for the name of no prompt."""
        fault = f"is none of the prompts {', '.join(self.texts)}" if self.texts else "is no prompt: the bundle has none"
        near = difflib.get_close_matches(str(name), self.texts, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "give {prompt_text} for one of your own"
        return InputError(fault, option="prompt", value=name, hint=hint, options={} if near else {"prompt_text": ...})

    def of_call(
        self,
        name: str | None,
        text: str | None,
        tokenizer: ModelTokenizer,
        max_tokens: int,
        cuts_left: bool,
        special_tokens: bool,
    ) -> Prompt:
        """Return the prompt of a call that cuts texts at ``max_tokens``, on the left or the right.

        The tokens that are not pooled are counted as sentence-transformers does: those of the prompt as a text of its
        own, cut like one, without a special token at the end.

        Raises:
            InputError: as :meth:`choose` does.
        """
        if not (chosen := self.choose(name, text)):
            return Prompt()
        content, unpooled = tokenizer.ids(chosen, special_tokens), 0
        if not self.include:
            ids = tokenizer.truncated(content, max_tokens, cuts_left).ids
            unpooled = len(ids) - (ids[-1] in special_ids(tokenizer))
        return Prompt(chosen, len(content), unpooled, name is not None or text is not None)


def check_prompt(text: str) -> str:
    """Return a prompt that can be tokenized.

    Raises:
        InputError: for anything but a text of valid Unicode.
    """
    if not isinstance(text, str):
        raise InputError("is not a text", option="prompt_text", value=text)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError("has a lone surrogate", option="prompt_text", value=text, hint="repair it") from None
    return text


def special_ids(tokenizer: ModelTokenizer) -> set[int]:
    """Return the ids of the special tokens, the unknown token among them."""
    added = tokenizer.inner.get_added_tokens_decoder()
    ids = {index for index, token in added.items() if token.special}
    return ids if tokenizer.unknown is None else ids | {tokenizer.unknown}
