"""ELMo (Peters et al., 2018): vectors of words in their context, from a language model that reads both ways.

Read from top to bottom: configuration, one layer, the mixing of the layers for a task, the encoder, and the language
model that it is trained as, with its loss. The two directions share the table of tokens and the layer over the
vocabulary, and nothing else: what one has read never reaches the other before it is mixed.

It differs from the paper in two things. Tokens come from a table where the paper builds them of characters. And the
LSTMs have no projection inside their recurrence, which ONNX has no operator for: they are as wide as tokens are.

Inside, activations are (seq, batch, dim), one step of all rows below the other, as recurrences want them. The real
tokens of a row are brought to its front and back again, so that a row gives the same wherever its padding stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgebert.models.config_validation import field_problems
from edgebert.models.mask_positions import front_positions
from edgebert.models.operators import recurrence


@dataclass(frozen=True, kw_only=True)
class ElmoConfig:
    """The sizes of an encoder, in the names of BERT's published config.json where they have one.

    ``hidden_size`` is the width of the vector of a token, one half of it from each direction. A recurrence has no
    positions that could come to an end: ``max_tokens`` is the longest text that the model is meant for.

    Raises:
        ValueError: naming every field that makes no sense, with its value.
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
        """The width of one direction, and of the tokens."""
        return self.hidden_size // 2


class Layer(nn.Module):
    """An LSTM that reads forwards and one that reads backwards, each on what its own direction has made so far."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.forwards = nn.LSTM(config.direction_size, config.direction_size)
        self.backwards = nn.LSTM(config.direction_size, config.direction_size)

    def forward(self, ahead: Tensor, back: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Take both directions, each (seq, batch, dim), to the next layer; ``lengths`` are those of the rows."""
        ahead = recurrence(ahead, lengths, self.forwards, reverse=False)
        return ahead, recurrence(back, lengths, self.backwards, reverse=True)


class Mix(nn.Module):
    """What a task makes of the layers: gamma * sum of softmax(w) * layer (equation 1), with w and gamma learned."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(config.num_hidden_layers + 1))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Take the tokens and the layers, all of one shape, to their weighted sum."""
        shares = self.scale * self.weight.softmax(0)  # (layers + 1,)
        first, *others = (share * layer for share, layer in zip(shares.unbind(), layers, strict=True))
        return sum(others, first)


class Elmo(nn.Module):
    """The encoder: token ids in, mixed vectors of the tokens out."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.direction_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.mix = Mix(config)

    def read(self, front_ids: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Take ids (seq, batch) with the real tokens in front to the layers forwards and backwards.

        ``lengths`` (batch,), int32, are the numbers of real tokens. Each layer is (seq, batch, dim / 2), the tokens
        themselves the first. What stands behind the real tokens is finite but means nothing.
        """
        tokens: Tensor = self.token_embedding(front_ids)
        forwards, backwards = [tokens], [tokens]
        lengths = lengths.clamp(min=1)  # one of the tokens of a row without real ones is read
        for number, layer in enumerate(self.layers):
            ahead, back = layer(forwards[-1], backwards[-1], lengths)
            # From the first layer on, a layer is added to the one below it.
            forwards.append(ahead + forwards[-1] if number else ahead)
            backwards.append(back + backwards[-1] if number else back)
        return forwards, backwards

    def encode(
        self, input_ids: Tensor, mask: Tensor, token_type_ids: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Take (batch, seq) tensors, the mask of booleans, to vectors (tokens, dim).

        Vectors of padding are finite but mean nothing. ``rows`` (n,) are the numbers of the only tokens that matter,
        counted through the whole batch; the result is then (n, dim). There are no segments: ``token_type_ids``
        changes nothing.
        """
        places = front_positions(mask)  # (batch, seq)
        forwards, backwards = self.read(to_front(input_ids, places), real_lengths(mask))
        mixed = torch.cat([self.mix(forwards), self.mix(backwards)], dim=-1)  # (seq, batch, dim)
        batch = mask.shape[0]
        numbers = (places * batch + torch.arange(batch, device=mask.device)[:, None]).flatten()  # (tokens,)
        return mixed.flatten(0, 1)[numbers if rows is None else numbers[rows]]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Take (batch, seq) integer tensors to the vectors of the tokens (batch, seq, dim), zero at padding."""
        mask = attention_mask != 0
        hidden = self.encode(input_ids, mask)
        return hidden.reshape(*mask.shape, hidden.shape[-1]) * mask[..., None]


def to_front(input_ids: Tensor, places: Tensor) -> Tensor:
    """Take ids (batch, seq) to (seq, batch), each at its place (batch, seq) in the row."""
    return torch.zeros_like(input_ids).scatter(1, places, input_ids).t()


def real_lengths(mask: Tensor) -> Tensor:
    """Return the number (batch,) of real tokens in each row of ``mask`` (batch, seq), as int32."""
    return mask.sum(1).to(torch.int32)


class BiLanguageModel(nn.Module):
    """The encoder with a layer over the vocabulary that both directions share, without bias (section 3.1).

    It is the table of tokens unless it is not ``tied``. The mixing of the layers has no part in it.
    """

    def __init__(self, elmo: Elmo, tied: bool = True) -> None:
        super().__init__()
        self.elmo = elmo
        self.head = None if tied else nn.Linear(elmo.config.direction_size, elmo.config.vocab_size, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Take (batch, seq) integer tensors to what tokens cost in nats, forwards and backwards, (pairs,) each.

        A pair are two real tokens of a row with no other real one between them: forwards the second is predicted
        after the first and all before it, backwards the first after the second and all behind it.
        """
        mask = attention_mask != 0
        ids, lengths = to_front(input_ids, front_positions(mask)), real_lengths(mask)
        forwards, backwards = self.elmo.read(ids, lengths)
        pairs = torch.arange(1, len(ids), device=ids.device)[:, None] < lengths  # (seq - 1, batch), by their second
        ahead = self.costs(forwards[-1][:-1][pairs], ids[1:][pairs])
        return ahead, self.costs(backwards[-1][1:][pairs], ids[:-1][pairs])

    def costs(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Take hidden states (n, dim / 2) of one direction to what ``targets`` (n,) cost after them, in nats."""
        table = self.elmo.token_embedding.weight if self.head is None else self.head.weight
        return functional.cross_entropy(functional.linear(hidden, table).float(), targets, reduction="none")


def bidirectional_loss(model: BiLanguageModel, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the mean of what a token of (batch, seq) costs forwards and of what it costs backwards, in nats."""
    ahead, back = model(input_ids, attention_mask)
    mean: Tensor = (ahead.mean() + back.mean()) / 2
    return mean
