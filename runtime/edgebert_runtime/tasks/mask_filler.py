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
from edgebert_runtime.tasks.base.batch_pipeline import BatchEngine, Floats, Request
from edgebert_runtime.tasks.base.engine import Progress
from edgebert_runtime.tasks.base.model_inputs import ModelInput, WorkItem
from edgebert_runtime.tasks.base.text_encoder import cut
from edgebert_runtime.tasks.base.text_options import CheckedOptions, TextOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

Span = tuple[int, int]
TopTokens = list[tuple[int, float]]  # token ids with their scores, of one mask
Filled = tuple[list[list["Filling"]], bool]  # the fillings of each mask, truncated


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


@dataclass(frozen=True)
class FillRequest(Request):
    """A call, checked. Tokens are chosen among the ids ``targets`` (n,), None: the whole vocabulary."""

    top_k: int
    targets: NDArray[np.int64] | None


@dataclass(frozen=True)
class FillItem(WorkItem):
    """A text, and the characters of its masks."""

    text: str
    masks: list[Span]


class MaskFiller(BatchEngine[FillRequest, FillItem, "list[TopTokens]", Filled]):
    """Words for masks. Threads may share an engine; it pickles as its folder and options.

    ``mask_token`` stands in a text where a word is to be filled in. All other special tokens are text.

    Raises:
        BundleError: if the bundle is of another task, or has another vocabulary than its model.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model, or has no such token.
    """

    tasks = (FILL_MASK,)

    def _read_settings(self) -> None:
        """Read the mask token, and the special tokens of the tokenizer."""
        self._vocab_size = self.bundle.manifest.limits.vocab_size
        if (size := self._shapes["logits"][-1]) != self._vocab_size:
            raise BundleError(f"{self.bundle.path} has {size} outputs for {self._vocab_size} tokens; export again")
        if "logits_indices" not in self._inputs:
            raise BundleError(f"{self.bundle.path} has no input logits_indices; export again")
        self.mask_token = self._setting("mask_token", str)
        inner = self._tokenizer.inner
        self._mask_id = int(inner.token_to_id(self.mask_token))
        self._special_ids = {i for i, token in inner.get_added_tokens_decoder().items() if token.special}
        self._detokenizer = Spelling(inner, self.mask_token)

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

        Each mask is filled alone, the others stay. ``targets`` are the tokens to choose among: tokens as the
        vocabulary writes them, words that are one token, or token ids. A score is a probability among the whole
        vocabulary, with ``targets`` too.

        Of a text longer than ``max_tokens`` tokens, those around the masks are read, and one warning says how many
        texts were cut. ``truncate=False`` refuses them. A list of token ids, special tokens included, may stand for a
        text. It is taken as it is, and its fillings hold the text it decodes to.

        ``progress`` is called with the number done and the total, None where it is not known. :class:`TextOptions`
        are the other options.

        Raises:
            InputError: naming the text or option that cannot be used; for a text without a mask; for a target that
                is not one token.
            LimitError: for a text that is too long, or of which the masks are too far apart.
        """
        request = self._request(top_k, targets, options)
        results = self._collect(self._run(iterate(texts, "fill([text])"), request), texts, progress)
        truncated = sum(truncated for _, truncated in results)
        self._warn_truncated(truncated, len(results), request.options.max_tokens)
        return [fillings for fillings, _ in results]

    def stream(
        self,
        texts: Iterable[Item],
        *,
        top_k: int = 5,
        targets: Iterable[str | int] | None = None,
        **options: Unpack[TextOptions],
    ) -> Iterator[list[list[Filling]]]:
        """Yield the results of :meth:`fill` in order, reading at most two windows of 512 texts ahead."""
        windows = self._run(iterate(texts, "stream([text])"), self._request(top_k, targets, options))
        return (fillings for results in windows for fillings, _ in results)

    def _request(self, top_k: int, targets: Iterable[str | int] | None, options: TextOptions) -> FillRequest:
        """Check the options of a call."""
        self._check_usable()
        checked = CheckedOptions.read(options, self._limits, self._tokenizer.num_special_tokens)
        top_k = check_whole("top_k", top_k, 1, self._vocab_size)
        return FillRequest(checked, top_k, None if targets is None else self._target_ids(targets))

    def _tokenize(self, item: Item, index: int, request: FillRequest) -> FillItem:
        """Turn a text into a row with the positions of its masks.

        Raises:
            InputError: if there are none.
        """
        options = request.options
        text = self._encoder.text_or_ids(item, index, options.encoding_errors, options.max_ids)
        encoded = self._encoder.encoding(text, index, options) if isinstance(text, str) else None
        ids: list[int] = encoded.ids if encoded is not None else list(map(int, text))
        masks = [position for position, token in enumerate(ids) if token == self._mask_id]
        if not masks:
            raise InputError(f"has no {self.mask_token}", index=index, hint="write it where a word is to be filled in")
        if encoded is None or not isinstance(text, str):
            return FillItem(index, (ModelInput(ids, logits_indices=masks),), *self._decode(ids, masks))
        spans = [strip(text, *encoded.token_to_chars(position)) for position in masks]
        return FillItem(index, (self._row_around(ids, masks, index, options),), text, spans)

    def _row_around(self, ids: list[int], masks: list[int], index: int, options: CheckedOptions) -> ModelInput:
        """Return the row of the tokens of a text, or of those around its masks where they are too many.

        Raises:
            LimitError: if the masks are too far apart.
        """
        template = self._tokenizer.single
        room = options.max_tokens - template.num_special_tokens
        truncated = len(ids) > room and cut(index, len(ids) + template.num_special_tokens, options)
        start = 0
        if truncated:
            extent = masks[-1] - masks[0] + 1
            if extent > room:
                raise LimitError(
                    f"has masks that span {extent} tokens, of which {room} fit into {{max_tokens}}",
                    index=index,
                    hint="split it, or raise the limit",
                    options={"max_tokens": options.max_tokens},
                )
            start = min(max(0, masks[0] - (room - extent) // 2), len(ids) - room)
        (text_start,) = template.starts(room)
        positions = [position - start + text_start for position in masks]
        return ModelInput(template.join(ids[start : start + room]).ids, truncated=truncated, logits_indices=positions)

    def _read_outputs(self, row: ModelInput, outputs: tuple[Floats, ...], request: FillRequest) -> list[TopTokens]:
        """Return the best tokens of each mask of a row."""
        return [top_tokens(logits, request.top_k, request.targets) for logits in outputs[0]]

    def _finish(self, work: FillItem, values: list[list[TopTokens]], request: FillRequest) -> Filled:
        """Write the best tokens of each mask into the text."""
        fillings = []
        for (start, end), tokens in zip(work.masks, values[0], strict=True):
            before, after = work.text[:start], work.text[end:]
            choices = [(self._token(token_id), token_id, score) for token_id, score in tokens]
            fillings.append(
                [Filling(*choice, *self._detokenizer.insert(before, choice[0], after)) for choice in choices]
            )
        return fillings, work.rows[0].truncated

    def _decode(self, ids: list[int], masks: list[int]) -> tuple[str, list[Span]]:
        """Return the text of token ids, special tokens left out, and the characters of its masks."""
        parts, spans, source = [], [], ""
        for start, end in zip([0, *(place + 1 for place in masks)], [*masks, len(ids)], strict=True):
            tokens = (self._token(index) for index in ids[start:end] if index not in self._special_ids)
            parts += [[token for token in tokens if token], [self.mask_token]]
        for number, text in enumerate(self._detokenizer.join(parts[:-1])):
            source += text
            if number % 2:
                spans.append((len(source) - len(self.mask_token), len(source)))
        return source, spans

    def _token(self, index: int) -> str:
        """Return a token by its id; it is empty for an id that the model has and the tokenizer has not."""
        return self._tokenizer.inner.id_to_token(index) or ""

    def _target_ids(self, targets: Iterable[str | int]) -> NDArray[np.int64]:
        """Return the ids of the tokens to choose among, each once.

        Raises:
            InputError: if there are none, or one is no token.
        """
        scalar = isinstance(targets, np.ndarray) and not targets.ndim
        if scalar or isinstance(targets, (str, bytes, Mapping)) or not isinstance(targets, Iterable):
            raise InputError("is not a list of tokens", option="targets", value=targets, hint="write targets=[token]")
        ids = dict.fromkeys(self._target_id(target) for target in targets)
        if not ids:
            raise InputError("leaves nothing to choose", option="targets", value=[], hint="give one token at least")
        return np.array(list(ids), np.int64)

    def _target_id(self, target: str | int) -> int:
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
        message = f"{{targets}}: {target!r:.60} is not one token"
        raise InputError(message, hint=f"it would be split into {tokens:.200}", options={"targets": ...})


def top_tokens(logits: Floats, count: int, targets: NDArray[np.int64] | None) -> TopTokens:
    """Return the ``count`` best tokens of all, or of ``targets``, with their share of the whole vocabulary."""
    largest = logits.max()
    candidates = logits if targets is None else logits[targets]
    places = best(candidates, count)
    with np.errstate(over="ignore"):  # a difference of -inf is a share of 0
        total = np.exp(logits - largest).sum(dtype=np.float64)
        scores = np.exp(candidates[places] - largest, dtype=np.float64) / total
    ids = places if targets is None else targets[places]
    return list(zip(ids.tolist(), scores.tolist(), strict=True))
