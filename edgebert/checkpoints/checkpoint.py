"""Open a checkpoint in the format of the Hugging Face Hub.

A folder is data: nothing in it is run, nothing outside of it is read, and whatever is wrong with it is reported at
once, before any weight is loaded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from edgebert.checkpoints.config.config_reader import ModelConfig, read_config
from edgebert.checkpoints.config.cross_encoder import read_cross_encoder
from edgebert.checkpoints.config.generation_config import read_decoding
from edgebert.checkpoints.config.head_tables import POOLER, pooler_names
from edgebert.checkpoints.config.model_factory import Config, Reference
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.config.sentence_transformers import SentenceModules, read_sentence_modules
from edgebert.checkpoints.folder import CheckpointFolder, one_line, some
from edgebert.checkpoints.heads.head_detection import TaskHead, check_arguments, read_task
from edgebert.checkpoints.text_settings import prompt_notes, text_length, text_settings
from edgebert.checkpoints.tokenizers.text_reference import TextReference
from edgebert.checkpoints.tokenizers.tokenizer_json import TokenizerFile, read_tokenizer
from edgebert.checkpoints.tokenizers.translation import read_tokenizers
from edgebert.checkpoints.weights.name_mapping import wrapper_prefix
from edgebert.checkpoints.weights.other_formats import refuse_other_file, refuse_other_formats
from edgebert.checkpoints.weights.shared_tables import share_tables
from edgebert.checkpoints.weights.weight_files import WeightFiles, find_weights
from edgebert.checkpoints.weights.weight_loader import Model, fit, load
from edgebert.models.bert.heads import HeadConfig, HeadedBert
from edgebert.models.checkpoint_tables import HeadNames
from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert_runtime.errors import CheckpointError, EdgebertError, TokenizerError, python_place
from edgebert_runtime.task_specs import TASKS, canonical_task

# What a bundle says of the languages of its model, under the names that read_tokenizers has for it.
LANGUAGE_SETTINGS = ("languages", "language_style", "source_language", "target_language")

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Checkpoint:
    """An opened and checked checkpoint; the weights are still on disk.

    Attributes:
        path: The folder.
        family: The folder of ``edgebert.models`` that the model is of.
        model_type: The type in config.json.
        task: The task asked for, or else detected.
        config: The configuration of the model.
        head: The configuration of the head; None for embed and translate.
        labels: The names of the outputs of classify, next-sentence and tag, by id.
        problem_type: Of classify: single_label, multi_label or regression.
        activation: Of classify and rerank: the activation that makes scores of logits, in the names of
            :mod:`edgebert_runtime.tasks.activations`. Of two outputs of rerank the score is that of label 1.
        prompt: Of rerank: the text before every query.
        mask_token: Of fill-mask: the token for a masked word.
        decoding: Of generate and translate: options of :class:`edgebert_runtime.generation.options.Options`, and the
            token that a target begins with.
        pooling: The pooling of embed; None where the folder does not name one.
        normalize: Whether embed scales vectors to length 1; None where the folder does not say.
        max_tokens: The longest input of the model, special tokens included.
        default_tokens: The length that the checkpoint's own settings truncate to.
        tokenizer_json: The tokenizer.
        target_tokenizer_json: Of translate: the tokenizer of the target, if it is another.
        settings: Of translate: the languages. Of embed: prompts, and the size of vectors. Of tasks that cut texts:
            the side, if it is the left one.
        ignored: The tensors that the task does not need.
        notes: The differences from the reference, which is transformers or sentence-transformers on the same folder; a
            line each, with file, key and value.
        weights: The tensors in the files.
        head_names: The published names of the head.
        references: The ids that texts should have, for each tokenizer; None for one that is used as it stands.
    """

    path: Path
    family: str
    model_type: str
    task: str
    config: Config
    head: HeadConfig | None
    labels: tuple[str, ...]
    problem_type: str
    activation: str
    prompt: str
    mask_token: str | None
    decoding: dict[str, Any]
    pooling: str | None
    normalize: bool | None
    max_tokens: int
    default_tokens: int
    tokenizer_json: str = field(repr=False)
    target_tokenizer_json: str | None = field(repr=False)
    settings: dict[str, Any] = field(repr=False)
    ignored: tuple[str, ...]
    notes: tuple[str, ...]
    weights: WeightFiles = field(repr=False)
    head_names: HeadNames | None = field(repr=False)
    references: tuple[TextReference | None, ...] = field(default=(), repr=False)

    def load_model(self) -> Reference:
        """Return the model in float32 and evaluation mode.

        For generate it is a :class:`~edgebert.models.gpt2.heads.Gpt2LanguageModel`, for translate a
        :class:`~edgebert.models.seq2seq.model.Seq2Seq`.

        Raises:
            CheckpointError: if weights are NaN or infinite, or the files have changed since they were opened.
        """
        return self.load(Model(self.model_type, self.config, self.head, self.head_names))

    def load_pooler(self) -> HeadedBert:
        """Return the model with the dense layer of its pooler as the head.

        Raises:
            CheckpointError: as :meth:`load_model` does, and if the model has no pooler.
        """
        names = pooler_names(self.model_type)
        tensors = self.weights.by_canonical(self.model_type)
        if names is None or f"{names.out}.weight" not in tensors:
            lacks = f"{self.model_type} has no pooler" if names is None else f"the weights lack {names.out}, the pooler"
            raise failure(self.path, [CheckpointError(f"{lacks}; choose another pooling")])
        head = HeadConfig(reads=names.reads, num_outputs=self.config.hidden_size)
        model = self.load(Model(self.model_type, self.config, head, names))
        assert isinstance(model, HeadedBert), "a pooler is a head"
        return model

    def load(self, model: Model) -> Reference:
        """Return ``model`` with its weights, in float32 and evaluation mode.

        Raises:
            CheckpointError: if weights are NaN or infinite, or the files have changed since they were opened.
        """
        try:
            return load(CheckpointFolder.open(self.path), model, self.weights)
        except CheckpointError as error:
            raise failure(self.path, [error]) from error


def open_checkpoint(
    folder: str | os.PathLike[str],
    *,
    task: str | None = None,
    allow_pickle: bool = False,
    problem_type: str | None = None,
    labels: Sequence[str] | None = None,
) -> Checkpoint:
    """Open the checkpoint in ``folder`` and check all but weight values.

    ``task`` is one of ``task_specs.TASKS`` or an alias; without it the folder decides. ``allow_pickle`` has pickles
    of PyTorch read where there is no safetensors file, and then as tensors and nothing else. ``problem_type`` and
    ``labels`` go before what config.json says of the outputs.

    Raises:
        CheckpointError: naming, in one line, everything that is missing, damaged, unsupported, or does not fit.
        ConfigError: if ``task`` or ``problem_type`` is none that there is.
    """
    task = None if task is None else canonical_task(task)
    check_arguments(task, problem_type)
    refuse_other_file(folder)
    files = CheckpointFolder.open(folder)
    problems: list[EdgebertError] = []
    attempt(problems, refuse_other_formats, files)
    if problems:
        raise failure(files.path, problems)
    config = attempt(problems, read_config, files)
    weights = attempt(problems, find_weights, files, allow_pickle)
    dim = config.model.hidden_size if config else None
    sentence = attempt(problems, read_sentence_modules, files, dim) or SentenceModules()
    task_head, ignored = None, None
    if config and weights:
        shared = attempt(problems, share_tables, files, config, weights)
        config, weights = shared or (config, weights)
        cross = attempt(problems, read_cross_encoder, files, config.data)
        pools = sentence.pooling is not None
        if prefix := wrapper_prefix(tuple(weights.tensors), config.model_type):
            log.info("%s: tensors are read without the prefix %r that all names have", files.path, prefix)
        task_head = attempt(problems, read_task, config, weights, pools, cross, task, problem_type, labels)
    if config and weights and task_head:
        model = Model(config.model_type, config.model, task_head.head, task_head.names)
        fits = attempt(problems, fit, model, weights)
        ignored = fits.ignored if fits else None
    decoding: tuple[dict[str, Any], list[str]] | None = ({}, [])
    if config and task_head and TASKS[task_head.task].generative:
        decoding = attempt(problems, read_decoding, files, config)
    tokenizers = attempt(
        problems, read_model_tokenizers, files, config, sentence.text.lowercase, decoding[0] if decoding else {}
    )
    if task_head and tokenizers:
        attempt(problems, check_mask, task_head, tokenizers.source)
    if problems or not (config and weights and task_head and tokenizers and decoding) or ignored is None:
        raise failure(files.path, problems)
    return assemble(files.path, config, weights, sentence, tokenizers, task_head, ignored, decoding)


def assemble(
    path: Path,
    config: ModelConfig,
    weights: WeightFiles,
    sentence: SentenceModules,
    tokenizers: ModelTokenizers,
    task_head: TaskHead,
    ignored: tuple[str, ...],
    decoding: tuple[dict[str, Any], list[str]],
) -> Checkpoint:
    """Put together what was read of a folder."""
    tokenizer, target = tokenizers.source, tokenizers.target
    default = text_length(config.model, task_head.task, sentence, tokenizer)
    notes = [
        *tokenizer.notes,
        *(target.notes if target else ()),
        *prompt_notes(sentence, tokenizer, task_head.task),
        *task_head.notes,
        *decoding[1],
    ]
    plain_names = weights.canonical_names(config.model_type)
    modules = {plain_names[name].rpartition(".")[0] for name in ignored}
    if heads := sorted(name for name in modules if not f"{name}.".startswith(POOLER)):
        log.info("passed over heads that %s does not use: %s", task_head.task, some(heads))
    return Checkpoint(
        path=path,
        family=MODEL_TYPES[config.model_type].family,
        model_type=config.model_type,
        task=task_head.task,
        config=config.model,
        head=task_head.head,
        labels=task_head.labels,
        problem_type=task_head.problem_type,
        activation=task_head.activation,
        prompt=task_head.prompt,
        mask_token=tokenizer.mask_token if task_head.task == "fill-mask" else None,
        decoding=decoding[0],
        pooling=sentence.pooling,
        normalize=sentence.normalize,
        max_tokens=config.model.max_tokens,
        default_tokens=default,
        tokenizer_json=tokenizer.text,
        target_tokenizer_json=target.text if target else None,
        settings={**tokenizers.settings, **text_settings(sentence, tokenizer, task_head.task)},
        ignored=ignored,
        notes=tuple(notes),
        weights=weights,
        head_names=task_head.names,
        references=(tokenizer.reference, *((target.reference,) if target else ())),
    )


class ModelTokenizers(NamedTuple):
    """The tokenizers of a folder, and the languages of translate."""

    source: TokenizerFile
    target: TokenizerFile | None
    settings: dict[str, Any]


def read_model_tokenizers(
    folder: CheckpointFolder, config: ModelConfig | None, lowercase: bool, decoding: dict[str, Any]
) -> ModelTokenizers:
    """Read the tokenizer, or the source and target tokenizers, of a model."""
    if config is None:
        return ModelTokenizers(read_tokenizer(folder, None, lowercase), None, {})
    model, name = config.model, config.model_type
    if not isinstance(model, Seq2SeqConfig):
        return ModelTokenizers(
            read_tokenizer(folder, model.vocab_size, lowercase, MODEL_TYPES[name].no_special_tokens), None, {}
        )
    first = [decoding.get(option) for option in ("forced_bos_token_id", "decoder_start_token_id")]
    tokenizers = read_tokenizers(folder, name, model.vocab_size, model.decoder_vocab_size, first)
    settings = {option: getattr(tokenizers, option) for option in LANGUAGE_SETTINGS}
    return ModelTokenizers(tokenizers.source, tokenizers.target, settings)


def check_mask(task_head: TaskHead, tokenizer: TokenizerFile) -> None:
    """Check that fill-mask has a mask token."""
    if task_head.task == "fill-mask" and tokenizer.mask_token is None:
        raise TokenizerError(
            "the tokenizer has no mask token, which fill-mask needs; name it in tokenizer_config.json (mask_token), "
            "or use the tokenizer that came with the model"
        )


def attempt(problems: list[EdgebertError], read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Call ``read``; an error of ours becomes one of ``problems``."""
    try:
        return read(*args, **kwargs)
    except EdgebertError as error:
        problems.append(error)
        return None


def failure(folder: Path, problems: list[EdgebertError]) -> CheckpointError:
    """Make one error of all ``problems``; options stay fields."""
    options: dict[str, object] = {}

    def placeholder(name: str, value: object) -> str:
        options[name] = value
        return f"{{{name}}}"

    text = "; ".join(error.sentence(placeholder, python_place) for error in problems)
    return CheckpointError(one_line(f"{folder}: {text}"), options=options)
