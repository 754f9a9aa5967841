"""Convert SentencePiece models to tokenizers (Kudo and Richardson, 2018).

Both find the pieces of a text alike, but tokenizers keeps all that has an id among the pieces, special tokens too, so
that a text could contain them. Therefore no "<" reaches the pieces: a space takes its place, which cannot stand there
otherwise, and whatever no text may give is written with a "<".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from edgebert.checkpoints.folder import some
from edgebert.checkpoints.tokenizers.sentencepiece_bpe import Pair, find_merges
from edgebert.checkpoints.tokenizers.sentencepiece_check import check_tokenizer
from edgebert.checkpoints.tokenizers.sentencepiece_model import (
    BYTE,
    CHARACTERS,
    HINT,
    NORMAL,
    UNIGRAM,
    UNUSED,
    USER_DEFINED,
    WORD,
    SentencePieces,
)
from edgebert.checkpoints.tokenizers.sentencepiece_normalizer import ESCAPE, escaped, ranges, render
from edgebert.checkpoints.tokenizers.vocabulary import Vocabulary
from edgebert_runtime.errors import TokenizerError
from edgebert_runtime.inputs.tokenizer import UNKNOWN_PIECES

SPACE = "\u2581"  # what pieces have for a space
OTHER = "\ufdd1"  # as unknown as ESCAPE, and put in its place
BLANK = ranges(chr(code) for code in range(0x10000) if chr(code).isspace())
SYMBOL_SCORE = -0.1  # that of the library, for symbols of the user
MAX_UNUSED = 1 << 20


def build_tokenizer(model: SentencePieces, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the content of tokenizer.json for a SentencePiece model.

    The result is compared with SentencePiece itself.

    Raises:
        TokenizerError: naming a property of the model that cannot be followed exactly, or a text that has other ids.
    """
    try:
        content = Builder(model, vocabulary).build()
    except TokenizerError as error:
        raise TokenizerError(f"{model.name}: {error}") from error
    check_tokenizer(Tokenizer.from_str(json.dumps(content)), model, vocabulary)
    return content


