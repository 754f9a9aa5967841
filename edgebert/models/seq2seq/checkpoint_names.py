"""The names of published Marian, BART and mBART checkpoints, and of models trained here. Data only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgebert.models.checkpoint_tables import REQUIRED, HeadNames, ModelType, by_task

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
TENSORS: dict[str, tuple[str, ...]] = {
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
SEPARATE_TENSORS = {**TENSORS, "token_embedding": ("encoder.embed_tokens",)}
# The tables of embeddings, of which those are used that differ, and what BART had before.
BUFFERS = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
    "encoder.version",
    "decoder.version",
)

FIELDS: dict[str, str] = {
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
# Models trained here can combine what Marian, BART and mBART have.
OWN_FIELDS: dict[str, str] = {
    **FIELDS,
    "layer_norm_eps": "layer_norm_eps",
    "positions": "positions",
    "position_offset": "position_offset",
    "norm": "norm",
    "embedding_norm": "embedding_norm",
    "final_norm": "final_norm",
}

# Norms and positions follow from the model type; what older files say of them must agree.
SEQ2SEQ_REQUIRED: dict[str, tuple[Any, ...]] = {
    "is_decoder": REQUIRED["is_decoder"],
    "is_encoder_decoder": (True, None),
    "pruned_heads": REQUIRED["pruned_heads"],
    "quantization_config": REQUIRED["quantization_config"],
}
MARIAN_REQUIRED = {
    **SEQ2SEQ_REQUIRED,
    "static_position_embeddings": (True,),
    "normalize_before": (False,),
    "normalize_embedding": (False,),
    "add_final_layer_norm": (False,),
}
BART_REQUIRED = {
    **SEQ2SEQ_REQUIRED,
    "static_position_embeddings": (False,),
    "normalize_embedding": (True,),
    "share_encoder_decoder_embeddings": (True, None),
}
BART_CONSTANTS: dict[str, Any] = {"positions": "learned", "position_offset": 2, "embedding_norm": True}
BART_DEFAULTS: dict[str, Any] = {
    "activation_function": "gelu",
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
}

# Any encoder-decoder, as it is trained here.
SEQ2SEQ = ModelType(
    family="seq2seq",
    headless_task="translate",
    prefix="model.",
    tensors=TENSORS,
    separate_tensors=SEPARATE_TENSORS,
    buffers=BUFFERS,
    keys=OWN_FIELDS,
    required=SEQ2SEQ_REQUIRED,
    heads=by_task(translate=HeadNames("chosen", "lm_head", bias=False, vocabulary=True)),
)
BART = replace(
    SEQ2SEQ,
    keys=FIELDS,
    defaults={**BART_DEFAULTS, "decoder_start_token_id": 2},
    constants=BART_CONSTANTS,
    required={**BART_REQUIRED, "normalize_before": (False,), "add_final_layer_norm": (False,)},
    other_heads=("classification_head", "qa_outputs"),
)
MODEL_TYPES: dict[str, ModelType] = {
    "marian": replace(
        SEQ2SEQ,
        keys=FIELDS,
        defaults={"activation_function": "gelu", "eos_token_id": 0, "forced_eos_token_id": 0},
        required=MARIAN_REQUIRED,
        architectures={"MarianMTModel": "translate"},
    ),
    "bart": BART,
    "mbart": replace(
        BART,
        defaults=BART_DEFAULTS,
        constants={**BART_CONSTANTS, "norm": "pre", "final_norm": True},
        required={**BART_REQUIRED, "normalize_before": (True,), "add_final_layer_norm": (True,)},
    ),
    "seq2seq": SEQ2SEQ,
}
