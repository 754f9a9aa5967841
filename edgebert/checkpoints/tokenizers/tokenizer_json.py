"""Convert the tokenizer files of a checkpoint to one ``tokenizer.json``.

The file is taken as it is, without its presets of padding and truncation, or built from the older files of BERT,
RoBERTa and GPT-2. Whatever ids it can give are compared with the vocabulary of the model.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tokenizers
from tokenizers import Tokenizer

from edgebert.checkpoints.folder import CheckpointFolder, parse_json, some
from edgebert.checkpoints.tokenizers.added_tokens import add_tokens, id_problems, read_added_tokens
from edgebert.checkpoints.tokenizers.text_reference import TextReference, text_reference
from edgebert.checkpoints.tokenizers.vocab_files import (
    GPT2_CLASSES,
    GPT2_SPECIAL_TOKENS,
    GPT2_TOKENS,
    MASKS,
    ROBERTA_CLASSES,
    ROBERTA_SPECIAL_TOKENS,
    SPECIAL_TOKENS,
    WORDPIECE_CLASSES,
    build_gpt2,
    build_roberta,
    build_wordpiece,
    has_upper_case,
)
from edgebert_runtime.errors import TokenizerError
from edgebert_runtime.inputs.tokenizer import UNKNOWN_PIECES
from edgebert_runtime.inputs.unknown_text import add_outside_token, lacks_unknown_token

log = logging.getLogger(__name__)

READY = "tokenizer.json"
VOCABULARY = "vocab.txt"
SETTINGS = "tokenizer_config.json"
SPECIALS = "special_tokens_map.json"
CONFIG = "config.json"
PIECES = "vocab.json"
MERGES = "merges.txt"
OTHERS = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model")
MAX_BYTES = 100_000_000
MAX_SETTINGS_BYTES = 16 << 20
NAMED_BY = ""  # the key of our own under which the settings say which file names the class
LONGEST = 1 << 24  # a larger model_max_length means that there is none
FLAGS = ("add_prefix_space", "trim_offsets", "add_bos_token")
SWITCHES = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# Model types whose tokenizer is BERT's unless a file names another.
WORDPIECE_TYPES = ("bert", "distilbert", "electra")
# Keys of a tokenizer that splits texts into words in another way than BERT, with the values that do not.
WORD_SPLITTERS = {"word_tokenizer_type": (None, "basic"), "subword_tokenizer_type": (None, "wordpiece")}
PROBE = "The 3 caf\u00e9s \u4e2d \U00013000"  # the last, a hieroglyph, is in hardly any vocabulary


@dataclass(frozen=True)
class TokenizerFile:
    """The text of tokenizer.json, maximum length, mask token, notes, and the side on which texts are cut.

    ``reference`` has the ids that texts should have. It is None for a tokenizer that is used as it stands.
    """

    text: str
    model_max_length: int | None
    mask_token: str | None
    notes: tuple[str, ...]
    truncation_side: str = "right"
    reference: TextReference | None = field(default=None, repr=False, compare=False)


def read_tokenizer(
    folder: CheckpointFolder,
    vocab_size: int | None,
    lowercase: bool = False,
    plain: bool = False,
    ready: str = READY,
    spare_mask: bool = False,
) -> TokenizerFile:
    """Read or build the tokenizer of a model with ``vocab_size`` ids.

    None for ``vocab_size`` compares no ids.

    ``ready`` is the file that is taken as it is. ``lowercase`` puts texts in lower case first, which
    sentence-transformers can ask for beside the tokenizer. The tokenizer of a ``plain`` model is GPT-2's unless it
    says something else, and adds no special tokens to a text. With ``spare_mask`` a mask token that the model has no
    embedding of is left out, as of a BART that is never asked to guess a word.

    Raises:
        CheckpointError: if a file cannot be read.
        TokenizerError: if there is no tokenizer, it is malformed, or it does not fit the model.
    """
    settings = read_settings(folder)
    usual: Mapping[str, str] = {}
    if folder.has(ready):
        data, notes = read_ready(folder, settings, ready)
        source = ready
    elif folder.has(PIECES) and folder.has(MERGES):
        data, usual = build_pieces(folder, settings, plain)
        source, notes = PIECES, []
    elif folder.has(VOCABULARY):
        data, notes = build_words(folder, settings)
        source, usual = VOCABULARY, SPECIAL_TOKENS
    else:
        hint = next((f"; {name} alone is not read" for name in OTHERS if folder.has(name)), "")
        missing = f"{READY} and {VOCABULARY} are missing"
        if folder.has(PIECES) or folder.has(MERGES):
            missing, hint = f"{READY} is missing", f"; {PIECES} and {MERGES} are read together only"
        raise TokenizerError(f"{missing}{hint}; save the tokenizer as {READY}")
    if lowercase and not re.search('"lowercase": true|"Lowercase"', json.dumps(data.get("normalizer"))):
        former = [data["normalizer"]] if data.get("normalizer") else []
        data["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *former]}
    added = read_added_tokens(folder, usual)
    if spare_mask and vocab_size is not None and (dropped := drop_mask(data, vocab_size)):
        added.special = [token for token in added.special if token.content != dropped]
        log.info("%s: left out %s, which the model has no embedding of", source, dropped)
    tokenizer = load_tokenizer(source, json.dumps(data))
    add_tokens(tokenizer, added, vocab_size)
    if lacks_unknown_token(data):
        notes.append(f"{source} has no unknown token: a text with a character outside its vocabulary is refused")
    problems = [*vocabulary_problems(data, tokenizer, vocab_size), *special_problems(data, tokenizer, settings)]
    if problems := [*(f"{source}: {problem}" for problem in problems), *id_problems(tokenizer, added)]:
        raise TokenizerError("; ".join(problems))
    if not plain and not tokenizer.num_special_tokens_to_add(False):
        log.info("%s adds no special tokens to a text", source)
    mask = find_mask(tokenizer, settings)
    side = truncation_side(settings)
    reference = text_reference(folder, source, settings, data, added, vocab_size)
    return TokenizerFile(tokenizer.to_str(), longest_text(settings), mask, tuple(notes), side, reference)


def drop_mask(data: dict[str, Any], vocab_size: int) -> str | None:
    """Take a mask token out of a tokenizer that the model has no embedding of, and return it."""
    added, model = data.get("added_tokens"), data.get("model")
    pieces = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(added, list) or not isinstance(pieces, dict):
        return None
    for token in MASKS:
        if type(id := pieces.get(token)) is int and id >= vocab_size:
            del pieces[token]
            data["added_tokens"] = [entry for entry in added if entry.get("content") != token]
            return token
    return None


def longest_text(settings: dict[str, Any]) -> int | None:
    """Return model_max_length, which was once called max_len; None if there is no limit.

    Raises:
        TokenizerError: if it is no whole number, which transformers fails at.
    """
    key = "model_max_length" if "model_max_length" in settings else "max_len"
    longest = settings.get(key)
    if longest is None or (type(longest) in (int, float) and longest > LONGEST):
        return None
    if type(longest) is not int or longest < 1:
        raise TokenizerError(
            f"{SETTINGS}: {key}={longest!r:.60} is not a whole number of tokens from 1; correct it, as in {key}: 512"
        )
    return longest


def truncation_side(settings: dict[str, Any]) -> str:
    """Return the side on which texts are cut.

    Raises:
        TokenizerError: if it is neither left nor right.
    """
    side = settings.get("truncation_side", "right")
    if side not in ("left", "right"):
        raise TokenizerError(f"{SETTINGS}: truncation_side={side!r:.60} is neither 'left' nor 'right'; correct it")
    return str(side)


def read_settings(folder: CheckpointFolder) -> dict[str, Any]:
    """Return what tokenizer_config.json says, with the special tokens as plain strings."""
    settings: dict[str, Any] = {}
    for name in (SPECIALS, SETTINGS):
        if folder.has(name):
            settings |= folder.json(name, cap=MAX_SETTINGS_BYTES)
    config = folder.json(CONFIG) if folder.has(CONFIG) else {}
    if settings.get("tokenizer_class") is None and isinstance(config.get("tokenizer_class"), str):
        settings |= {"tokenizer_class": config["tokenizer_class"], NAMED_BY: CONFIG}
    elif settings.get("tokenizer_class") is None and config.get("model_type") in WORDPIECE_TYPES:
        settings["tokenizer_class"] = WORDPIECE_CLASSES[0]
    for key in (*SPECIAL_TOKENS, *GPT2_TOKENS):
        if isinstance(settings.get(key), dict):
            settings[key] = settings[key].get("content")
        if not isinstance(settings.get(key, ""), str | None):
            raise TokenizerError(f"{SETTINGS}: {key}={settings[key]!r:.60} is not a token")
    for key in (*SWITCHES, *FLAGS):
        if settings.get(key, False) is None and key != "strip_accents":
            del settings[key]  # transformers writes null where nothing was said
        if type(settings.get(key, False)) is not bool and settings[key] is not None:
            raise TokenizerError(f"{SETTINGS}: {key}={settings[key]!r:.60} is neither true nor false")
    return settings


def read_ready(folder: CheckpointFolder, settings: dict[str, Any], name: str) -> tuple[dict[str, Any], list[str]]:
    """Read a tokenizer.json, without presets, and with the spelling rules of tokenizer_config.json."""
    data = folder.json(name, cap=MAX_BYTES)
    if isinstance(preset := data.get("truncation"), dict):  # of which transformers keeps the side
        settings.setdefault("truncation_side", str(preset.get("direction", "right")).lower())
    data["padding"] = data["truncation"] = None
    notes = []
    normalizer = data.get("normalizer")
    plain = settings.get("tokenizer_class") in WORDPIECE_CLASSES
    if plain and isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        # Where the two disagree, the library that trained the model follows tokenizer_config.json.
        for key, ours in SWITCHES.items():
            if key in settings and settings[key] != normalizer.get(ours):
                former = f"{name} has {ours}={normalizer.get(ours)}"
                log.info("%s, %s has %s=%s and is followed", former, SETTINGS, key, settings[key])
                normalizer[ours] = settings[key]
        if "do_lower_case" not in settings and normalizer.get("lowercase") is False:
            notes.append(
                f"{SETTINGS} does not say do_lower_case: transformers 5 takes true, this bundle false, as {name} has it"
            )
    return data, notes


def build_pieces(
    folder: CheckpointFolder, settings: dict[str, Any], plain: bool
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Build the tokenizer of RoBERTa or GPT-2 from vocab.json and merges.txt; return it with its special tokens."""
    check_class(settings, (*ROBERTA_CLASSES, *GPT2_CLASSES), PIECES)
    pieces = parse_json(PIECES, folder.text(PIECES, MAX_BYTES, drop_mark=True))
    merges = folder.text(MERGES, MAX_BYTES, drop_mark=True)
    if (settings.get("tokenizer_class") or (GPT2_CLASSES[0] if plain else None)) in GPT2_CLASSES:
        built, usual = build_gpt2(pieces, merges, settings), GPT2_SPECIAL_TOKENS
    else:
        built, usual = build_roberta(pieces, merges, settings), ROBERTA_SPECIAL_TOKENS
    return json.loads(built.to_str()), usual


