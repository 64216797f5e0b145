"""The commands study, index and analyse."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from unbraid.cli.dispatch import main
from unbraid.runs.results import RESULTS_FILE, load_results
from unbraid.studies.pmp import TERMS
from unbraid.studies.published import STUDIES


def test_study_and_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--data",
        "toy",
        "--only",
        "level=0",
        "--only",
        "method=vae",
        "--only",
        "method=beta_vae",
        "--seeds",
        "0-1",
        "--steps",
        "5",
    ]
    out = tmp_path / "s"
    assert main(["study", "locatello2019", "--out", str(out), "--metrics", "mig", "--samples", "100", *flags]) == 0
    assert "2 runs in" in capsys.readouterr().out
    (out / RESULTS_FILE).unlink()
    assert main(["index", str(out)]) == 0
    assert len(load_results(out)) == 2
    assert main(["study", "locatello2019", *flags]) == 2
    assert "--out FOLDER" in capsys.readouterr().err
    assert main(["study", "locatello2019", "--plan", "--only", "x"]) == 2
    assert "PROPERTY=VALUE" in capsys.readouterr().err
    assert main(["study", "locatello2019", "--plan", "--shard", "x", *flags]) == 2
    assert "I/N" in capsys.readouterr().err


def test_plan_projects_the_time_and_cost_on_several_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a start and losses, two equal stacks take half as long on two devices and cost the same."""
    monkeypatch.setattr("unbraid.studies.estimate.TRIAL_SECONDS", 0.05)
    plan = ["study", "locatello2019", "--plan", "--data", "toy", "--only", "method=beta_vae", "--only", "level=0"]
    zero = ("start_seconds", "compile_seconds", "data_seconds", "losses_per_hour", "scoring_seconds")
    assume = [word for name in zero for word in ("--assume", f"{name}=0")]
    flags = ["--seeds", "0-31", "--steps", "100000000"]
    assert main([*plan, *flags, "--gpus", "1,2", *assume, "--assume", "price=2"]) == 0
    text = capsys.readouterr().out
    assert "Measured on one stack of each row" in text
    assert "Projected with price=2, start_seconds=0" in text
    rows = {line.split()[0]: line.replace(",", "").split()[1:3] for line in text.splitlines() if line.strip()}
    (one, one_cost), (two, two_cost) = ([float(word) for word in rows[gpus]] for gpus in ("1", "2"))
    assert one == pytest.approx(2 * two, rel=0.01)
    assert one_cost == pytest.approx(two_cost, rel=0.01)
    assert main(["study", "small", "--gpus", "2", "--out", str(tmp_path)]) == 2
    assert "--gpus and --assume need --plan" in capsys.readouterr().err
    assert main([*plan, "--gpus", "2", "--assume", "prize=2"]) == 2
    assert "prize" in capsys.readouterr().err


def test_the_help_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["study", "--help"])
    words = capsys.readouterr().out.replace(",", " ").split()
    assert set(STUDIES) <= set(words)


def test_an_empty_value_selects_runs_without_a_variant(tmp_path: Path) -> None:
    """`variant=` leaves out the ablations of PMP. Without the sign =, there is no value."""
    flags = ["--data", "toy", "--only", "method=pmp", "--only", "variant=", "--seeds", "0", "--steps", "2"]
    assert main(["study", "pmp2021", *flags, "--metrics", "none", "--quiet", "--out", str(tmp_path)]) == 0
    table = load_results(tmp_path)
    assert list(table["method"]) == ["pmp"]
    assert (table[[f"setting.{term}" for term in TERMS]] > 0).all(axis=None)


def test_analyse_writes_the_answers_and_lists_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from unbraid.analysis import ANALYSES, example_results
    from unbraid.runs.results import write_table

    write_table(tmp_path / RESULTS_FILE, example_results(seeds=3, data=("dsprites", "cars3d")).to_dict("records"))
    assert main(["analyse", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    written = {path.stem for path in (tmp_path / "analyses").glob("*.png")}
    assert written == {path.stem for path in (tmp_path / "analyses").glob("*.csv")}
    assert len(written) >= 6
    unanswered = [line for line in printed.splitlines() if ": not answered: " in line]
    named = [name for line in unanswered for name in line.partition(":")[0].split(", ")]
    assert sorted(named) == sorted(set(ANALYSES) - written)
    assert len({line.partition(": not answered: ")[2] for line in unanswered}) == len(
        unanswered
    )  # each reason is printed once
    assert main(["analyse", str(tmp_path), "scores", "--metrics", "mig,sap", "--out", str(tmp_path / "two")]) == 0
    assert set(pandas.read_csv(tmp_path / "two" / "scores.csv")["metric"]) == {"mig", "sap"}
    assert main(["analyse", str(tmp_path), "--metrics", "mgi"]) == 2
    assert "Unknown metric 'mgi'" in capsys.readouterr().err
    assert main(["analyse", str(tmp_path), "varianc"]) == 2
    assert "Did you mean 'variance'" in capsys.readouterr().err
    assert main(["analyse", "--list"]) == 0
    assert "transfer" in capsys.readouterr().out
