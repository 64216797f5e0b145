"""Where numbers came from: versions, commit and machine."""

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
    """Installed versions, without importing anything; a library that is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in libraries:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def commit() -> str | None:
    """The commit of the source tree this package runs from; UNBRAID_COMMIT says it where the tree is a bare copy."""
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
    """The processor and its cores."""
    return {"system": platform.system(), "processor": _processor(), "cores": os.cpu_count()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
