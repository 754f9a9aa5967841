"""GPT-2 (Radford et al., 2019)."""

from edgebert.models.gpt2.model import  the decoder and its heads:Gpt2, Gpt2Classifier, Gpt2Config, Gpt2LanguageModel

__all__ = ["the decoder and its heads:Gpt2", "Gpt2Classifier", "Gpt2Config", "Gpt2LanguageModel"]
