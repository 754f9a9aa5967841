"""The names of published GPT-2 checkpoints. Data only."""

from __future__ import annotations

from edgebert.models.checkpoint_tables import REQUIRED, HeadNames, ModelType, by_task

TENSORS: dict[str, tuple[str, ...]] = {
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
TRANSPOSED = ("layers.{}.qkv", "layers.{}.attention_output", "layers.{}.ffn_up", "layers.{}.ffn_down")
BUFFERS = ("h.{}.attn.bias", "h.{}.attn.masked_bias")

FIELDS: dict[str, str] = {
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

# The keys that matter to a decoder.
DECODER_KEYS = ("add_cross_attention", "is_encoder_decoder", "pruned_heads", "quantization_config")

MODEL_TYPES: dict[str, ModelType] = {
    "gpt2": ModelType(
        family="gpt2",
        headless_task="generate",
        prefix="transformer.",
        tensors=TENSORS,
        transposed=TRANSPOSED,
        buffers=BUFFERS,
        keys=FIELDS,
        legacy_keys={"n_positions": "n_ctx"},
        defaults={"bos_token_id": 50256, "eos_token_id": 50256},
        derived_sizes={"intermediate_size": (4, "hidden_size")},
        required={key: REQUIRED[key] for key in DECODER_KEYS},
        no_special_tokens=True,
        heads=by_task(
            classify=HeadNames("last", "score", bias=False),
            generate=HeadNames("chosen", "lm_head", bias=False, vocabulary=True),
        ),
        other_heads=("multiple_choice_head", "classifier", "qa_outputs"),
        architectures={"GPT2LMHeadModel": "generate", "GPT2DoubleHeadsModel": "generate"},
    ),
}
