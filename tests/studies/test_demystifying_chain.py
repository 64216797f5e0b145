"""The commands for manipulated data one after the other, on a small scale."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from unbraid.analysis import alignment
from unbraid.cli.dispatch import main
from unbraid.data import load

FORMS = ("sprites", "sprites?modified=default", "sprites?noise=0.1")
STUDY = f"""
from unbraid.methods import AE, PCL, BetaVAE
from unbraid.studies.planned import Setting, grid

def study():
    settings = [Setting(BetaVAE(beta=2.0), 2.0, 1), Setting(AE(), 0.0, 1), Setting(PCL(), 0.0, 1)]
    yield from grid({FORMS!r}, settings, 2, steps=600, latents=5, net="mlp", learning_rate=1e-3)
"""


@pytest.mark.slow
def test_commands_from_the_manipulation_to_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A manipulation is learned, distinguished from noise by its alignment, and used in a study with analyses."""
    monkeypatch.setenv("UNBRAID_DATA", str(tmp_path / "data"))
    learn = ["--steps", "600", "--batch", "16", "--samples", "2", "--quiet"]
    assert main(["data", "modify", "sprites", *learn, "--picture", str(tmp_path / "changed.png")]) == 0
    with Image.open(tmp_path / "changed.png") as picture:
        assert picture.size[0] > 8 * 64
    original, changed, noise = (alignment(load(name)) for name in FORMS)
    for other in (original, noise):
        more, error = other.difference_from(changed)
        assert more > 4 * error

    file, out = tmp_path / "mine.py", tmp_path / "runs"
    file.write_text(STUDY)
    scores = ["--metrics", "mig,dci,factor_vae,sap,gaps,active", "--samples", "2000"]
    assert main(["study", str(file), "--out", str(out), *scores, "--quiet"]) == 0
    names = ("manipulated", "manipulated_spread", "manipulated_factors")
    assert main(["analyse", str(out), *names]) == 0
    table = pd.read_csv(out / "analyses" / "manipulated.csv")
    assert set(table["method"]) == {"beta_vae", "ae", "pcl"}
    assert set(table["score"]) == {"MIG", "DCI", "DCI, per tree", "FactorVAE", "SAP"}
    counted = table[["original_runs", "original_discarded"]].sum(axis=1)
    assert set(counted) == {2}
    points = table[table["method"] != "beta_vae"]  # nothing of them is discarded
    assert points[["modified", "noise", "modified_loss", "noise_loss"]].notna().all(axis=None)
    assert all((out / "analyses" / f"{name}.png").exists() for name in names)
    assert main(["traverse", str(out), "--extremes", "mig", "--pair", "x,y", "--out", str(tmp_path / "planes")]) == 0
    lost = table[table["method"] == "beta_vae"].filter(like="_discarded").iloc[0]  # of two seeds; one alone is the best
    assert len(list((tmp_path / "planes").rglob("pair.png"))) == 2 * 3 + sum(1 if n == 1 else 2 for n in lost)
    capsys.readouterr()
    assert main(["reproduce", "demystifying2021", "--runs", str(out)]) == 2  # the paper has no sprites
    assert "must have runs to compare" in capsys.readouterr().err
