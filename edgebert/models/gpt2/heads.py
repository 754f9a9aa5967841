"""The heads of GPT-2: language model and classifier, and the fine-tuning loss of GPT (Radford et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional

from edgebert.models.gpt2.model import Gpt2
from edgebert.models.mask_positions import last_rows
from edgebert.models.operators import Cache


class Gpt2LanguageModel(nn.Module):
    """A decoder that gives the logits of the next token, by the table of token embeddings unless it is not ``tied``."""

    def __init__(self, gpt2: Gpt2, tied: bool = True) -> None:
        super().__init__()
        self.gpt2 = gpt2
        self.head = None if tied else nn.Linear(gpt2.config.hidden_size, gpt2.config.vocab_size, bias=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, logits_indices: Tensor, past: Sequence[Cache]
    ) -> tuple[Tensor, list[Cache]]:
        """Take new ids (batch, seq) to logits (rows, vocab), and the past to the present, of total columns.

        ``attention_mask`` (batch, total), integers, is 0 at the padding of the past and of the new ids.
        ``logits_indices`` (rows,) are the tokens whose next one is wanted: row * seq + position. ``past`` holds keys
        and values of each layer, (batch, heads, total - seq, head_dim).
        """
        hidden, present = self.gpt2.extend(input_ids, attention_mask != 0, past, logits_indices)
        return self.logits(hidden), present

    def logits(self, hidden: Tensor) -> Tensor:
        """Take hidden states (n, dim) to logits (n, vocab)."""
        if self.head is None:
            return functional.linear(hidden, self.gpt2.token_embedding.weight)
        logits: Tensor = self.head(hidden)
        return logits


class Gpt2Classifier(nn.Module):
    """A decoder with a linear layer, without bias, on the last real token of a text."""

    def __init__(self, gpt2: Gpt2, num_labels: int) -> None:
        super().__init__()
        self.gpt2 = gpt2
        self.head = nn.Linear(gpt2.config.hidden_size, num_labels, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Take (batch, seq) integer tensors to logits (batch, labels)."""
        mask = attention_mask != 0
        logits: Tensor = self.head(self.gpt2.encode(input_ids, mask, last_rows(mask)))
        return logits


# Takes the head and the states (rows, dim) of the last tokens of so many examples to logits (examples, labels).
Form = Callable[[nn.Module, Tensor, int], Tensor]


def fine_tuning_loss(
    model: Gpt2Classifier,
    input_ids: Tensor,
    attention_mask: Tensor,
    labels: Tensor,
    weight: float = 0.5,
    form: Form | None = None,
) -> Tensor:
    """Return the loss L2 + weight * L1 of Radford et al. (2018), section 3.2.

    L2 is the cross-entropy of ``labels`` (examples,) on the last real token of each row of ids (batch, seq): there
    are as many rows as examples, unless ``form`` makes logits of several. L1, the auxiliary objective, is that of
    every real token whose predecessor in the row is real too, by the table of token embeddings. Both are means, over
    examples and over tokens.
    """
    mask = attention_mask != 0
    hidden = model.gpt2.encode(input_ids, mask)  # (tokens, dim)
    states = hidden[last_rows(mask)]  # (batch, dim)
    logits = model.head(states) if form is None else form(model.head, states, len(labels))
    classification = functional.cross_entropy(logits.float(), labels)
    known = functional.pad(mask[:, :-1] & mask[:, 1:], (0, 1)).flatten()  # (tokens,): the next token is known
    following = input_ids.roll(-1, dims=1).flatten()[known]
    vocabulary = functional.linear(hidden[known], model.gpt2.token_embedding.weight).float()
    language = functional.cross_entropy(vocabulary, following, reduction="sum") / known.sum().clamp(min=1)
    return classification + weight * language
