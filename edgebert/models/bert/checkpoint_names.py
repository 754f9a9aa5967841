"""The names of published BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT, ELECTRA and ALBERT checkpoints. Data only."""

from __future__ import annotations

from edgebert.models.checkpoint_tables import HIDDEN_ACT, REQUIRED, HeadNames, ModelType, by_task, vocabulary_head

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

# Constants that older versions saved along with the weights.
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

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

TOKENS = HeadNames("every", "classifier")
SPANS = HeadNames("every", "qa_outputs", spans=True)
POOLED = HeadNames("first", "classifier", "pooler.dense", "tanh")
# With "classifier_pooling": "mean" in config.json, a key that ModernBERT brought in.
MEAN = HeadNames("mean", "classifier")

BERT_HEADS = by_task(
    classify=(POOLED, MEAN),
    next_sentence=HeadNames("first", "cls.seq_relationship", "pooler.dense", "tanh"),
    rerank=POOLED,
    multiple_choice=POOLED,
    tag=TOKENS,
    answer=SPANS,
    fill_mask=vocabulary_head(
        "cls.predictions.decoder",
        "cls.predictions.transform.dense",
        HIDDEN_ACT,
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    ),
)

ROBERTA_CLASSIFIER = HeadNames("first", "classifier.out_proj", "classifier.dense", "tanh")
ROBERTA_HEADS = by_task(
    classify=(ROBERTA_CLASSIFIER, MEAN),
    rerank=ROBERTA_CLASSIFIER,
    multiple_choice=POOLED,
    tag=TOKENS,
    answer=SPANS,
    fill_mask=vocabulary_head("lm_head.decoder", "lm_head.dense", "gelu", "lm_head.layer_norm", "lm_head.bias"),
)

DISTILBERT_CLASSIFIER = HeadNames("first", "classifier", "pre_classifier", "relu")
DISTILBERT_HEADS = by_task(
    classify=(DISTILBERT_CLASSIFIER, MEAN),
    rerank=DISTILBERT_CLASSIFIER,
    multiple_choice=DISTILBERT_CLASSIFIER,
    tag=TOKENS,
    answer=SPANS,
    fill_mask=vocabulary_head(
        "vocab_projector", "vocab_transform", HIDDEN_ACT, "vocab_layer_norm", "vocab_projector.bias"
    ),
)

ELECTRA_CLASSIFIER = HeadNames("first", "classifier.out_proj", "classifier.dense", "gelu")
ELECTRA_SUMMARY = {"summary_type": ("first",), "summary_use_proj": (True,), "summary_activation": ("gelu",)}
ELECTRA_DISCRIMINATOR = HeadNames(
    "every",
    "discriminator_predictions.dense_prediction",
    "discriminator_predictions.dense",
    HIDDEN_ACT,
    binary=True,
)
ELECTRA_HEADS = by_task(
    classify=ELECTRA_CLASSIFIER,
    rerank=ELECTRA_CLASSIFIER,
    multiple_choice=HeadNames("first", "classifier", "sequence_summary.summary", "gelu", required=ELECTRA_SUMMARY),
    tag=(ELECTRA_DISCRIMINATOR, TOKENS),
    answer=SPANS,
    fill_mask=vocabulary_head(
        "generator_lm_head",
        "generator_predictions.dense",
        "gelu",
        "generator_predictions.LayerNorm",
        "generator_lm_head.bias",
    ),
)

ALBERT_CLASSIFIER = HeadNames("first", "classifier", "pooler", "tanh")
ALBERT_HEADS = by_task(
    classify=ALBERT_CLASSIFIER,
    next_sentence=HeadNames("first", "sop_classifier.classifier", "pooler", "tanh"),
    rerank=ALBERT_CLASSIFIER,
    multiple_choice=ALBERT_CLASSIFIER,
    tag=TOKENS,
    answer=SPANS,
    fill_mask=vocabulary_head(
        "predictions.decoder", "predictions.dense", HIDDEN_ACT, "predictions.LayerNorm", "predictions.bias"
    ),
)

ROBERTA = ModelType(
    prefix="roberta.",
    tensors=BERT_TENSORS,
    buffers=BUFFERS,
    keys=BERT_FIELDS,
    default_pad_id=1,
    heads=ROBERTA_HEADS,
)
MODEL_TYPES: dict[str, ModelType] = {
    "bert": ModelType(prefix="bert.", tensors=BERT_TENSORS, buffers=BUFFERS, keys=BERT_FIELDS, heads=BERT_HEADS),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": ModelType(
        prefix="distilbert.",
        tensors=DISTILBERT_TENSORS,
        buffers=BUFFERS,
        keys=DISTILBERT_FIELDS,
        constants={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
        heads=DISTILBERT_HEADS,
    ),
    "electra": ModelType(
        prefix="electra.",
        tensors=ELECTRA_TENSORS,
        buffers=BUFFERS,
        keys=NARROW_FIELDS,
        defaults={"embedding_size": 128},
        projects_if_narrower=True,
        heads=ELECTRA_HEADS,
        architectures={"ElectraForPreTraining": "tag"},
    ),
    "albert": ModelType(
        prefix="albert.",
        tensors=ALBERT_TENSORS,
        buffers=BUFFERS,
        keys=NARROW_FIELDS,
        defaults={"embedding_size": 128, "hidden_act": "gelu_new"},
        constants={"shared_layers": True},
        required={**REQUIRED, "num_hidden_groups": (1,), "inner_group_num": (1,)},
        heads=ALBERT_HEADS,
    ),
}
