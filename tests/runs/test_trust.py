"""A folder of runs cannot run code that the user has not consented to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import unbraid as ub
from support.own_code import OwnModule, make_own_module
from support.training import quick_train
from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.methods import BetaVAE
from unbraid.runs.folder import find_runs
from unbraid.runs.results import load_results, write_results
from unbraid.runs.scores import add_scores
from unbraid.runs.stored_method import StoredMethod
from unbraid.runs.tensorboard import write_tensorboard
from unbraid.studies.publishing import import_published, publish


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnModule:
    return make_own_module(tmp_path, monkeypatch)


@pytest.fixture(params=["method", "net"])
def folder(request: pytest.FixtureRequest, own: OwnModule, tmp_path: Path) -> Path:
    """A folder of runs, trained in another process, whose method or network is the user's own."""
    module = own.load()
    if request.param == "method":
        quick_train(tmp_path / "runs", module.Mine(beta=3.0), seeds=[0, 1])
    else:
        quick_train(tmp_path / "runs", net=own.net, seeds=[0, 1])
    own.forget()
    return tmp_path / "runs"


LOADERS: dict[str, Callable[[Path, bool], object]] = {
    "load_runs": lambda folder, trust: ub.load_runs(folder, trust=trust),
    "load_run": lambda folder, trust: ub.load_run(next(folder.glob("*/run.json")).parent, trust=trust),
    "report": lambda folder, trust: ub.report(folder, scoring=False, quiet=True, trust=trust),
    "compare": lambda folder, trust: ub.compare(
        *(file.parent for file in folder.glob("*/run.json")), metrics=["mig"], score=True, quiet=True, trust=trust
    ),
    "explore": lambda folder, trust: ub.explore(folder, trust=trust).close(),
}
COMMANDS = [
    ["score", "--metrics", "mig", "--jobs", "1"], ["select"], ["report", "--no-score"], ["traverse"], ["appearance"],
    ["export", "--format", "torch"], ["explore"], ["samples"], ["reconstruct"], ["inspect"], ["swap"],
    ["reasoning", "--steps", "1"],
]  # fmt: skip


@pytest.mark.parametrize("name", LOADERS)
def test_loading_needs_consent(name: str, folder: Path, own: OwnModule) -> None:
    with pytest.raises(UserError, match=rf"imports the Python module '{own.name}'.*pass --trust \(trust=True\)"):
        LOADERS[name](folder, False)
    assert not own.imported
    LOADERS[name](folder, True)
    assert own.imported
    assert "trust" not in next(folder.glob("*/run.json")).read_text()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_need_consent(
    command: list[str], own: OwnModule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick_train(tmp_path / "runs", own.load().Mine(beta=3.0), net=own.net)
    own.forget()
    target = tmp_path / "runs" if command[0] != "export" else next((tmp_path / "runs").glob("*/run.json")).parent
    assert main([command[0], str(target), *command[1:]]) == 2
    assert f"the Python module '{own.name}'" in capsys.readouterr().err
    assert not own.imported


def test_score_with_the_flag(folder: Path, own: OwnModule) -> None:
    assert main(["score", str(folder), "--metrics", "mig", "--jobs", "1", "--no-bounds", "--trust", "--quiet"]) == 0
    assert own.imported


def test_tables_need_no_code(folder: Path, own: OwnModule, tmp_path: Path) -> None:
    """What needs only the spec as data imports nothing: index, compare, share, listing, event files."""
    runs = find_runs(folder)
    for run in runs:
        add_scores(run.path, [{"metric": "mig", "codes": "mean", "values": {"discrete_mig": 0.1}, "data": "toy"}])
    table = load_results(write_results(folder))
    assert set(table["strength"]) == ({3.0} if isinstance(runs[0].spec.method, StoredMethod) else {4.0})
    assert set(table["mig.discrete_mig"]) == {0.1}
    ub.compare(*(run.path for run in runs))
    publish(folder, tmp_path / "published")
    assert import_published(tmp_path / "published", tmp_path / "imported") == 2
    write_tensorboard(runs[0].path)
    assert main(["index", str(folder)]) == 0
    assert not own.imported


def test_what_the_user_passes_is_trusted(folder: Path, own: OwnModule) -> None:
    """The same training command resumes its own folder, and its runs then load in the same process."""
    stored = find_runs(folder)[0].spec
    module = own.load()
    name = stored.to_dict()["method"]["name"]
    method = module.Mine(beta=3.0) if name == own.method else BetaVAE()
    net = own.net if stored.net == own.net else None
    assert {run.path.name for run in find_runs(folder)} == {
        run.id for run in quick_train(folder, method, net=net, seeds=[0, 1])
    }
    assert len(ub.load_runs(folder)) == 2
    own.forget()
    settings = [
        "--data",
        "toy",
        "--steps",
        "12",
        "--learning-rate",
        "0.001",
        "--batch",
        "8",
        "--latents",
        "3",
        "--quiet",
    ]
    flags = ["--net", own.net] if net else ["--beta", "3"]
    assert main(["train", name, *settings, "--seeds", "0,1", *flags, "--out", str(folder)]) == 0


def test_consent_is_asked_for_before_data_are_loaded(
    folder: Path, own: OwnModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ub.data, "load", lambda name: pytest.fail("data were loaded"))
    for load in (ub.load_runs, lambda folder: ub.load_run(next(folder.glob("*/run.json")).parent)):
        with pytest.raises(UserError, match="pass --trust"):
            load(folder)


def test_an_unknown_module_is_not_searched(folder: Path, own: OwnModule) -> None:
    """Consent does not hide that the code is missing."""
    own.path.unlink()
    with pytest.raises(UserError, match="must be importable"):
        ub.load_runs(folder, trust=True)


def test_ids_of_stored_methods_equal_those_of_real_ones(own: OwnModule) -> None:
    spec = ub.RunSpec(own.load().Mine(beta=3), "toy", net=own.net)
    own.forget()
    stored = ub.RunSpec.from_dict(spec.to_dict())
    assert isinstance(stored.method, StoredMethod)
    assert (stored.id, stored.flat()) == (spec.id, spec.flat())
    assert stored.method.strength == 3.0
