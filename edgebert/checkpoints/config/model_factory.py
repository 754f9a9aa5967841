"""Map configurations to models, and add heads.

A family is a folder of ``models/``; each model type belongs to one. A headed model holds the body under the name of its
family, and the head under ``head``.
"""

from __future__ import annotations

from typing import TypeAlias

from edgebert.models.bert.heads import HeadConfig, HeadedBert
from edgebert.models.bert.model import Bert, BertConfig
from edgebert.models.elmo.model import Elmo, ElmoConfig
from edgebert.models.gpt2.heads import Gpt2Classifier, Gpt2LanguageModel
from edgebert.models.gpt2.model import Gpt2, Gpt2Config
from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert.models.seq2seq.model import Seq2Seq

Config: TypeAlias = "BertConfig | ElmoConfig | Gpt2Config | Seq2SeqConfig"
Reference: TypeAlias = "Bert | HeadedBert | Elmo | Gpt2LanguageModel | Gpt2Classifier | Seq2Seq"

CONFIGS: dict[str, type[BertConfig] | type[ElmoConfig] | type[Gpt2Config] | type[Seq2SeqConfig]] = {
    "bert": BertConfig,
    "elmo": ElmoConfig,
    "gpt2": Gpt2Config,
    "seq2seq": Seq2SeqConfig,
}


def build(config: Config, head: HeadConfig | None) -> Reference:
    """Build the model of a configuration, with the head of a task.

    Raises:
        ValueError: if a decoder has no head.
    """
    if isinstance(config, BertConfig):
        bert = Bert(config)
        return bert if head is None else HeadedBert(bert, head)
    if isinstance(config, ElmoConfig):
        return Elmo(config)
    if isinstance(config, Seq2SeqConfig):
        return Seq2Seq(config)
    if head is None:
        raise ValueError("a decoder has a head, the tied one at least")
    gpt2 = Gpt2(config)
    return Gpt2LanguageModel(gpt2, head.tied) if head.reads == "chosen" else Gpt2Classifier(gpt2, head.num_outputs)
