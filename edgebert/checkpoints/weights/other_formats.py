"""Recognize folders that are no checkpoints of transformers, and name the way to one."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Any

from edgebert.checkpoints.folder import CheckpointFolder, one_line
from edgebert_runtime.errors import CheckpointError

CONFIG = "config.json"
# The weights that are read, whole or in shards.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
OTHER_PICKLES = ("model.pt", "pytorch_model.pt", "model.bin")
ADAPTER = "adapter_config.json"
GUIDE = "docs/own_transformer.md says how"

MADE_FROM = "export the PyTorch checkpoint that it was made from"
OLD_LIBRARY = (
    "with transformers 4 and {library}, AutoModel.from_pretrained('{{folder}}', {option}=True).save_pretrained('NEW') "
    "converts them, AutoModel being the class of their head"
)

# Patterns of file names, the format, and the way to a checkpoint that can be exported. The first that fits counts.
FORMATS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("*.gguf",),
        "a GGUF file of llama.cpp",
        f"{MADE_FROM}, or load it with from_pretrained('{{folder}}', gguf_file='{{name}}') of transformers, if that "
        "knows the model, and call save_pretrained",
    ),
    (
        ("tf_model.h5", "tf_model-*.h5", "tf_model.h5.index.json"),
        "TensorFlow weights of transformers",
        OLD_LIBRARY.format(library="TensorFlow", option="from_tf"),
    ),
    (("*.msgpack", "*.msgpack.index.json"), "Flax weights", OLD_LIBRARY.format(library="Flax", option="from_flax")),
    (
        ("*.ckpt.index", "*.ckpt.meta", "*.ckpt.data-*", "checkpoint.index"),
        "a TensorFlow checkpoint, as Google published BERT",
        "with transformers 4 and TensorFlow, python -m "
        "transformers.models.bert.convert_bert_original_tf_checkpoint_to_pytorch converts it; put config.json and "
        "vocab.txt beside the result",
    ),
    (("*.keras", "*.h5", "*.hdf5"), "a Keras model", f"copy its weights into a PyTorch state dict; {GUIDE}"),
    (("saved_model.pb", "*.pb", "*.tflite"), "a graph of TensorFlow", MADE_FROM),
    (("*.onnx",), "an ONNX graph", f"edgebert makes its own graph: {MADE_FROM}"),
    (("openvino_model.xml", "*.xml"), "a graph of OpenVINO", f"edgebert makes its own graph: {MADE_FROM}"),
    (("*.mlpackage", "*.mlmodel", "*.mlmodelc"), "a Core ML model", f"edgebert makes its own graph: {MADE_FROM}"),
    (("*.engine", "*.plan"), "an engine of TensorRT", MADE_FROM),
    (("*.nemo",), "an archive of NVIDIA NeMo", "convert it to a checkpoint of transformers with the scripts of NeMo"),
    (
        ("consolidated.*.pth", "consolidated*.safetensors"),
        "an original checkpoint of Meta or Mistral",
        "edgebert has no model of its family; docs/tasks.md lists those that it has",
    ),
    (("shared_vocabulary.*", "source_vocabulary.*"), "a part of a model of CTranslate2", MADE_FROM),
    (
        ("*.npz",),
        "a model of Marian or an archive of NumPy",
        "python -m transformers.models.marian.convert_marian_to_pytorch, of transformers 4, converts a model of Marian",
    ),
    (("*.ot",), "a file of weights for rust-bert", MADE_FROM),
    (
        ("model.*.safetensors", "*.safetensors"),
        "a safetensors file under another name",
        "rename it to model.safetensors if it holds the whole model",
    ),
    (
        ("*.ckpt",),
        "a checkpoint of PyTorch Lightning or another trainer",
        "save the tensors of the model alone: safetensors.torch.save_file({{key: value.contiguous() for key, value in "
        "torch.load('{name}', weights_only=True)['state_dict'].items()}}, 'model.safetensors')",
    ),
    (
        ("*.pt", "*.pth", "*.bin"),
        "a pickle of PyTorch",
        f"save its state dict as model.safetensors, with a config.json that says what model it is; {GUIDE}",
    ),
    (("checkpoint-*",), "a folder inside", "give the folder that holds the weights, such as {folder}/{name}"),
)
# Files of trainers beside the weights.
NOT_WEIGHTS = ("optimizer*", "scheduler*", "training_args*", "rng_state*", "scaler*")
# Classes of transformers for the tasks of an adapter of PEFT.
ADAPTED = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
}
# Kinds of adapters that are inputs or layers beside the weights, and become no part of them.
UNMERGEABLE = ("PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "ADAPTION_PROMPT", "CPT")


def refuse_other_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file of another format in the place of a folder.

    Raises:
        CheckpointError: naming the file, its format and the way to a checkpoint.
    """
    file = Path(path)
    if file.is_file() and (fault := fault_of([file.name], file.parent)):
        raise CheckpointError(one_line(fault))


