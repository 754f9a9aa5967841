"""ELMo (Peters et al., 2018): a bidirectional LSTM language model."""

from edgebert.models.elmo.model import Elmo, ElmoConfig

__all__ = ["Elmo", "ElmoConfig"]
