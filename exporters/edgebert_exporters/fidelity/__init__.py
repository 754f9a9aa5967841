"""Fidelity: how close a quantized model stays to its float32 form."""
