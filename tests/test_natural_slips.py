"""Natural slips in the arguments of public functions are accepted, or a `UserError` says what is meant."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import unbraid as ub
from support.own import random_pixels
from support.training import quick_train
from unbraid.errors import UserError

IMAGES = random_pixels(10, 16, 16)
Call = Callable[[list[ub.Run], Path], Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[ub.Run]:
    return quick_train(tmp_path_factory.mktemp("slips") / "runs", "vae", seeds=range(2), steps=1)


def train(**arguments: Any) -> list[ub.Run]:
    return quick_train(**{"method": "vae", "steps": 1, **arguments})


def score(runs: Any, metrics: Any = "mig", **arguments: Any) -> list[dict[str, Any]]:
    return ub.score(runs, metrics, quiet=True, **arguments)


ACCEPTED: dict[str, tuple[Call, int]] = {  # the call, and the number of runs or rows that it returns
    "seeds as a range": (lambda runs, out: train(seeds=range(3)), 3),
    "a method by name": (lambda runs, out: train(method="beta_vae"), 1),
    "a class of methods": (lambda runs, out: train(method=ub.methods.BetaVAE), 1),
    "a setting from numpy": (lambda runs, out: train(method=ub.methods.BetaVAE(beta=np.float32(4))), 1),
    "several learning rates": (lambda runs, out: train(learning_rate=[1e-3, 1e-4]), 2),
    "a torch device": (lambda runs, out: train(device=torch.device("cpu")), 1),
    "data as an array": (lambda runs, out: train(data=IMAGES), 1),
    "data as a list of arrays": (lambda runs, out: train(data=list(IMAGES)), 1),
    "data as pictures": (lambda runs, out: train(data=[Image.new("L", (16, 16), 50 * i) for i in range(5)]), 1),
    "a dictionary of factors": (lambda runs, out: train(data=(IMAGES, {"side": ["left", "right"] * 5})), 1),
    "data as a dictionary": (lambda runs, out: train(data={"images": IMAGES, "factors": np.arange(10) % 2}), 1),
    "names of factors as text": (lambda runs, out: ub.data.from_arrays(IMAGES, np.eye(10, 2), names="a,b").names, 2),
    "data by path": (lambda runs, out: train(data=saved_images(out)), 1),
    "the path of a built-in dataset": (lambda runs, out: [ub.data.load(Path("toy"))], 1),
    "one run": (lambda runs, out: score(runs[0]), 1),
    "a folder as text": (lambda runs, out: score(str(folder(runs))), 2),
    "a folder as path": (lambda runs, out: score(folder(runs)), 2),
    "folders of single runs": (lambda runs, out: score(folder(runs).glob("*")), 2),
    "a generator of runs": (lambda runs, out: score(run for run in runs), 2),
    "metrics separated by commas": (lambda runs, out: score(runs, "mig, sap"), 2),
    "a set of metrics": (lambda runs, out: score(runs, {"mig"}), 2),
    "a folder to rank": (lambda runs, out: ub.select(folder(runs), examples=50, quiet=True), 2),
    "runs to compare": (lambda runs, out: ub.compare(*runs, metrics="mig").sides, 2),
    "a list to compare": (lambda runs, out: ub.compare([str(run.path) for run in runs], metrics="mig").sides, 2),
    "one run to report": (lambda runs, out: [ub.report(runs[0], out / "a.html", scoring=False, quiet=True)], 1),
    "folders to report": (lambda runs, out: [ub.report([folder(runs)], out / "a.html", scoring=False, quiet=True)], 1),
    "one analysis by name": (lambda runs, out: ub.analyse(ub.analysis.example_results(seeds=3), "variance"), 1),
}

REFUSED: dict[str, tuple[Call, str]] = {  # the call, and what the error says
    "seeds=3": (
        lambda runs, out: train(seeds=3),
        r"For 3 runs, pass range\(3\). For one run with this seed, pass \[3\]",
    ),
    "no seeds": (lambda runs, out: train(seeds=[]), "must be several seeds"),
    "a class name": (lambda runs, out: train(method="BetaVAE"), "Did you mean 'beta_vae'"),
    "settings of a method in a dictionary": (
        lambda runs, out: ub.train({"beta_vae": {"beta": 8}}),
        r"such as ub\.methods\.BetaVAE\(beta=8\.0\).* Got a dictionary",
    ),
    "a text to encode": (lambda runs, out: runs[0].encode("toy"), "Take them from a dataset"),
    "a dataset to encode": (lambda runs, out: runs[0].encode(ub.data.load("toy")), "Take them from a dataset"),
    "one code to decode": (lambda runs, out: runs[0].decode(np.zeros(3)), r"must have the shape \(n, 3\)"),
    "codes of another size": (lambda runs, out: runs[0].decode(np.zeros((2, 9))), r"Got \(2, 9\) instead"),
    "data of another shape": (lambda runs, out: score(folder(runs), data="sprites"), "the same shape as in training"),
    "no methods": (lambda runs, out: ub.train([]), "at least one method"),
    "device='gpu'": (lambda runs, out: train(device="gpu"), "must be cpu, or cuda"),
    "images of two sizes": (lambda runs, out: train(data=[*IMAGES, IMAGES[0, :8]]), "must have the same shape"),
    "data=None": (lambda runs, out: train(data=None), "a list of images, a pair"),
    "data by a wrong path": (lambda runs, out: train(data=Path("nowhere")), "Or pass the path of your own"),
    "a metric in capitals": (lambda runs, out: score(runs, "MIG"), "Did you mean 'mig'"),
    "no runs": (lambda runs, out: score([]), "at least one run"),
    "a wrong choice": (lambda runs, out: score(folder(runs), only="sed=0"), "Did you mean 'seed'"),
    "one run to rank": (lambda runs, out: ub.select(runs[0], examples=50, quiet=True), "at least 2 runs"),
    "one folder to compare": (lambda runs, out: ub.compare(folder(runs)), "at least two folders"),
    "a run in memory to compare": (lambda runs, out: ub.compare(*train(seeds=[0, 1])), "trained with out="),
    "several runs to draw": (lambda runs, out: ub.traverse(runs), r"such as runs\[0\]"),
}


QUICK = "steps=1, latents=2, quiet=True"
WRONG_TYPES: dict[str, str] = {  # a call that contradicts the annotations, and what its error or its result says
    f"train('vae', 'toy', seeds=np.arange(2), {QUICK})": "seed=1",
    f"train('vae', 'toy', seeds=torch.arange(2), {QUICK})": "seed=1",
    "train('vae', 'toy', steps=np.int64(1), quiet=True)": "steps=1,",
    "train('vae', 'toy', steps=1e0, quiet=True)": "steps=1,",
    "load_run([runs[0].path])": "seed=0",
    "train('vae', 'toy', seeds='0-2')": "Got '0-2' instead. Pass a list or a range",
    "train('vae', 'toy', seeds=None)": "Got None instead. Pass a list or a range",
    "train('vae', 'toy', steps='100')": "'steps' parameter of RunSpec must be a whole number. Got '100' instead",
    "train('vae', 'toy', steps=1.5)": "must be a whole number. Got 1.5 instead",
    "train('vae', 'toy', learning_rate='1e-3')": "must be a number. Got '1e-3' instead",
    "train('beta_vae', 'toy', beta=8)": "train has no argument 'beta'. Settings of a method are passed to the method",
    "train('vae', 'toy', seed=3)": "Did you mean 'seeds'?",
    "train('vae', 'toy', lr=1e-3)": "Did you mean 'learning_rate'?",
    "train('vae', 'toy', batch_size=8)": "Did you mean 'batch'?",
    "train('vae', dataset='toy')": "Did you mean 'data'?",
    "train('vae', torch.utils.data.DataLoader(ub.data.load('toy')))": "Pass its dataset: loader.dataset",
    "score(codes=np.eye(4), factors=np.eye(4), continuous=[True] * 4)": "Names must be text, such as 'angle,size'",
    "score(codes=np.eye(4), factors=np.eye(4), discrete=0)": "Names must be text, such as 'angle,size'",
    "metrics.mig(np.eye(4), np.eye(4), continuous='size')": "must hold one bool per factor, such as [True, False]",
    "metrics.mig(np.eye(2), np.eye(2), continuous=['a', 'b'])": "Got 'a' instead. Names of factors can be passed",
    "metrics.mig(np.eye(2), np.eye(2), continuous=[0, 1])": "such as [True, False]. Got 0 instead",
    "metrics.mig(np.eye(2), np.eye(2), continuous=1)": "such as [True, False]. Got 1 instead",
    "score(runs, metric='mig')": "Did you mean 'metrics'?",
    "compare('runs', by='beta')": "Did you mean 'between'?",
    "compare(folders=['a', 'b'])": "compare has no argument 'folders'. Its arguments are: *folders, metrics",
    "adopt(None, 'toy', 'mine', folder='runs')": "Did you mean 'out'?",
    "report(folder='runs')": "report has no argument 'folder'. Did you mean 'runs'?",
    "report('runs', by='mig')": "Did you mean 'rank'?",
    "report('runs', titel='Mine')": "report has no argument 'titel'. Its arguments are: runs, out,",
    "traverse(run=runs[0])": "traverse has no argument 'run'. Did you mean 'model'?",
    "traverse(runs[0], colums=5)": "Did you mean 'columns'?",
    "study('small', 'out', seed=3)": "study has no argument 'seed'. Did you mean 'seeds'?",
    "study(name='small')": "Did you mean 'source'?",
    "select(runs, criterion='pipe')": "select has no argument 'criterion'. Did you mean 'by'?",
    "select(runs, random_state=0)": "Did you mean 'seed'?",
    "load_runs(path='runs')": "Did you mean 'folder'?",
    "data.load('sprites', subset=100)": "Options of a dataset are part of its name, as in sprites?subset=1000.",
    "data.load(np.zeros((3, 8, 8)))": "use ub.data.from_arrays",
    "train(ub.methods.BetaVAE(beta='4'), 'toy')": "must be a number. Got '4' instead",
    "train(None, 'toy')": "a name such as 'beta_vae'. Got None instead",
    "score(runs, ub.metrics.mig)": "Metrics are given by name, such as 'mig'",
    "score(runs, 'mig', protocol={'train': 9})": "The protocol must be a Protocol",
    "report(runs, 'a.html', best='4')": "'best' must be >= 1. Got '4' instead",
    "report(None)": "trained runs or folders of runs. Got NoneType instead",
    "load_runs(runs[0])": "by its path, such as 'runs/beta'. Got StoredRun instead",
    "load_runs(None)": "by its path, such as 'runs/beta'. Got NoneType instead",
    "load_runs('runs', only=3)": "must be PROPERTY=VALUE",
    "score(runs[0].spec)": "trained runs or folders of runs. Got RunSpec instead",
    "score([[0.0, 1.0]])": "call ub.score(codes=z, factors=v)",
    "export(runs, 'x', format='torch')": "Got a list of 2 runs. Pass one, such as runs[0]",
    "compare(3, 4)": "Got int instead. Pass folders",
}
CALL_ALL = """
import json, sys
import numpy as np
import torch
import unbraid as ub
runs = ub.load_runs(sys.argv[1])
said = {}
for call in json.loads(sys.argv[2]):
    try:
        said[call] = repr(eval(f"ub.{call}"))
    except Exception as error:
        said[call] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


