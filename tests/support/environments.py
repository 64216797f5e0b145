"""Fresh virtual environments with a wheel of the package and nothing but its declared dependencies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECTS = {"unbraid": ROOT, "unbraid-metrics": ROOT / "packaging" / "metrics"}


def build_wheel(project: str, folder: Path) -> Path:
    """Build the wheel of a distribution without a network connection, and return its path."""
    arguments = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    run([sys.executable, "-m", "pip", *arguments, str(PROJECTS[project])], folder)
    (wheel,) = folder.glob(f"{project.replace('-', '_')}-*.whl")
    return wheel


def fresh_environment(wheel: Path, folder: Path) -> Path:
    """Make a virtual environment with a wheel. Its dependencies are links to installed packages. Return its folder."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    run([sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps", str(wheel)], folder)
    (site,) = (folder / "lib").glob("python*/site-packages")
    (found,) = metadata.distributions(path=[str(site)])
    for distribution in closure(found.requires or []):
        link_files(distribution, site)
    return folder


def closure(requirements: Iterable[str]) -> list[metadata.Distribution]:
    """Return the installed distributions that requirements name, and all that these need. Extras are left out."""
    found: dict[str, metadata.Distribution] = {}
    remaining = list(requirements)
    while remaining:
        text = remaining.pop()
        name = re.match(r"[\w.-]+", text)
        assert name is not None
        if "extra ==" in text or name[0].lower() in found:
            continue
        try:
            found[name[0].lower()] = metadata.distribution(name[0])
        except metadata.PackageNotFoundError:
            continue  # needed on other platforms only
        remaining += found[name[0].lower()].requires or []
    return list(found.values())


def link_files(distribution: metadata.Distribution, site: Path) -> None:
    """Link the top-level files and folders of an installed distribution into a folder of packages."""
    names = {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}
    for name in names:
        if not (site / name).exists():
            (site / name).symlink_to(Path(str(distribution.locate_file(name))))


def run(command: list[str], folder: Path) -> str:
    """Run a command without the settings of this process's Python. Return its output, or fail with it."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
