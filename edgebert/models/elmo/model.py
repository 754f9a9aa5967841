"""ELMo (Peters et al., 2018): contextual word vectors of a bidirectional language model.

Read from top to bottom: configuration, one layer, the scalar mix of the layers, the encoder, and the language model
that it is trained as, with its loss. The two directions share the token embedding and the softmax layer, nothing else.

It differs from the paper in two things. Tokens have an embedding instead of a character CNN. And the LSTMs have no
projection, for which ONNX has no operator: they are as wide as tokens.

Inside, activations are (seq, batch, dim), as LSTMs want them. The real tokens of a row are moved to its front and back
again, so padding may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgebert.models.config_validation import field_problems
from edgebert.models.mask_positions import front_positions
from edgebert.models.operators import lstm


@dataclass(frozen=True, kw_only=True)
class ElmoConfig:
    """The configuration of an encoder, in the names of BERT's config.json where it has one.

    ``hidden_size`` is the width of a token's vector, half of it from each direction. ``max_tokens`` is the longest
    text that the model is meant for; an LSTM has no limit of its own.

    Raises:
        ValueError: naming every impossible field with its value.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    max_tokens: int

    def __post_init__(self) -> None:
        problems = field_problems(self)
        if not problems and self.hidden_size % 2:
            problems.append(f"hidden_size={self.hidden_size} is not even, and each direction has one half of it")
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def direction_size(self) -> int:
        """The width of one direction, and of the token embedding."""
        return self.hidden_size // 2


class Layer(nn.Module):
    """A forward and a backward LSTM, each on the layer below of its own direction."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.forwards = nn.LSTM(config.direction_size, config.direction_size)
        self.backwards = nn.LSTM(config.direction_size, config.direction_size)

    def forward(self, ahead: Tensor, back: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Map both directions, each (seq, batch, dim), to the next layer; ``lengths`` (batch,) counts real tokens."""
        ahead = lstm(ahead, lengths, self.forwards, reverse=False)
        return ahead, lstm(back, lengths, self.backwards, reverse=True)


class Mix(nn.Module):
    """The scalar mix of the layers: gamma * sum of softmax(w) * layer (equation 1), w and gamma learned."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(config.num_hidden_layers + 1))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Map the tokens and the layers, all of one shape, to their weighted sum."""
        weights = self.scale * self.weight.softmax(0)  # (layers + 1,)
        first, *upper = (weight * layer for weight, layer in zip(weights.unbind(), layers, strict=True))
        return sum(upper, first)


class Elmo(nn.Module):
    """The encoder: token ids in, contextual vectors out."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.direction_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.mix = Mix(config)

    def read(self, front_ids: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Map ids (seq, batch), real tokens in front, to the layers of both directions.

        ``lengths`` (batch,), int32, counts real tokens. Each layer is (seq, batch, dim / 2); the first is the token
        embedding. Outputs at padding are finite and meaningless.
        """
        tokens: Tensor = self.token_embedding(front_ids)
        forwards, backwards = [tokens], [tokens]
        lengths = lengths.clamp(min=1)  # a row without real tokens is read as one token
        for number, layer in enumerate(self.layers):
            ahead, back = layer(forwards[-1], backwards[-1], lengths)
            # Residual connection, from the second layer on.
            forwards.append(ahead + forwards[-1] if number else ahead)
            backwards.append(back + backwards[-1] if number else back)
        return forwards, backwards

    def encode(
        self, input_ids: Tensor, mask: Tensor, token_type_ids: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Map ids and a boolean mask, (batch, seq), to vectors (tokens, dim).

        Vectors of padding are finite and meaningless. ``rows`` (n,), row * seq + position, selects tokens: the result
        is (n, dim). ``token_type_ids`` is ignored.
        """
        places = front_positions(mask)  # (batch, seq)
        forwards, backwards = self.read(to_front(input_ids, places), real_lengths(mask))
        context = torch.cat([self.mix(forwards), self.mix(backwards)], dim=-1)  # (seq, batch, dim)
        batch = mask.shape[0]
        numbers = (places * batch + torch.arange(batch, device=mask.device)[:, None]).flatten()  # (tokens,)
        return context.flatten(0, 1)[numbers if rows is None else numbers[rows]]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Map integer tensors (batch, seq) to vectors (batch, seq, dim), zero at padding."""
        mask = attention_mask != 0
        hidden = self.encode(input_ids, mask)
        return hidden.reshape(*mask.shape, hidden.shape[-1]) * mask[..., None]


def to_front(input_ids: Tensor, places: Tensor) -> Tensor:
    """Move ids (batch, seq) to their columns ``places`` (batch, seq), transposed to (seq, batch)."""
    return torch.zeros_like(input_ids).scatter(1, places, input_ids).t()


def real_lengths(mask: Tensor) -> Tensor:
    """Return the number (batch,) of real tokens in each row of ``mask`` (batch, seq), as int32."""
    return mask.sum(1).to(torch.int32)


class BiLanguageModel(nn.Module):
    """The encoder with a softmax layer that both directions share, without bias (section 3.1).

    The layer is the token embedding if ``tied``. The scalar mix has no part in it.
    """

    def __init__(self, elmo: Elmo, tied: bool = True) -> None:
        super().__init__()
        self.elmo = elmo
        self.head = None if tied else nn.Linear(elmo.config.direction_size, elmo.config.vocab_size, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map integer tensors (batch, seq) to negative log-likelihoods in nats, forward and backward, (pairs,) each.

        A pair is two consecutive real tokens of a row. Forward, the second is predicted from the first and all before
        it; backward, the first from the second and all after it.
        """
        mask = attention_mask != 0
        ids, lengths = to_front(input_ids, front_positions(mask)), real_lengths(mask)
        forwards, backwards = self.elmo.read(ids, lengths)
        pairs = torch.arange(1, len(ids), device=ids.device)[:, None] < lengths  # (seq - 1, batch), by their second
        ahead = self.negative_log_likelihood(forwards[-1][:-1][pairs], ids[1:][pairs])
        return ahead, self.negative_log_likelihood(backwards[-1][1:][pairs], ids[:-1][pairs])

    def negative_log_likelihood(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the negative log-likelihood in nats of ``targets`` (n,) after hidden states (n, dim / 2)."""
        weight = self.elmo.token_embedding.weight if self.head is None else self.head.weight
        return functional.cross_entropy(functional.linear(hidden, weight).float(), targets, reduction="none")


def bidirectional_loss(model: BiLanguageModel, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the mean negative log-likelihood in nats of both directions, for ids (batch, seq)."""
    ahead, back = model(input_ids, attention_mask)
    mean: Tensor = (ahead.mean() + back.mean()) / 2
    return mean
