"""Convert the tokenizer files of encoder-decoder models.

Files that are ready are taken as they are. Of Marian (OPUS-MT) there are ``source.spm``, ``target.spm`` and
``vocab.json``, of mBART ``sentencepiece.bpe.model`` and names of languages, of BART the files of RoBERTa. A tokenizer
puts ``</s>`` after a text, and that of BART ``<s>`` before it; where tokens of languages stand is left to the runtime.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenizers import Tokenizer, processors

from edgebert.checkpoints.folder import CheckpointFolder, some
from edgebert.checkpoints.tokenizers.marian import LANGUAGE, read_marian
from edgebert.checkpoints.tokenizers.sentencepiece_check import SentencePieceReference
from edgebert.checkpoints.tokenizers.sentencepiece_conversion import build_tokenizer
from edgebert.checkpoints.tokenizers.sentencepiece_model import CONTROL, UNKNOWN, read_sentencepieces
from edgebert.checkpoints.tokenizers.tokenizer_json import (
    READY,
    TokenizerFile,
    check_class,
    load_tokenizer,
    longest_text,
    read_settings,
    read_tokenizer,
)
from edgebert.checkpoints.tokenizers.vocabulary import Vocabulary
from edgebert_runtime.errors import TokenizerError

SOURCE_READY, TARGET_READY = "source_tokenizer.json", "target_tokenizer.json"
MBART_PIECES = "sentencepiece.bpe.model"
MBART_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
MBART_MASK = "<mask>"
MBART_LANGUAGES = tuple(
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN".split()
)
MBART50_LANGUAGES = tuple(
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN "
    "te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI".split()
)
MBART_CLASSES = ("MBartTokenizer", "MBartTokenizerFast")
MBART50_CLASSES = ("MBart50Tokenizer", "MBart50TokenizerFast")


@dataclass(frozen=True)
class TranslationTokenizers:
    """The tokenizers of an encoder-decoder, and its languages.

    ``target`` is None where one tokenizer serves both sides. ``languages`` are codes and their tokens, and
    ``language_style`` is where those stand: token, bart50 or bart25 (see ``edgebert_runtime.inputs.language_tokens``),
    or "". ``source_language`` and ``target_language`` are those that the checkpoint names, or "".
    """

    source: TokenizerFile
    target: TokenizerFile | None
    languages: dict[str, int]
    language_style: str
    source_language: str
    target_language: str


def read_tokenizers(
    folder: CheckpointFolder,
    model_type: str,
    vocab_size: int,
    decoder_vocab_size: int | None = None,
    first_tokens: Sequence[int | None] = (),
) -> TranslationTokenizers:
    """Read or build the tokenizers of a model of ``model_type``.

    ``vocab_size`` and ``decoder_vocab_size`` are the numbers of its token embeddings, None for one table on both sides.
    ``first_tokens`` are those with which the settings of the checkpoint have a target begin: if one is the token of a
    language, that is the target language unless the tokenizer names another.

    Raises:
        CheckpointError: if a file cannot be read.
        TokenizerError: if there is no tokenizer, it is malformed, cannot be followed exactly, or does not fit.
    """
    settings = read_settings(folder)
    ready = next((name for name in (SOURCE_READY, READY) if folder.has(name)), None)
    if ready is None and model_type == "marian":
        source, target = read_marian(folder, settings, vocab_size, decoder_vocab_size)
    elif ready is None and model_type == "mbart" and folder.has(MBART_PIECES):
        source, target = read_mbart(folder, settings, min(vocab_size, decoder_vocab_size or vocab_size)), None
    elif folder.has(TARGET_READY):
        source = read_tokenizer(folder, vocab_size, ready=ready or READY)
        target = read_tokenizer(folder, decoder_vocab_size or vocab_size, ready=TARGET_READY)
    else:
        smaller = min(vocab_size, decoder_vocab_size or vocab_size)
        source = read_tokenizer(folder, smaller, ready=ready or READY, spare_mask=True)
        target = None
    tokenizer = Tokenizer.from_str(source.text)
    style, languages = find_languages(model_type, settings, tokenizer.get_vocab())
    if style.startswith("bart"):
        source = without_language(source, settings)
    return TranslationTokenizers(source, target, languages, style, *directions(settings, languages, first_tokens))


def read_mbart(folder: CheckpointFolder, settings: dict[str, Any], vocab_size: int) -> TokenizerFile:
    """Build the tokenizer of mBART, with the ids of fairseq."""
    check_class(settings, (*MBART_CLASSES, *MBART50_CLASSES), MBART_PIECES)
    model = read_sentencepieces(folder, MBART_PIECES)
    first = [(piece.text, piece.kind) for piece in model.pieces[:3]]
    if first != [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]:
        raise TokenizerError(
            f"{MBART_PIECES} should begin with <unk>, <s> and </s>, has {first!r:.120}; use the right file"
        )
    tokens = [*MBART_TOKENS, *(piece.text for piece in model.pieces[3:])]
    languages_of = {MBART_CLASSES: MBART_LANGUAGES, MBART50_CLASSES: (*MBART_LANGUAGES, *MBART50_LANGUAGES)}
    sizes = {len(tokens) + len(languages) + 1: languages for languages in languages_of.values()}
    named = [languages for names, languages in languages_of.items() if settings.get("tokenizer_class") in names]
    languages = named[0] if named else sizes.get(vocab_size)
    needed = len(tokens) + len(languages) + 1 if languages else 0
    if languages is None or needed > vocab_size:
        raise TokenizerError(
            f"{MBART_PIECES} makes {needed or ' or '.join(map(str, sizes))} tokens, the model has {vocab_size} "
            "(vocab_size); use its own files"
        )
    vocabulary = Vocabulary(
        tokens, vocab_size, unknown="<unk>", end="</s>", specials=MBART_TOKENS, added=(*languages, MBART_MASK)
    )
    if twice := [repr(token) for token, count in Counter([*tokens, *vocabulary.added]).items() if count > 1]:
        raise TokenizerError(
            f"{MBART_PIECES} has pieces that are special tokens of mBART: {some(twice)}; use its own files"
        )
    text = load_tokenizer(MBART_PIECES, json.dumps(build_tokenizer(model, vocabulary))).to_str()
    return TokenizerFile(text, longest_text(settings), None, (), reference=SentencePieceReference(model, vocabulary))


def find_languages(model_type: str, settings: dict[str, Any], ids: Mapping[str, int]) -> tuple[str, dict[str, int]]:
    """Return the language style, and language tokens by id."""
    if model_type == "marian":
        codes = {match[1]: index for token, index in ids.items() if (match := LANGUAGE.fullmatch(token))}
        style = "token"
    elif model_type == "mbart":
        codes = {token: ids[token] for token in (*MBART_LANGUAGES, *MBART50_LANGUAGES) if token in ids}
        kind = settings.get("tokenizer_class")
        many = kind in MBART50_CLASSES or (
            kind not in MBART_CLASSES and any(map(codes.__contains__, MBART50_LANGUAGES))
        )
        style = "bart50" if many else "bart25"
    else:
        codes, style = {}, ""
    return (style if codes else ""), dict(sorted(codes.items(), key=lambda item: item[1]))


def without_language(file: TokenizerFile, settings: dict[str, Any]) -> TokenizerFile:
    """Return a tokenizer of mBART that adds only the end token.

    The language that it was saved with is dropped.
    """
    end = settings.get("eos_token") or "</s>"
    tokenizer = Tokenizer.from_str(file.text)
    if (index := tokenizer.token_to_id(end)) is None:
        raise TokenizerError(f"{READY} lacks {end!r:.60}, the eos_token; use the tokenizer of the model")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["$A", end], pair=["$A", "$B", end], special_tokens=[(end, index)]
    )
    return replace(file, text=tokenizer.to_str())


def directions(
    settings: dict[str, Any], languages: Mapping[str, int], first_tokens: Sequence[int | None]
) -> tuple[str, str]:
    """Return source and target language, "" where unspecified."""
    source, target = (
        next((name for key in keys if isinstance(name := settings.get(key), str) and name in languages), "")
        for keys in (("src_lang", "source_lang"), ("tgt_lang", "target_lang"))
    )
    begun = (name for token in first_tokens for name, index in languages.items() if index == token)
    return source, target or next(begun, "")
