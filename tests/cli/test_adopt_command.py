"""The command `unbraid adopt`: its run is taken by all other commands, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from unbraid.cli.dispatch import main

CODE = """
import torch
from torch import nn


class Output:
    def __init__(self, **fields):
        vars(self).update(fields)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.back = nn.Linear(144, 8), nn.Linear(4, 144)

    def encode(self, x):
        mu, log_var = self.layer(x.flatten(1)).chunk(2, 1)
        return Output(mu=mu, log_var=log_var - 1)

    def decode(self, z):
        return Output(recon_x=self.back(z).tanh())


def make(seed):
    torch.manual_seed(seed)
    return VAE()


def first():
    return make(0)


def second():
    return make(1)
"""


@pytest.fixture
def material(tmp_path: Path) -> Path:
    """A folder with a file of code and a file of data with two factors."""
    (tmp_path / "library_vae.py").write_text(CODE)
    factors = np.indices((8, 6)).reshape(2, -1).T
    images = np.zeros((48, 12, 12), np.uint8)
    for image, (x, y) in zip(images, factors, strict=True):
        image[y : y + 4, x : x + 4] = 255
    np.savez(tmp_path / "data.npz", images=images, x=factors[:, 0], y=factors[:, 1])
    return tmp_path


RUN_ALL = """
import json, sys
from unbraid.cli.dispatch import main
for arguments in json.loads(sys.argv[1]):
    print("$", *arguments, flush=True)
    if main(arguments):
        sys.exit(1)
"""


def run(folder: Path, *commands: list[str]) -> str:
    """Run commands in a new process, which knows nothing of the code of the model."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(commands)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_all_commands_take_the_run_of_a_model_from_another_library(material: Path) -> None:
    adopt = ["--data", "data.npz", "--name", "their VAE", "--out", "theirs", "--pixels=-1,1", "--setting", "beta=2.5"]
    told = run(
        material, ["adopt", "./library_vae.py:first", *adopt, "--seed", "0"],
        ["adopt", "./library_vae.py:second", *adopt, "--seed", "1"],
        ["train", "vae", "--data", "data.npz", "--net", "mlp", "--steps", "3", "--seeds", "0,1", "--out", "ours"],
    )  # fmt: skip
    assert "their VAE beta=2.5 seed=1: encoder and decoder, 4 latents, codes: mean and sampled" in told
    (material / "library_vae.py").unlink()  # the runs are data
    exported = (folder := next((material / "theirs").glob("*/run.json")).parent) / "exported"
    told = run(
        material, ["score", "theirs", "--metrics", "mig", "--quiet"], ["select", "theirs", "--quiet"],
        ["compare", "theirs", "ours", "--score", "--metrics", "mig", "--quiet"],
        ["report", "theirs", "--no-score", "--quiet"], ["traverse", "theirs"], ["index", "theirs"],
        ["export", str(folder), "--quiet"], ["export", str(folder), "--format", "torch", "--quiet"],
        ["reconstruct", "theirs", "--out", "r.png"], ["samples", "theirs", "--out", "s.png"], ["swap", "theirs"],
        ["inspect", "theirs"], ["share", "export", "theirs", "published"], ["share", "import", "published", "copy"],
        ["adopt", str(exported / "encoder.onnx"), "--decoder", str(exported / "decoder.onnx"), "--data", "data.npz",
         "--name", "again", "--out", "again"],
    )  # fmt: skip
    for command in ("score", "select", "compare", "traverse", "export", "inspect"):
        printed = told.split(f"$ {command} ", 1)[1].split("\n$ ", 1)[0]
        assert "their VAE" in printed, command
    assert "their VAE" in (material / "theirs" / "report.html").read_text()
    assert "again: encoder and decoder, 4 latents, codes: mean and sampled" in told


def test_the_command_prints_what_can_be_done_next(
    material: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(material)
    (material / "library_vae.py").rename(material / "library_vae_once.py")
    monkeypatch.syspath_prepend(material)
    arguments = ["adopt", "library_vae_once.py:first", "--data", "data.npz", "--name", "mine", "--pixels=-1,1"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "unbraid score runs/mine" in printed
    folder = next((material / "runs" / "mine").glob("*/run.json")).parent
    before = (folder / "run.json").read_text()
    assert main(["train", "vae", "--data", "data.npz", "--steps", "1", "--out", "runs/mine"]) == 2
    assert main(arguments) == 0  # again: nothing changes
    assert (folder / "run.json").read_text() == before
    for flags, message in (
        (["--pixels", "1"], "must be two numbers such as -1,1"),
        (["--setting", "beta"], "must be NAME=VALUE"),
        (["--name", "vae"], "must not be that of a method"),
        (["--data", "none.npz"], "none.npz"),
    ):
        capsys.readouterr()
        assert main([*arguments, *flags]) == 2
        assert message in capsys.readouterr().err
