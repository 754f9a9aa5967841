"""What the samples of fine-tuning share: a tiny encoder, training, saving, bundles, and engines over PyTorch.

Imported by ``finetune_tagger.py`` and ``finetune_spans.py``; does nothing by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import edgebert
from edgebert.models.bert.heads import HeadedBert
from edgebert.models.bert.model import Bert, BertConfig
from edgebert.training import Loss, TrainingConfig, initialize, save_checkpoint, train
from edgebert.training.examples import Batch
from edgebert_exporters import export_checkpoint, quantize_bundle

HERE = Path(__file__).parent
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = 1000
REPORTS = 8  # how often a run says how far it is


class Reference:
    """A PyTorch model in the place of the ONNX Runtime session of an engine."""

    def __init__(self, model: HeadedBert) -> None:
        self.model = model

    def run(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, npt.NDArray[Any]]
    ) -> Sequence[npt.NDArray[Any]]:
        """Compute the outputs of the task, all of them in the order of the engine."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        with torch.inference_mode():
            found = self.model(*(torch.from_numpy(np.ascontiguousarray(feeds[name])) for name in names))
        return [tensor.numpy() for tensor in (found if isinstance(found, tuple) else (found,))]


def learn(
    model: HeadedBert, batches: Iterable[Batch], loss: Callable[[HeadedBert, Batch], Loss], recipe: TrainingConfig
) -> None:
    """Train a model on batches, and print how far it is and how long it took."""
    begun = time.perf_counter(), time.process_time()
    train(
        model,
        batches,
        loss,
        recipe,
        report=lambda progress: say(str(progress)),
        report_every=max(1, recipe.steps // REPORTS),
    )
    wall, processor = time.perf_counter() - begun[0], time.process_time() - begun[1]
    say(f"trained in {wall / 60:.1f} minutes, {processor / 60:.1f} of a processor")


def tiny_encoder(folder: Path, texts: Sequence[str]) -> Path:
    """Save an encoder that has learned nothing, with a vocabulary made from ``texts``, and return its folder."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=SPECIALS, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, SPECIALS.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    bert = Bert(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=128,
        )
    )
    initialize(bert)
    return save_checkpoint(
        folder, bert, tokenizer, model_type="bert", task="embed", config={"architectures": ["BertModel"]}
    )


def save(folder: Path, model: HeadedBert, tokenizer: Tokenizer, task: str, config: Mapping[str, Any]) -> Path:
    """Save what was learned on top of a BERT as a checkpoint."""
    return save_checkpoint(folder, model, tokenizer, model_type="bert", task=task, config=config)


def engines(checkpoint: Path, model: HeadedBert, calibration: Sequence[str]) -> dict[str, tuple[Any, float]]:
    """Export and quantize a checkpoint, and return three engines with their size in megabytes, by name.

    The first runs ``model`` in PyTorch, so that all of them read texts and logits in the same way. The bundles stand
    beside the checkpoint.
    """
    exact = export_checkpoint(checkpoint, checkpoint.with_name(f"{checkpoint.name}.bundle"), force=True)
    small = quantize_bundle(
        exact.path, checkpoint.with_name(f"{checkpoint.name}.int8"), calibration=calibration, force=True
    )
    kind = type(edgebert.load(exact.path))
    return {
        "PyTorch": (kind(exact, session=Reference(model)), size(checkpoint)),
        "fp32 bundle": (edgebert.load(exact.path), size(exact.path)),
        "int8 bundle": (edgebert.load(small.path), size(small.path)),
    }


def size(folder: Path) -> float:
    """Return the megabytes of the files of a folder."""
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def sentences() -> list[str]:
    """Return the sentences of ``sentences.txt``, the data of quick runs."""
    return (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()


def say(text: str) -> None:
    """Print one step, at once even into a pipe."""
    print(text, flush=True)
