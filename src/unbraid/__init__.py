"""unbraid: train, score and compare disentangled representations.

Names are loaded when they are first used, so that ``from unbraid import metrics`` never imports torch.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from unbraid.version import __version__ as __version__

if TYPE_CHECKING:
    from unbraid import analysis, data, methods, metrics, nets, sklearn, spaces, zoo
    from unbraid.adoption.adopt import adopt
    from unbraid.analysis.registry import analyse
    from unbraid.errors import UserError
    from unbraid.exporting.export import export
    from unbraid.manipulation import modify
    from unbraid.metrics.protocol import Protocol
    from unbraid.pictures.traversal import traverse
    from unbraid.reasoning.evaluate import abstract_reasoning
    from unbraid.reasoning.learning import ReasoningSettings
    from unbraid.reporting.explore import explore
    from unbraid.reporting.page import report
    from unbraid.reproduction import reproduce
    from unbraid.runs.pretrained import from_pretrained, push_to_hub
    from unbraid.runs.run import Run, load_run, load_runs
    from unbraid.runs.spec import RunSpec
    from unbraid.runs.tensorboard import write_tensorboard
    from unbraid.scoring.code_comparison import compare_codes
    from unbraid.scoring.comparison import compare
    from unbraid.scoring.likelihood import likelihood_bounds
    from unbraid.scoring.score import score
    from unbraid.scoring.selection import select
    from unbraid.studies.runner import study
    from unbraid.training.train import train


# By default, OpenMP threads spin while they wait. If other programs run on the machine, spinning makes training up to
# 50 times slower. With OMP_WAIT_POLICY=PASSIVE, waiting threads sleep instead. OpenMP reads this variable when torch is
# loaded, so it must be set before torch is imported. A value that the user has set is kept.
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_MODULES = {
    "Protocol": "metrics.protocol",
    "ReasoningSettings": "reasoning.learning",
    "Run": "runs.run",
    "RunSpec": "runs.spec",
    "UserError": "errors",
    "abstract_reasoning": "reasoning.evaluate",
    "adopt": "adoption.adopt",
    "analyse": "analysis.registry",
    "compare": "scoring.comparison",
    "compare_codes": "scoring.code_comparison",
    "explore": "reporting.explore",
    "export": "exporting.export",
    "from_pretrained": "runs.pretrained",
    "likelihood_bounds": "scoring.likelihood",
    "load_run": "runs.run",
    "load_runs": "runs.run",
    "modify": "manipulation",
    "push_to_hub": "runs.pretrained",
    "report": "reporting.page",
    "reproduce": "reproduction",
    "score": "scoring.score",
    "select": "scoring.selection",
    "study": "studies.runner",
    "train": "training.train",
    "traverse": "pictures.traversal",
    "write_tensorboard": "runs.tensorboard",
}
_PACKAGES = ("analysis", "data", "methods", "metrics", "nets", "sklearn", "spaces", "zoo")

__all__ = [
    "Protocol",
    "ReasoningSettings",
    "Run",
    "RunSpec",
    "UserError",
    "abstract_reasoning",
    "adopt",
    "analyse",
    "analysis",
    "compare",
    "compare_codes",
    "data",
    "explore",
    "export",
    "from_pretrained",
    "likelihood_bounds",
    "load_run",
    "load_runs",
    "methods",
    "metrics",
    "modify",
    "nets",
    "push_to_hub",
    "report",
    "reproduce",
    "score",
    "select",
    "sklearn",
    "spaces",
    "study",
    "train",
    "traverse",
    "write_tensorboard",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return _import_module(name, name)
    if name in _MODULES:
        return getattr(_import_module(_MODULES[name], name), name)
    raise AttributeError(f"module 'unbraid' has no attribute {name!r}. It has: {', '.join(__all__)}.")


def _import_module(module: str, name: str) -> Any:
    """Import a module of the package. If it needs torch and torch is not installed, raise a UserError that says so."""
    try:
        return importlib.import_module(f"unbraid.{module}")
    except ModuleNotFoundError as error:
        from unbraid.errors import convert_missing_torch

        raise convert_missing_torch(error, f"unbraid.{name}") from error


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
