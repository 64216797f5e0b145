"""The recipes of CONTRIBUTING.md, followed in a copy of the repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "docs", "benchmarks", "pyproject.toml", "conftest.py", "README.md", "CONTRIBUTING.md")
SKIPPED = ("_build", "__pycache__", "*.nbi", "*.nbc")


class Recipe(NamedTuple):
    """Complete files by path, lines to add by path, and commands to run."""

    files: dict[str, str]
    changes: list[tuple[str, list[str]]]
    commands: list[list[str]]


def read_recipes() -> dict[str, Recipe]:
    """Return the recipes of CONTRIBUTING.md by the last word of their headings."""
    sections = re.split(r"^## ", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    chosen = [section for section in sections if section.startswith("Add a")]
    return {section.splitlines()[0].split()[-1]: read_recipe(section) for section in chosen}


def read_recipe(section: str) -> Recipe:
    """Return the recipe in a section: fenced blocks that begin with a comment with a path, and shell commands."""
    recipe = Recipe({}, [], [])
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        path = block.splitlines()[0].removeprefix("# ")
        if language == "bash":
            recipe.commands.extend(shlex.split(line) for line in block.splitlines())
        elif language == "diff":
            recipe.changes.append((path, block.splitlines()[1:]))
        else:
            recipe.files[path] = block.split("\n", 1)[1]
    return recipe


def add_lines(text: str, change: list[str]) -> str:
    """Return a text with the lines marked `+` added after the line that precedes them; `...` stands for any ending."""
    lines, place = text.splitlines(), 0
    for line in change:
        mark, content = line[:1], line[1:]
        if mark == "+":
            lines.insert(place, content)
            place += 1
        elif content.endswith("..."):
            place += next(i for i, known in enumerate(lines[place:]) if known.startswith(content[:-3])) + 1
            place = end_of_import(lines, place)
        else:
            place += lines[place:].index(content) + 1
    return "\n".join(lines) + "\n"


def end_of_import(lines: list[str], place: int) -> int:
    """Return the first line after an import that continues over several lines."""
    if lines[place - 1].startswith("from ") and lines[place - 1].endswith("("):
        return place + next(i for i, line in enumerate(lines[place:]) if line.startswith(")")) + 1
    return place


def copy_repository(folder: Path) -> None:
    """Copy what recipes need into a folder."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            skipped = (*SKIPPED, "pictures") if name == "docs" else SKIPPED
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*skipped))
        else:
            shutil.copy(source, target)


def follow(recipe: Recipe, folder: Path) -> None:
    """Write the files of a recipe into a copy of the repository."""
    for path, text in recipe.files.items():
        assert not (folder / path).exists(), path
        (folder / path).write_text(text)
    for path, change in recipe.changes:
        (folder / path).write_text(add_lines((folder / path).read_text(), change))


def run(command: list[str], folder: Path, below: str = ".") -> None:
    """Run a command of a recipe with the package of the copy."""
    programs = {"unbraid": ["-m", "unbraid"], "python": []}
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *programs[command[0]], *command[1:]],
        cwd=folder / below, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"


RECIPES = read_recipes()


def test_there_is_a_recipe_for_every_registry() -> None:
    assert set(RECIPES) == {"method", "metric", "dataset", "network", "analysis", "study", "command"}
    assert all(recipe.files and recipe.changes and recipe.commands for recipe in RECIPES.values())


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_works(name: str, tmp_path: Path) -> None:
    copy_repository(tmp_path)
    follow(RECIPES[name], tmp_path)
    for command in RECIPES[name].commands:
        run(command, tmp_path)


def test_all_recipes_together_pass_the_checks_and_have_documentation_pages(tmp_path: Path) -> None:
    """New files pass ruff and mypy, and the generators write a page for each new entry before it is measured."""
    copy_repository(tmp_path)
    for recipe in RECIPES.values():
        follow(recipe, tmp_path)
    new = [path for recipe in RECIPES.values() for path in recipe.files if path.endswith(".py")]
    run(["python", "-m", "ruff", "check", *new], tmp_path)
    run(["python", "-m", "ruff", "format", "--check", *new], tmp_path)
    run(
        ["python", "-m", "mypy", "--follow-imports=silent", *(path for path in new if path.startswith("src"))], tmp_path
    )
    for folder in ("docs/pictures", "evidence"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    run(["python", "-m", "generate"], tmp_path, "docs")
    for page in ("methods/l1_vae", "metrics/best_code", "data/bars"):
        assert (tmp_path / "docs" / f"{page}.md").read_text().startswith(f"# {Path(page).name}\n")
