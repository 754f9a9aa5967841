"""The PyTorch reference models, one file a family."""
