"""Find entities in texts with a bundle of the task ``tag``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgebert_runtime.errors import InputError
from edgebert_runtime.inputs.character_spans import original_offsets, trim_to_graphemes
from edgebert_runtime.inputs.validation import check_choice, check_text, iterate, refuse
from edgebert_runtime.task_specs import TAG
from edgebert_runtime.tasks.engine import Engine, Floats, Progress
from edgebert_runtime.tasks.entity_aggregation import AGGREGATIONS, Found, Judged, find, judge, read_scheme, stitch
from edgebert_runtime.tasks.requests import Options, Row, TextOptions, Work

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Entity:
    """A labelled span of a text: ``text`` is ``source[start:end]``, in characters."""

    label: str
    score: float
    start: int
    end: int
    text: str


class Tagger(Engine):
    """Entities. ``labels`` are the names of what a token can be, prefixes such as ``B-`` included.

    Raises:
        BundleError: if the bundle is of another task, or its labels are not those of its graph.
    """

    tasks = (TAG,)

    def _setup(self) -> None:
        """Read the settings."""
        self.labels = self._labels()
        self._scheme = read_scheme(self.labels)

    def tag(
        self,
        texts: Iterable[str],
        *,
        aggregation: str = "simple",
        stride: int | None = None,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> list[list[Entity]]:
        """Return the entities of each text, in the order of the text.

        ``aggregation`` is ``none`` for an entity a token, with the prefix of its label; ``simple`` to join tokens by
        their labels; ``first`` or ``max`` to give each word of the tokenizer the label of its first token, or of its
        surest, and then join words. An entity's score is the mean of its parts'. What is outside of all entities is
        not returned: label ``O``, or ``original`` for an ELECTRA discriminator.

        A text is never cut: a longer one is computed in windows of ``max_tokens`` that share ``stride`` tokens (None:
        a quarter of a window, at most 128), and each token is judged where it stands farthest from an edge.
        A text without tokens has no entities. :class:`TextOptions` are the other options.

        Raises:
            InputError: naming the text or option that cannot be used.
            LimitError: for a text that is too long.
        """
        return self._gather(self._tag(texts, aggregation, stride, "tag([text])", options), texts, progress)

    def stream(
        self,
        texts: Iterable[str],
        *,
        aggregation: str = "simple",
        stride: int | None = None,
        **options: Unpack[TextOptions],
    ) -> Iterator[list[Entity]]:
        """Yield what :meth:`tag` returns, a text after the other, reading at most two windows of 512 texts ahead."""
        parts = self._tag(texts, aggregation, stride, "stream([text])", options)
        return (entities for part in parts for entities in part)

    def _tag(
        self, texts: Iterable[str], aggregation: str, stride: int | None, example: str, given: TextOptions
    ) -> Iterator[list[list[Entity]]]:
        """Yield the entities of some texts after the other."""
        options = self._check(**given)
        check_choice("aggregation", aggregation, AGGREGATIONS)
        template = self._tokenizer.single
        room = options.max_tokens - template.num_special_tokens
        self._windows(0, room, stride)
        (lead,) = template.starts(0)

        def prepare(item: object, index: int) -> Work[Judged, list[Entity]]:
            read = readable(item, index, options)
            tokens = self._tokenizer.content(read)
            ids = tokens.ids
            if not ids:
                return Work([], lambda _: [])
            places = self._windows(len(ids), room, stride)

            def finish(found: list[Judged]) -> list[Entity]:
                judged = found[0] if len(found) == 1 else stitch(places, found)
                entities = find(judged, self._scheme, aggregation, lambda: tokens.word_ids)
                return locate(entities, tokens.offsets, str(item), read) if entities else []

            return Work([Row(template.join(ids[start:end]).ids) for start, end in places], finish)

        def read_row(row: Row, parts: tuple[Floats, ...]) -> Judged:
            return judge(parts[0][lead : lead + len(row.ids) - template.num_special_tokens])

        return self._run(iterate(texts, example), prepare, read_row, options.max_batch_tokens)


def readable(item: object, index: int, options: Options) -> str:
    """Return a text that can be tokenized.

    Raises:
        InputError: for token ids, which have no characters, and for whatever else is no text.
    """
    if isinstance(item, str):
        return check_text(item, index, options.errors)
    if isinstance(item, (list, tuple, np.ndarray)):
        raise InputError(f"text {index} is {type(item).__name__}: entities are places in a text, give it as one str")
    raise refuse(item, index)


def locate(entities: Iterable[Found], offsets: Sequence[tuple[int, int]], text: str, read: str) -> list[Entity]:
    """Say where in ``text`` entities stand, given the ``offsets`` of tokens in what was ``read`` of it.

    An entity of nothing but white space is none.
    """
    origin = original_offsets(text, read)
    located = []
    for name, score, first, last in entities:
        start, end = trim_to_graphemes(read, offsets[first][0], offsets[last][1])
        if start < end:
            start, end = origin[start], origin[end]
            located.append(Entity(name, score, start, end, text[start:end]))
    return located
