"""unbraid: train, score and compare disentangled representations.

Names are loaded when first used, so that ``from unbraid import metrics`` never imports torch.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from unbraid.version import __version__ as __version__

if TYPE_CHECKING:
    from unbraid import analysis, data, methods, metrics, nets
    from unbraid.exporting.export import export
    from unbraid.manipulation import modify
    from unbraid.pictures.traversal import traverse
    from unbraid.reporting.page import report
    from unbraid.reproduction import reproduce
    from unbraid.runs.run import Run, load_runs
    from unbraid.runs.spec import RunSpec
    from unbraid.runs.tensorboard import write_tensorboard
    from unbraid.scoring.comparison import compare
    from unbraid.scoring.likelihood import bounds
    from unbraid.scoring.score import score
    from unbraid.training.train import train


# OpenMP's threads spin while they wait; with anything else running on the machine that makes training up to 50 times
# slower. It reads this when torch is loaded, so it is set first, unless the user has decided otherwise.
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_HOMES = {
    "Run": "runs.run",
    "RunSpec": "runs.spec",
    "bounds": "scoring.likelihood",
    "compare": "scoring.comparison",
    "export": "exporting.export",
    "load_runs": "runs.run",
    "modify": "manipulation",
    "report": "reporting.page",
    "reproduce": "reproduction",
    "score": "scoring.score",
    "train": "training.train",
    "traverse": "pictures.traversal",
    "write_tensorboard": "runs.tensorboard",
}
_PACKAGES = ("analysis", "data", "methods", "metrics", "nets")

__all__ = [
    "Run", "RunSpec", "analysis", "bounds", "compare", "data", "export", "load_runs", "methods", "metrics", "modify",
    "nets", "report", "reproduce", "score", "train", "traverse", "write_tensorboard",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"unbraid.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"unbraid.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'unbraid' has no attribute {name!r}. It has: {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
