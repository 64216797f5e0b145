"""Scripts of the folder evidence as modules."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "evidence"


@functools.cache
def evidence_script(name: str) -> ModuleType:
    """Import a script of the folder evidence, such as `make_zoo`."""
    spec = importlib.util.spec_from_file_location(f"evidence_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
