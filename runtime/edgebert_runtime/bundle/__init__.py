"""The bundle format: manifest, reader, and checks of the graphs before ONNX Runtime sees them."""
