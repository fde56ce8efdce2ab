"""ONNX's own node tests, run through `uopc.onnx`."""
