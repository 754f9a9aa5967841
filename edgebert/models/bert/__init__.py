"""BERT (Devlin et al., 2019) and its descendants: the model, its heads and its pre-training."""

from edgebert.models.bert.model import Bert, BertConfig

__all__ = ["Bert", "BertConfig"]
