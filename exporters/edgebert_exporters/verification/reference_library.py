"""transformers and sentence-transformers, opened on a checkpoint: the only module that imports them.

Neither is needed for anything but a comparison that the user asks for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.errors import ExportError
from edgebert_runtime.task_specs import MULTIPLE_CHOICE

Floats = NDArray[np.float64]

TRANSFORMERS, SENTENCE_TRANSFORMERS = "transformers", "sentence-transformers"
LIBRARIES = (TRANSFORMERS, SENTENCE_TRANSFORMERS)
# The class of transformers for each task.
CLASSES = {
    "embed": "AutoModel",
    "classify": "AutoModelForSequenceClassification",
    "next-sentence": "AutoModelForNextSentencePrediction",
    "rerank": "AutoModelForSequenceClassification",
    MULTIPLE_CHOICE: "AutoModelForMultipleChoice",
    "tag": "AutoModelForTokenClassification",
    "answer": "AutoModelForQuestionAnswering",
    "fill-mask": "AutoModelForMaskedLM",
    "generate": "AutoModelForCausalLM",
    "translate": "AutoModelForSeq2SeqLM",
}
# Heads that transformers has in a class for pre-training only, by the class that saved the checkpoint.
PRETRAINING = {
    ("ElectraForPreTraining", "tag"): "AutoModelForPreTraining",
    ("AlbertForPreTraining", "next-sentence"): "AutoModelForPreTraining",
}
# The class of sentence-transformers for each task that it has.
SENTENCE_CLASSES = {"embed": "SentenceTransformer", "rerank": "CrossEncoder"}


@dataclass(frozen=True)
class Library:
    """A library with the checkpoint opened: its tokenizer and its model; of sentence-transformers the model alone."""

    name: str
    tokenizer: Any
    model: Any

    def run(self, *texts: Any, **options: Any) -> Any:
        """Return the outputs of the model for a text or a pair."""
        import torch

        with torch.inference_mode():
            return self.model(**self.tokenizer(*texts, return_tensors="pt", **options))

    def logits(self, *texts: str) -> Floats:
        """Return the logits (outputs,) of a text or a pair."""
        outputs = self.run(*texts)
        name = "sop_logits" if hasattr(outputs, "sop_logits") else "logits"
        return numbers_of(outputs[name][0])


def numbers_of(tensor: Any) -> Floats:
    """Return a tensor as float64."""
    return np.asarray(tensor.detach().numpy(), np.float64)


def check_library(library: str, task: str | None = None) -> None:
    """Make sure that a library is installed, and has the task.

    Raises:
        ExportError: naming the package to install, or the library to ask.
    """
    if library not in LIBRARIES:
        raise ExportError(f"is not one of {', '.join(LIBRARIES)}", option="reference", value=library)
    if importlib.util.find_spec(library.replace("-", "_")) is None:
        raise ExportError(
            f"{{reference}} needs the package {library}, which is not installed",
            hint=f"run: pip install {library}",
            options={"reference": library},
        )
    if library == SENTENCE_TRANSFORMERS and task is not None and task not in SENTENCE_CLASSES:
        raise ExportError(
            f"has nothing for the task {task}, only for {' and '.join(SENTENCE_CLASSES)}",
            option="reference",
            value=library,
            hint="use {reference}",
            options={"reference": TRANSFORMERS},
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's warnings and bars from the screen."""
    import transformers

    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def open_library(name: str, checkpoint: Path, task: str) -> Library:
    """Open a checkpoint with a library, in float32, without code from the folder and without the network."""
    import torch
    import transformers

    options: dict[str, Any] = {"local_files_only": True}
    try:
        if name == SENTENCE_TRANSFORMERS:
            import sentence_transformers

            kind = getattr(sentence_transformers, SENTENCE_CLASSES[task])
            model = kind(str(checkpoint), device="cpu", model_kwargs={"dtype": torch.float32}, **options)
            return Library(name, None, model)
        config = transformers.AutoConfig.from_pretrained(checkpoint, **options)
        saved_as = (config.architectures or [""])[0]
        kind = getattr(transformers, PRETRAINING.get((saved_as, task), CLASSES[task]))
        model = kind.from_pretrained(checkpoint, dtype=torch.float32, **options).eval()
        return Library(name, transformers.AutoTokenizer.from_pretrained(checkpoint, **options), model)
    except (OSError, ValueError, TypeError, KeyError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ExportError(
            f"{name} cannot open {checkpoint} ({reason})", hint="leave out {reference}", options={"reference": name}
        ) from error
