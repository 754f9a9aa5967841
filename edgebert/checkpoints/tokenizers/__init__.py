"""Tokenizer files of every layout, turned into one tokenizer.json."""
