"""The heads of GPT-2: language model and classifier, and the fine-tuning loss of GPT (Radford et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional

from edgebert.models.gpt2.model import Gpt2
from edgebert.models.mask_positions import last_rows
from edgebert.models.operators import Cache


class Gpt2LanguageModel(nn.Module):
    """A decoder with a language-model head, ``tied`` to the token embedding or not."""

    def __init__(self, gpt2: Gpt2, tied: bool = True) -> None:
        super().__init__()
        self.gpt2 = gpt2
        self.head = None if tied else nn.Linear(gpt2.config.hidden_size, gpt2.config.vocab_size, bias=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, logits_indices: Tensor, past: Sequence[Cache]
    ) -> tuple[Tensor, list[Cache]]:
        """Map new ids (batch, seq) to next-token logits (rows, vocab), and return the KV cache of total columns.

        ``attention_mask`` (batch, total), integers, is 0 at padding of the cache and of the new ids. ``logits_indices``
        (rows,), row * seq + position, selects tokens. ``past`` is the cache of each layer, keys and values
        (batch, heads, total - seq, head_dim).
        """
        hidden, present = self.gpt2.extend(input_ids, attention_mask != 0, past, logits_indices)
        return self.logits(hidden), present

    def logits(self, hidden: Tensor) -> Tensor:
        """Map hidden states (n, dim) to logits (n, vocab)."""
        if self.head is None:
            return functional.linear(hidden, self.gpt2.token_embedding.weight)
        logits: Tensor = self.head(hidden)
        return logits


class Gpt2Classifier(nn.Module):
    """A decoder with a linear layer, without bias, on the last real token."""

    def __init__(self, gpt2: Gpt2, num_labels: int) -> None:
        super().__init__()
        self.gpt2 = gpt2
        self.head = nn.Linear(gpt2.config.hidden_size, num_labels, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Map integer tensors (batch, seq) to logits (batch, labels)."""
        mask = attention_mask != 0
        logits: Tensor = self.head(self.gpt2.encode(input_ids, mask, last_rows(mask)))
        return logits


# Maps the head, hidden states (rows, dim) of the last tokens, and the number of examples to logits (examples, labels).
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

    L2 is the mean cross-entropy of ``labels`` (examples,) on the last real token of each row of ids (batch, seq). Rows
    are examples, unless ``form`` makes one result of several. L1, the auxiliary objective, is the mean cross-entropy
    of every real token whose predecessor is real, by the token embedding.
    """
    mask = attention_mask != 0
    hidden = model.gpt2.encode(input_ids, mask)  # (tokens, dim)
    states = hidden[last_rows(mask)]  # (batch, dim)
    logits = model.head(states) if form is None else form(model.head, states, len(labels))
    classification = functional.cross_entropy(logits.float(), labels)
    has_next = functional.pad(mask[:, :-1] & mask[:, 1:], (0, 1)).flatten()  # (tokens,): the next token is real
    following = input_ids.roll(-1, dims=1).flatten()[has_next]
    vocabulary = functional.linear(hidden[has_next], model.gpt2.token_embedding.weight).float()
    language = functional.cross_entropy(vocabulary, following, reduction="sum") / has_next.sum().clamp(min=1)
    return classification + weight * language
