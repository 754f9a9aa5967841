"""The configuration of encoder-decoder Transformers."""

from __future__ import annotations

from dataclasses import dataclass

from edgebert.models.config_validation import field_problems

POSITIONS = ("sinusoidal", "learned")
NORMS = ("post", "pre")
# The most elements of sinusoidal positions, which are computed before any weight is read.
MAX_SINUSOIDS = 1 << 26


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """The configuration of an encoder-decoder, in the names of BART's config.json or of BERT's.

    Attributes:
        vocab_size: The vocabulary of the source.
        decoder_vocab_size: The vocabulary of the target, if it has a token embedding of its own.
        max_position_embeddings: The longest source and the longest target.
        positions: ``sinusoidal`` or ``learned``.
        position_offset: Rows of the position embedding before the first position (BART).
        norm: ``post`` (after each residual) or ``pre`` (before each sublayer).
        scale_embedding: Whether token embeddings are multiplied by sqrt(hidden_size).
        embedding_norm: Whether a layer norm follows the embeddings.
        final_norm: Whether a layer norm follows the last layer.
        tied_head: Whether the head is the token embedding of the target.
        output_bias: Whether the logits have a bias.

    Raises:
        ValueError: naming every impossible field with its value.
    """

    vocab_size: int
    decoder_vocab_size: int | None = None
    hidden_size: int
    encoder_layers: int
    decoder_layers: int
    encoder_attention_heads: int
    decoder_attention_heads: int
    encoder_intermediate_size: int
    decoder_intermediate_size: int
    max_position_embeddings: int
    layer_norm_eps: float = 1e-5
    hidden_act: str = "relu"
    positions: str = "sinusoidal"
    position_offset: int = 0
    norm: str = "post"
    scale_embedding: bool = False
    embedding_norm: bool = False
    final_norm: bool = False
    tied_head: bool = True
    output_bias: bool = True

    def __post_init__(self) -> None:
        problems = field_problems(self)
        for name, allowed in (("positions", POSITIONS), ("norm", NORMS)):
            if (value := getattr(self, name)) not in allowed:
                problems.append(f"{name}={value!r:.60} is not one of {', '.join(allowed)}")
        if not problems and self.positions == "sinusoidal":
            most = MAX_SINUSOIDS // self.hidden_size - self.position_offset
            if self.max_position_embeddings > most:
                problems.append(f"max_position_embeddings={self.max_position_embeddings} is more than {most}")
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def target_vocab_size(self) -> int:
        """The size of the target vocabulary."""
        return self.vocab_size if self.decoder_vocab_size is None else self.decoder_vocab_size

    @property
    def max_tokens(self) -> int:
        """The longest source, and the longest target, in tokens, special tokens included."""
        return self.max_position_embeddings

    @property
    def head_dim(self) -> int:
        """The width of one attention head of the decoder, as in its KV cache."""
        return self.hidden_size // self.decoder_attention_heads
