"""Export of trained networks to files that other programs can run, as ONNX or with torch.export."""
