"""The page "Does it reproduce?": it has every published cell once, and counts only trainings of full length."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from support.evidence import evidence_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _generators_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("docs", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))


def test_every_published_cell_has_one_row() -> None:
    from generate.reproduction import lines

    from unbraid.reproduction import TARGETS
    from unbraid.reproduction.baselines import published_critic

    published = {(name, cell.row, cell.column) for name, target in TARGETS.items() for cell in target.published}
    published |= {("critic", cell.row, cell.column) for cell in published_critic()}
    assert Counter((line.study, line.cell.published.row, line.cell.published.column) for line in lines()) == Counter(
        published
    )


def test_the_count_is_that_of_the_table() -> None:
    from generate.reproduction import cells_table, count_text

    rows = [line.strip("| ").split(" | ") for line in cells_table().splitlines()[2:]]
    found = Counter((row[-3], row[-2]) for row in ([*row, ""] if len(row) == 9 else row for row in rows))
    agree, differ = found["full", "agree"], found["full", "differ"]
    text = count_text()
    assert f"Published cells: {len(rows)}. Compared at full length: {agree + differ}." in text
    assert re.search(rf"\*\*agree: {agree} \(\d+%\), differ: {differ}\*\*", text)


def test_only_runs_with_the_settings_of_the_study_count_as_full_length() -> None:
    """The runs of a compared part have the study's steps and learning rate."""
    for part in evidence_script("parts").read_plan().values():
        assert part.compare == (part.learning_rate is None and part.steps is None and part.net is None), part.name


def test_results_of_shortened_parts_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import generate.reproduction as page

    table = pd.read_csv(ROOT / "evidence" / "results.csv")
    (tmp_path / "plan.toml").write_text(
        '[[part]]\nname = "a-{data}"\nstudy = "small"\nvary = {data = ["x_y"]}\n'
        '[[part]]\nname = "b"\nstudy = "small"\ncompare = false\n'
    )
    table.assign(part=["a-x-y"] * 3 + ["b"] * (len(table) - 3)).to_csv(tmp_path / "results.csv", index=False)
    monkeypatch.setattr(page, "EVIDENCE", tmp_path)
    page.evidence_runs.cache_clear()
    runs = page.evidence_runs()
    page.evidence_runs.cache_clear()
    assert list(runs["study"]) == ["small"] * 3


def test_notes_are_about_published_cells() -> None:
    from generate.reproduction import explains, lines, notes

    for note in notes():
        assert set(note) == {"study", "row", "column", "text"}
        assert note["text"]
        assert any(explains(note, line.study, line.cell) for line in lines()), note


def test_a_difference_has_its_note_or_is_open() -> None:
    from generate.reproduction import Line

    from unbraid.reproduction.agreement import Cell, OurResult, Published

    def line(row: str, length: str = "full") -> Any:
        cell = Cell(Published(row, "MIG", 0.5, 0.01), OurResult(0.9, None, 3, "remark"))
        return Line("demystifying2021", "paper", cell, length)

    assert line("other, dsprites").note == "open"
    assert line("other, dsprites", "short").note == "remark"
