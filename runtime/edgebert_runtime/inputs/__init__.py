"""From texts to token ids: validation, tokenization, batching and character offsets."""
