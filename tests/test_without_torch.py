"""Metrics and the scores of arrays work where torch cannot be imported, and everything else says what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys

sys.modules["torch"] = None  # importing it raises ModuleNotFoundError
import numpy as np
import unbraid as ub
from unbraid.cli import main

factors = np.tile(np.indices((3, 4)).reshape(2, -1).T, (9, 1))
[row] = ub.score(codes=factors * 1.0, factors=factors, metrics=["mig", "sap"], quiet=True)
assert abs(row["mig.discrete_mig"] - 1) < 1e-6
assert ub.metrics.mig(factors, factors) and ub.Protocol() and issubclass(ub.UserError, ValueError)
np.save("z.npy", factors)
assert main(["score", "--codes", "z.npy", "--factors", "z.npy", "--metrics", "mig"]) == 0
assert main(["demo"]) == main(["train", "vae", "--data", "toy"]) == 2
for name in ("train", "data", "sklearn", "Run"):
    try:
        getattr(ub, name)
    except ub.UserError as error:
        assert str(error).startswith(f"unbraid.{name} needs PyTorch, which is not installed. Install it with:"), error
    else:
        raise AssertionError(name)
"""


def test_metrics_without_torch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("needs PyTorch") == 2
