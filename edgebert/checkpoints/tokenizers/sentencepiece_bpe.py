"""Find the BPE merges of a SentencePiece model.

Its file holds scores alone. Byte-pair encoding (Sennrich et al., 2016) merges the adjacent pair whose piece has the
highest score, the first of these. The merges inside a piece do not depend on its context: a piece has one last merge,
or is never formed.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgebert.checkpoints.folder import some
from edgebert.checkpoints.tokenizers.sentencepiece_model import HINT
from edgebert_runtime.errors import TokenizerError

MAX_STEPS = 1 << 25

Pair = tuple[str, str]


def find_merges(scores: Mapping[str, float]) -> dict[str, Pair]:
    """Return the last merge of each piece, in merge order.

    Raises:
        TokenizerError: if two pieces have one score, so that their order depends on where they stand, or pieces are
            too long.
    """
    if sum(len(piece) ** 2 for piece in scores) > MAX_STEPS:
        raise TokenizerError(f"pieces are too long to be merged; {HINT}")
    merges = {piece: pair for piece in scores if (pair := last_merge(piece, scores))}
    ordered = sorted(merges, key=lambda piece: -scores[piece])
    ties = [f"{a!r:.60} and {b!r:.60}" for a, b in zip(ordered, ordered[1:], strict=False) if scores[a] == scores[b]]
    if ties:
        raise TokenizerError(f"pieces that are merged have the same score: {some(ties)}; {HINT}")
    return {piece: merges[piece] for piece in ordered}


def last_merge(piece: str, scores: Mapping[str, float]) -> Pair | None:
    """Return the last merge of ``piece``, None if it has none."""
    parts = list(piece)
    while len(parts) > 1:
        pairs = [left + right for left, right in zip(parts, parts[1:], strict=False)]
        ranked = [(scores[pair], -place) for place, pair in enumerate(pairs) if pair in scores]
        if not ranked:
            return None
        place = -max(ranked)[1]
        if len(parts) == 2:
            return parts[0], parts[1]
        parts[place : place + 2] = [pairs[place]]
    return None
