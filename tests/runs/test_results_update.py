"""The results table is never older than the scores that finished commands have stored, also with several processes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unbraid as ub
from unbraid.cli.dispatch import main as unbraid
from unbraid.metrics.protocol import Protocol
from unbraid.runs import results
from unbraid.runs.results import RESULTS_FILE, load_results, write_results
from unbraid.runs.scores import add_scores, read_scores

PATIENCE = 60.0  # seconds until a thread that does not end is a failure
Rows = list[dict[str, Any]]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "runs"
    ub.train("vae", data="toy", seeds=range(2), steps=2, out=folder, quiet=True)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "runs")


def store_score(folder: Path, metric: str = "mig") -> None:
    """Store a score of one run."""
    run = min(folder.glob("*/run.json")).parent
    add_scores(run, [{"metric": metric, "codes": "mean", "values": {"discrete_mig": 0.25}}])


def store_and_write(folder: Path) -> None:
    """Store a score and write the table, as a study does."""
    store_score(folder)
    write_results(folder)


def score_folder(folder: Path) -> None:
    ub.score(folder, "mig", quiet=True, jobs=1)


def wait_for_scores(folder: Path) -> None:
    """Wait until a score is stored."""
    end = time.monotonic() + PATIENCE
    while not any(folder.glob("*/scores.jsonl")):
        assert time.monotonic() < end
        time.sleep(0.01)


class SlowWriter(threading.Thread):
    """A thread that writes the results table, and stops after it has read the runs until `go_on` is set."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(target=write_results, args=(folder,))
        self.has_read, self.go_on, self.write_table = threading.Event(), threading.Event(), results.write_table
        patch.setattr(results, "write_table", self.write)

    def write(self, path: Path, rows: Rows) -> None:
        if threading.current_thread() is self:
            self.has_read.set()
            assert self.go_on.wait(PATIENCE)
        self.write_table(path, rows)


@pytest.mark.parametrize("exists", [True, False], ids=["a table exists", "no table exists"])
@pytest.mark.parametrize("store", [store_and_write, score_folder])
def test_scores_that_are_stored_while_another_process_writes_the_table_are_in_it(
    store: Callable[[Path], None], exists: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if exists:
        write_results(folder)
    slow = SlowWriter(folder, monkeypatch)
    slow.start()
    assert slow.has_read.wait(PATIENCE)
    fast = threading.Thread(target=store, args=(folder,))
    fast.start()
    wait_for_scores(folder)
    fast.join(2)  # if nothing makes it wait, it writes the table before the slow writer
    slow.go_on.set()
    for thread in (slow, fast):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert load_results(folder)["mig.discrete_mig"].notna().any()


@pytest.mark.parametrize(
    "line",
    [
        ("score", "runs", "--metrics", "mig", "--no-bounds", "--quiet"),
        ("compare", "runs", "--between", "seed", "--score", "--metrics", "mig", "--quiet"),
        ("report", "runs", "--metrics", "mig", "--best", "1", "--out", "page.html", "--quiet"),
    ],
    ids=lambda line: line[0],
)
def test_commands_that_store_scores_add_them_to_an_existing_table(
    line: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    write_results(folder)
    assert "mig.discrete_mig" not in load_results(folder)
    assert unbraid(line) == 0
    assert load_results(folder)["mig.discrete_mig"].notna().all()


def test_the_table_has_the_scores_that_were_stored_before_an_error(folder: Path) -> None:
    write_results(folder)
    with pytest.raises(ub.UserError, match="D_LSBD needs at least one cyclic factor"):
        ub.score(folder, "mig,d_lsbd", quiet=True, jobs=1)
    assert load_results(folder)["mig.discrete_mig"].notna().any()


def test_scoring_a_single_run_updates_the_table_of_its_folder(folder: Path) -> None:
    write_results(folder)
    run = min(folder.glob("*/run.json")).parent
    ub.score(run, "mig", quiet=True, jobs=1)
    table = load_results(folder).set_index("run")
    assert table["mig.discrete_mig"].notna().to_dict() == {name: name == run.name for name in table.index}
    assert not (run / RESULTS_FILE).exists()


def test_scoring_writes_no_table_where_there_is_none(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    score_folder(folder)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_reading_stored_scores_changes_no_file(folder: Path) -> None:
    """A published folder, whose files have checksums, can be scored again."""
    score_folder(folder)
    write_results(folder)
    (folder / results.RESULTS_LOCK).unlink()
    before = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
    score_folder(folder)
    assert {path: path.lstat().st_mtime_ns for path in folder.rglob("*")} == before


def test_scores_of_a_killed_command_are_added_when_the_command_is_repeated(folder: Path) -> None:
    score_folder(folder)
    write_results(folder)
    store_score(folder, "other")  # and the command is killed before it writes the table
    score_folder(folder)
    assert load_results(folder)["other.discrete_mig"].notna().any()


def test_a_table_that_cannot_be_written_is_a_warning_and_the_scores_are_returned(folder: Path) -> None:
    write_results(folder)
    first, second = sorted(file.parent for file in folder.glob("*/run.json"))
    (second / "log.jsonl").write_text("{")
    with pytest.warns(RuntimeWarning, match=r"results\.sqlite may lack the latest scores, .*log\.jsonl"):
        [row] = ub.score(first, "mig", quiet=True, jobs=1)
    assert "mig.discrete_mig" in row


def test_scores_that_are_used_again_become_the_latest(tmp_path: Path) -> None:
    runs = ub.train("vae", data="toy", seeds=range(2), steps=20, out=tmp_path, quiet=True)
    write_results(tmp_path)
    small = Protocol(train=300, test=100)
    for protocol in (None, small, None, small):
        row = ub.score(runs[0].path, ["mig"], protocol=protocol, quiet=True)[0]
        shown = load_results(tmp_path).set_index("run")["mig.discrete_mig"]
        assert shown[runs[0].id] == row["mig.discrete_mig"]
    records = read_scores(runs[0].path)
    kinds = [(record["codes"], record["rows"]["train"]) for record in records]
    assert kinds == [("mean", 640), ("sampled", 640), ("mean", 300), ("sampled", 300)]
