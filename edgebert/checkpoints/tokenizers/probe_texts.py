"""Texts on which a tokenizer is compared with its reference."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

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
# Text that WordPiece and byte-level BPE treat in ways of their own.
MORE_TEXTS = (
    "We've can't I'M he'll 'tis d'accord they'd've",
    "a1b2 3,141.59 2nd 1/2 ^2 $5 +3 = ~8 |x| `code` <b>",
    "x" * 101,
    f"{'ab' * 60} end",
    "\u0000a\u0007b\u00adc\u200dd \ufffd e",
    "  two  spaces   three\t\ttabs\n\nlines  ",
    "naïve e\u0301te\u0301 ÅNGSTRÖM ÇA Øre ß ﬂ İI ı",
)


def variants() -> Iterator[str]:
    """Yield each text in several forms."""
    for text in (*TEXTS, *MORE_TEXTS):
        yield from dict.fromkeys(forms(text))


def forms(text: str) -> tuple[str, ...]:
    """Return a text in several cases, Unicode forms and spacings."""
    return (
        text,
        text.upper(),
        text.lower(),
        f"  {text}  ",
        text.replace(" ", ""),
        text.replace(" ", "   "),
        unicodedata.normalize("NFD", text),
        unicodedata.normalize("NFKC", text),
    )


def token_probes(tokens: Sequence[str]) -> Iterator[str]:
    """Yield texts with each token alone, doubled, glued to words, between spaces, and in other cases."""
    for token in tokens:
        yield from (token, f" {token} ", token * 2, f"{token} {token}", f"{token} the cat", f"the cat {token}")
        yield from (f"the{token}cat", f"the {token} cat", f"the  {token}  cat", f"the\t{token}\ncat", f"({token})")
        yield from (token.upper(), token.lower(), token.capitalize(), f"{token}s", f"_{token}_")
    for first, second in zip(tokens, tokens[1:], strict=False):
        yield f"the {first}{second} cat {first} {second}"
