"""Heads: which task a checkpoint is for, and its labels."""
