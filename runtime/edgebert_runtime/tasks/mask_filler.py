"""Fill in the masked words of texts with a bundle of the task ``fill-mask``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.errors import BundleError, InputError, LimitError
from edgebert_runtime.inputs.character_spans import strip
from edgebert_runtime.inputs.detokenizer import Spelling
from edgebert_runtime.inputs.validation import Item, check_text, check_whole, iterate
from edgebert_runtime.task_specs import FILL_MASK
from edgebert_runtime.tasks.activations import best
from edgebert_runtime.tasks.engine import Engine, Floats, Progress
from edgebert_runtime.tasks.requests import Options, Row, TextOptions, Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

Span = tuple[int, int]
Picked = list[tuple[int, float]]  # token ids with their scores, of one mask
Filled = tuple[list[list["Filling"]], bool]


@dataclass(frozen=True)
class Filling:
    """A token for a mask: its score, the text with it filled in, and where it stands there, in characters.

    ``token`` is written as in the vocabulary (``##ing``, ``Ġmat``), ``text[start:end]`` as in a text.
    """

    token: str
    token_id: int
    score: float
    text: str
    start: int
    end: int


class MaskFiller(Engine):
    """Words for masks. One may be shared by threads; it pickles as its folder and options.

    ``mask_token`` is what stands in a text where a word is to be filled in. All other special tokens are text.

    Raises:
        BundleError: if the bundle is of another task, or has another vocabulary than its model.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model, or has no such token.
    """

    tasks = (FILL_MASK,)

    def _setup(self) -> None:
        """Read the settings."""
        self._vocab_size = self.bundle.manifest.limits.vocab_size
        if (size := self._shapes["logits"][-1]) != self._vocab_size:
            raise BundleError(f"{self.bundle.path} has {size} outputs for {self._vocab_size} tokens; export again")
        if "logits_indices" not in self._inputs:
            raise BundleError(f"{self.bundle.path} has no input logits_indices; export again")
        self.mask_token = self._setting("mask_token", str)
        inner = self._tokenizer.inner
        self._mask = int(inner.token_to_id(self.mask_token))
        self._special = {i for i, token in inner.get_added_tokens_decoder().items() if token.special}
        self._spelling = Spelling(inner, self.mask_token)

    def _special_token_in_texts(self) -> str:
        """Return the mask token: the special token that texts may contain."""
        return self._setting("mask_token", str)

    def fill(
        self,
        texts: Iterable[Item],
        *,
        top_k: int = 5,
        targets: Iterable[str | int] | None = None,
        progress: Progress | None = None,
        **options: Unpack[TextOptions],
    ) -> list[list[list[Filling]]]:
        """Return, for each text and each mask in it, the ``top_k`` most probable tokens, best first.

        Each mask is filled alone, the others stay. With ``targets``, the tokens are chosen among those: tokens as the
        vocabulary writes them, words that are one token, or token ids. A score is a probability among the whole
        vocabulary, with ``targets`` too. Of a text longer than ``max_tokens`` tokens, those around the masks are read,
        and one warning says how many were cut; with ``truncate=False`` they are refused. A list of token ids, special
        tokens included, may stand for a text; it is taken as it is, and its fillings hold the text it decodes to.
        ``progress`` is called with the number done and the total, None where it is not known.
        :class:`TextOptions` are the other options.

        Raises:
            InputError: naming the text or option that cannot be used; for a text without a mask; for a target that
                is not one token.
            LimitError: for a text that is too long, or of which the masks are too far apart.
        """
        found = self._gather(self._fill(texts, top_k, targets, "fill", options), texts, progress)
        self._warn(sum(truncated for _, truncated in found), len(found), self._check(**options))
        return [fillings for fillings, _ in found]

    def stream(
        self,
        texts: Iterable[Item],
        *,
        top_k: int = 5,
        targets: Iterable[str | int] | None = None,
        **options: Unpack[TextOptions],
    ) -> Iterator[list[list[Filling]]]:
        """Yield what :meth:`fill` returns, in order, reading at most two windows of 512 texts ahead."""
        parts = self._fill(texts, top_k, targets, "stream", options)
        return (fillings for part in parts for fillings, _ in part)

    def _fill(
        self,
        texts: Iterable[Item],
        top_k: int,
        targets: Iterable[str | int] | None,
        method: str,
        given: TextOptions,
    ) -> Iterator[list[Filled]]:
        """Yield the results of some hundred texts after the other."""
        options = self._check(**given)
        count = check_whole("top_k", top_k, 1, self._vocab_size)
        chosen = None if targets is None else self._targets(targets)

        def prepare(item: Item, index: int) -> Work[list[Picked], Filled]:
            row, source, spans = self._masked(item, index, options)
            return Work([row], lambda found: (self._write(source, spans, found[0]), row.truncated))

        def read(_row: Row, parts: tuple[Floats, ...]) -> list[Picked]:
            return [pick(logits, count, chosen) for logits in parts[0]]

        return self._run(iterate(texts, f"{method}([text])"), prepare, read, options.max_batch_tokens)

    def _masked(self, item: Item, index: int, options: Options) -> tuple[Row, str, list[Span]]:
        """Return the row of a text, the text, and where in it the masks stand.

        Raises:
            InputError: if there are none.
        """
        text = self._text(item, index, options)
        encoded = self._tokenizer.content(text) if isinstance(text, str) else None
        ids: list[int] = encoded.ids if encoded is not None else list(map(int, text))
        masks = [place for place, token in enumerate(ids) if token == self._mask]
        if not masks:
            raise InputError(f"text {index} has no {self.mask_token}; write it where a word is to be filled in")
        if encoded is None or not isinstance(text, str):
            return Row(ids, chosen=masks), *self._decode(ids, masks)
        spans = [strip(text, *encoded.token_to_chars(place)) for place in masks]
        return self._around(ids, masks, index, options), text, spans

    def _around(self, ids: list[int], masks: list[int], index: int, options: Options) -> Row:
        """Return the row of the tokens of a text, or of those around its masks where they are too many.

        Raises:
            LimitError: if the masks are too far apart.
        """
        template = self._tokenizer.single
        room = options.max_tokens - template.num_special_tokens
        truncated = self._cut(index, len(ids) + template.num_special_tokens, options)
        start = 0
        if truncated:
            extent = masks[-1] - masks[0] + 1
            if extent > room:
                raise LimitError(
                    f"text {index} has masks that span {extent} tokens, of which {room} fit into max_tokens="
                    f"{options.max_tokens}; split it, or raise max_tokens"
                )
            start = min(max(0, masks[0] - (room - extent) // 2), len(ids) - room)
        (first,) = template.starts(room)
        chosen = [place - start + first for place in masks]
        return Row(template.join(ids[start : start + room]).ids, truncated=truncated, chosen=chosen)

    def _decode(self, ids: list[int], masks: list[int]) -> tuple[str, list[Span]]:
        """Return the text that token ids decode to, without special tokens, and where in it the masks stand."""
        parts, spans, source = [], [], ""
        for start, end in zip([0, *(place + 1 for place in masks)], [*masks, len(ids)], strict=True):
            tokens = (self._token(index) for index in ids[start:end] if index not in self._special)
            parts += [[token for token in tokens if token], [self.mask_token]]
        for number, text in enumerate(self._spelling.join(parts[:-1])):
            source += text
            if number % 2:
                spans.append((len(source) - len(self.mask_token), len(source)))
        return source, spans

    def _token(self, index: int) -> str:
        """Return a token by its id; it is empty for an id that the model has and the tokenizer has not."""
        return self._tokenizer.inner.id_to_token(index) or ""

    def _write(self, source: str, spans: list[Span], found: list[Picked]) -> list[list[Filling]]:
        """Write the tokens picked for each mask into the text."""
        fillings = []
        for (start, end), picked in zip(spans, found, strict=True):
            before, after = source[:start], source[end:]
            tokens = [(self._token(index), index, score) for index, score in picked]
            fillings.append([Filling(t, i, score, *self._spelling.insert(before, t, after)) for t, i, score in tokens])
        return fillings

    def _targets(self, targets: Iterable[str | int]) -> NDArray[np.int64]:
        """Return the ids of the tokens to choose among, each once.

        Raises:
            InputError: if there are none, or one is no token.
        """
        if isinstance(targets, (str, bytes, Mapping)) or not isinstance(targets, Iterable):
            raise InputError(f"targets={targets!r:.60} is not a list of tokens; write targets=[token]")
        ids = dict.fromkeys(self._target(target) for target in targets)
        if not ids:
            raise InputError("targets=[] leaves nothing to choose; give one token at least")
        return np.array(list(ids), np.int64)

    def _target(self, target: str | int) -> int:
        """Return the id of a target: a token, a word that is one, or an id."""
        if not isinstance(target, str):
            return check_whole("targets: id", target, 0, self._vocab_size - 1)
        exact: int | None = self._tokenizer.inner.token_to_id(check_text(target, None, "strict", "a target"))
        if exact is not None:
            return exact
        encoded = self._tokenizer.content(target)
        if len(encoded.ids) == 1 and encoded.ids[0] != self._tokenizer.unknown:
            return int(encoded.ids[0])
        tokens = ", ".join(encoded.tokens) or "nothing"
        raise InputError(f"targets: {target!r:.60} is not one token; it would be split into {tokens:.200}")


def pick(logits: Floats, count: int, targets: NDArray[np.int64] | None) -> Picked:
    """Return the ``count`` best tokens of all, or of ``targets``, with their share of the whole vocabulary."""
    top = logits.max()
    offered = logits if targets is None else logits[targets]
    places = best(offered, count)
    with np.errstate(over="ignore"):  # a difference of -inf is a share of 0
        total = np.exp(logits - top).sum(dtype=np.float64)
        scores = np.exp(offered[places] - top, dtype=np.float64) / total
    ids = places if targets is None else targets[places]
    return list(zip(ids.tolist(), scores.tolist(), strict=True))
