"""The encoder-decoder Transformer (Vaswani et al., 2017), Marian, BART and mBART."""

from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert.models.seq2seq.model import Seq2Seq

__all__ = ["Seq2Seq", "Seq2SeqConfig"]
