"""Ways to alter a published folder so that a careless check would accept it or never end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from unbraid.studies.publishing import SUMS


def replace_run_by_link(out: Path, elsewhere: Path) -> None:
    """Replace a run by a link to an altered copy, and drop its lines from the file of checksums."""
    run = next(out.glob("*/run.json")).parent
    shutil.move(run, elsewhere / run.name)
    (elsewhere / run.name / "scores.jsonl").write_text("")
    run.symlink_to(elsewhere / run.name)
    lines = [line for line in (out / SUMS).read_text().splitlines() if run.name not in line]
    (out / SUMS).write_text("\n".join(lines) + "\n")


def replace_file_by_link(out: Path, elsewhere: Path) -> None:
    """Replace a file by a link to the same content."""
    file = next(out.glob("*/log.jsonl"))
    shutil.move(file, elsewhere / "log.jsonl")
    file.symlink_to(elsewhere / "log.jsonl")


def drop_a_line(out: Path, _: Path) -> None:
    """Drop a line from the file of checksums."""
    lines = (out / SUMS).read_text().splitlines()
    (out / SUMS).write_text("\n".join(lines[1:]) + "\n")


def add_a_line(out: Path, name: str) -> None:
    """List a file in the file of checksums."""
    (out / SUMS).write_text(f"{(out / SUMS).read_text()}{'0' * 64}  {name}\n")


TRICKS: dict[str, Callable[[Path, Path], object]] = {
    "run is a link": replace_run_by_link,
    "file is a link": replace_file_by_link,
    "endless file": lambda out, _: next(out.glob("*/run.json")).with_name("weights").symlink_to("/dev/zero"),
    "endless run": lambda out, _: (out / "abc").symlink_to("/dev"),
    "endless sums": lambda out, _: ((out / SUMS).unlink(), (out / SUMS).symlink_to("/dev/zero")),
    "pipe": lambda out, _: os.mkfifo(out / "pipe"),
    "dropped line": drop_a_line,
    "outside": lambda out, _: add_a_line(out, "../secret"),
    "absolute": lambda out, _: add_a_line(out, "/etc/passwd"),
}
"""Functions of the published folder and of another folder."""
