"""Open a checkpoint: a local folder in the format of the Hugging Face Hub.

A folder is data: nothing in it is run, nothing outside of it is read, and whatever is wrong with it is reported at
once, before any weight is loaded.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from edgebert.checkpoint_files import CheckpointFolder, one_line, some
from edgebert.model_config import read_config
from edgebert.models.bert import Bert, BertConfig
from edgebert.sentence_modules import SentenceModules, read_sentence_modules
from edgebert.tokenizer_files import TokenizerFile, read_tokenizer
from edgebert.weight_files import WeightFiles, find_weights, fit, load
from edgebert_runtime.errors import CheckpointError, EdgebertError

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Checkpoint:
    """An opened and checked checkpoint; the weights are still on disk.

    ``pooling`` and ``normalize`` are None where the folder does not say. ``max_tokens`` is what the model can take,
    ``default_tokens`` where the checkpoint's own settings cut a text, special tokens included in both. ``ignored``
    are the tensors that the encoder does not need, ``notes`` is what a user should know, a line each.
    """

    path: Path
    family: str
    config: BertConfig
    pooling: str | None
    normalize: bool | None
    max_tokens: int
    default_tokens: int
    tokenizer_json: str = field(repr=False)
    ignored: tuple[str, ...]
    notes: tuple[str, ...]
    weights: WeightFiles = field(repr=False)

    def load_model(self) -> Bert:
        """Return the model with its weights, in float32 and in evaluation mode.

        Raises:
            CheckpointError: if weights are NaN or infinite, or the files have changed since they were opened.
        """
        try:
            return load(CheckpointFolder.open(self.path), self.config, self.weights)
        except CheckpointError as error:
            raise failure(self.path, [str(error)]) from error


def open_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint:
    """Open the checkpoint in ``folder`` and check everything but the values of the weights.

    Raises:
        CheckpointError: naming, in one line, everything that is missing, damaged, unsupported, or does not fit.
    """
    files = CheckpointFolder.open(folder)
    problems: list[str] = []
    config, notes = attempt(problems, read_config, files) or (None, [])
    weights = attempt(problems, find_weights, files)
    dim, vocab_size = (config.hidden_size, config.vocab_size) if config else (None, None)
    sentence = attempt(problems, read_sentence_modules, files, dim) or SentenceModules()
    tokenizer = attempt(problems, read_tokenizer, files, vocab_size, sentence.lowercase)
    ignored: tuple[str, ...] = ()
    if config and weights:
        config = dataclasses.replace(config, with_pooler=weights.has_pooler())
        fits = attempt(problems, fit, config, weights)
        ignored = fits.ignored if fits else ()
    if problems or config is None or weights is None or tokenizer is None:
        raise failure(files.path, problems)
    default, shortened = text_length(config, sentence, tokenizer)
    notes = [*notes, *tokenizer.notes, *sentence.notes, *shortened]
    if ignored:
        notes.append(f"passed over tensors that the encoder does not need: {some(ignored)}")
    return Checkpoint(
        path=files.path,
        family="bert",
        config=config,
        pooling=sentence.pooling,
        normalize=sentence.normalize,
        max_tokens=config.max_position_embeddings,
        default_tokens=default,
        tokenizer_json=tokenizer.text,
        ignored=ignored,
        notes=tuple(notes),
        weights=weights,
    )


def attempt(problems: list[str], read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Call ``read``; an error of ours becomes one of the problems."""
    try:
        return read(*args, **kwargs)
    except EdgebertError as error:
        problems.append(str(error))
        return None


def failure(folder: Path, problems: list[str]) -> CheckpointError:
    """Make one error of all that is wrong with ``folder``."""
    return CheckpointError(one_line(f"{folder}: {'; '.join(problems)}"))


def text_length(config: BertConfig, sentence: SentenceModules, tokenizer: TokenizerFile) -> tuple[int, list[str]]:
    """Return where the checkpoint cuts texts, at most at the number of positions."""
    positions = config.max_position_embeddings
    asked = sentence.max_seq_length or tokenizer.model_max_length or positions
    if asked <= positions:
        return asked, []
    return positions, [f"texts are cut at {positions} tokens, the positions of the model, and not at {asked}"]
