"""GPT-2 (Radford et al., 2019): the decoder and its heads."""

from edgebert.models.gpt2.heads import Gpt2Classifier, Gpt2LanguageModel
from edgebert.models.gpt2.model import Gpt2, Gpt2Config

__all__ = ["Gpt2", "Gpt2Classifier", "Gpt2Config", "Gpt2LanguageModel"]
