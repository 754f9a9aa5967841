"""The tokenizers of a bundle: one for texts, and one for targets where they have their own."""

from __future__ import annotations

from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.decoders.seq2seq_signature import Seq2SeqSignature
from edgebert_runtime.errors import BundleError
from edgebert_runtime.inputs.tokenizer import TOKENIZER_NAME, ModelTokenizer
from edgebert_runtime.task_specs import TASKS

TOKENIZERS = SOURCE_TOKENIZER, TARGET_TOKENIZER = "source_tokenizer.json", "target_tokenizer.json"


def load_tokenizers(bundle: Bundle) -> tuple[ModelTokenizer, ModelTokenizer]:
    """Load the tokenizers of texts and of targets, which are the same one where the bundle has one.

    The mask token of fill-mask is the only special token that texts may contain.

    Raises:
        BundleError: if the task is not known.
        TokenizerError: if a tokenizer is damaged, or does not fit the model.
    """
    path, manifest = bundle.path, bundle.manifest
    if manifest.task not in TASKS:
        raise BundleError(f"{path} is a bundle of task {manifest.task!r}; this edgebert runs {', '.join(TASKS)}")
    task, size = TASKS[manifest.task], manifest.limits.vocab_size
    target_size = size
    if task.kind == "encoder-decoder":
        target_size = Seq2SeqSignature.from_specs(bundle.graph("encoder"), bundle.graph("decoder")).vocab_size
    if SOURCE_TOKENIZER in manifest.files:
        target = ModelTokenizer.load(path / TARGET_TOKENIZER, target_size)
        return ModelTokenizer.load(path / SOURCE_TOKENIZER, size), target
    mask = manifest.settings.get("mask_token")
    special_token = mask if "mask_token" in task.settings and isinstance(mask, str) else None
    tokenizer = ModelTokenizer.load(path / TOKENIZER_NAME, min(size, target_size), special_token)
    return tokenizer, tokenizer
