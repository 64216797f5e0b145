"""Judging how a command ended, and what it did to the files around it."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from faults.exemptions import QUOTED, REWRITTEN, STATUS_ONE
from faults.processes import HANG

DISGUISED = re.compile(
    r"not supported between|has no attribute|object is not|index out of range|unexpected keyword|positional argument"
    r"|NoneType|unhashable|must be real number,|cannot unpack|not enough values|too many values|invalid literal"
    r"|object has|cannot convert|could not convert|division by zero|instancemethod|got multiple values|expected str"
    r"|list indices|string indices|not subscriptable|not iterable|not callable|unsupported operand|setting an array"
    r"|inhomogeneous|cannot reshape|could not broadcast|KeyError|TypeError|ValueError|AttributeError|IndexError"
    r"|RuntimeError|Expected (all|tensor|\d)|size mismatch|mat1 and mat2|ufunc|dtype\('|<class '|object at 0x"
)
"""Messages that libraries write for programmers, and that must not reach a user as an explanation."""


def find_fault(line: tuple[str, ...], status: int, output: str) -> str:
    """Return what is wrong with the end of a command that no signal has ended, or an empty text."""
    if status < 0:
        return "hang" if status == HANG else f"killed by {signal.Signals(-status).name}"
    if status == 3 or "Traceback" in output:
        return "traceback"
    if status not in (0, 2) and not (status == 1 and line[0] in STATUS_ONE):
        return f"status {status}"
    errors = [text for text in output.splitlines() if text.startswith("unbraid: error: ")]
    if status == 2 and len(errors) != 1:
        return f"{len(errors)} lines of error"
    if errors and (found := disguised_words(errors[0])):
        return f"disguised error ({found})"
    return ""


def disguised_words(message: str) -> str:
    """Return the words of a message that were written for programmers, or an empty text."""
    for pattern in QUOTED:
        message = re.sub(pattern, "''", message)
    found = DISGUISED.search(message)
    return found[0] if found else ""


def fingerprint(folder: Path) -> dict[str, str]:
    """Return the names of all files in a folder, each with its kind, size and time of change."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            facts = path.lstat()
            found[str(path.relative_to(folder))] = f"{facts.st_mode} {facts.st_size} {facts.st_mtime_ns}"
    return found


def score_lines(folder: Path) -> dict[str, list[bytes]]:
    """Return the lines of every file of scores in a folder."""
    files = (path for path in folder.rglob("scores.jsonl") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes().splitlines() for path in files}


def find_lost_scores(before: dict[str, list[bytes]], folder: Path) -> str:
    """Return which files of scores have lost or changed a line, or an empty text. New lines are allowed."""
    after = score_lines(folder)
    lost = [name for name, lines in before.items() if not {*lines} <= {*after.get(name, [])}]
    return f"lost scores in {', '.join(lost[:3])}" if lost else ""


def find_changes(before: dict[str, str], folder: Path) -> str:
    """Return which files a command that failed has changed, removed or left behind, or an empty text.

    Files of scores are judged by `find_lost_scores`.
    """
    after = fingerprint(folder)
    compared = (name for name in before if Path(name).name != "scores.jsonl")
    changed = [name for name in compared if _differs(name, before[name], after.get(name))]
    left = sorted(name for name in after.keys() - before.keys() if name.endswith((".tmp", ".part")))
    parts = [f"changed {', '.join(changed[:3])}"] * bool(changed) + [f"left {', '.join(left[:3])}"] * bool(left)
    return "; ".join(parts)


def _differs(name: str, before: str, after: str | None) -> bool:
    """Return whether a file has changed in a way that counts. A file that may be replaced must still exist."""
    return after is None if name.endswith(tuple(REWRITTEN)) else after != before