def build_words(folder: CheckpointFolder, settings: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Build the tokenizer of BERT from vocab.txt, with notes."""
    check_class(settings, WORDPIECE_CLASSES, VOCABULARY)
    text, notes = folder.text(VOCABULARY, MAX_BYTES, drop_mark=True), []
    if "do_lower_case" not in settings:
        cased = has_upper_case(text)
        settings = {**settings, "do_lower_case": not cased}
        if cased:
            reason = f"this bundle false, as {VOCABULARY} has words in upper case"
            notes.append(f"{SETTINGS} does not say do_lower_case: transformers takes true, {reason}")
        else:
            log.info("%s does not say do_lower_case: took true, as BERT does", SETTINGS)
    return json.loads(build_wordpiece(text, settings).to_str()), notes


def check_class(settings: dict[str, Any], classes: tuple[str, ...], source: str) -> None:
    """Refuse a tokenizer of another class than those that can be built from ``source``."""
    kind = settings.get("tokenizer_class")
    if kind is not None and kind not in classes:
        file = settings.get(NAMED_BY, SETTINGS)
        raise TokenizerError(f"{file}: {kind!r:.80} cannot be built from {source}; save the tokenizer as {READY}")
    for key, usual in WORD_SPLITTERS.items():
        if settings.get(key) not in usual:
            raise TokenizerError(
                f"{SETTINGS}: {key}={settings[key]!r:.60} splits texts in a way that cannot be built from {source}; "
                f"save the tokenizer as {READY}"
            )


def find_mask(tokenizer: Tokenizer, settings: dict[str, Any]) -> str | None:
    """Return the mask token, if the tokenizer reads one."""
    names = [settings["mask_token"]] if settings.get("mask_token") else MASKS
    token_ids = {name: id for name in names if (id := tokenizer.token_to_id(name)) is not None}
    total = probed(tokenizer.to_str()) if token_ids else tokenizer
    read = [name for name, id in token_ids.items() if id in total.encode(name, add_special_tokens=False).ids]
    return read[0] if len(read) == 1 else None


def load_tokenizer(source: str, text: str) -> Tokenizer:
    """Load a tokenizer and try it once."""
    try:
        tokenizer = Tokenizer.from_str(text)
        probed(text).encode(PROBE)
    except BaseException as error:
        # A panic of the Rust library is no Exception; nothing but its name tells it from an interrupt.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(
            f"{source} cannot be used by tokenizers {tokenizers.__version__} ({error}); "
            "save it again, or update tokenizers"
        ) from error
    return tokenizer


def probed(text: str) -> Tokenizer:
    """Return a tokenizer that encodes any text, with a token for unknown text if it has none."""
    data = json.loads(text)
    if lacks_unknown_token(data):
        text = json.dumps(add_outside_token(data, Tokenizer.from_str(text).get_vocab_size()))
    return Tokenizer.from_str(text)


def vocabulary_problems(data: dict[str, Any], tokenizer: Tokenizer, vocab_size: int | None) -> Iterator[str]:
    """Find ids beyond the model, and ids of two tokens."""
    declared = {*tokenizer.get_vocab(with_added_tokens=True).items(), *emitted(data.get("post_processor"))}
    if tokenizer.token_to_id(UNKNOWN_PIECES) == vocab_size:  # those after it stand for the unknown token
        declared -= {*tokenizer.get_vocab(with_added_tokens=False).items()}
    highest = sorted((id, token) for token, id in declared if vocab_size is not None and id >= vocab_size)
    if beyond := [f"{token!r:.60} ({id})" for id, token in highest]:
        yield f"ids beyond the {vocab_size} of the model (vocab_size): {some(beyond)}; use the tokenizer of the model"
    vocabulary = data.get("model", {}).get("vocab")
    for added in data.get("added_tokens") or []:
        if (actual := tokenizer.token_to_id(added["content"])) != added["id"]:
            yield f"added token {added['content']!r:.60} has id {added['id']}, in use is {actual}; save it again"
    shared = len(vocabulary) - len(set(vocabulary.values())) if isinstance(vocabulary, dict) else 0
    if shared:
        yield f"{shared} ids belong to two tokens; use the tokenizer of the model"


def special_problems(data: dict[str, Any], tokenizer: Tokenizer, settings: dict[str, Any]) -> Iterator[str]:
    """Find special tokens that are missing or have a wrong id."""
    for key in SPECIAL_TOKENS:
        token = settings.get(key)
        if token and tokenizer.token_to_id(token) is None and key != "mask_token":
            yield f"lacks {token!r:.60}, the {key} of {SETTINGS}; use the tokenizer of the model"
    for token, id in emitted(data.get("post_processor")):
        if (actual := tokenizer.token_to_id(token)) != id:
            yield f"post_processor adds {token!r:.60} as id {id}, its id is {actual}; save it again"


def emitted(processor: Any) -> Iterator[tuple[str, int]]:
    """Yield the special tokens of a post-processor, with ids."""
    if not isinstance(processor, dict):
        return
    for inner in processor.get("processors") or []:
        yield from emitted(inner)
    for key in ("cls", "sep"):  # BertProcessing and RobertaProcessing
        if isinstance(processor.get(key), list):
            yield processor[key][0], processor[key][1]
    specials = processor.get("special_tokens")  # TemplateProcessing
    for special in specials.values() if isinstance(specials, dict) else ():
        yield from zip(special["tokens"], special["ids"], strict=False)