def folder(runs: list[ub.Run]) -> Path:
    assert runs[0].path is not None
    return runs[0].path.parent


def saved_images(out: Path) -> Path:
    np.save(out / "images.npy", IMAGES)
    return out / "images.npy"


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_meant_is_accepted(name: str, runs: list[ub.Run], tmp_path: Path) -> None:
    call, count = ACCEPTED[name]
    assert len(call(runs, tmp_path)) == count


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_says_what_is_meant(name: str, runs: list[ub.Run], tmp_path: Path) -> None:
    call, message = REFUSED[name]
    with pytest.raises(UserError, match=message):
        call(runs, tmp_path)


def test_one_run_or_several_can_be_explored(runs: list[ub.Run]) -> None:
    for given in (runs[0], runs, folder(runs)):
        with ub.explore(given) as server:
            assert server.url.startswith("http://127.0.0.1:")


def test_arguments_of_a_wrong_type_say_what_is_meant(runs: list[ub.Run], tmp_path: Path) -> None:
    """The calls run in a process of their own, because tests check all annotations at run time."""
    shutil.copytree(folder(runs), tmp_path / "runs")
    command = [sys.executable, "-c", CALL_ALL, "runs", json.dumps(list(WRONG_TYPES))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env=dict(os.environ))
    said = json.loads(done.stdout.splitlines()[-1])
    for call, message in WRONG_TYPES.items():
        assert message in said[call]
        assert re.match(r"UserError: |\[?Run\(|\[?StoredRun\(", said[call]), said[call]
