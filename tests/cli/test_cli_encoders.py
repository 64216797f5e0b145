"""The command line with methods that train an encoder only."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from support.command_line import Capture, error_line, unbraid
from unbraid.methods import METHODS
from unbraid.runs.folder import find_runs

PCL = "pcl"
ENCODER_ONLY = ["--data", "sprites", "--steps", "5", "--batch", "8", "--latents", "3", "--net", "mlp", "--quiet"]


def test_train_and_score_without_a_decoder(tmp_path: Path, capsys: Capture) -> None:
    """A method that trains an encoder only: no traversals are suggested, only means are scored, seeds are ranked."""
    out = tmp_path / "r"
    assert unbraid("train", PCL, "--a", "learned,fixed", "--seeds", "0-1", "--out", out, *ENCODER_ONLY) == 0
    text = capsys.readouterr().out
    assert "4 run(s)" in text
    assert "accuracy" in text
    assert f"unbraid score {out}" in text
    assert "traverse" not in text
    assert unbraid("score", out, "--metrics", "mig,mcc,unsupervised", "--json", "--quiet") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["a"], row["seed"]) for row in rows} == {("learned", 0), ("learned", 1), ("fixed", 0), ("fixed", 1)}
    assert not any(key.endswith(".sampled") for row in rows for key in row)
    assert unbraid("score", out, "--metrics", "mig,unsupervised", "--quiet") == 0
    assert "sampled" not in capsys.readouterr().out
    assert unbraid("select", out, "--examples", "200", "--quiet") == 0
    assert "udr" in capsys.readouterr().out


def test_traverse_leaves_out_runs_without_a_decoder(tmp_path: Path, capsys: Capture) -> None:
    out, pictures = tmp_path / "r", tmp_path / "pictures"
    assert unbraid("train", PCL, "--out", out, *ENCODER_ONLY) == 0
    kept = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    message = error_line(capsys, "traverse", out, "--out", pictures)
    assert "needs a decoder" in message
    assert f"unbraid score {out}" in message
    assert not pictures.exists()
    assert kept == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert unbraid("train", "vae", "--out", out, "--add", *ENCODER_ONLY) == 0
    capsys.readouterr()
    assert unbraid("traverse", out, "--columns", "3") == 0
    shown = capsys.readouterr()
    assert "left out: 1 run(s) without a decoder" in shown.err
    assert shown.out.count("traversal.png") == 1
    assert [png.parent.name for png in out.glob("*/traversal.png")] == [
        found.path.name for found in find_runs(out) if found.spec.method == METHODS["vae"]()
    ]


def test_wrong_settings_of_pairs_give_one_line(tmp_path: Path, capsys: Capture) -> None:
    command = ["train", PCL, "--data", "toy", "--steps", "1", "--out", tmp_path / "r"]
    assert "even batch of at least 4" in error_line(capsys, *command, "--batch", "9", "--quiet")
    assert "must be one of laplace, uniform, walk" in error_line(capsys, *command, "--pairs", "steps", "--quiet")
    assert not (tmp_path / "r").exists()


def test_warnings_are_one_line(tmp_path: Path, capsys: Capture) -> None:
    """A warning of a method is printed as a sentence, without its place in the code."""
    curved = ["--latents", "11", "--iteration-threshold", "9", "--data", "toy", "--steps", "9", "--quiet"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert unbraid("train", "diffusion_vae", "--out", tmp_path / "r", *curved) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("unbraid: warning: A capacity c_min of 0 nats is out of reach")
