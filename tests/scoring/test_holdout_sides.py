"""Scores on both sides of a split: records, reconstruction errors and readouts, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import unbraid as ub
from support.command_line import error_line, unbraid
from support.known_codes import noise
from support.training import quick_train
from unbraid.errors import UserError
from unbraid.methods import PCL
from unbraid.metrics import DEFAULT_METRICS
from unbraid.runs.scores import read_scores
from unbraid.scoring.holdout_sides import readout_scores
from unbraid.scoring.sides import Side

DATA = "toy?holdout=range"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sides") / "runs"
    quick_train(folder, data=DATA, seeds=range(2))
    return folder


def test_two_rows_per_run_equal_the_scores_of_each_side(folder: Path) -> None:
    rows = ub.score(folder, "mig,sap", sides=True, quiet=True)
    assert [(row["seed"], row["side"], row["examples"]) for row in rows] == [
        (seed, side, count) for seed in (0, 1) for side, count in (("training", 840), ("held out", 120))
    ]
    for side, name in (("training", "training"), ("held out", "heldout")):
        alone = ub.score(folder, "mig,sap", data=f"{DATA}&side={name}", quiet=True)
        both = [row for row in rows if row["side"] == side]
        for one, other in zip(alone, both, strict=True):
            assert one.items() <= other.items()
    assert "held out" in str(rows)


def test_sides_are_scored_with_the_default_metrics(folder: Path) -> None:
    rows = ub.score(ub.load_runs(folder)[0], sides=True, codes="mean", quiet=True)
    for row in rows:
        assert {name.partition(".")[0] for name in row if "." in name} == set(DEFAULT_METRICS)


def test_scores_of_sides_are_kept_apart_from_scores_of_all_examples(folder: Path) -> None:
    runs = ub.load_runs(folder)
    whole = ub.score(runs, "mig", quiet=True)
    ub.score(runs, "mig", sides=True, quiet=True)
    path = runs[0].path
    assert path is not None
    assert {record["data"] for record in read_scores(path)} == {DATA}
    assert {record.get("side") for record in read_scores(path, sides=True)} == {None, "training", "heldout"}
    (value, _) = (entry.value("mig") for entry in Side.read("runs", folder).runs)
    assert value in {row["mig.discrete_mig"] for row in whole}
    assert ub.score(runs, "mig", quiet=True) == whole


def test_reconstruction_error_by_hand(folder: Path) -> None:
    run = ub.load_runs(folder)[0]
    rows = ub.score(run, "mig", sides=True, quiet=True)
    for row, name in zip(rows, ("training", "heldout"), strict=True):
        view = ub.data.load(f"{DATA}&side={name}")
        x = view.images(slice(None))
        want = float((run.decode(run.encode(x)) - x).pow(2).mean())
        assert row["reconstruction_error"] == pytest.approx(want, rel=1e-5)


def test_readout_of_codes_that_do_and_do_not_generalise() -> None:
    """Half of the held-out prediction errors are known: codes that stay at 0 predict the mean of the training side."""
    factors = {"training": noise(400, 2), "heldout": noise(400, 2, seed=1) + 3}
    good = readout_scores({side: 5 * table + 1 for side, table in factors.items()}, factors, np.ones(2))
    assert good == pytest.approx({"training": 1, "heldout": 1}, abs=1e-9)
    bad = {"training": factors["training"], "heldout": 0 * factors["heldout"]}
    found = readout_scores(bad, factors, np.array([1.0, 4.0]))
    squares = (factors["heldout"] ** 2).mean(axis=0)
    assert found["heldout"] == pytest.approx(1 - (squares[0] + squares[1] / 4) / 2, abs=1e-9)
    assert found["training"] == pytest.approx(1, abs=1e-9)
    labelled = {side: table.copy() for side, table in factors.items()}
    labelled["heldout"][:399] = np.nan
    assert readout_scores(bad, labelled, np.ones(2))["heldout"] == pytest.approx(
        1 - (labelled["heldout"][399] ** 2).mean()
    )
    assert readout_scores(bad, {side: table[:, :0] for side, table in factors.items()}, np.ones(0)) == {}


def test_a_perfect_model_generalises_and_a_clipped_one_does_not() -> None:
    """A planted encoder returns the factors. A second one never leaves the range of factor a that training has."""
    rows = {}
    for name in ("whole", "clipped"):
        data = ub.data.load("toy?holdout=extrapolation")
        assert data.holdout is not None
        codes, factors = {}, {}
        for side in ("training", "heldout"):
            table = data.factor_values(data.holdout.rows(data, side)).numpy()
            factors[side] = table
            codes[side] = table if name == "whole" else np.minimum(table, [3, 9, 9, 9])
        rows[name] = readout_scores(codes, factors, data.factor_values(slice(None)).numpy().var(axis=0))
    assert rows["whole"] == pytest.approx({"training": 1, "heldout": 1})
    # Factor a is 4, 5, 6 or 7 and predicted as 3: a mean squared error of (1 + 4 + 9 + 16) / 4 and a variance of 63/12.
    assert rows["clipped"] == pytest.approx({"training": 1, "heldout": 1 - 7.5 / 5.25 / 4})


def test_runs_without_a_decoder_or_a_split(folder: Path) -> None:
    pcl = quick_train(method=PCL(), data="toy")[0]
    with pytest.raises(UserError, match=r"toy has no held-out side\. Train on data with the option holdout"):
        ub.score(pcl, "mig", sides=True, quiet=True)
    rows = ub.score(pcl, "mig", data=DATA, sides=True, quiet=True)
    assert all("reconstruction_error" not in row and math.isfinite(row["readout_r2"]) for row in rows)
    with pytest.raises(UserError, match="`sides` is for runs"):
        ub.score(codes=noise(9, 2), factors=noise(9, 2), sides=True)


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert unbraid("score", folder, "--metrics", "mig", "--sides", "--quiet") == 0
    shown = capsys.readouterr().out
    assert "reconstruction error" in shown
    assert "held out" in shown
    assert "a perfect code" not in shown
    assert unbraid("score", folder, "--metrics", "mig", "--sides", "--json", "--quiet") == 0
    assert json.loads(capsys.readouterr().out) == ub.score(folder, "mig", sides=True, quiet=True)
    assert "--sides cannot be used with --bounds" in error_line(capsys, "score", folder, "--sides", "--bounds")
