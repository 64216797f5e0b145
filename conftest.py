"""Settings of all tests: the type checker, set before unbraid is imported, and what is left out without Triton."""

from __future__ import annotations

import importlib.util

from typecheck import use_fast_checks

use_fast_checks()

collect_ignore_glob = (
    []
    if importlib.util.find_spec("triton")
    else [
        "src/unbraid/accel/kernels/*",
        "src/unbraid/accel/fitted.py",
        "src/unbraid/accel/tuning_jobs.py",
        "src/unbraid/training/fused/*",
        "src/unbraid/spaces/*_gpu.py",
    ]
)
