"""Build the tokenizers of Marian from the files of OPUS-MT.

Marian (Junczys-Dowmunt et al., 2018) segments with ``source.spm`` or ``target.spm``. ``vocab.json`` has the ids of the
pieces of both; with ``separate_vocabs`` those of targets are in ``target_vocab.json``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgebert.checkpoints.folder import CheckpointFolder, parse_json, some
from edgebert.checkpoints.tokenizers.sentencepiece_check import SentencePieceReference
from edgebert.checkpoints.tokenizers.sentencepiece_conversion import build_tokenizer
from edgebert.checkpoints.tokenizers.sentencepiece_model import CONTROL, NORMAL, read_sentencepieces
from edgebert.checkpoints.tokenizers.tokenizer_json import (
    MAX_BYTES,
    PIECES,
    SETTINGS,
    TokenizerFile,
    check_class,
    load_tokenizer,
    longest_text,
)
from edgebert.checkpoints.tokenizers.vocab_files import check_pieces
from edgebert.checkpoints.tokenizers.vocabulary import Vocabulary
from edgebert_runtime.errors import TokenizerError

log = logging.getLogger(__name__)

SOURCE_PIECES, TARGET_PIECES, TARGET_VOCABULARY = "source.spm", "target.spm", "target_vocab.json"
SPECIAL_TOKENS = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
LANGUAGE = re.compile(r">>([^<>\s]+)<<")


def read_marian(
    folder: CheckpointFolder, settings: dict[str, Any], vocab_size: int, decoder_vocab_size: int | None
) -> tuple[TokenizerFile, TokenizerFile | None]:
    """Build both tokenizers of Marian; the second may be None.

    It is None if it would equal the first.

    A text is taken apart by the pieces of its side, whose ids are those of the vocabulary of the model.
    """
    check_class(settings, ("MarianTokenizer",), SOURCE_PIECES)
    if settings.get("sp_model_kwargs"):
        raise TokenizerError(f"{SETTINGS}: sp_model_kwargs={settings['sp_model_kwargs']!r:.60} is not followed")
    targets = TARGET_VOCABULARY if settings.get("separate_vocabs") is True else PIECES
    source = marian_side(folder, settings, SOURCE_PIECES, PIECES, vocab_size)
    target = marian_side(folder, settings, TARGET_PIECES, targets, decoder_vocab_size or vocab_size)
    if settings.get("clean_up_tokenization_spaces") is True:
        note = (
            f"{SETTINGS}: clean_up_tokenization_spaces=true: transformers removes spaces before punctuation, "
            "this bundle leaves them"
        )
        source = replace(source, notes=(*source.notes, note))
    return source, None if target.text == source.text else target


def marian_side(
    folder: CheckpointFolder, settings: dict[str, Any], pieces: str, vocabulary: str, vocab_size: int
) -> TokenizerFile:
    """Build the tokenizer of one side of Marian."""
    model = read_sentencepieces(folder, pieces)
    ids = check_pieces(parse_json(vocabulary, folder.text(vocabulary, MAX_BYTES)), vocabulary)
    names = {key: settings.get(key) or token for key, token in SPECIAL_TOKENS.items()}
    if missing := [token for token in names.values() if token not in ids]:
        raise TokenizerError(f"{vocabulary} lacks the special tokens {some(missing)}; use the one of the model")
    tokens = by_id(ids, vocabulary, vocab_size)
    hidden = [piece.text for piece in model.pieces if piece.kind == CONTROL and piece.text in ids]
    marian_vocabulary = Vocabulary(
        tokens,
        size=vocab_size,
        unknown=names["unk_token"],
        end=names["eos_token"],
        specials=tuple(dict.fromkeys([*names.values(), *hidden])),
        languages=[token for token in tokens if LANGUAGE.fullmatch(token)],
        looks_up=True,
    )
    text = load_tokenizer(pieces, json.dumps(build_tokenizer(model, marian_vocabulary))).to_str()
    unknown = sum(piece.text not in ids for piece in model.pieces if piece.kind == NORMAL)
    if unknown:
        log.info(
            "%d of %d pieces of %s are not in %s: they are unknown", unknown, len(model.pieces), pieces, vocabulary
        )
    reference = SentencePieceReference(model, marian_vocabulary)
    return TokenizerFile(text, longest_text(settings), None, (), reference=reference)


def by_id(ids: Mapping[str, int], name: str, vocab_size: int) -> list[str]:
    """Return the tokens of a vocabulary by id, "" for unused ids."""
    if beyond := [f"{token!r:.60} ({index})" for token, index in ids.items() if index >= vocab_size]:
        raise TokenizerError(
            f"{name}: ids beyond the {vocab_size} of the model (vocab_size): {some(beyond)}; use its own"
        )
    if len(set(ids.values())) < len(ids):
        raise TokenizerError(f"{name}: {len(ids) - len(set(ids.values()))} ids belong to two tokens; use its own")
    if broken := [
        repr(token) for token in ids if not token or any("\ud800" <= character <= "\udfff" for character in token)
    ]:
        raise TokenizerError(f"{name} has tokens that are no text: {some(broken)}; save or download it again")
    tokens = [""] * (max(ids.values()) + 1)
    for token, index in ids.items():
        tokens[index] = token
    return tokens
