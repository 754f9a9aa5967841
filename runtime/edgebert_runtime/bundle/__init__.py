"""The bundle format: the manifest, its reader, and checks of each graph before ONNX Runtime sees it.

The ONNX parser and the protobuf reader below it are our own. At run time there is no onnx package: it is larger than
the runtime, and loads whole models into memory. The checks need the structure of a graph only, and read it from a file
of gigabytes in milliseconds.
"""
