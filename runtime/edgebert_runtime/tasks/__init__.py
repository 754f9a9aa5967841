"""Engines: one file a task, over one base."""
