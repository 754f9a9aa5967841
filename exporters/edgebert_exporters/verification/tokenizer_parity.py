"""Tokenizer parity: the ids that a bundle gives texts against those that the files of its checkpoint ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgebert.checkpoints.tokenizers.text_reference import TextReference
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import InputError, ParityError
from edgebert_runtime.inputs.tokenizer import ModelTokenizer
from edgebert_runtime.tasks.base.bundle_tokenizers import load_tokenizers

SHOWN_IDS = 16  # of a text that differs


def check_tokenizers(bundle: Bundle, references: Sequence[TextReference | None]) -> dict[str, Any]:
    """Compare the tokenizers of a bundle with their references, as engines load them.

    Returns:
        The number of ``texts`` and the files ``against`` which they were compared, nothing without a reference.

    Raises:
        ParityError: naming the first text that has other ids, and both.
    """
    checked = [
        (reference, check_texts(tokenizer, reference, bundle.manifest.settings.get("mask_token")))
        for tokenizer, reference in zip(load_tokenizers(bundle), references, strict=False)
        if reference is not None
    ]
    if not checked:
        return {}
    against = ", ".join(dict.fromkeys(reference.against for reference, _ in checked))
    return {"tokenizer": {"texts": sum(count for _, count in checked), "against": against}}


def check_texts(tokenizer: ModelTokenizer, reference: TextReference, mask: str | None = None) -> int:
    """Compare the ids of each text, with special tokens in it as tokens and as characters; return their number.

    ``mask`` is the token of fill-mask, which is one in every text.

    Raises:
        ParityError: naming the first text that differs.
    """
    texts = list(reference.texts())
    for text in texts:
        for special_tokens in (False, True):
            if mask and not special_tokens and mask in text:
                continue
            try:
                encoding = tokenizer.content(text, special_tokens)
            except InputError:  # a text that the vocabulary cannot spell is refused
                continue
            ids = tokenizer.in_vocabulary(encoding.ids)
            expected = reference.difference(text, special_tokens, ids, encoding.tokens)
            if expected is not None:
                reading = ", special tokens read as tokens," if special_tokens else ""
                raise ParityError(
                    f"the tokenizer differs from {reference.against}: {text!r:.80}{reading} has the ids {shown(ids)}, "
                    f"should have {shown(expected)}; save the tokenizer as tokenizer.json"
                )
    return len(texts)


def shown(ids: Sequence[int]) -> str:
    """Return the first ids, for a message."""
    return f"[{', '.join(map(str, ids[:SHOWN_IDS]))}{', ...' if len(ids) > SHOWN_IDS else ''}]"
