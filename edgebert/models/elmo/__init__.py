"""ELMo (Peters et al., 2018)."""

from edgebert.models.elmo.model import Elmo, ElmoConfig

__all__ = ["Elmo", "ElmoConfig"]
