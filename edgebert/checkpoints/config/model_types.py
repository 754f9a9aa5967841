"""The model types of config.json, of all families."""

from __future__ import annotations

from edgebert.models.bert import checkpoint_names as bert
from edgebert.models.checkpoint_tables import ModelType
from edgebert.models.elmo import checkpoint_names as elmo
from edgebert.models.gpt2 import checkpoint_names as gpt2
from edgebert.models.seq2seq import checkpoint_names as seq2seq

MODEL_TYPES: dict[str, ModelType] = {
    **bert.MODEL_TYPES,
    **gpt2.MODEL_TYPES,
    **seq2seq.MODEL_TYPES,
    **elmo.MODEL_TYPES,
}
