"""QNN, ONNX Runtime and ExecuTorch by version, and what files of users hold."""
