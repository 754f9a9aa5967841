"""What published models call their tensors and the keys of their config.json. Data only.

A tensor row says from which published tensors one of ours is made: several are stacked along the output axis in the
order given, so that splitting ours evenly gives them back. A row holds for the ``weight`` and the ``bias`` of a
module; ``{}`` is the number of a layer.
"""

from __future__ import annotations

BERT_TENSORS: dict[str, tuple[str, ...]] = {
    "embeddings.token_embedding": ("embeddings.word_embeddings",),
    "embeddings.position_embedding": ("embeddings.position_embeddings",),
    "embeddings.segment_embedding": ("embeddings.token_type_embeddings",),
    "embeddings.norm": ("embeddings.LayerNorm",),
    "layers.{}.qkv": (
        "encoder.layer.{}.attention.self.query",
        "encoder.layer.{}.attention.self.key",
        "encoder.layer.{}.attention.self.value",
    ),
    "layers.{}.attention_output": ("encoder.layer.{}.attention.output.dense",),
    "layers.{}.attention_norm": ("encoder.layer.{}.attention.output.LayerNorm",),
    "layers.{}.ffn_up": ("encoder.layer.{}.intermediate.dense",),
    "layers.{}.ffn_down": ("encoder.layer.{}.output.dense",),
    "layers.{}.ffn_norm": ("encoder.layer.{}.output.LayerNorm",),
}
ELECTRA_TENSORS = {**BERT_TENSORS, "embeddings.embedding_projection": ("embeddings_project",)}
DISTILBERT_TENSORS: dict[str, tuple[str, ...]] = {
    "embeddings.token_embedding": ("embeddings.word_embeddings",),
    "embeddings.position_embedding": ("embeddings.position_embeddings",),
    "embeddings.norm": ("embeddings.LayerNorm",),
    "layers.{}.qkv": (
        "transformer.layer.{}.attention.q_lin",
        "transformer.layer.{}.attention.k_lin",
        "transformer.layer.{}.attention.v_lin",
    ),
    "layers.{}.attention_output": ("transformer.layer.{}.attention.out_lin",),
    "layers.{}.attention_norm": ("transformer.layer.{}.sa_layer_norm",),
    "layers.{}.ffn_up": ("transformer.layer.{}.ffn.lin1",),
    "layers.{}.ffn_down": ("transformer.layer.{}.ffn.lin2",),
    "layers.{}.ffn_norm": ("transformer.layer.{}.output_layer_norm",),
}
ALBERT_LAYER = "encoder.albert_layer_groups.0.albert_layers.0"
ALBERT_TENSORS: dict[str, tuple[str, ...]] = {
    "embeddings.token_embedding": ("embeddings.word_embeddings",),
    "embeddings.position_embedding": ("embeddings.position_embeddings",),
    "embeddings.segment_embedding": ("embeddings.token_type_embeddings",),
    "embeddings.norm": ("embeddings.LayerNorm",),
    "embeddings.embedding_projection": ("encoder.embedding_hidden_mapping_in",),
    "layers.{}.qkv": (
        f"{ALBERT_LAYER}.attention.query",
        f"{ALBERT_LAYER}.attention.key",
        f"{ALBERT_LAYER}.attention.value",
    ),
    "layers.{}.attention_output": (f"{ALBERT_LAYER}.attention.dense",),
    "layers.{}.attention_norm": (f"{ALBERT_LAYER}.attention.LayerNorm",),
    "layers.{}.ffn_up": (f"{ALBERT_LAYER}.ffn",),
    "layers.{}.ffn_down": (f"{ALBERT_LAYER}.ffn_output",),
    "layers.{}.ffn_norm": (f"{ALBERT_LAYER}.full_layer_layer_norm",),
}
GPT2_TENSORS: dict[str, tuple[str, ...]] = {
    "token_embedding": ("wte",),
    "position_embedding": ("wpe",),
    "layers.{}.attention_norm": ("h.{}.ln_1",),
    "layers.{}.qkv": ("h.{}.attn.c_attn",),
    "layers.{}.attention_output": ("h.{}.attn.c_proj",),
    "layers.{}.ffn_norm": ("h.{}.ln_2",),
    "layers.{}.ffn_up": ("h.{}.mlp.c_fc",),
    "layers.{}.ffn_down": ("h.{}.mlp.c_proj",),
    "norm": ("ln_f",),
}
# Those whose weights are published as (in, out), and the tables of constants beside them.
GPT2_TRANSPOSED = ("layers.{}.qkv", "layers.{}.attention_output", "layers.{}.ffn_up", "layers.{}.ffn_down")
GPT2_BUFFERS = ("h.{}.attn.bias", "h.{}.attn.masked_bias")

ATTENTION = ("q_proj", "k_proj", "v_proj")
SIDE_TENSORS: dict[str, tuple[str, ...]] = {
    "embeddings.position_embedding": ("embed_positions",),
    "embeddings.norm": ("layernorm_embedding",),
    "layers.{}.qkv": tuple(f"layers.{{}}.self_attn.{part}" for part in ATTENTION),
    "layers.{}.attention_output": ("layers.{}.self_attn.out_proj",),
    "layers.{}.attention_norm": ("layers.{}.self_attn_layer_norm",),
    "layers.{}.cross_attention_query": ("layers.{}.encoder_attn.q_proj",),
    "layers.{}.cross_attention_key_value": tuple(f"layers.{{}}.encoder_attn.{part}" for part in ATTENTION[1:]),
    "layers.{}.cross_attention_output": ("layers.{}.encoder_attn.out_proj",),
    "layers.{}.cross_attention_norm": ("layers.{}.encoder_attn_layer_norm",),
    "layers.{}.ffn_up": ("layers.{}.fc1",),
    "layers.{}.ffn_down": ("layers.{}.fc2",),
    "layers.{}.ffn_norm": ("layers.{}.final_layer_norm",),
    "norm": ("layer_norm",),
}
# The names of a model with one table of embeddings; where each side has its own, that of the source is another.
SEQ2SEQ_TENSORS: dict[str, tuple[str, ...]] = {
    "token_embedding": ("shared",),
    "target_token_embedding": ("decoder.embed_tokens",),
    "head": ("lm_head",),
    "output_bias": ("final_logits_bias",),  # a tensor by itself
    **{
        f"{side}.{ours}": tuple(f"{side}.{name}" for name in names)
        for side in ("encoder", "decoder")
        for ours, names in SIDE_TENSORS.items()
    },
}
SEPARATE_TENSORS = {**SEQ2SEQ_TENSORS, "token_embedding": ("encoder.embed_tokens",)}
# A table that is saved along where each side has its own, and what BART had before.
SEQ2SEQ_BUFFERS = ("shared.weight", "encoder.version", "decoder.version")

