"""Methods, networks, metrics and data of one's own: from a file, a script, a notebook or an installed package."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unbraid as ub
from support.own_code import SOURCE
from support.packages import Package, install_package
from support.training import quick_train
from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.methods import VAE
from unbraid.methods.beta_vae import BetaVAE
from unbraid.nets.registry import resolve_net
from unbraid.runs.folder import find_runs
from unbraid.runs.spec import method_class
from unbraid.runtime import importing, plugins

TRAIN = ["--data", "toy", "--steps", "3", "--batch", "8", "--latents", "3", "--quiet"]
SCORE = ["--metrics", "mig", "--jobs", "1", "--no-bounds", "--quiet"]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the modules, files and entry points of each test, as at the start of a new process."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    forget("my_methods")
    plugins.plugins.cache_clear()


def forget(*modules: str) -> None:
    for name in modules:
        sys.modules.pop(name, None)
    importing._TRUSTED.clear()
    importing._OBJECTS.clear()
    importing._FILES.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    path = tmp_path / "code" / "my_methods.py"
    path.write_text(SOURCE)
    return path


def test_a_method_and_a_network_in_a_file_train_and_load_on_the_command_line(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert main(["train", "./code/my_methods.py:Mine", "--net", f"{file}:pair", "--beta", "2,3", *TRAIN]) == 0
    assert "Next: unbraid score runs/Mine --trust" in capsys.readouterr().out
    runs = find_runs(tmp_path / "runs" / "Mine")
    assert {run.spec.to_dict()["method"]["name"] for run in runs} == {"my_methods:Mine"}
    assert {run.spec.net for run in runs} == {"my_methods:pair"}
    assert json.loads((runs[0].path / "run.json").read_text())["own"]["files"]["my_methods:Mine"] == str(file)
    forget("my_methods")
    sys.path[:] = before
    file.with_suffix(".imported").unlink()
    assert main(["score", "runs/Mine", *SCORE]) == 2
    message = capsys.readouterr().err
    assert f"'my_methods' (the file {file}, if there is no such module)" in message
    assert "pass --trust" in message
    assert not file.with_suffix(".imported").exists()
    assert main(["score", "runs/Mine", *SCORE, "--trust"]) == 0
    assert file.with_suffix(".imported").exists()


def test_a_file_that_cannot_be_imported_says_why(file: Path, tmp_path: Path) -> None:
    for name, message in {
        f"{tmp_path}/none.py:Mine": "must be an existing file",
        f"{file}:Missing": "must be importable as module:attribute",
        f"{file}:pair": "must be a subclass of unbraid.methods.Method",
    }.items():
        with pytest.raises(UserError, match=message):
            method_class(name)
    clash = tmp_path / "json.py"
    clash.write_text("")
    with pytest.raises(UserError, match="same name as the module 'json'"):
        method_class(f"{clash}:Mine")
    broken = tmp_path / "broken_methods.py"
    broken.write_text("import not_installed_anywhere")
    with pytest.raises(UserError, match="No module named 'not_installed_anywhere'"):
        method_class(f"{broken}:Mine")
    assert "broken_methods" not in sys.modules


def test_runs_of_a_class_in_a_script_load_with_the_class(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script names its class `__main__:Mine`. The same class, imported, loads its runs under their ids."""
    spec = importlib.util.spec_from_file_location("__main__", file)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as context:
        context.setitem(sys.modules, "__main__", script)
        spec.loader.exec_module(script)
        (trained,) = quick_train(tmp_path / "runs", script.Mine(beta=3.0))
    forget()
    with pytest.raises(UserError, match=r"defined in a script or a notebook, as Mine.*methods=\[Mine\]"):
        ub.load_runs(tmp_path / "runs", trust=True)
    imported = method_class(f"{file}:Mine")
    importing._TRUSTED.clear()
    (run,) = ub.load_runs(tmp_path / "runs", methods=[imported])
    assert type(run.spec.method) is imported
    assert run.id == trained.id == ub.load_run(tmp_path / "runs", methods=[imported]).id
    assert ub.score(run, "mig", quiet=True)[0]["beta"] == 3.0
    assert (tmp_path / "runs" / run.id / "scores.jsonl").exists()


