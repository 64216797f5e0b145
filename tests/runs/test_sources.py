"""Runs record the source code of the user's own methods and networks, and a change is not overlooked."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import unbraid as ub
from support.own_code import OwnModule, make_own_module
from support.training import Killed, assert_same_run, kill_at, quick_train
from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.nets.pointnet import pointnet
from unbraid.runs.folder import find_runs
from unbraid.runs.sources import own_sources, source_digest


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnModule:
    return make_own_module(tmp_path, monkeypatch)


EDITS = {
    "objective": ("2 * loss", "3 * loss"),
    "constant": ("WIDTH = 8", "WIDTH = 16"),
    "helper": ("nn.Linear(wide, WIDTH)", "nn.Linear(wide, WIDTH, bias=False)"),
    "builder": ("nn.Tanh()", "nn.ReLU()"),
}


def train_own(own: OwnModule, out: Path, **settings: Any) -> list[ub.Run]:
    return quick_train(out, own.load().Mine(beta=2.0), net=own.net, **settings)


@pytest.mark.parametrize("edit", EDITS)
def test_a_changed_source_is_an_error_and_can_be_trained_again(edit: str, own: OwnModule, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    (before,) = train_own(own, out)
    assert_same_run(train_own(own, out)[0], before)
    own.edit(*EDITS[edit])
    with pytest.raises(UserError, match=rf"source code of {own.name}:\w+ has changed.*--retrain \(retrain=True\)"):
        train_own(own, out)
    assert [run.status for run in find_runs(out)] == ["done"]
    (after,) = train_own(own, out, retrain=True)
    assert after.id == before.id
    assert after.log != before.log
    assert_same_run(train_own(own, out)[0], after)
    assert [path.name for path in out.iterdir() if path.is_dir()] == [after.id]


def test_other_edits_do_not_matter(own: OwnModule, tmp_path: Path) -> None:
    """Code that neither the method nor the network refers to may change."""
    (before,) = train_own(own, tmp_path / "runs")
    own.edit("WIDTH = 8", "WIDTH = 8\n\ndef unused():\n    return 3\n")
    assert train_own(own, tmp_path / "runs")[0].log == before.log


def test_an_unfinished_run_is_not_resumed_with_other_code(
    own: OwnModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        train_own(own, tmp_path / "runs", checkpoint_seconds=0)
    own.edit(*EDITS["objective"])
    with pytest.raises(UserError, match="has changed since"):
        train_own(own, tmp_path / "runs")
    (again,) = train_own(own, tmp_path / "runs", retrain=True)
    assert again.log == train_own(own, tmp_path / "other")[0].log


def test_the_command(own: OwnModule, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "train",
        own.method,
        "--data",
        "toy",
        "--steps",
        "5",
        "--latents",
        "2",
        "--quiet",
        "--out",
        str(tmp_path / "a"),
    ]
    assert main(command) == 0
    own.edit(*EDITS["objective"])
    assert main(command) == 2
    assert "has changed since the run" in capsys.readouterr().err
    assert main([*command, "--retrain"]) == 0


def test_loading_warns_about_changed_code(own: OwnModule, tmp_path: Path) -> None:
    train_own(own, tmp_path / "runs")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ub.load_runs(tmp_path / "runs")
    own.edit("nn.Tanh()", "nn.ReLU()")
    with pytest.warns(RuntimeWarning, match=f"source code of {own.net} has changed since the run"):
        ub.load_runs(tmp_path / "runs", trust=True)


def test_only_own_code_is_recorded(own: OwnModule, tmp_path: Path) -> None:
    (run,) = quick_train(tmp_path / "a")
    assert run.path is not None
    assert "own" not in json.loads((run.path / "run.json").read_text())
    (mine,) = train_own(own, tmp_path / "b")
    assert mine.path is not None
    recorded = json.loads((mine.path / "run.json").read_text())["own"]
    assert recorded["sources"].keys() == {own.method, own.net}
    assert (recorded["strength"], recorded["codes"][0]) == (2.0, "mean")
    spec = ub.RunSpec(ub.methods.VAE(), "toy", net="unbraid.nets.pointnet:pointnet")
    assert own_sources(spec, pointnet) == {}


def test_digests_are_the_same_in_another_process(own: OwnModule) -> None:
    module = own.load()
    code = f"import {own.name} as m; from unbraid.runs.sources import source_digest as d; print(d(m.pair), d(m.Mine))"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=own.path.parent
    )
    assert printed.stdout.split() == [source_digest(module.pair), source_digest(module.Mine)]


def test_digests_of_other_callables(own: OwnModule) -> None:
    """A partial function and a closure are followed to the user's code."""
    module = own.load()

    def make(base: Any, width: int) -> dict[str, str]:
        def closure(shape: Any, latents: int) -> Any:
            return base(shape, latents)

        partial = functools.partial(base, width)
        return {"closure": source_digest(closure), "partial": source_digest(partial)}

    first = make(module.pair, 3)
    assert first["partial"] != make(module.pair, 4)["partial"]
    edited = own.edit(*EDITS["helper"])
    second = make(edited.pair, 3)
    assert all(first[kind] != second[kind] for kind in first)


class Scaled(nn.Linear):
    """A layer of the user's own."""


def test_a_pair_of_modules_is_followed_to_its_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    from unbraid.runs import sources

    pair = (Scaled(3, 4), nn.Sequential(Scaled(2, 3)))
    _, builder = ub.nets.resolve_net(pair)
    before = source_digest(builder)
    assert source_digest(ub.nets.resolve_net(pair)[1]) == before
    text = sources._source
    monkeypatch.setattr(sources, "_source", lambda part: text(part) + "#" * (part is Scaled))
    assert source_digest(ub.nets.resolve_net(pair)[1]) != before
