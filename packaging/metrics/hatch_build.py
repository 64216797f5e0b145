"""Chooses the files of the wheel: the whole package except trained models, which need PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODELS = Path("zoo", "models")


class FileChooser(BuildHookInterface):
    """Adds the files of the package to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files before the wheel is built."""
        package = Path(self.root).resolve().parents[1] / "src" / "unbraid"
        for file in sorted(package.rglob("*")):
            inside = file.relative_to(package)
            if file.is_file() and "__pycache__" not in inside.parts and MODELS not in inside.parents:
                build_data["force_include"][str(file)] = str(Path("unbraid") / inside)
