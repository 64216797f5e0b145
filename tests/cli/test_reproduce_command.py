"""The command `unbraid reproduce`: exit statuses, its output, and its steps from training to comparison."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pandas import DataFrame, read_csv

from unbraid.cli.dispatch import main
from unbraid.methods import BetaVAE
from unbraid.reproduction import TARGETS, OurResult, Published, PublishedSign, Target, example_results, reproduce
from unbraid.reproduction import demystifying as paper
from unbraid.runs.results import RESULTS_FILE, load_results, write_table
from unbraid.studies import STUDIES
from unbraid.studies.planned import PlannedRun, grid, sweep


def written(folder: Path, table: DataFrame) -> Path:
    write_table(folder / RESULTS_FILE, table.to_dict("records"))
    return folder


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for shift, status in ((0.0, 0), (0.03, 1)):
        folder = tmp_path / str(status)
        folder.mkdir()
        runs = str(written(folder, example_results(shift=shift)))
        assert main(["reproduce", "demystifying2021", "--runs", runs]) == status
        assert ("differ\n" in capsys.readouterr().out) == bool(status)
    nothing = str(written(tmp_path, example_results()[:9].assign(data="x")))
    assert main(["reproduce", "demystifying2021", "--runs", nothing]) == 2


def test_the_exit_code_is_that_of_the_process(tmp_path: Path) -> None:
    runs = str(written(tmp_path, example_results(shift=0.03)))
    command = [sys.executable, "-m", "unbraid", "reproduce", "demystifying2021", "--runs", runs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "differ\n" in done.stdout


def test_missing_methods_are_missing_and_do_not_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = example_results()
    table = table[(table["method"] != "factor_vae") & ~table["data"].str.startswith("shapes3d")]
    found = reproduce("demystifying2021", table)
    absent = {cell.published.row for cell in found.cells_with("missing") if isinstance(cell.published, Published)}
    assert "factor_vae, dsprites noise" in absent
    assert "pcl, shapes3d original" in absent
    assert len(found.cells_with("agree")) < 75
    assert {cell.ours for cell in found.cells_with("missing")} == {None}
    assert main(["reproduce", "demystifying2021", "--runs", str(written(tmp_path, table))]) == 0
    printed = capsys.readouterr().out
    assert "factor_vae (dsprites original, dsprites modified, dsprites noise" in " ".join(printed.split())
    assert f"{len(found.cells_with('missing'))} cells are missing" in printed
    assert "no runs on shapes3d original, shapes3d modified, shapes3d noise" in printed


def test_wrong_flags_give_errors_and_save_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = str(written(tmp_path, example_results()))
    for arguments, error in (
        (["reproduce", "pmp2021", "--runs", runs], "no published numbers"),
        (["reproduce", "demystifying2021"], "--runs FOLDER to load existing runs"),
        (["reproduce", "demystifying2021", "--runs", runs, "--steps", "5"], "Got --steps too"),
        (["reproduce", "demystifying2021", "--runs", str(tmp_path / "none")], "No results table"),
        (["reproduce", "locatello2019", "--runs", runs], "Got none instead"),
    ):
        assert main(arguments) == 2
        assert error in capsys.readouterr().err
    assert (
        main(["reproduce", "demystifying2021", "--runs", f"{runs}/{RESULTS_FILE}", "--save", str(tmp_path / "there")])
        == 0
    )
    assert (tmp_path / "there" / "demystifying2021.csv").exists()
    assert "dsprites is regenerated" in capsys.readouterr().out


def toys() -> Iterator[PlannedRun]:
    """Two settings with two seeds on data of vectors."""
    yield from grid(["toy"], sweep(BetaVAE, "beta", (1.0, 4.0)), 2, steps=20, latents=4)


def test_a_tiny_study_is_trained_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training, scoring, comparing and writing; then loading the runs gives the same comparison."""
    target = Target(
        "Nobody (2030)",
        (
            Published("beta_vae", "MIG", 0.5, 0.25, 10, source="made up"),
            PublishedSign("beta_vae", "reconstruction", 1, source="too"),
        ),
        lambda table: table.assign(published_data="toy"),
        lambda runs: {
            ("beta_vae", "MIG"): OurResult.of(runs["mig.discrete_mig"]) or "no score",
            ("beta_vae", "reconstruction"): OurResult.of(-runs["train.rec"]) or "no term",
        },
        str,
        metrics=("mig",),
        only={"level": ("1",)},
    )
    monkeypatch.setitem(STUDIES, "toys", toys)
    monkeypatch.setitem(TARGETS, "toys", target)
    flags = ["--steps", "3", "--samples", "100", "--quiet", "--out", str(tmp_path), "--save"]
    assert main(["reproduce", "toys", *flags]) == 1
    printed = capsys.readouterr().out
    assert "steps 3 instead of 20" in printed
    assert "metrics are fitted to 100 examples instead of 10,000" in printed
    assert "of 2 runs" not in printed  # level 0 is not needed, and not trained
    found = read_csv(tmp_path / "reproduction" / "toys.csv")
    assert found[["verdict", "runs"]].to_numpy().tolist() == [["agree", 2], ["differ", 2]]
    assert main(["reproduce", "toys", "--runs", str(tmp_path)]) == 1
    assert capsys.readouterr().out in printed
    assert main(["reproduce", "toys", "--plan", "--seeds", "0"]) == 0
    assert "1 runs:" in capsys.readouterr().out


@pytest.mark.slow
def test_one_run_of_the_paper_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One encoder after one step differs from the published PCL."""
    cut = ["--only", "data=dsprites", "--only", "method=pcl", "--seeds", "0", "--steps", "1"]
    assert main(["reproduce", "demystifying2021", *cut, "--samples", "100", "--quiet", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    for line in ("1 of 360 runs", "steps 1 instead of 300,000", "metrics are fitted to 100 examples instead of 10,000"):
        assert line in printed
    cells = reproduce("demystifying2021", tmp_path).cells_with("agree", "differ")
    assert {cell.published.row for cell in cells} == {"pcl, dsprites original"}
    assert [cell.published.column for cell in cells] == list(paper.TABLES)


@pytest.mark.slow
def test_signs_of_vitae_are_compared_after_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs on other data get their scores, but are not compared with the paper."""
    cut = ["--data", "sprites", "--only", "method=u_vitae,c_vitae", "--seeds", "0", "--steps", "2", "--quiet"]
    assert main(["reproduce", "vitae_mnist", *cut, "--out", str(tmp_path)]) == 2
    assert "no runs of beta_vae and vae" in capsys.readouterr().err
    table = load_results(tmp_path)
    assert set(table["method"]) == {"u_vitae", "c_vitae"}
    assert table["separation.score"].notna().all()
    (cell,) = reproduce("vitae_mnist", table.assign(data="mnist")).cells_with("agree", "differ")
    assert (cell.published.row, cell.published.column) == ("c_vitae above u_vitae", "separation")
