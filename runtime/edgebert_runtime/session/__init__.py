"""ONNX Runtime: sessions, devices, threads and its errors. Nothing else imports onnxruntime."""
