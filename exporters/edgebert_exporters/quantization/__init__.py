"""Quantization of weights and activations: schemes, calibration and graph rewrites."""
