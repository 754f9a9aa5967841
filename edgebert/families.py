"""The families of models: which configuration belongs to which reference, and how the two are put together.

A family is a file of ``models/``; the model types of ``model_types.py`` belong to one each. A headed model holds the
body under the name of its family and the head under ``head``.
"""

from __future__ import annotations

from typing import TypeAlias

from edgebert.models.bert import Bert, BertConfig
from edgebert.models.gpt2 import Gpt2, Gpt2Classifier, Gpt2Config, Gpt2LanguageModel
from edgebert.models.heads import HeadConfig, HeadedBert

Config: TypeAlias = "BertConfig | Gpt2Config"
Reference: TypeAlias = "Bert | HeadedBert | Gpt2LanguageModel | Gpt2Classifier"

CONFIGS: dict[str, type[BertConfig] | type[Gpt2Config]] = {"bert": BertConfig, "gpt2": Gpt2Config}


def build(config: Config, head: HeadConfig | None) -> Reference:
    """Return the reference model of a configuration, with the head of a task.

    Raises:
        ValueError: if a decoder has no head.
    """
    if isinstance(config, BertConfig):
        bert = Bert(config)
        return bert if head is None else HeadedBert(bert, head)
    if head is None:
        raise ValueError("a decoder has a head, the tied one at least")
    gpt2 = Gpt2(config)
    return Gpt2LanguageModel(gpt2, head.tied) if head.reads == "chosen" else Gpt2Classifier(gpt2, head.num_outputs)
