"""The provenance of results: library versions, commit and machine."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

LIBRARIES = ("unbraid", "torch", "numpy", "scipy", "scikit-learn", "safetensors")


def versions(libraries: tuple[str, ...] = LIBRARIES) -> dict[str, str]:
    """The installed versions of Python and some libraries. Nothing is imported, and missing libraries are left out."""
    installed = {"python": platform.python_version()}
    for name in libraries:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


@functools.cache
def commit() -> str | None:
    """The git commit of the source tree, or None if there is none. The variable UNBRAID_COMMIT overrides it."""
    if "UNBRAID_COMMIT" in os.environ:
        return os.environ["UNBRAID_COMMIT"]
    folder = Path(__file__).parent
    try:
        command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    in_tree = answer.returncode == 0 and (folder.parent.name == "src")
    return answer.stdout.strip() if in_tree else None


def machine() -> dict[str, Any]:
    """The operating system, the processor and the number of cores."""
    return {"system": platform.system(), "processor": _processor(), "cores": os.cpu_count()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
