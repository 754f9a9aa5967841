"""KV caches, and the step models that decode over them."""
