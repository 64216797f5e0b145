"""Documentation that stays true: generated tables are current, examples run, links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """The code of a page in one language; nameless for commands."""
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [code for name, code in found if name == language]


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"


def test_generated_tables_are_current() -> None:
    assert subprocess.run([sys.executable, ROOT / "docs" / "tables.py", "--check"], check=False).returncode == 0


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name != "tutorial.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_python_examples_run(page: Path, tmp_path: Path) -> None:
    """Every block alone, but in one process, which imports libraries once."""
    found = blocks(page, "python")
    if found:
        each = "import sys\nfor text in sys.argv[1:]:\n    exec(compile(text, '<example>', 'exec'), {'__name__': 'e'})"
        run([sys.executable, "-c", each, *found], tmp_path)


def test_tutorial_runs_in_order(tmp_path: Path) -> None:
    page = ROOT / "docs" / "tutorial.md"
    commands = [line for block in blocks(page, "") for line in block.splitlines() if line.startswith("unbraid ")]
    assert len(commands) >= 5
    for command in commands:
        run([sys.executable, "-m", "unbraid", *shlex.split(command, comments=True)[1:]], tmp_path)
    (block,) = blocks(page, "python")
    run([sys.executable, "-c", block], tmp_path)


class Parsed(Exception):
    """A command line was understood."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command that a page shows exists, with flags that exist and values they take."""
    from unbraid.cli.dispatch import dispatch
    from unbraid.cli.parser import Parser

    parse = Parser.parse_all

    def understood(self: Parser, arguments: Sequence[str]) -> NoReturn:
        parse(self, arguments)
        raise Parsed

    monkeypatch.setattr(Parser, "parse_all", understood)
    monkeypatch.setenv("UNBRAID_DATA", os.environ.get("UNBRAID_DATA", ""))  # --root sets it
    shown = [line for block in blocks(page, "") for line in block.splitlines() if line.startswith("unbraid ")]
    for line in shown:
        with pytest.raises(Parsed):
            dispatch(shlex.split(line, comments=True)[1:])


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
