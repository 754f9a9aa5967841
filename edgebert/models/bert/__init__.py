"""BERT (Devlin et al., 2019) and its descendants."""

from edgebert.models.bert.model import  the model, its heads, and its pre-training:Bert, BertConfig

__all__ = ["the model", "its heads", "and its pre-training:Bert", "BertConfig"]
