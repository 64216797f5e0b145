"""The long commands that are disturbed, and the results that they must have in the end."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from faults.processes import run

Results = dict[str, bytes]
TINY = ("--data", "toy", "--batch", "4", "--latents", "2", "--quiet")
CASE = "case"  # name of the folder of every case, which is the title of its report
STUDY = """data = ["toy"]
steps = 30
batch = 4
latents = 2
seeds = 2
[[method]]
name = "beta_vae"
beta = [1, 4]
"""


@dataclass(frozen=True)
class Job:
    """A command, and the job whose results it needs.

    Attributes:
        line: The command line, without the program.
        needs: The name of the job that must run before, or an empty text.
        once: The folder that the command creates and never replaces, or an empty text.
        alone: Whether no second process can run the same command at the same time.
    """

    line: tuple[str, ...]
    needs: str = ""
    once: str = ""
    alone: bool = False

    def has_finished(self, folder: Path, expected: Results) -> bool:
        """Return whether the command has written its whole folder, although a signal ended it a moment later."""
        if not self.once or not (folder / self.once).exists():
            return False
        whole = {name: content for name, content in expected.items() if name.startswith(f"{self.once}/")}
        return {f"{self.once}/{name}": content for name, content in read_results(folder / self.once).items()} == whole

    def allow_again(self, folder: Path) -> None:
        """Remove the folder that a finished command would refuse to replace."""
        if self.once:
            shutil.rmtree(folder / self.once, ignore_errors=True)


TRAIN = ("train", "vae", *TINY, "--steps", "60", "--checkpoint-seconds", "0")
SCORE = ("score", "runs", "--no-bounds", "--quiet")
RUN_STUDY = ("study", "study.toml", "--out", "runs", "--samples", "100", "--quiet")
JOBS: dict[str, Job] = {
    "train": Job((*TRAIN, "--seeds", "0-2", "--out", "runs"), alone=True),
    "add": Job((*TRAIN, "--seeds", "2-4", "--out", "runs", "--add"), needs="train", alone=True),
    "score": Job((*SCORE, "--metrics", "mig,modularity", "--jobs", "1"), needs="train"),
    "score_others": Job((*SCORE, "--metrics", "sap,mig_sup", "--jobs", "1"), needs="train"),
    "score_parallel": Job((*SCORE, "--metrics", "mig,modularity", "--jobs", "2"), needs="train", alone=True),
    "score_study": Job((*SCORE, "--metrics", "mig_sup,modularity", "--jobs", "1"), needs="study"),
    "study": Job((*RUN_STUDY, "--metrics", "mig", "--jobs", "1")),
    "study_unscored": Job((*RUN_STUDY, "--metrics", "none")),
    "modify": Job(
        ("data", "modify", "sprites", "--steps", "6", "--batch", "2", "--samples", "1", "--checkpoint-every", "1",
         "--out", "new.safetensors", "--quiet"),
        alone=True,
    ),
    "report": Job(("report", "runs", "--no-score", "--out", "new.html", "--quiet"), needs="train"),
    "index": Job(("index", "runs"), needs="train"),
    "share": Job(("share", "export", "runs", "published"), needs="train", once="published", alone=True),
}  # fmt: skip


class Jobs:
    """The folders in which jobs start, how long each job takes, and the results of undisturbed jobs.

    They are made when they are first needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self.results: dict[tuple[str, ...], Results] = {}

    def copy_start(self, name: str, target: Path) -> None:
        """Copy the folder in which a job starts."""
        needs = JOBS[name].needs
        if needs:
            self.finish(needs)
            shutil.copytree(self.folder / needs / CASE, target)
        else:
            target.mkdir()
            (target / "study.toml").write_text(STUDY)

    def finish(self, *names: str) -> Results:
        """Return the results of undisturbed jobs, one after the other in the start folder of the first."""
        if names not in self.results:
            target = self.folder / "+".join(names) / CASE
            target.parent.mkdir()
            self.copy_start(names[0], target)
            for name in names:
                begin = time.monotonic()
                process = run(JOBS[name].line, target)
                assert process.status == 0, f"{name}: {process.output}"
                self.seconds[name] = time.monotonic() - begin
            self.results[names] = read_results(target)
        return self.results[names]


def read_results(folder: Path) -> Results:
    """Return everything in a folder that must not depend on disturbances.

    Weights, logs, pages and manipulations are compared byte by byte. The order of scores and of the rows of the results
    table depends on who was first, and `run.json` says when and where a run was started. These are compared by content.
    """
    found: Results = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".toml":
            found[str(path.relative_to(folder))] = read_content(path)
    return found


def read_content(path: Path) -> bytes:
    """Return the content of a file in a form that does not depend on disturbances."""
    content = path.read_bytes()
    if path.name == "scores.jsonl":
        return b"\n".join(sorted(content.splitlines()))
    if path.name == "run.json":
        facts = json.loads(content)
        return json.dumps([facts["id"], facts["spec"]]).encode()
    if path.suffix == ".sqlite":
        return read_table(path)
    return content


def read_table(path: Path) -> bytes:
    """Return the rows of a results table, sorted, each with its columns sorted."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [sorted(dict(row).items()) for row in connection.execute("SELECT * FROM runs")]
    return "\n".join(sorted(map(str, rows))).encode()


def find_differences(expected: Results, folder: Path) -> str:
    """Return how the results in a folder differ from those of undisturbed jobs, or an empty text."""
    found = read_results(folder)
    names = sorted(expected.keys() | found.keys())
    missing = [name for name in names if name not in found]
    extra = [name for name in names if name not in expected]
    other = [name for name in names if name in expected and name in found and expected[name] != found[name]]
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name.endswith((".tmp", ".part")))
    kinds = {"missing": missing, "extra": extra, "different": other, "temporary": left}
    return "; ".join(f"{kind}: {', '.join(found[:3])}" for kind, found in kinds.items() if found)
