"""The default engines: real models on a plain CPU through ONNX Runtime."""
