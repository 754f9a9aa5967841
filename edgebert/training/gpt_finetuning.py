"""Fine-tune a GPT for the tasks of Radford et al. (2018), sections 3.2 and 3.3.

Every task is a text from the token ``<start>`` to ``<extract>``, where the head reads:

===============  ==========================================================  ============
task             rows of an example                                          form
===============  ==========================================================  ============
classification   ``<start> text <extract>``                                  text
entailment       ``<start> premise <delimiter> hypothesis <extract>``        text
similarity       ``<start> a <delimiter> b <extract>``, and b before a       similarity
multiple choice  ``<start> context <delimiter> answer <extract>``, for each  choice
===============  ==========================================================  ============

:func:`~edgebert.training.examples.text_examples` makes the examples of the first two. The new tokens are in the
template of the tokenizer: ``save_checkpoint`` with the task ``classify`` writes an ordinary classifier, whose engine
reads texts and pairs as in training. Similarity and multiple choice read several rows for one result, which no engine
does: they are for PyTorch, with :func:`logits`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import tokenizers
import torch
from tokenizers import AddedToken, processors
from torch import Tensor, nn

from edgebert.checkpoints import open_checkpoint
from edgebert.models.gpt2.heads import Form, Gpt2Classifier, Gpt2LanguageModel, fine_tuning_loss
from edgebert.models.gpt2.model import Gpt2
from edgebert.models.mask_positions import last_rows
from edgebert.training.examples import Batch, Example, join, reader, same_length
from edgebert.training.initialization import initialize
from edgebert.training.trainer import Loss
from edgebert_runtime.errors import InputError

START, DELIMITER, EXTRACT = MARKS = ("<start>", "<delimiter>", "<extract>")


def text_form(head: nn.Module, states: Tensor, examples: int) -> Tensor:
    """Map hidden states (examples, dim) to logits (examples, labels)."""
    logits: Tensor = head(states)
    return logits


def similarity_form(head: nn.Module, states: Tensor, examples: int) -> Tensor:
    """Map hidden states (examples * 2, dim) of both orders to logits (examples, labels) of their sum."""
    logits: Tensor = head(states.reshape(examples, 2, -1).sum(1))
    return logits


def choice_form(head: nn.Module, states: Tensor, examples: int) -> Tensor:
    """Map hidden states (examples * choices, dim) to logits (examples, choices), by a head of one output."""
    logits: Tensor = head(states)
    return logits.reshape(examples, -1)


FORMS: dict[str, Form] = {"text": text_form, "similarity": similarity_form, "choice": choice_form}


def new_head(
    folder: str | os.PathLike[str], outputs: int, *, seed: int = 0, allow_pickle: bool = False
) -> tuple[Gpt2Classifier, tokenizers.Tokenizer]:
    """Return the decoder of a checkpoint with an untrained head, and its tokenizer.

    Both have the three new tokens; the tokenizer puts them around texts. ``outputs`` is the number of labels, 1 for
    multiple choice.

    Raises:
        CheckpointError: if the checkpoint is damaged, or no decoder.
        InputError: if its head is not the table of token embeddings, which the auxiliary objective uses.
    """
    checkpoint = open_checkpoint(folder, task="generate", allow_pickle=allow_pickle)
    language = checkpoint.load_model()
    if not isinstance(language, Gpt2LanguageModel) or language.head is not None:
        raise InputError(f"{checkpoint.path} has a head of its own; the auxiliary objective needs a tied one")
    tokenizer = tokenizers.Tokenizer.from_str(checkpoint.tokenizer_json)
    gpt2, tokenizer = add_tokens(language.gpt2, tokenizer, MARKS, seed=seed)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {EXTRACT}",
        pair=f"{START} $A {DELIMITER} $B {EXTRACT}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in MARKS],
    )
    model = Gpt2Classifier(gpt2, outputs)
    initialize(model.head, seed=seed)
    return model.eval(), tokenizer


def add_tokens(
    gpt2: Gpt2, tokenizer: tokenizers.Tokenizer, tokens: Sequence[str], *, seed: int = 0, std: float = 0.02
) -> tuple[Gpt2, tokenizers.Tokenizer]:
    """Return copies of the decoder and the tokenizer with additional special tokens.

    A new token gets a new row of the token embedding, also where there are unused rows. A token that the tokenizer has
    keeps its row.
    """
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    new = [token for token in tokens if tokenizer.token_to_id(token) is None]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in tokens])
    ids = [id for token in new if (id := tokenizer.token_to_id(token)) is not None]
    rows = max([gpt2.config.vocab_size, *(id + 1 for id in ids)])
    state = dict(gpt2.state_dict())
    table = state["token_embedding.weight"]
    drawn = torch.randn(len(ids), table.shape[1], generator=torch.Generator().manual_seed(seed)) * std
    state["token_embedding.weight"] = torch.cat([table, table.new_zeros(rows - len(table), table.shape[1])])
    state["token_embedding.weight"][ids] = drawn.to(table)
    larger = Gpt2(dataclasses.replace(gpt2.config, vocab_size=rows))
    larger.load_state_dict(state)
    return larger, tokenizer


def similarity_examples(
    tokenizer: tokenizers.Tokenizer,
    texts: Sequence[str],
    others: Sequence[str],
    labels: Sequence[int],
    *,
    max_tokens: int,
) -> list[Example]:
    """Return an example of two rows for each two texts: both orders.

    Raises:
        InputError: if there are not as many of each, or ``max_tokens`` leaves no room for text.
    """
    same_length(texts=texts, others=others, labels=labels)
    read = reader(tokenizer)
    return [
        Example((join(read, max_tokens, first, second), join(read, max_tokens, second, first)), [label])
        for first, second, label in zip(texts, others, labels, strict=True)
    ]


def choice_examples(
    tokenizer: tokenizers.Tokenizer,
    contexts: Sequence[str],
    choices: Sequence[Sequence[str]],
    labels: Sequence[int],
    *,
    max_tokens: int,
) -> list[Example]:
    """Return an example for each context, with a row for each choice.

    A label is the number of the right choice. A question stands at the end of its context.

    Raises:
        InputError: if there are not as many of each, a label is the number of no choice, or ``max_tokens`` leaves no
            room for text.
    """
    same_length(contexts=contexts, choices=choices, labels=labels)
    read = reader(tokenizer)
    examples = []
    for index, (context, answers, label) in enumerate(zip(contexts, choices, labels, strict=True)):
        if not 0 <= label < len(answers):
            raise InputError(f"text {index} has the label {label} and {len(answers)} choices; number them from 0")
        examples.append(Example(tuple(join(read, max_tokens, context, answer) for answer in answers), [label]))
    return examples


def finetuning_loss(model: Gpt2Classifier, batch: Batch, *, form: str = "text", weight: float = 0.5) -> Loss:
    """Return the loss of the task plus ``weight`` times the language-model loss on the same tokens.

    ``form`` is one of ``FORMS``; ``functools.partial`` sets it for ``train``.
    """
    labels = batch.labels[:, 0]
    mean = fine_tuning_loss(model, batch.input_ids, batch.attention_mask, labels, weight, FORMS[form])
    return Loss(mean, len(labels), batch.tokens)


def logits(model: Gpt2Classifier, batch: Batch, *, form: str = "text") -> Tensor:
    """Return the logits (batch, labels) of examples, or (batch, choices)."""
    mask = batch.attention_mask != 0
    states = model.gpt2.encode(batch.input_ids, mask, last_rows(mask))
    return FORMS[form](model.head, states, len(batch.labels))
