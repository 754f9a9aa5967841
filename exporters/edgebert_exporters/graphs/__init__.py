"""ONNX graphs: their signatures, their export from PyTorch, and their editing."""
