"""The commands that measure properties of a dataset and of trained runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import unbraid as ub
from support.command_line import Capture, unbraid
from unbraid.analysis import alignment, optimum, orthogonality
from unbraid.analysis.times import objective_times
from unbraid.errors import UserError
from unbraid.methods import PCL, VAE, DiffusionVAE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a VAE, a VAE on a sphere, and an encoder without a decoder."""
    out, settings = tmp_path_factory.mktemp("runs"), {"steps": 5, "batch": 8, "latents": 3, "net": "mlp"}
    ub.train([VAE(), DiffusionVAE(space="sphere"), PCL()], "sprites", out=out, quiet=True, **settings)
    return out


def test_diagnose_prints_the_alignment_and_the_linear_optimum(tmp_path: Path, capsys: Capture) -> None:
    """The numbers are those of the library functions."""
    assert unbraid("diagnose", "toy", "--places", "16", "--latents", "4", "--beta-s2", "0.5", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    data = ub.data.load("toy")
    expected = alignment(data, places=16)
    assert found["alignment"]["score"] == pytest.approx(expected.score)
    assert found["alignment"]["strengths"]["factor"] == list(expected.names)
    x = data.batch(ub.scoring.selection.draw_examples(data, 1000, 0)).double().numpy()
    values = np.sort(np.linalg.eigvalsh(np.cov(x.T, bias=True)))[::-1]
    assert found["linear_vae"]["eigenvalues"] == pytest.approx(values[:4].tolist())
    assert found["linear_vae"]["active"] == optimum(values, 0.5, 4).active
    assert unbraid("diagnose", "toy", "--places", "16", "--out", str(tmp_path)) == 0
    assert expected.text in capsys.readouterr().out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["alignment.csv", "alignment.png"]


def test_diagnose_can_compare_some_factors(capsys: Capture) -> None:
    assert unbraid("diagnose", "sprites", "--factors", "x,y", "--places", "8", "--examples", "50", "--json") == 0
    assert json.loads(capsys.readouterr().out)["alignment"]["strengths"]["factor"] == ["x", "y"]
    assert unbraid("diagnose", "sprites", "--factors", "x,z") == 2
    assert "'z'" in capsys.readouterr().err


def test_inspect_prints_the_numbers_of_each_run(folder: Path, capsys: Capture) -> None:
    """A run for which they are not defined has a reason instead."""
    assert unbraid("inspect", str(folder), "--examples", "32", "--json") == 0
    rows = {row["label"].split()[0]: row for row in json.loads(capsys.readouterr().out)}
    (run,) = (run for run in ub.load_runs(folder) if isinstance(run.spec.method, VAE))
    expected = orthogonality(run, ub.data.load("sprites"), 32)
    assert rows["vae"]["active"] == len(expected["active"])
    assert rows["vae"]["kl"] == pytest.approx(expected["kl"])
    for name in ("diffusion_vae", "pcl"):
        assert "needs a decoder and a normal posterior" in rows[name]["reason"]
    assert unbraid("inspect", str(folder), "--examples", "32") == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["run", "active", "distance", "error", "random", "kl", "delta_kl"]


def test_inspect_draws_the_latents_of_a_factor(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    assert unbraid("inspect", str(folder), "--examples", "8", "--circle", "orientation", "--out", str(tmp_path)) == 0
    files = sorted(tmp_path.glob("*/circle.png"))
    assert len(files) == 3
    named = re.findall(r"circle\.png: columns (\d) and (\d) of the code", capsys.readouterr().out)
    assert len(named) == 3
    assert all(first != second for first, second in named)
    with Image.open(files[0]) as picture:
        assert picture.size == (360, 360)
    assert unbraid("inspect", str(folder), "--circle", "colour") == 2
    assert "Unknown factor of sprites 'colour'" in capsys.readouterr().err


def test_inspect_of_an_empty_folder_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    assert unbraid("inspect", str(tmp_path)) == 2
    assert "No" in capsys.readouterr().err


def test_inspect_measures_times_of_every_method(folder: Path, capsys: Capture) -> None:
    """The time is that of the objective: a batch of 2,048 images takes longer than one of 8."""
    assert unbraid("inspect", str(folder), "--times", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["batch"] for row in rows] == [8, 8, 8]
    assert all(row["forward"] > 0 and row["backward"] > 0 and "active" not in row for row in rows)
    assert unbraid("inspect", str(folder), "--times") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["run", "batch", "forward", "backward"]
    run = next(run for run in ub.load_runs(folder) if isinstance(run.spec.method, VAE))
    small, large = (objective_times(run, ub.data.load("sprites"), batch, repeats=5) for batch in (8, 2048))
    assert large.forward > small.forward
    assert large.backward > small.backward
    with pytest.raises(UserError, match="at least 1"):
        objective_times(run, ub.data.load("sprites"), repeats=0)
