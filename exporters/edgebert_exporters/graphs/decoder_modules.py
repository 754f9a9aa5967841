"""The modules of the graphs of generative models: a step of the model with its top-k tokens.

Parts of a model keep their names, so that weights have the same names in a graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from edgebert.models.gpt2.heads import Gpt2LanguageModel
from edgebert.models.operators import Cache, top_k_logprobs
from edgebert.models.seq2seq.model import Seq2Seq

Best = tuple[Tensor, Tensor, Tensor]


class RankedDecoder(nn.Module):
    """A decoder with the signature :func:`~edgebert_exporters.graphs.signatures.decoder_signature`."""

    def __init__(self, model: Gpt2LanguageModel) -> None:
        super().__init__()
        self.gpt2, self.head, self.decode = model.gpt2, model.head, model.forward

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, logits_indices: Tensor, top_k: Tensor, past: Sequence[Cache]
    ) -> tuple[Tensor, Tensor, Tensor, list[Cache]]:
        """Return logits, top-k ids and log-probabilities, and the present."""
        logits, present = self.decode(input_ids, attention_mask, logits_indices, past)
        return logits, *top_k_logprobs(logits, top_k), present


class Part(nn.Module):
    """The modules of a :class:`~edgebert.models.seq2seq.model.Seq2Seq`, and the model itself to compute with."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        for name, module in model.named_children():
            self.add_module(name, module)
        self.output_bias = model.output_bias
        self.whole = (model,)  # in a tuple, so that nothing is there twice


class SourceEncoder(Part):
    """The encoder with the cross-attention keys and values."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Cache]:
        """Return the cross-attention keys and values of each decoder layer."""
        (model,) = self.whole
        return model.cross(model.encode(input_ids, attention_mask != 0), input_ids.shape[0])


class TargetDecoder(Part):
    """The decoder, one token of each target at a time."""

    def forward(
        self,
        input_ids: Tensor,
        position: Tensor,
        encoder_attention_mask: Tensor,
        top_k: Tensor,
        cross: Sequence[Cache],
        past: Sequence[Cache],
        cache_indirection: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, list[Cache]]:
        """Return logits, top-k ids and log-probabilities, and the present."""
        (model,) = self.whole
        hidden, present = model.step(input_ids, position, past, cross, encoder_attention_mask != 0, cache_indirection)
        logits = model.logits(hidden)
        return logits, *top_k_logprobs(logits, top_k), present


class ForcedTranslation(nn.Module):
    """The reference of both graphs under teacher forcing: all tokens of the target at once."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        decoder_input_ids: Tensor,
        logits_indices: Tensor,
        top_k: Tensor,
    ) -> Best:
        """Return logits and top-k of the tokens ``logits_indices`` (rows,)."""
        target = decoder_input_ids.new_ones(decoder_input_ids.shape) != 0
        hidden = self.model.hidden(input_ids, attention_mask != 0, decoder_input_ids, target)
        logits = self.model.logits(hidden[logits_indices])
        return logits, *top_k_logprobs(logits, top_k)
