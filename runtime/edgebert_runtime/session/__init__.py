"""ONNX Runtime sessions: devices, threads, IO binding and batches side by side."""
