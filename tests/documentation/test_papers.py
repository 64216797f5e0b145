"""Every table and figure of the five sources has a section in docs/papers, with commands that parse and a result."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "docs" / "papers"
CONTENTS: list[dict[str, Any]] = tomllib.loads((PAPERS / "papers.toml").read_text())["paper"]
ITEMS = [(paper["page"], item) for paper in CONTENTS for item in paper["item"]]
OWN_NUMBER = re.compile(r"(Table|Figure) (\d+)$")
LARGEST_PICTURE, ALL_PICTURES = 80_000, 1_000_000  # bytes


def sections(page: str) -> dict[str, str]:
    """Return the text of each section of a page by its heading, without the comments of generated blocks."""
    text = re.sub(r"<!--.*?-->\n", "", (PAPERS / f"{page}.md").read_text())
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def code(text: str, language: str) -> list[str]:
    """Return the code blocks of a text in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def command_lines(text: str) -> list[str]:
    """Return the commands of a text: the lines of bash blocks, and commands with arguments in running text."""
    quoted = [" ".join(found.split()) for found in re.findall(r"`(unbraid \w+ [^`]*)`", text)]
    return [*(line for block in code(text, "bash") for line in block.splitlines()), *quoted]


def item_id(case: object) -> str:
    return case if isinstance(case, str) else str(case["name"])  # type: ignore[index]


@pytest.mark.parametrize("paper", CONTENTS, ids=lambda paper: str(paper["page"]))
def test_a_page_has_one_section_per_item_in_order(paper: dict[str, Any]) -> None:
    assert list(sections(paper["page"])) == [item["name"] for item in paper["item"]]


def test_every_page_is_listed() -> None:
    assert {path.stem for path in PAPERS.glob("*.md")} == {"index", *(paper["page"] for paper in CONTENTS)}


@pytest.mark.parametrize("paper", CONTENTS, ids=lambda paper: str(paper["page"]))
def test_the_numbers_of_tables_and_figures_have_no_gaps(paper: dict[str, Any]) -> None:
    found: dict[str, list[int]] = {}
    for item in paper["item"]:
        if match := OWN_NUMBER.match(item["name"]):
            found.setdefault(match[1], []).append(int(match[2]))
    for numbers in found.values():
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(("page", "item"), ITEMS, ids=item_id)
def test_a_section_has_a_command_a_result_and_what_differs(page: str, item: dict[str, Any]) -> None:
    text = sections(page)[item["name"]]
    assert any(code(text, language) for language in ("bash", "python", "py")) == item.get("command", True)
    assert "**What differs.**" in text
    table = re.search(r"^\|.*\d.*\|$", text, re.MULTILINE)
    picture = re.search(r"^!\[.+\]\((\S+)\)$", text, re.MULTILINE)
    found = {
        "picture": bool(picture) and (PAPERS / picture[1]).is_file(),
        "table": bool(table),
        "none": not picture and not table,
    }
    assert found[item["evidence"]]
    assert bool(item.get("reason")) == (item["evidence"] == "none")


class Parsed(Exception):
    """A command line was parsed without an error."""


@pytest.mark.parametrize("page", [str(paper["page"]) for paper in CONTENTS])
def test_commands_parse_and_name_what_exists(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from unbraid.cli.dispatch import dispatch
    from unbraid.cli.parser import Parser

    parse = Parser.parse_all

    def parse_only(self: Parser, arguments: Sequence[str]) -> NoReturn:
        parse(self, arguments)
        raise Parsed

    monkeypatch.setattr(Parser, "parse_all", parse_only)
    monkeypatch.setenv("UNBRAID_DATA", os.environ.get("UNBRAID_DATA", ""))
    lines = command_lines((PAPERS / f"{page}.md").read_text())
    assert lines
    for line in lines:
        program, *arguments = shlex.split(line, comments=True)
        if program == "python":
            assert (ROOT / arguments[0]).is_file(), line
            continue
        assert program == "unbraid", line
        check_names(arguments)
        with pytest.raises(Parsed):
            dispatch(arguments)


def check_names(arguments: list[str]) -> None:
    """Check names that are not checked by the parser: analyses, studies and datasets."""
    from unbraid.analysis import ANALYSES
    from unbraid.data import DATASETS
    from unbraid.studies.published import STUDIES

    command, *rest = arguments
    if command == "analyse":
        names = list(rest[1:])
        for flag in ("--metrics", "--out"):
            if flag in names:
                del names[names.index(flag) : names.index(flag) + 2]
        assert set(names) <= set(ANALYSES), arguments
    if command in ("study", "reproduce"):
        assert rest[0] in STUDIES or rest[0].endswith(".toml"), arguments
    for flag, value in itertools.pairwise(rest):
        if flag == "--data":
            assert value.split("?")[0] in DATASETS, arguments


@pytest.mark.parametrize("page", [str(paper["page"]) for paper in CONTENTS])
def test_python_blocks_compile(page: str) -> None:
    for block in code((PAPERS / f"{page}.md").read_text(), "py"):
        compile(block, page, "exec")


def test_pictures_are_small_and_shown() -> None:
    files = sorted((PAPERS / "pictures").iterdir())
    text = "".join(path.read_text() for path in PAPERS.glob("*.md"))
    for file in files:
        assert f"](pictures/{file.name})" in text, file.name
        assert file.stat().st_size < LARGEST_PICTURE, file.name
        with Image.open(file) as picture:
            picture.verify()
    assert sum(file.stat().st_size for file in files) < ALL_PICTURES
