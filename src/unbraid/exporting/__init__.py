"""Trained networks as files that other programs can run: ONNX and torch.export."""
