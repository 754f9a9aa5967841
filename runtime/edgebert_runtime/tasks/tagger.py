"""Find entities in texts with a bundle of the task ``tag``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgebert_runtime.errors import InputError
from edgebert_runtime.inputs.character_spans import original_offsets, trim_to_graphemes
from edgebert_runtime.inputs.validation import Errors, check_choice, check_text, iterate, refuse
from edgebert_runtime.task_specs import TAG
from edgebert_runtime.tasks.base.batch_pipeline import BatchEngine, Floats, Request
from edgebert_runtime.tasks.base.engine import Progress
from edgebert_runtime.tasks.base.model_inputs import ModelInput, WorkItem
from edgebert_runtime.tasks.base.text_encoder import token_windows
from edgebert_runtime.tasks.base.text_options import CheckedOptions, TextOptions
from edgebert_runtime.tasks.entity_aggregation import (
    AGGREGATIONS,
    TokenLabels,
    TokenSpan,
    aggregate_entities,
    merge_windows,
    predict_labels,
    read_scheme,
    words_between_blanks,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

Aggregation = Literal["simple", "none", "first", "max", "average"]


@dataclass(frozen=True)
class Entity:
    """A labelled span of a text: ``text`` is ``source[start:end]``, in characters."""

    label: str
    score: float
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class TagRequest(Request):
    """A call, checked."""

    aggregation: str
    stride: int | None


@dataclass(frozen=True)
class TagItem(WorkItem):
    """A text as it was given, as it was tokenized, its tokens (``tokenizers.Encoding``), and their windows."""

    text: str
    tokenized: str
    tokens: Any
    windows: Sequence[tuple[int, int]]


class Tagger(BatchEngine[TagRequest, TagItem, TokenLabels, "list[Entity]"]):
    """Entities. ``labels`` are the names of the labels of tokens, prefixes such as ``B-`` included.

    Raises:
        BundleError: if the bundle is of another task, or its labels are not those of its graph.
    """

    tasks = (TAG,)

    def _read_settings(self) -> None:
        """Read the labels, and where a text starts in a row."""
        self.labels = self._label_names()
        self._scheme = read_scheme(self.labels)
        (self._text_start,) = self._tokenizer.single.starts(0)
        self._marks_words = bool(getattr(self._tokenizer.inner.model, "continuing_subword_prefix", None))

    def tag(
        self,
        texts: Iterable[str],
        *,
        aggregation: Aggregation = "simple",
        stride: int | None = None,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> list[list[Entity]]:
        """Return the entities of each text, in the order of the text.

        ``aggregation="none"`` makes each token an entity, with the prefix of its label. ``simple`` joins tokens by
        their labels. ``first``, ``max`` and ``average`` give each word the label of its first token, of its surest, or
        the best one of their mean, and then join words. A word is that of the tokenizer where it marks pieces inside
        of words (``##ing``), and stands between blanks elsewhere. An entity's score is the mean of its parts'. Tokens
        outside of all entities are left out: label ``O``, or ``original`` for an ELECTRA discriminator.

        A text is never cut. A longer one is computed in windows of ``max_tokens`` that share ``stride`` tokens (None:
        a quarter of a window, at most 128). Each token gets its label where it stands farthest from an edge.
        A text without tokens has no entities. :class:`TextOptions` are the other options.

        Raises:
            InputError: naming the text or option that cannot be used.
            LimitError: for a text that is too long.
        """
        request = self._request(aggregation, stride, options)
        return self._collect(self._run(iterate(texts, "tag([text])"), request), texts, progress)

    def stream(
        self,
        texts: Iterable[str],
        *,
        aggregation: Aggregation = "simple",
        stride: int | None = None,
        **options: Unpack[TextOptions],
    ) -> Iterator[list[Entity]]:
        """Yield the entities of one text after the other, reading at most two windows of 512 texts ahead."""
        windows = self._run(iterate(texts, "stream([text])"), self._request(aggregation, stride, options))
        return (entities for results in windows for entities in results)

    def _request(self, aggregation: str, stride: int | None, options: TextOptions) -> TagRequest:
        """Check the options of a call."""
        self._check_usable()
        checked = CheckedOptions.read(options, self._limits, self._tokenizer.num_special_tokens)
        check_choice("aggregation", aggregation, AGGREGATIONS)
        token_windows(0, checked.max_tokens - self._tokenizer.num_special_tokens, stride)
        return TagRequest(checked, aggregation, stride)

    def _tokenize(self, item: object, index: int, request: TagRequest) -> TagItem:
        """Turn a text into a row for each of its windows; a text without tokens has none."""
        tokenized = checked_text(item, index, request.options.encoding_errors)
        template = self._tokenizer.single
        tokens = self._encoder.encoding(tokenized, index, request.options)
        windows = token_windows(
            len(tokens.ids), request.options.max_tokens - template.num_special_tokens, request.stride
        )
        ids = tokens.ids
        rows = [ModelInput(template.join(ids[start:end]).ids) for start, end in windows] if ids else []
        return TagItem(index, rows, str(item), tokenized, tokens, windows)

    def _read_outputs(self, row: ModelInput, outputs: tuple[Floats, ...], request: TagRequest) -> TokenLabels:
        """Return the label of each token of a row, special ones left out."""
        start, length = self._text_start, len(row.ids) - self._tokenizer.num_special_tokens
        return predict_labels(outputs[0][start : start + length], request.aggregation == "average")

    def _finish(self, work: TagItem, values: list[TokenLabels], request: TagRequest) -> list[Entity]:
        """Join the labels of all windows to entities."""
        if not values:
            return []
        labels = values[0] if len(values) == 1 else merge_windows(work.windows, values)
        tokens = work.tokens
        if not self._marks_words and request.aggregation not in ("none", "simple"):
            tokens = words_between_blanks(work.tokenized, tokens.ids, tokens.offsets, self._tokenizer.unknown)
        spans = aggregate_entities(labels, self._scheme, request.aggregation, tokens)
        return locate(spans, work) if spans else []


def checked_text(item: object, index: int, errors: Errors) -> str:
    """Return a text that can be tokenized.

    Raises:
        InputError: for token ids, which have no characters, and for anything else that is no text.
    """
    if isinstance(item, str):
        return check_text(item, index, errors)
    if isinstance(item, (list, tuple, np.ndarray)):
        hint = "entities are places in a text, give it as one str"
        raise InputError(f"is {type(item).__name__}", index=index, hint=hint)
    raise refuse(item, index)


def locate(spans: Iterable[TokenSpan], work: TagItem) -> list[Entity]:
    """Return the characters of entities in the text as it was given. One of white space only is left out."""
    offsets, origin = work.tokens.offsets, original_offsets(work.text, work.tokenized)
    entities = []
    for name, score, first, last in spans:
        start, end = trim_to_graphemes(work.tokenized, offsets[first][0], offsets[last][1])
        if start < end:
            start, end = origin[start], origin[end]
            entities.append(Entity(name, score, start, end, work.text[start:end]))
    return entities
