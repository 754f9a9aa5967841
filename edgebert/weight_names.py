"""What published checkpoints call things: tensors, configuration keys, sentence modules. Data only.

A tensor row says from which published tensors one of ours is made: several are stacked along the output axis in the
order given, so that splitting ours evenly gives them back. A row holds for the ``weight`` and the ``bias`` of a
module; ``{}`` is the number of a layer.
"""

from __future__ import annotations

from typing import Any

BERT_TENSORS: dict[str, tuple[str, ...]] = {
    "embeddings.token": ("embeddings.word_embeddings",),
    "embeddings.position": ("embeddings.position_embeddings",),
    "embeddings.segment": ("embeddings.token_type_embeddings",),
    "embeddings.norm": ("embeddings.LayerNorm",),
    "layers.{}.qkv": (
        "encoder.layer.{}.attention.self.query",
        "encoder.layer.{}.attention.self.key",
        "encoder.layer.{}.attention.self.value",
    ),
    "layers.{}.attention_out": ("encoder.layer.{}.attention.output.dense",),
    "layers.{}.attention_norm": ("encoder.layer.{}.attention.output.LayerNorm",),
    "layers.{}.expand": ("encoder.layer.{}.intermediate.dense",),
    "layers.{}.contract": ("encoder.layer.{}.output.dense",),
    "layers.{}.output_norm": ("encoder.layer.{}.output.LayerNorm",),
    "pooler": ("pooler.dense",),
}

# Prefixes that training wrappers and models with a head put in front of an encoder's names.
PREFIXES = ("module.", "bert.")

# The endings that checkpoints converted from TensorFlow give to the two parameters of a layer norm.
OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}

# Tables of constants that older versions saved along with the weights.
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

# The parts of a published model that stand on top of the encoder.
HEADS = ("cls.", "classifier.", "qa_outputs.")
POOLER = "pooler."

# Keys of config.json and the fields of BertConfig they fill.
BERT_FIELDS: dict[str, str] = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "layer_norm_eps": "layer_norm_eps",
    "hidden_act": "hidden_act",
}

# Keys that change what is computed, with the values under which it is what our model computes.
BERT_REQUIRED: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}

# Keys that ask for program code from the folder.
CODE_KEYS = ("auto_map", "custom_pipelines", "custom_ops_library", "trust_remote_code")

# Keys that are numbers between 0 and 1 and matter in training only.
PROBABILITIES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")

# Keys that change nothing in the hidden states.
BERT_IGNORED = frozenset(
    {
        "_name_or_path", "architectures", "model_type", "transformers_version", "torch_dtype", "dtype",
        "initializer_range", "layer_norm_type", "pad_token_id", "bos_token_id", "eos_token_id", "eos_token_ids",
        "cls_token_id", "sep_token_id", "mask_token_id", "unk_token_id", "use_cache", "gradient_checkpointing",
        "tie_word_embeddings", "tie_encoder_decoder", "torchscript", "output_past", "output_attentions",
        "output_hidden_states", "return_dict", "use_return_dict", "chunk_size_feed_forward", "use_bfloat16",
        "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params",
        "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
        "pooler_size_per_head", "pooler_type", "cross_attention_hidden_size", "tokenizer_class", "prefix",
        "_attn_implementation", "_attn_implementation_autoset", "_num_labels", "adapters", "language", "name",
        "_commit_hash", "sentence_transformers", "tf_legacy_loss", "remove_invalid_values",
    }
)  # fmt: skip

# The model types of config.json that can be read, each with the family it belongs to.
MODEL_TYPES = {"bert": "bert"}

# Modules of sentence-transformers by the last part of their dotted type; any other changes the vector.
TRANSFORMER_MODULE = "Transformer"
POOLING_MODULE = "Pooling"
NORMALIZE_MODULE = "Normalize"

# The older way of 1_Pooling/config.json to say what ``pooling_mode`` says in the newer.
POOLING_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

# Their names of poolings and ours.
POOLING_MODES = {"cls": "cls", "max": "max", "mean": "mean", "lasttoken": "last"}

# Classes of tokenizer that are nothing but BERT's WordPiece over vocab.txt.
WORDPIECE_CLASSES = (
    "BertTokenizer",
    "BertTokenizerFast",
    "DistilBertTokenizer",
    "DistilBertTokenizerFast",
    "ElectraTokenizer",
    "ElectraTokenizerFast",
)

# The special tokens of BERT's WordPiece under their names in tokenizer_config.json.
SPECIAL_TOKENS = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}
