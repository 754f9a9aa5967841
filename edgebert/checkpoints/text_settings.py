"""Settle how the engine of a checkpoint prepares texts: length, side of truncation, prompts."""

from __future__ import annotations

import logging
from typing import Any

from tokenizers import Tokenizer

from edgebert.checkpoints.config.model_factory import Config
from edgebert.checkpoints.config.sentence_settings import PROMPTS
from edgebert.checkpoints.config.sentence_transformers import SentenceModules
from edgebert.checkpoints.folder import some
from edgebert.checkpoints.tokenizers.tokenizer_json import TokenizerFile
from edgebert_runtime.task_specs import TASKS

log = logging.getLogger(__name__)


def text_length(config: Config, task: str, sentence: SentenceModules, tokenizer: TokenizerFile) -> int:
    """Return the length that texts are truncated to.

    It is at most the number of positions. Prompts of generate have no other limit.
    """
    positions = config.max_tokens
    if task == "generate":
        return positions
    length = sentence.text.max_seq_length or tokenizer.model_max_length or positions
    if length > positions:  # the reference fails at a longer text
        log.info("texts are cut at %d tokens, the positions of the model, and not at %d", positions, length)
    return min(length, positions)


def text_settings(sentence: SentenceModules, tokenizer: TokenizerFile, task: str) -> dict[str, Any]:
    """Return the engine's settings about texts, without those that have their usual value."""
    side = sentence.text.truncation_side or tokenizer.truncation_side
    cuts_left = side == "left" and "truncation_side" in TASKS[task].settings
    settings: dict[str, Any] = {"truncation_side": side} if cuts_left else {}
    if TASKS[task].embeds:
        prompts = sentence.prompts
        settings |= {"prompts": prompts.texts} if prompts.texts else {}
        settings |= {"default_prompt": prompts.default} if prompts.default is not None else {}
        settings |= {} if sentence.include_prompt else {"include_prompt": False}
        settings |= {"dim": prompts.dim} if prompts.dim else {}
    return settings


def prompt_notes(sentence: SentenceModules, tokenizer: TokenizerFile, task: str) -> list[str]:
    """Name the prompts with special tokens, which an engine reads as characters unless it is asked to read them."""
    prompts = sentence.prompts.texts if TASKS[task].embeds else {}
    if not any(prompts.values()):
        return []
    tokens, characters = (Tokenizer.from_str(tokenizer.text) for _ in range(2))
    characters.encode_special_tokens = True
    names = [name for name, text in prompts.items() if tokens.encode(text).ids != characters.encode(text).ids]
    reading = "have special tokens, which are read as characters unless a call has special_tokens=True"
    return [f"{PROMPTS}: the prompts {some(names)} {reading}"] if names else []
