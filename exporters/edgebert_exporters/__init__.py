"""PyTorch in, bundle out."""
