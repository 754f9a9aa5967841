"""The engines that all tasks build on, and their steps: options, rows of token ids, batches, generated text."""
