"""Convert the character map of a SentencePiece model to normalizers.

A map replaces characters, and sequences of them such as a letter and its accent: from left to right, at each place the
longest of its keys. The normalizer Precompiled takes the same bytes, but of a short grapheme it replaces all by what
the shortest key at its beginning stands for, and of a long one each character alone. So graphemes are taken apart for
it. A mark goes before each character that could join the one before: ``TOGETHER`` where the map sees the two as one,
``APART`` where it does not. The former are then composed by NFC, which is what maps made from Unicode do, and the few
that NFC does not know by a rule each. A map is used only if every key, and every character, comes out as it should.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, normalizers

from edgebert.checkpoints.tokenizers.sentencepiece_model import HINT
from edgebert_runtime.errors import TokenizerError

MAX_KEYS = 1 << 22
MAX_KEY_BYTES = 32
MAX_PATTERN = 1 << 18
MAX_RULES = 64
LEAF, LABEL = 1 << 8, np.uint32(1 << 31 | 0xFF)
BYTES = np.arange(1, 256)
# A code point that Unicode keeps free for such uses; the one that stands in a text is told from marks by its digit.
ESCAPE = "\ufdd0"
LITERAL, APART, TOGETHER = (f"{ESCAPE}{digit}" for digit in "012")
SEPARATOR = "\ue000"
UNTOUCHED = f"{ESCAPE}{SEPARATOR} 012"
# Characters that join the one before them, in a grapheme or in NFC, beside marks and what Unicode did not yet name.
JOINING = {*"\n\u0e33\u0eb3\u200c\u200d\uff9e\uff9f"} | {
    chr(code)
    for first, last in ((0x1160, 0x11FF), (0xD7B0, 0xD7FF), (0x1F3FB, 0x1F3FF), (0xE0020, 0xE007F))
    for code in range(first, last + 1)
}


class CharacterMap(NamedTuple):
    """The rules of a map, for characters and for sequences."""

    single: dict[str, str]
    sequences: dict[str, str]


@lru_cache(maxsize=8)
def render(data: bytes, whole: str = "") -> tuple[Any, ...]:
    """Return normalizers equivalent to the map ``data``.

    ``whole`` is a pattern of what the map leaves as it is, "" for none.

    Raises:
        TokenizerError: if the map is damaged, or does what normalizers cannot be made to do.
    """
    rules = decode(data)
    if touched := sorted({key[0] for keys in rules for key in keys} & {*UNTOUCHED}):
        raise refusal(f"it replaces {touched[0]!a}")
    odd_values = [value for part in rules for value in part.values() if "  " in value or {ESCAPE, SEPARATOR} & {*value}]
    if odd_values:
        raise refusal(f"it puts {odd_values[0]!a:.60}")
    joins, sequences = joining(rules), pattern_of(rules.sequences)
    if len(sequences) > MAX_PATTERN:
        raise refusal("it has too many different sequences")
    odd = sorted(rules.sequences if len(rules.sequences) <= MAX_RULES else uncomposed(rules), key=len, reverse=True)
    composed = [normalizers.NFC()] if len(odd) < len(rules.sequences) else []
    # A key of one character, or of several, if what comes after the first could join it.
    key = rf"(?=(?m:.){joins})(?:{sequences}|(?m:.))" if sequences else "(?m:.)"
    unit = f"{whole}|{key}" if whole else key
    steps = [
        normalizers.Replace(ESCAPE, LITERAL),
        # From the end of the last match, or a character that joins nothing: one key, and then what could join it.
        normalizers.Replace(Regex(rf"(?:\G|(?!{joins}))(?>{unit})\K(?={joins})"), APART),
        normalizers.Replace(Regex(rf"(?<!{APART})(?<!\A)(?={joins})"), TOGETHER),
        normalizers.Precompiled(data),
        *(exception(key, rules) for key in odd),
        normalizers.Replace(TOGETHER, ""),
        *composed,
        normalizers.Replace(APART, ""),
        normalizers.Replace(LITERAL, ESCAPE),
    ]
    check(steps, rules, odd)
    return tuple(steps)


def refusal(reason: str) -> TokenizerError:
    """Return the error for a map that cannot be rendered."""
    return TokenizerError(f"its character map cannot be followed exactly ({reason}); {HINT}")


def decode(data: bytes) -> CharacterMap:
    """Decode a map: a double array (Aoe, 1989) and its texts.

    Raises:
        TokenizerError: if it is damaged.
    """
    size = int.from_bytes(data[:4], "little")
    if not size or size % 1024 or size > len(data) - 5 or data[-1]:
        raise TokenizerError(f"its character map of {len(data)} bytes is damaged; save or download it again")
    units, texts = np.frombuffer(data, "<u4", size // 4, 4), data[4 + size :]
    rules = CharacterMap({}, {})
    try:
        texts.decode()
        endings = Keys(units).after(offset(int(units[0])))
        values = {start: texts[start : texts.index(0, start)].decode() for start in {start for _, start in endings}}
        for ending, start in endings:
            key = ending.decode()
            rules[len(key) > 1][key] = values[start]
    except (ValueError, IndexError) as error:
        raise TokenizerError(f"its character map is damaged ({error}); save or download it again") from error
    return rules


class Keys:
    """The keys of a double array; nodes may be shared."""

    def __init__(self, units: npt.NDArray[np.uint32]) -> None:
        self.units = units
        self.known: dict[int, list[tuple[bytes, int]]] = {}
        self.total = 0

    def after(self, node: int, longest: int = MAX_KEY_BYTES) -> list[tuple[bytes, int]]:
        """Return the endings after ``node``, with their text offsets.

        Raises:
            IndexError: if a place is none.
            ValueError: if a key is longer than ``longest`` bytes, or there are too many.
        """
        if node in self.known:
            return self.known[node]
        endings: list[tuple[bytes, int]] = []
        block = self.units[node & ~0xFF : (node | 0xFF) + 1]  # where the nodes after it are, for whatever byte
        if len(block) < 256:
            raise ValueError("a place beyond its end")
        for byte in BYTES[(block & LABEL)[BYTES ^ node & 0xFF] == BYTES].tolist():
            if not longest:
                raise ValueError("keys without an end")
            unit = int(self.units[node ^ byte])
            place, first = node ^ byte ^ offset(unit), bytes([byte])
            if unit & LEAF:
                endings.append((first, int(self.units[place]) & ~(1 << 31)))
            endings += [(first + ending, start) for ending, start in self.after(place, longest - 1)]
        self.total += len(endings)
        if self.total > MAX_KEYS:
            raise ValueError("too many keys")
        self.known[node] = endings
        return endings


def offset(unit: int) -> int:
    """Return the distance from a node to its children."""
    return (unit >> 10) << ((unit & 1 << 9) >> 6)


def escaped(characters: Iterable[str]) -> str:
    """Escape characters for a pattern or a character class."""
    return "".join(character if character.isalnum() else f"\\x{{{ord(character):X}}}" for character in characters)


def ranges(characters: Iterable[str]) -> str:
    """Return the inside of a class of ``characters``."""
    runs: list[list[str]] = []
    for character in sorted(set(characters)):
        if runs and ord(runs[-1][-1]) == ord(character) - 1:
            runs[-1][1:] = [character]
        else:
            runs.append([character])
    return "".join("-".join(map(escaped, run)) for run in runs)


def joining(rules: CharacterMap) -> str:
    """Return a pattern of characters that could join the preceding one."""
    later = {character for key in rules.sequences for character in key[1:]}
    first = {key for key, value in rules.single.items() if value and joins(value[0], later)}
    named = r"\p{L}\p{N}\p{P}\p{S}\p{Z}\p{Cc}\p{Cf}\p{Co}" + ESCAPE
    return f"(?:[^{named}]|[{ranges(JOINING | later | first)}])"


def joins(character: str, later: set[str]) -> bool:
    """Say whether a mapped character could join the preceding one."""
    return character in JOINING or character in later or unicodedata.category(character) in ("Mn", "Mc", "Me", "Cn")


def tails_of(sequences: Iterable[str]) -> dict[frozenset[str], list[str]]:
    """Group first characters by the tails that can follow them."""
    tails: dict[str, set[str]] = defaultdict(set)
    for sequence in sequences:
        tails[sequence[0]].add(sequence[1:])
    heads: dict[frozenset[str], list[str]] = defaultdict(list)
    for head, after in tails.items():
        heads[frozenset(after)].append(head)
    return heads


def pattern_of(sequences: Iterable[str]) -> str:
    """Return a pattern for the longest of ``sequences``, factored."""
    parts = []
    for after, heads in tails_of(sequences).items():
        pattern = pattern_of(tail for tail in after if tail)
        parts.append(f"[{ranges(heads)}]" + (f"(?:{pattern}){'?' if '' in after else ''}" if pattern else ""))
    return "|".join(parts)


def uncomposed(rules: CharacterMap) -> list[str]:
    """Return the sequences that NFC composes differently."""
    keys = list(rules.sequences)
    parts = SEPARATOR.join(keys).translate({ord(key): value for key, value in rules.single.items()})
    by_nfc = normalizers.NFC().normalize_str(parts).split(SEPARATOR)
    odd = [key for key, composed in zip(keys, by_nfc, strict=True) if composed != rules.sequences[key]]
    if len(odd) > MAX_RULES:
        raise refusal(f"of {len(keys)} sequences {len(odd)} are not those of Unicode")
    return odd


def exception(key: str, rules: CharacterMap) -> Any:
    """Return a normalizer for a sequence that NFC does not compose."""
    parts = (escaped(rules.single.get(character, character)) for character in key)
    pattern = f"(?<!{TOGETHER}){TOGETHER.join(parts)}(?!{TOGETHER})"
    return normalizers.Replace(Regex(pattern), rules.sequences[key])


def check(steps: list[Any], rules: CharacterMap, odd: list[str]) -> None:
    """Check that keys map as required, and other characters stay.

    That NFC composes the sequences has been seen; of those that differ in the first character only, one is tried.
    """
    trials = [heads[0] + tail for tails, heads in tails_of(rules.sequences).items() for tail in tails]
    tried = {**rules.single, **{key: rules.sequences[key] for key in (*trials, *odd)}}
    same(normalizers.Sequence(steps), list(tried), list(tried.values()))
    if len(odd) < len(rules.sequences):
        codes = [*range(1, 0xD800), *range(0xE000, 0x30000)]  # Unicode composes nothing beyond
        others = [character for character in map(chr, codes) if character not in rules.single]
        same(normalizers.NFC(), others, others)


def same(normalizer: Any, keys: list[str], values: list[str]) -> None:
    """Make sure that ``keys`` become ``values``."""
    results = normalizer.normalize_str(f" {SEPARATOR} ".join(keys)).split(f" {SEPARATOR} ")
    for key, value, result in zip(keys, values, results, strict=False):
        if value != result:
            raise refusal(f"{key!a} becomes {result!a} and not {value!a}")
