"""Sources of QNN, ONNX Runtime and ExecuTorch, and the check before they are used."""