class Builder:
    """Builds the tokenizer of one model and one vocabulary."""

    def __init__(self, model: SentencePieces, vocabulary: Vocabulary) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self.symbols = [piece.text for piece in model.pieces if piece.kind == USER_DEFINED]
        self.scores = {piece.text: piece.score for piece in model.pieces if piece.kind == NORMAL}
        self.scores.update(dict.fromkeys(self.symbols, SYMBOL_SCORE))
        self.alphabet = {piece for piece in self.scores if len(piece) == 1}
        self.unigram = model.algorithm == UNIGRAM
        self.replaced = "<" in self.alphabet or not model.byte_fallback
        codes = sorted(vocabulary.languages, key=len, reverse=True)
        self.codes = f"(?:{'|'.join(map(escaped, codes))})" if codes else ""
        self.begin = rf"\A{self.codes}?+" if codes else r"\A"
        check(self)

    @cached_property
    def merges(self) -> dict[str, Pair]:
        """The merges of longer pieces."""
        return {} if self.model.algorithm == CHARACTERS else find_merges(self.scores)

    @cached_property
    def looked_up(self) -> set[str]:
        """The tokens that unknown text can be."""
        if not self.vocabulary.looks_up or self.model.byte_fallback:
            return set()
        excluded = {"", *self.vocabulary.specials, *self.vocabulary.languages}
        return {token for token in self.vocabulary.tokens if token not in excluded and self.alphabet.isdisjoint(token)}

    def build(self) -> dict[str, Any]:
        """Return what tokenizer.json holds."""
        entries, end = self.entries(), self.vocabulary.end
        tokenizer = Tokenizer(self.searched(entries))
        tokenizer.normalizer = normalizers.Sequence(self.normalizers())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(self.splits())
        tokenizer.decoder = decoders.Sequence(self.decoders())
        tokenizer.post_processor = processors.TemplateProcessing(
            single=["$A", end], pair=["$A", "$B", end], special_tokens=[(end, entries.index(end))]
        )
        special = [*self.vocabulary.specials, *self.vocabulary.added]
        tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
        content: dict[str, Any] = json.loads(tokenizer.to_str())
        return content

    def searched(self, entries: list[str]) -> Any:
        """Return the model over ``entries``, the vocabulary by id."""
        fallback, unknown = self.model.byte_fallback, self.vocabulary.unknown
        if self.unigram:
            scores = {self.spelled(piece): score for piece, score in self.scores.items()}
            # The score of what is unknown follows from the lowest one: none of the others may be lower.
            scored = [(entry, scores.get(entry, 0.0)) for entry in entries]
            return models.Unigram(scored, entries.index(unknown), fallback)
        return models.BPE(
            {entry: index for index, entry in enumerate(entries)},
            [(self.spelled(left), self.spelled(right)) for left, right in self.merges.values()],
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=fallback,
            ignore_merges=True,  # so that languages are found, and what is looked up; all else comes of merges too
        )

    def spelled(self, piece: str) -> str:
        """Return the spelling of a piece in normalized text."""
        return piece.replace("<", " ") if self.replaced else piece

    def entries(self) -> list[str]:
        """Return the vocabulary entry of each id."""
        tokens, size = self.vocabulary.tokens, self.vocabulary.size
        entries = [self.entry(token, index) for index, token in enumerate(tokens)]
        pieces = [*self.scores, *(piece.text for piece in self.model.pieces if piece.kind == BYTE)]
        tokens_present = set(tokens)
        if unknown := [piece for piece in pieces if piece not in tokens_present]:
            if size - len(tokens) > MAX_UNUSED:
                raise TokenizerError(f"there are {len(tokens)} tokens for {size} embeddings; use those of the model")
            entries += [self.entry("", index) for index in range(len(tokens), size)]
            entries += [UNKNOWN_PIECES, *(self.entry(piece, 0) for piece in unknown)]
        return entries

    def entry(self, token: str, index: int) -> str:
        """Return what stands for a token."""
        if not token:
            return f"<{ESCAPE}{index}{ESCAPE}>"
        if token in self.scores and (self.unigram or len(token) == 1 or token in self.merges):
            return self.spelled(token)
        if token in self.looked_up:
            return f"{ESCAPE}{self.spelled(token)}{ESCAPE}"
        return token if "<" in token[:-1] else f"<{ESCAPE}{token}"

    def normalizers(self) -> list[Any]:
        """Return the normalization steps of SentencePiece."""
        # A space begins every text, so that none begins with a language that did not from the first.
        steps: list[Any] = [normalizers.Prepend(" ")]
        if self.codes:
            steps.append(normalizers.Replace(Regex(rf"\A {self.codes}\K(?=(?m:.))"), " "))
            steps.append(normalizers.Replace(Regex(rf"\A (?={self.codes})"), ""))
        if self.model.character_map:
            whole = [rf"\A{self.codes}"] if self.codes else []
            whole += [escaped(symbol) for symbol in sorted(self.symbols, key=len, reverse=True)]
            steps += self.kept(render(self.model.character_map, "|".join(whole)))
        if self.model.remove_extra_whitespaces:
            steps.append(normalizers.Replace(Regex(rf"(?<![ {SPACE}])[ {SPACE}]+\z"), ""))
            steps.append(normalizers.Replace(Regex(" {2,}"), " "))
        steps.append(normalizers.Replace(" ", SPACE))
        if self.replaced:
            pattern = Regex(rf"\G(?:\A{self.codes})?+[^<]*+\K<") if self.codes else "<"
            steps.append(normalizers.Replace(pattern, " "))
        if not self.model.add_dummy_prefix:
            steps.append(normalizers.Replace(Regex(rf"{self.begin}\K{SPACE}"), ""))
        return steps + self.marks()

    def kept(self, steps: Sequence[Any]) -> Sequence[Any]:
        """Make sure that symbols and languages stay what they are."""
        normalizer = normalizers.Sequence(list(steps))
        for token in (*self.symbols, *self.vocabulary.languages):
            if (normalized := normalizer.normalize_str(token)) != token:
                raise TokenizerError(f"its character map makes {normalized!r:.60} of the symbol {token!r:.60}; {HINT}")
        return steps

    def marks(self) -> list[Any]:
        """Return steps that put ``ESCAPE`` around unknown text, if needed."""
        if not self.looked_up:
            return []
        alphabet = ranges(map(self.spelled, self.alphabet))
        run, begin = rf"(?:[^{alphabet}]++)?+[{alphabet}]++", rf"\A{self.codes}[{alphabet}]*+"
        starts = f"(?:{begin}|(?!{begin}){run})" if self.codes else run
        steps = [
            normalizers.Replace(ESCAPE, OTHER),
            normalizers.Replace(Regex(rf"\G(?>{self.begin}|)[{alphabet}]*+[^{alphabet}]++\K"), ESCAPE),
            normalizers.Replace(Regex(rf"\G{starts}\K(?=[^{alphabet}])"), ESCAPE),
        ]
        first = rf"[{alphabet}]|{self.codes}" if self.codes else f"[{alphabet}]"
        # A pattern of no characters must not match at the very beginning: tokenizers loses count of what it replaced.
        return [*steps, normalizers.Prepend(ESCAPE), normalizers.Replace(Regex(rf"\A{ESCAPE}(?={first})"), "")]

    def splits(self) -> list[Any]:
        """Return splits at places that no piece crosses."""
        splits = []
        if alone := [rf"\A{self.codes}"] * bool(self.codes) + ["<"] * (not self.replaced):
            splits.append(pre_tokenizers.Split(Regex("|".join(alone)), "isolated"))
        if self.looked_up and not self.unigram:
            splits.append(pre_tokenizers.Split(Regex(f"{ESCAPE}[^{ESCAPE}]+{ESCAPE}"), "isolated"))
        if SPACE in self.alphabet and not any(SPACE in piece[1:] for piece in self.scores):
            splits.append(pre_tokenizers.Split(SPACE, "merged_with_next"))
        return splits

    def decoders(self) -> list[Any]:
        """Return the decoder steps, which also strip white space."""
        steps: list[Any] = [decoders.Replace(Regex(rf"<{ESCAPE}\d+{ESCAPE}>|<?{ESCAPE}"), "")]
        if self.replaced:
            steps.append(decoders.Replace(" ", "<"))
        steps.append(decoders.Replace(SPACE, " "))
        if self.model.byte_fallback:
            steps.append(decoders.ByteFallback())
        ends = Regex(rf"\A[{BLANK}]+|(?<![{BLANK}])[{BLANK}]+\z")
        return [*steps, decoders.Fuse(), decoders.Replace(ends, "")]