def test_a_class_in_a_function_is_found_in_the_same_process(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Local(VAE):
        """A method that cannot be imported."""

    (run,) = quick_train(tmp_path, Local())
    assert ub.load_run(tmp_path).id == run.id


def test_passed_methods_need_the_stored_settings(file: Path, tmp_path: Path) -> None:
    quick_train(tmp_path / "runs", method_class(f"{file}:Mine")(beta=3.0))
    forget("my_methods")

    @dataclass(frozen=True)
    class Mine(VAE):
        """Another method of the same name."""

    Mine.__qualname__ = "Mine"
    with pytest.raises(UserError, match="Unknown field of Mine 'beta'"):
        ub.load_runs(tmp_path / "runs", methods=[Mine])


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    (tmp_path / "site").mkdir()
    return install_package(tmp_path / "site", monkeypatch)


def test_an_installed_package_adds_methods_networks_metrics_and_data(
    package: Package, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    assert main(["list"]) == 0
    assert f"from the package {package.name}" in capsys.readouterr().out
    assert not package.imported
    flags = [*TRAIN, "--data", "lines?rows=48", "--net", "pair", "--beta", "2", "--out", str(out)]
    assert main(["train", "mine", *flags]) == 0
    (run,) = find_runs(out)
    assert run.spec.to_dict()["method"] == {"name": f"{package.name}:Mine", "beta": 2.0}
    assert (run.spec.net, run.spec.data) == (f"{package.name}:pair", "lines?rows=48")
    forget(package.name)
    assert main(["score", str(out), "--metrics", "spread,mig", "--jobs", "1", "--quiet"]) == 0  # without --trust
    [row] = ub.score(out, "spread", quiet=True)
    codes = ub.load_run(out).encode(ub.data.load("lines?rows=48").images(slice(None)))
    assert row["spread.spread"] == pytest.approx(float(codes.std(correction=0)), rel=1e-4)
    assert ub.metrics.headline("spread") == "spread.spread"


def test_an_entry_point_cannot_replace_a_built_in_name(package: Package) -> None:
    assert method_class("beta_vae") is BetaVAE
    assert list(ub.methods.METHODS.added()) == ["mine", "gone"]
    assert "mine" not in list(ub.methods.METHODS)
    assert "mine" in ub.methods.METHODS
    assert not package.imported


def test_wrong_entry_points_are_errors(package: Package, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"'gone' of the package {package.name} must be importable"):
        method_class("gone")
    with pytest.raises(UserError, match=r"must return a dataset.*Got int"):
        ub.data.load("wrong")
    with pytest.raises(UserError, match="must have an attribute 'trait'"):
        ub.score(codes=np.zeros((9, 2)), factors=np.arange(9) % 2, metrics="plain")
    with pytest.raises(UserError, match=r"Unknown method 'mien'\. Did you mean 'mine'"):
        method_class("mien")
    with pytest.raises(KeyError):
        ub.methods.METHODS["none"]
    other = Package(tmp_path / "site", {"nets": ["pair = {}:pair"]})
    with pytest.raises(UserError, match=r"must be unique\. Got") as error:
        resolve_net("pair")
    assert package.name in str(error.value)
    assert other.name in str(error.value)


def failing_net(shape: tuple[int, ...], latents: int) -> Any:
    """A network with a mistake."""
    return {}["encoder"]


@pytest.mark.parametrize("net", ["os.path:join", failing_net])
def test_a_network_that_cannot_be_built_is_explained(net: Any) -> None:
    """The message says what the function must do, and in which line it has failed."""
    with pytest.raises(UserError, match=r"must be a function of the shape.*returns an encoder.*failed in line"):
        ub.train("vae", "toy", net=net, steps=2, quiet=True)


@pytest.mark.parametrize("method", [ub.methods.FSQ, ub.methods.QLAE, ub.methods.DeVAE, ub.methods.PMP])
def test_numbers_in_methods_have_a_maximum(method: type[ub.methods.Method]) -> None:
    name = {"FSQ": "levels", "QLAE": "count", "DeVAE": "spaces", "PMP": "subspaces"}[method.__name__]
    with pytest.raises(UserError, match=f"'{name}' parameter .* must be between 2 and"):
        method(**{name: 2**63 - 1})