def refuse_other_formats(folder: CheckpointFolder) -> None:
    """Refuse an adapter, and a folder of another format.

    Raises:
        CheckpointError: naming the file, its format and the way to a checkpoint.
    """
    if folder.has(ADAPTER):
        raise CheckpointError(adapter_message(folder))
    names = folder.entries()
    if any(name in names for weights in WEIGHTS for name in (weights, f"{weights}.index.json")):
        return
    if folder.has(CONFIG):  # find_weights has the command that converts them
        names = [name for name in names if name not in OTHER_PICKLES]
    if fault := fault_of(names, folder.path):
        raise CheckpointError(fault)


def fault_of(names: list[str], folder: Path) -> str | None:
    """Return the fault of files that are of another format, None if none is of one that is known."""
    names = [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in NOT_WEIGHTS)]
    for patterns, kind, route in FORMATS:
        if name := next((name for pattern in patterns for name in fnmatch.filter(names, pattern)), None):
            return f"{name} is {kind}, which is not read; {route.format(name=name, folder=folder)}"
    return None


def adapter_message(folder: CheckpointFolder) -> str:
    """Say how an adapter becomes a part of its model."""
    data: dict[str, Any] = folder.json(ADAPTER)
    kind, base = data.get("peft_type"), data.get("base_model_name_or_path")
    if kind is None:
        return f"{ADAPTER}: an adapter of the library adapters, whose layers stand beside the model's; not supported"
    if kind in UNMERGEABLE:
        return f"{ADAPTER}: an adapter of the kind {kind!r:.40} cannot be merged into its model; it is not supported"
    model = ADAPTED.get(str(data.get("task_type")), "AutoModel")
    source = base if isinstance(base, str) and base else "BASE"
    return (
        f"{ADAPTER}: this is an adapter to {source:.200}, and not a whole model; merge it first: python -c "
        f'"from peft import PeftModel; from transformers import AutoTokenizer, {model}; '
        f"PeftModel.from_pretrained({model}.from_pretrained({source!r:.200}), {str(folder.path)!r})"
        f".merge_and_unload().save_pretrained('merged'); "
        f"AutoTokenizer.from_pretrained({source!r:.200}).save_pretrained('merged')\", and export the folder merged"
    )


# Parts of names that an adapter within a model has.
ADAPTER_PARTS = (
    ".lora_A.", ".lora_B.", ".lora_embedding_", ".lora_magnitude_vector", ".base_layer.", ".ia3_l.",
    ".modules_to_save.",
)  # fmt: skip
UNMERGED = (
    "{count} tensors are of an adapter that is not merged, such as {name}; where the model was trained, call "
    "model.merge_and_unload().save_pretrained('merged'), and export that"
)


def unmerged(names: list[str]) -> str | None:
    """Return the fault of tensors that belong to an adapter, None where there are none."""
    parts = [name for name in names if any(part in f"{name}." for part in ADAPTER_PARTS)]
    return UNMERGED.format(count=len(parts), name=parts[0]) if parts else None
