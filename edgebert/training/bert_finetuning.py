"""Fine-tune BERT for the four kinds of tasks of Devlin et al. (2019), section 4.

================  ====================================================  =====================
kind              examples                                              loss
================  ====================================================  =====================
single text       :func:`~edgebert.training.examples.text_examples`     classification_loss
pair of texts     the same, with ``pairs``                              classification_loss
label of a token  :func:`tagging_examples`                              tagging_loss
span of a text    :func:`span_examples`                                 span_loss
================  ====================================================  =====================

:func:`new_head` puts a head on the encoder of any checkpoint, ``batches`` makes batches of examples, ``train`` takes
both with the loss, and ``save_checkpoint`` with the task ``classify``, ``tag`` or ``answer`` writes a checkpoint for
``edgebert export``. The encoder has no dropout, so a few passes over a small data set are better than many.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate

import tokenizers
import torch
from torch import nn
from torch.nn import functional

from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.heads.head_detection import head_config
from edgebert.checkpoints.weights.weight_files import open_file, read
from edgebert.checkpoints.weights.weight_loader import shape_error
from edgebert.models.bert.heads import HeadedBert
from edgebert.models.bert.model import Bert
from edgebert.training.examples import IGNORED, Batch, Example, reader, same_length
from edgebert.training.initialization import initialize
from edgebert.training.trainer import Loss
from edgebert_runtime.errors import CheckpointError, InputError
from edgebert_runtime.inputs.character_spans import plan_windows, strip
from edgebert_runtime.tasks.answerer import MIN_CONTEXT_TOKENS

POOLERS = ("pooler.dense", "pooler")  # hidden layers that pre-training trains


def new_head(
    folder: str | os.PathLike[str], task: str, outputs: int = 2, *, seed: int = 0, allow_pickle: bool = False
) -> tuple[HeadedBert, Checkpoint]:
    """Return the encoder of a checkpoint with an untrained head for ``task``, and the checkpoint.

    The head is the published one of the model type. Its pooler starts from the checkpoint's, if there is one; all other
    weights are drawn. Heads of the checkpoint are ignored.

    Raises:
        CheckpointError: if the checkpoint is damaged, or no encoder.
        InputError: if ``task`` is none of the keys of ``LOSSES``.
    """
    if task not in LOSSES:
        raise InputError(f"task {task!r:.60} is not one of {', '.join(LOSSES)}")
    checkpoint = open_checkpoint(folder, task="embed", allow_pickle=allow_pickle)
    bert = checkpoint.load_model()
    assert isinstance(bert, Bert)
    names = next(head for head in HEADS[checkpoint.model_type][task] if not head.binary)
    model = HeadedBert(bert, head_config(names, bert.config, outputs))
    initialize(model.head, seed=seed)
    if model.head.dense is not None and names.dense in POOLERS:
        load_layer(model.head.dense, checkpoint, names.dense)
    return model, checkpoint


def load_layer(layer: nn.Linear, checkpoint: Checkpoint, module: str) -> None:
    """Load a linear layer by its published name, if the checkpoint has it.

    Raises:
        CheckpointError: if its tensors have other shapes, or hold NaN or infinity.
    """
    weights = checkpoint.weights
    published = weights.by_canonical(checkpoint.model_type)
    shapes = {leaf: tuple(tensor.shape) for leaf, tensor in layer.state_dict().items()}
    names = {leaf: published[f"{module}.{leaf}"] for leaf in shapes if f"{module}.{leaf}" in published}
    if len(names) < len(shapes):
        return
    faults = [
        fault for leaf, name in names.items() if (fault := shape_error(name, weights.tensors[name], shapes[leaf]))
    ]
    if not faults:
        folder, broken = CheckpointFolder.open(checkpoint.path), list[str]()
        with ExitStack() as stack:
            files = {name: open_file(folder, weights.files[name], weights.pickled, stack) for name in names.values()}
            state = {leaf: read(files[name], name, broken) for leaf, name in names.items()}
        faults = [f"{name} are NaN or infinite" for name in broken]
    if faults:
        raise CheckpointError(f"{checkpoint.path}: {'; '.join(faults)}; train the model or download it again")
    layer.load_state_dict(state)


def tagging_examples(
    tokenizer: tokenizers.Tokenizer,
    texts: Sequence[Sequence[str]],
    labels: Sequence[Sequence[int]],
    *,
    max_tokens: int,
) -> list[Example]:
    """Return an example for each text of words with a label each.

    Words are joined by spaces. The first token of a word has its label; its other tokens and special tokens have none.
    Long texts are truncated. A text without labelled tokens gives no example.

    Raises:
        InputError: if a text has not as many words as labels, or ``max_tokens`` leaves no room for text.
    """
    same_length(texts=texts, labels=labels)
    for words, word_labels in zip(texts, labels, strict=True):
        same_length(words=words, labels=word_labels)
    read = reader(tokenizer)
    read.check_max_tokens(max_tokens)
    examples = []
    for words, word_labels in zip(texts, labels, strict=True):
        text = " ".join(words)
        tokens = read.content(text)
        ids = tokens.ids[: max_tokens - read.num_special_tokens]
        owners = first_of_words(words, text, tokens.offsets[: len(ids)])
        judged = [IGNORED if owner is None else word_labels[owner] for owner in owners]
        row = read.single.join(ids)
        before = [IGNORED] * read.single.starts(0)[0]
        after = [IGNORED] * (len(row.ids) - len(before) - len(ids))
        if set(judged) - {IGNORED}:
            examples.append(Example((row,), [*before, *judged, *after]))
    return examples


def first_of_words(words: Sequence[str], text: str, offsets: Sequence[tuple[int, int]]) -> Iterator[int | None]:
    """Yield for each token of ``text`` the word that it is the first token of, or None."""
    starts = list(accumulate((len(word) + 1 for word in words), initial=0))[:-1]
    latest = -1
    for start, end in offsets:
        start, end = strip(text, start, end)
        word = bisect_right(starts, start) - 1
        yield word if start < end and word > latest else None
        latest = max(latest, word) if start < end else latest


def span_examples(
    tokenizer: tokenizers.Tokenizer,
    questions: Sequence[str],
    contexts: Sequence[str],
    answers: Sequence[tuple[int, int] | None],
    *,
    max_tokens: int,
) -> list[Example]:
    """Return the examples of questions with answers (start, end) in characters of the context, or None.

    A long context is read in the windows of ``Answerer``, an example each. The labels are the first and the last token
    of the answer. Without an answer, and in windows that do not hold all of it, both are the first special token.

    Raises:
        InputError: if there are not as many of each, an answer is no place in its context or holds no token, or a
            question leaves too little room for the context.
    """
    same_length(questions=questions, contexts=contexts, answers=answers)
    read = reader(tokenizer)
    examples: list[Example] = []
    for index, (question, context, answer) in enumerate(zip(questions, contexts, answers, strict=True)):
        question_ids = read.content(question).ids
        tokens = read.content(context)
        room = max_tokens - read.pair.num_special_tokens - len(question_ids)
        if room < min(MIN_CONTEXT_TOKENS, len(tokens.ids)) or room < 1:
            raise InputError(
                f"text {index} has a question of {len(question_ids)} tokens, which leaves {max(0, room)} of "
                f"{max_tokens} for the context; shorten it or raise max_tokens"
            )
        first, last = (-1, -1) if answer is None else tokens_of(answer, context, tokens.offsets, index)
        place = read.pair.starts(len(question_ids), 0)[1]
        for start, end in plan_windows(len(tokens.ids), room, min(128, room // 4)):
            inside = start <= first and last < end
            labels = [place + first - start, place + last - start] if inside else [0, 0]
            examples.append(Example((read.pair.join(question_ids, tokens.ids[start:end]),), labels))
    return examples


def tokens_of(answer: tuple[int, int], context: str, offsets: Sequence[tuple[int, int]], index: int) -> tuple[int, int]:
    """Return the first and the last token of a span of characters.

    Raises:
        InputError: if the span is none of the context, or there is no token in it.
    """
    start, end = answer
    spans = [strip(context, *offset) for offset in offsets]
    inside = [number for number, (left, right) in enumerate(spans) if left < right and left < end and right > start]
    if not 0 <= start < end <= len(context) or not inside:
        raise InputError(
            f"answer {index} is {answer}, no place of a token in its context of {len(context)} characters; give "
            "(start, end), the first character and the one behind the last"
        )
    return inside[0], inside[-1]


def classification_loss(model: HeadedBert, batch: Batch) -> Loss:
    """Return the cross-entropy of the label of each row."""
    logits = model(*batch[:3])
    return Loss(functional.cross_entropy(logits.float(), batch.labels[:, 0]), len(batch.labels), batch.tokens)


def tagging_loss(model: HeadedBert, batch: Batch) -> Loss:
    """Return the cross-entropy of the label of each token that has one."""
    logits = model(*batch[:3])  # (batch, seq, labels)
    mean = functional.cross_entropy(logits.float().flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED)
    return Loss(mean, int((batch.labels != IGNORED).sum()), batch.tokens)


def span_loss(model: HeadedBert, batch: Batch) -> Loss:
    """Return the mean of the cross-entropies of start and end, each among the real tokens of its row."""
    ends = torch.stack(model(*batch[:3]), 1).float()  # (batch, 2, seq)
    ends = ends.masked_fill((batch.attention_mask == 0)[:, None], -torch.inf)
    mean = functional.cross_entropy(ends.flatten(0, 1), batch.labels.flatten())
    return Loss(mean, len(batch.labels), batch.tokens)


LOSSES: dict[str, Callable[[HeadedBert, Batch], Loss]] = {
    "classify": classification_loss,
    "tag": tagging_loss,
    "answer": span_loss,
}
