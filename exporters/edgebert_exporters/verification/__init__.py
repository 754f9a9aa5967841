"""Parity: what PyTorch computes against what ONNX Runtime computes."""