def check(builder: Builder) -> None:
    """Make sure that a model can be followed exactly.

    Raises:
        TokenizerError: naming what cannot.
    """
    model, vocabulary, unigram = builder.model, builder.vocabulary, builder.unigram
    # Unknown text is what is between known characters, unless pieces hold characters that are none themselves.
    closed = builder.alphabet.issuperset("".join(builder.scores))
    tokens = {*vocabulary.tokens, *(piece.text for piece in model.pieces)}
    named = {*vocabulary.specials, *vocabulary.languages}
    unfit = {
        "pieces are whole words": model.algorithm == WORD,
        "escape_whitespaces is false": not model.escape_whitespaces,
        "treat_whitespace_as_suffix is true": model.treat_whitespace_as_suffix,
        "texts are normalized after decoding": model.denormalizes,
        "scores are above 0": unigram and max(builder.scores.values()) > 0,
        "there are symbols beside merges": bool(builder.symbols) and not unigram,
        "there are unused pieces beside merges": any(piece.kind == UNUSED for piece in model.pieces) and not unigram,
        "pieces hold characters that are none": not closed
        and not (unigram and builder.replaced and not builder.looked_up),
        "languages are beside bytes and no space is before texts": bool(builder.codes)
        and not (builder.replaced or model.add_dummy_prefix),
        **{f"{token!r:.60} has a space": True for token in tokens if " " in token},
        **{
            f"{token!r:.60} has a code point that is no character": True
            for token in tokens
            if {ESCAPE, OTHER} & {*token}
        },
        **{f"a text could give {token!r:.60}": True for token in named if "<" not in token[:-1]},
        **{f"{token!r:.60} is special and a piece": True for token in named if token in builder.scores},
        **{f"{symbol!r:.60} has a space": True for symbol in builder.symbols if SPACE in symbol},
    }
    if reasons := [reason for reason, holds in unfit.items() if holds]:
        raise TokenizerError(f"{some(reasons)}; {HINT}")
