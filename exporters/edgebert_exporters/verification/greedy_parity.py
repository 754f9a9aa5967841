"""Greedy decoding: a batch with a KV cache against the PyTorch reference without one."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgebert_exporters.inference.batch import Reference
from edgebert_exporters.inference.greedy import continued
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.errors import ParityError

PROMPT_LENGTHS = (1, 3, 9, 17)
STEPS = 8


def check_greedy(
    run: Reference, reference: Reference, manifest: Manifest, tolerance: float, seed: int = 0
) -> dict[str, Any]:
    """Compare greedy decoding in one batch with the reference alone.

    Two tokens whose reference logits differ by at most ``tolerance`` of the largest may change places.

    Raises:
        ParityError: naming the prompt and the step.
    """
    limits, inputs = manifest.limits, manifest.graphs["model"].inputs
    steps = min(STEPS, limits.max_tokens)
    rng = np.random.default_rng(seed)
    lengths = [min(length, limits.max_tokens - steps + 1) for length in PROMPT_LENGTHS]
    prompts = [rng.integers(0, limits.vocab_size, length).tolist() for length in lengths]
    alone = [np.concatenate(continued(reference, [prompt], inputs, steps)) for prompt in prompts]  # (steps, vocab) each
    expected = np.stack([logits.argmax(1) for logits in alone])
    together = np.stack(continued(run, prompts, inputs, steps, expected), axis=1).argmax(2)
    for row, step in zip(*np.nonzero(together != expected), strict=True):
        logits, token = alone[row][step], together[row, step]
        if logits[expected[row, step]] - logits[token] > 2 * tolerance * np.abs(logits).max():
            raise ParityError(
                f"the {manifest.target} graph goes on with token {token} instead of {expected[row, step]} at step "
                f"{step + 1} after a prompt of {lengths[row]} tokens; please report this model"
            )
    return {"prompts": len(prompts), "tokens": int(expected.size)}
