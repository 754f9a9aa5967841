"""Checkpoint folders in the format of the Hugging Face Hub."""

from edgebert.checkpoints.checkpoint import Checkpoint, open_checkpoint

__all__ = ["Checkpoint", "open_checkpoint"]
