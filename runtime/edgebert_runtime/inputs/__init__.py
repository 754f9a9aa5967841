"""From texts to token ids: validation, tokenization, special tokens, batching and character offsets."""