# An ELMo is published under the names that it has here, but for its token embedding.
ELMO_TENSORS: dict[str, tuple[str, ...]] = {
    "token_embedding": ("token",),
    "layers.{}.forwards": ("layers.{}.forwards",),
    "layers.{}.backwards": ("layers.{}.backwards",),
    "mix": ("mix",),
}

# The prefix that a training wrapper puts in front of every name.
WRAPPER = "module."

# The endings that checkpoints converted from TensorFlow give to the two parameters of a layer norm.
OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}

# Tables of constants that older versions saved along with the weights.
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

# Keys of config.json and the fields of our configurations they fill.
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
NARROW_FIELDS = {**BERT_FIELDS, "embedding_size": "embedding_size"}
DISTILBERT_FIELDS: dict[str, str] = {
    "vocab_size": "vocab_size",
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "activation": "hidden_act",
}
GPT2_FIELDS: dict[str, str] = {
    "vocab_size": "vocab_size",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "activation_function": "hidden_act",
    "scale_attn_weights": "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx": "scale_attn_by_inverse_layer_idx",
}
# Those of Marian, BART and mBART.
SEQ2SEQ_FIELDS: dict[str, str] = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "encoder_attention_heads",
    "decoder_attention_heads": "decoder_attention_heads",
    "encoder_ffn_dim": "encoder_intermediate_size",
    "decoder_ffn_dim": "decoder_intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "activation_function": "hidden_act",
    "scale_embedding": "scale_embedding",
}
# Those of models trained here, which may be what none of the three is.
OWN_FIELDS: dict[str, str] = {
    **SEQ2SEQ_FIELDS,
    "layer_norm_eps": "layer_norm_eps",
    "positions": "positions",
    "position_offset": "position_offset",
    "norm": "norm",
    "embedding_norm": "embedding_norm",
    "final_norm": "final_norm",
}

ELMO_FIELDS: dict[str, str] = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "max_tokens": "max_tokens",
}

# Keys that ask for program code from the folder.
CODE_KEYS = ("auto_map", "custom_pipelines", "custom_ops_library", "trust_remote_code")

# Keys that are numbers between 0 and 1 and matter in training only.
PROBABILITIES = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "classifier_dropout_prob", "dropout",
    "attention_dropout", "qa_dropout", "seq_classif_dropout", "summary_last_dropout", "attn_pdrop", "embd_pdrop",
    "resid_pdrop", "activation_dropout", "classif_dropout", "encoder_layerdrop", "decoder_layerdrop",
)  # fmt: skip

# Keys that change nothing in what is computed, or are looked at where a task needs them.
IGNORED = frozenset(
    {
        "_name_or_path", "architectures", "model_type", "transformers_version", "torch_dtype", "dtype",
        "initializer_range", "layer_norm_type", "pad_token_id", "bos_token_id", "eos_token_id", "eos_token_ids",
        "cls_token_id", "sep_token_id", "mask_token_id", "unk_token_id", "use_cache", "gradient_checkpointing",
        "tie_word_embeddings", "tie_encoder_decoder", "tie_weights_", "torchscript", "output_past",
        "output_attentions", "output_hidden_states", "return_dict", "use_return_dict", "chunk_size_feed_forward",
        "use_bfloat16", "id2label", "label2id", "num_labels", "problem_type", "finetuning_task",
        "task_specific_params", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
        "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "cross_attention_hidden_size",
        "tokenizer_class", "prefix", "_attn_implementation", "_attn_implementation_autoset", "_num_labels", "adapters",
        "language", "name", "_commit_hash", "sentence_transformers", "sbert_ce_default_activation_function",
        "tf_legacy_loss", "remove_invalid_values", "vocab_size_or_config_json_file",
        # DistilBERT, ELECTRA, ALBERT
        "sinusoidal_pos_embds", "summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout",
        "down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks",
        # GPT-2; upcasting matters in half precision only
        "reorder_and_upcast_attn", "summary_proj_to_labels", "n_ctx", "predict_special_tokens",
        # Marian, BART and mBART; num_hidden_layers is encoder_layers once more
        "decoder_vocab_size", "share_encoder_decoder_embeddings", "num_hidden_layers", "init_std", "add_bias_logits",
        "extra_pos_embeddings", "force_bos_token_to_be_generated",
        # generation, which older versions wrote into every config.json
        "do_sample", "early_stopping", "length_penalty", "max_length", "min_length", "num_beams", "num_beam_groups",
        "num_return_sequences", "repetition_penalty", "temperature", "top_k", "top_p", "typical_p",
        "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "diversity_penalty",
        "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "return_dict_in_generate",
        "output_scores", "max_new_tokens", "min_new_tokens", "min_p",
        "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
    }
)  # fmt: skip
