"""The documentation is current: generated pages are up to date, examples run, commands parse, links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from support.forked import ForkedPython, forked_python

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "guides" / "tutorial.md"
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]
LESS_WORK = {"score": ["--train", "500", "--test", "250"], "report": ["--best", "1", "--metrics", "mig"]}
"""Flags that the test adds to commands of the tutorial."""


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    blocks = re.findall(r"^ *```(\S*)\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [code for name, code in blocks if name == language]


def commands(page: Path) -> list[str]:
    """Return the lines of a page that call the command line."""
    lines = [line for block in code_blocks(page, "bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith("unbraid ")]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPython]:
    with forked_python(tmp_path_factory.mktemp("python")) as python:
        yield python


def test_generated_pages_are_up_to_date() -> None:
    command = [sys.executable, "-m", "generate", "--check"]
    done = subprocess.run(command, cwd=ROOT / "docs", capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", [p for p in PAGES if p != TUTORIAL and code_blocks(p, "python")], ids=relative)
def test_python_examples_run(page: Path, tmp_path: Path, python: ForkedPython) -> None:
    """Each example runs with names of its own; those of one page run in one process."""
    python.run(code_blocks(page, "python"), tmp_path)


def test_tutorial_runs_in_order(tmp_path: Path, python: ForkedPython) -> None:
    assert len(commands(TUTORIAL)) >= 5
    for command in commands(TUTORIAL):
        _, name, *arguments = shlex.split(command, comments=True)
        python.unbraid([name, *arguments, *LESS_WORK.get(name, [])], tmp_path)
    for block in code_blocks(TUTORIAL, "python"):
        python.run([block], tmp_path)


@pytest.mark.parametrize("text", ["1 / 0", "import sys\nsys.exit(3)", "import os, signal\nos.kill(os.getpid(), 9)"])
def test_an_example_that_fails_is_reported(text: str, tmp_path: Path, python: ForkedPython) -> None:
    with pytest.raises(AssertionError, match=r"status -?[139]"):
        python.run(["print(3)", text], tmp_path)
    python.run(["print(3)"], tmp_path)


class Parsed(Exception):
    """A command line was parsed without an error."""


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=relative)
def test_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command on a page exists, with flags that exist and values that they take."""
    from unbraid.cli.dispatch import dispatch
    from unbraid.cli.parser import Parser

    parse = Parser.parse_all

    def parse_only(self: Parser, arguments: Sequence[str]) -> NoReturn:
        parse(self, arguments)
        raise Parsed

    monkeypatch.setattr(Parser, "parse_all", parse_only)
    monkeypatch.setenv("UNBRAID_DATA", os.environ.get("UNBRAID_DATA", ""))  # --root sets it
    for line in commands(page):
        with pytest.raises(Parsed):
            dispatch(shlex.split(line, comments=True)[1:])


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
