"""What is not collected: kernels, where Triton is not installed."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = (
    []
    if importlib.util.find_spec("triton")
    else ["src/unbraid/accel/kernels/*", "src/unbraid/training/fused/*", "src/unbraid/spaces/*_gpu.py"]
)
