"""Compare a converted tokenizer with SentencePiece on probe texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from tokenizers import Tokenizer

from edgebert.checkpoints.tokenizers.sentencepiece_model import UNKNOWN, SentencePieces
from edgebert.checkpoints.tokenizers.sentencepiece_normalizer import ESCAPE
from edgebert.checkpoints.tokenizers.vocabulary import Vocabulary
from edgebert_runtime.errors import TokenizerError

# Texts in many scripts, with numbers, punctuation, symbols and whitespace.
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "It's 3.14 or 1,000,000 -- isn't it? (Yes!)",
    "Grüße aus Köln: Straße, Äpfel, naïve café, crème brûlée",
    "El niño comió piñas; ¿dónde está la cigüeña?",
    "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "Zażółć gęślą jaźń, İstanbul'da ılık bir gün",
    "Tiếng Việt có dấu: những người bạn",
    "Москва — столица России, Ёжик в тумане",
    "Ο ήλιος λάμπει σήμερα",
    "שלום עולם, מה שלומך?",
    "السلام عليكم ورحمة الله",
    "नमस्ते दुनिया, हिन्दी में क्षत्रिय",
    "สวัสดีชาวโลก น้ำใจ",
    "გამარჯობა მსოფლიო, Բարեւ աշխարհ, ሰላም ዓለም",
    "東京は日本の首都です。ガラスとカタカナ",
    "北京是中国的首都,欢迎!",
    "안녕하세요 세계, 한국어 문장",
    "Mixed 日本語 and English и русский text",
    "Emoji 😀 👩🏽‍🚀 🇩🇪 ☃ ½ ﬁ ㌔ ℵ № ™",
    "https://example.org/a?b=c&d=e#f user@example.org",
    "x = [i**2 for i in range(10)] # {code} <tag> a</tag>",
    "<0x41> < > << >> <<a>> ▁ ▁a a▁b",
    "aaaaaaaaaaaaaaaa ........ !!!!! -----",
    "tab\tnewline\nreturn\r\nno-break\u00a0ideographic\u3000zero\u200bwidth",
    "e\u0301 o\u0308\u0323 \u0301 か\u3099 \u1100\u1161\u11a8 क\u093c",
    "",
    " ",
    "a",
)


def probes(vocabulary: Vocabulary) -> Iterator[tuple[str, str]]:
    """Yield a language token, or "", and a text to compare.

    Each text comes in several cases, Unicode forms and spacings.
    """
    specials = list(dict.fromkeys([*vocabulary.specials, *vocabulary.added]))[:8]
    for text in TEXTS:
        variants = (
            text,
            text.upper(),
            text.lower(),
            f"  {text}  ",
            text.replace(" ", ""),
            text.replace(" ", "   "),
            unicodedata.normalize("NFD", text),
            unicodedata.normalize("NFKC", text),
            *text.split()[:3],
        )
        yield from (("", form) for form in dict.fromkeys(variants))
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
    reference = Reference(model, vocabulary)
    tokenizer.encode_special_tokens = True  # a text is only text
    end = reference.ids[vocabulary.end]
    for code, text in probes(vocabulary):
        encoding = tokenizer.encode(f"{code}{text}")
        actual = [index if index < vocabulary.size else reference.unknown for index in encoding.ids]
        pieces, expected = reference.encode(text)
        expected = [*([reference.ids[code]] if code else []), *expected, end]
        if actual != expected and not reference.is_tie(encoding.tokens[bool(code) : -1], pieces):
            raise TokenizerError(
                f"{model.name}: the tokenizer made of it differs from SentencePiece: {code + text!r:.80} has the ids "
                f"{actual}, should have {expected}; save the tokenizer as tokenizer.json"
            )


class Reference:
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
            raise TokenizerError(f"{model.name} is refused by SentencePiece ({reason}); download it again") from error
        self.pieces = model.pieces
        self.ids = {token: index for index, token in enumerate(vocabulary.tokens) if token}
        self.unknown = self.ids[vocabulary.unknown]
        # Tokens that unknown text can be, as a whole.
        hidden = {*vocabulary.specials, *vocabulary.languages}
        self.words = {token for token in self.ids if token not in hidden} if vocabulary.looks_up else set()

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
