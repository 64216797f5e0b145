"""The provenance of results: library versions, the git commit and the machine."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

LIBRARIES = ("unbraid", "torch", "numpy", "scipy", "scikit-learn", "safetensors")


def library_versions(libraries: tuple[str, ...] = LIBRARIES) -> dict[str, str]:
    """Return the versions of Python and of some libraries, without importing them. Missing libraries are left out."""
    installed = {"python": platform.python_version()}
    for name in libraries:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


@functools.cache
def git_commit() -> str | None:
    """Return the git commit of the source tree, or None if the package is not in a git repository.

    If the environment variable UNBRAID_COMMIT is set, its value is returned instead.
    """
    if "UNBRAID_COMMIT" in os.environ:
        return os.environ["UNBRAID_COMMIT"]
    folder = Path(__file__).parents[1]
    try:
        command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    in_tree = answer.returncode == 0 and (folder.parent.name == "src")
    return answer.stdout.strip() if in_tree else None


def machine_info() -> dict[str, Any]:
    """Return the operating system, the name of the processor and the number of CPU cores."""
    return {"system": platform.system(), "processor": _processor_name(), "cores": os.cpu_count()}


def _processor_name() -> str:
    """Return the model name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
