"""The language tokens of multilingual encoder-decoder models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.inputs.special_tokens import SpecialTokenTemplate

# The positions of language tokens. token (Marian): the target's before the source. bart50 (mBART-50): the source's
# before the source, the target's as first generated token. bart25 (mBART): the source's after the source, the target's
# as decoder start token.
STYLES = ("", "token", "bart50", "bart25")
CODE = re.compile(r"\s*>>([^<>\s]+)<<\s*")


@dataclass(frozen=True)
class Direction:
    """The tokens of two languages, None where there is none."""

    source: int | None = None
    target: int | None = None


@dataclass(frozen=True)
class Languages:
    """The languages of a bundle with their tokens, and its default source and target."""

    style: str
    tokens: Mapping[str, int]
    source: str
    target: str

    @classmethod
    def read(cls, settings: Mapping[str, Any], source_size: int, target_size: int) -> Languages:
        """Read the settings of a bundle with the vocabulary sizes of sources and targets.

        Raises:
            BundleError: if they make no sense.
        """
        style, tokens = settings.get("language_style", ""), settings.get("languages", {})
        ids = list(tokens.values()) if isinstance(tokens, dict) else [None]
        size = source_size if style == "token" else min(source_size, target_size)
        fit = all(type(token) is int and 0 <= token < size for token in ids)
        if style not in STYLES or not fit or bool(style) != bool(ids):
            raise BundleError(f"the settings have languages={tokens!r:.60} in the style {style!r:.20}; export again")
        names = [settings.get(f"{side}_language", "") for side in ("source", "target")]
        for name in names:
            if not isinstance(name, str) or (style and name and name not in tokens):
                raise BundleError(f"the settings name the language {name!r:.40}, which has no token; export again")
        return cls(style, tokens, *names)

    def direction(self, source: str | None, target: str | None) -> Direction:
        """Return the tokens of the languages of a call, by default those of the bundle.

        Raises:
            InputError: naming a language that is unknown, or has no effect.
        """
        if source is not None and self.style in ("", "token"):
            message = "has no effect: the model is not told what it reads"
            raise InputError(message, option="source_language", value=source)
        if target is not None and not self.style:
            message = "has no effect: the model knows one pair of languages"
            raise InputError(message, option="target_language", value=target)
        return Direction(
            self.token("source_language", self.source if source is None else source),
            self.token("target_language", self.target if target is None else target),
        )

    def token(self, option: str, name: str) -> int | None:
        """Return the token of a language, None without a name or without language tokens.

        Raises:
            InputError: naming the languages, if it is not one of them.
        """
        if not self.style or not name:
            return None
        if name not in self.tokens:
            raise InputError(f"is not one of {', '.join(self.tokens)}", option=option, value=name)
        return self.tokens[name]

    def named(self, text: str, index: int, direction: Direction) -> tuple[str, Direction]:
        """Return a text without Marian's ``>>code<<`` at its start, and the direction with that target.

        Raises:
            InputError: if the language is not known.
        """
        code = CODE.match(text) if self.style == "token" else None
        if code is None:
            return text, direction
        if code[1] not in self.tokens:
            raise InputError(
                f"begins with >>{code[1]:.40}<<, which is not one of {', '.join(self.tokens)}", index=index
            )
        content = text[code.end() :]
        # A second code is text. The tokenizer reads one at the very start only, which a space moves away.
        return f" {content}" if CODE.match(content) else content, Direction(direction.source, self.tokens[code[1]])

    def add_special_tokens(self, ids: list[int], direction: Direction, template: SpecialTokenTemplate) -> list[int]:
        """Put language tokens and special tokens around the ids of a source.

        Raises:
            InputError: if a language is needed and not given.
        """
        if not self.style:
            return template.join(ids).ids
        if self.style == "token":
            return template.join([self.required("target_language", direction.target), *ids]).ids
        languages = set(self.tokens.values())
        ends = [token for special in template.special_tokens for token in special.ids if token not in languages]
        source = self.required("source_language", direction.source)
        return [source, *ids, *ends] if self.style == "bart50" else [*ids, *ends, source]

    def required(self, option: str, token: int | None) -> int:
        """Return a language token that is needed.

        Raises:
            InputError: naming the languages, if there is none.
        """
        if token is None:
            hint = f"pass {{{option}}}, one of {', '.join(self.tokens)}"
            raise InputError("nothing says which language", hint=hint, options={option: ...})
        return token
