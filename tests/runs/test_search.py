"""Runs of several folders, at any depth, each counted once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import unbraid as ub
from support.own import random_pixels
from support.training import quick_train
from unbraid.errors import UserError
from unbraid.methods import VAE, BetaVAE
from unbraid.runs.search import search_runs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two folders of runs at different depths: two seeds of beta = 1 and one of beta = 8."""
    quick_train(tmp_path / "runs" / "weak", BetaVAE(beta=1.0), seeds=[0, 1], steps=1)
    quick_train(tmp_path / "runs" / "more" / "strong", BetaVAE(beta=8.0), steps=1)
    return tmp_path / "runs"


def betas_and_seeds(runs: list[ub.Run]) -> list[tuple[float, int]]:
    return [(run.spec.to_dict()["method"]["beta"], run.spec.seed) for run in runs]


def test_folders_are_searched_at_any_depth(root: Path) -> None:
    expected = [(1.0, 0), (1.0, 1), (8.0, 0)]
    assert betas_and_seeds(ub.load_runs(root)) == expected
    assert betas_and_seeds(ub.load_runs([root / "more", str(root / "weak")])) == expected, "sorted by their specs"
    assert betas_and_seeds(ub.load_runs(root.glob("*"))) == expected
    assert betas_and_seeds(ub.load_runs(root, only="beta=1,seed=1")) == [(1.0, 1)]
    (root / ".hidden").mkdir()
    shutil.move(root / "more", root / ".hidden" / "more")
    assert len(ub.load_runs(root)) == 2


def test_a_copied_run_counts_once(root: Path) -> None:
    shutil.copytree(root / "weak", root / "copy")
    (root / "weak" / "circle").symlink_to(root)
    assert len(ub.load_runs([root, root / "weak", root / "copy"])) == 3
    assert len(ub.score(root, "mig", quiet=True)) == 3
    (root / "weak" / "circle").unlink()
    runs = ub.load_runs(root / "weak")
    assert len(ub.score([*runs, *runs, root / "copy"], "mig", quiet=True)) == 2


def test_the_copy_with_more_files_is_preferred(root: Path) -> None:
    shutil.copytree(root / "weak", root / "a")
    for weights in (root / "a").glob("*/weights.safetensors"):
        weights.unlink()
    assert {run.path.parent.name for run in search_runs([root / "a", root / "weak"])} == {"weak"}, "finished"
    shutil.rmtree(root / "a")
    shutil.copytree(root / "weak", root / "a")
    ub.score(root / "weak", "mig", quiet=True)
    assert {run.path.parent.name for run in search_runs(root, "beta=1")} == {"weak"}, "with scores"


def test_runs_of_other_data_with_the_same_id_are_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        images = random_pixels(10, 16, 16) // (1 if name == "a" else 2)
        quick_train(tmp_path / name, VAE(), data=images, steps=1, save_data=True)
    with pytest.raises(UserError, match="were trained on different data or with different source code"):
        ub.load_runs(tmp_path)


def test_files_and_folders_without_runs(root: Path) -> None:
    (root / "report.html").write_text("x")
    (root / "figures").mkdir()
    with pytest.warns(RuntimeWarning, match=r"left out: no runs in .*figures$"):
        assert len(ub.load_runs(sorted(root.iterdir()))) == 3
    for wrong in (root / "figures", [root / "report.html"], [root, root / "nowhere"], []):
        with pytest.raises(UserError, match="No runs in"):
            ub.load_runs(wrong)


def test_runs_of_a_study_can_be_chosen_by_their_level(tmp_path: Path) -> None:
    ub.study(
        "locatello2019", tmp_path / "study", data="toy", only="method=beta_vae,level=0,1", seeds=[0], steps=1,
        metrics=[], quiet=True,
    )  # fmt: skip
    assert len(ub.load_runs(tmp_path)) == 2
    (run,) = ub.load_runs(tmp_path, only={"level": 1})
    assert run.spec.to_dict()["method"]["beta"] == 2
