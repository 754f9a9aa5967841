"""Compare a converted tokenizer with SentencePiece on probe texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tokenizers import Tokenizer

from edgebert.checkpoints.tokenizers.probe_texts import TEXTS, forms
from edgebert.checkpoints.tokenizers.sentencepiece_model import UNKNOWN, SentencePieces
from edgebert.checkpoints.tokenizers.sentencepiece_normalizer import ESCAPE
from edgebert.checkpoints.tokenizers.vocabulary import Vocabulary
from edgebert_runtime.errors import TokenizerError


def probes(vocabulary: Vocabulary) -> Iterator[tuple[str, str]]:
    """Yield a language token, or "", and a text to compare.

    Each text comes in several cases, Unicode forms and spacings.
    """
    specials = list(dict.fromkeys([*vocabulary.specials, *vocabulary.added]))[:8]
    for text in TEXTS:
        yield from (("", form) for form in dict.fromkeys((*forms(text), *text.split()[:3])))
        yield from ((code, text) for code in vocabulary.languages[:3])
    for token in specials:
        yield from (
            ("", form) for form in (token, f"{token} the cat", f"the cat{token}", f"the {token} cat", token * 2)
        )


def check_tokenizer(tokenizer: Tokenizer, model: SentencePieces, vocabulary: Vocabulary) -> None:
    """Compare the ids of ``tokenizer`` with those of SentencePiece.

    Raises:
        TokenizerError: naming the first text that has other ids, or because the library is missing.
    """
    reference = SentencePieceReference(model, vocabulary)
    tokenizer.encode_special_tokens = True  # a text is only text
    end = reference.ids[vocabulary.end]
    for text in reference.texts():
        encoding = tokenizer.encode(text)
        actual = [index if index < vocabulary.size else reference.unknown for index in encoding.ids]
        expected = reference.difference(text, False, actual[:-1], encoding.tokens[:-1])
        if expected is not None or actual[-1] != end:
            raise TokenizerError(
                f"{model.name}: the tokenizer made of it differs from SentencePiece: {text!r:.80} has the ids "
                f"{actual}, should have {[*(expected or actual[:-1]), end]}; save the tokenizer as tokenizer.json"
            )


class SentencePieceReference:
    """SentencePiece itself, with the ids of a vocabulary."""

    def __init__(self, model: SentencePieces, vocabulary: Vocabulary) -> None:
        try:
            import sentencepiece
        except ImportError as error:
            hint = 'pip install "edgebert[export]"'
            raise TokenizerError(f"{model.name} cannot be checked without sentencepiece; {hint}") from error
        try:
            self.processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model.data)
        except RuntimeError as error:
            reason = f"{' '.join(str(error).split()):.200}"
            raise TokenizerError(
                f"{model.name} is refused by SentencePiece ({reason}); save or download it again"
            ) from error
        self.against = f"SentencePiece with {model.name}"
        self.vocabulary = vocabulary
        self.pieces = model.pieces
        self.ids = {token: index for index, token in enumerate(vocabulary.tokens) if token}
        self.unknown = self.ids[vocabulary.unknown]
        # Tokens that unknown text can be, as a whole.
        hidden = {*vocabulary.specials, *vocabulary.languages}
        self.words = {token for token in self.ids if token not in hidden} if vocabulary.looks_up else set()

    def texts(self) -> Iterator[str]:
        """Yield the texts to compare, some with a language before them."""
        return (f"{code}{text}" for code, text in probes(self.vocabulary))

    def difference(
        self, text: str, special_tokens: bool, ids: Sequence[int], tokens: Sequence[str]
    ) -> list[int] | None:
        """Return the ids that a text should have, None if ``ids`` are these, or as good.

        SentencePiece has no special tokens in texts.
        """
        code = next((code for code in self.vocabulary.languages if text.startswith(code)), "")
        pieces, expected = self.encode(text[len(code) :])
        expected = [*([self.ids[code]] if code else []), *expected]
        alike = special_tokens or expected == list(ids) or self.is_tie(tokens[bool(code) :], pieces)
        return None if alike else expected

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        """Return the pieces of a text, and their ids.

        The pieces are numbers of the model file, the ids those of the vocabulary.
        """
        numbers: list[int] = self.processor.encode(text)
        surfaces: list[str] = self.processor.encode(text, out_type=str)
        names = [
            (surface if surface in self.words else None)
            if self.pieces[number].kind == UNKNOWN
            else self.pieces[number].text
            for number, surface in zip(numbers, surfaces, strict=True)
        ]
        return numbers, [self.ids.get(name, self.unknown) if name is not None else self.unknown for name in names]

    def is_tie(self, tokens: Sequence[str], pieces: Sequence[int]) -> bool:
        """Say whether two segmentations have equal scores, rounding aside.

        SentencePiece adds scores in 32 bits, and which of two is the better may be a matter of that.
        """
        numbers = [self.processor.piece_to_id(token.strip(ESCAPE).replace(" ", "<")) for token in tokens]
        left, right = (sum(map(self.processor.get_score, side)) for side in (numbers, pieces))
        rounding = 2**-22 * (len(numbers) + len(pieces)) * max(1.0, abs(left), abs(right))
        same: bool = self.processor.decode(numbers) == self.processor.decode(list(pieces))
        return same and abs(left - right) <= rounding
