"""A model that was adopted twice counts once, or the user is told which runs are the same model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unbraid as ub
from support.training import quick_train

SAME = r"a seed=0 \(\w+\) and b seed=1 \(\w+\) are the same model with the same weights\."


def linear_encoder(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model under two names and seeds, in two folders, and another model."""
    root = tmp_path_factory.mktemp("same")
    for model, name, seed in ((0, "a", 0), (0, "b", 1), (1, "c", 2)):
        ub.adopt(linear_encoder(model), "toy", name, out=root / name, seed=seed)
    return root


def test_scores_keep_all_rows_and_name_the_runs_that_are_the_same_model(folder: Path) -> None:
    with pytest.warns(RuntimeWarning, match=SAME + " Their scores are equal"):
        rows = ub.score(folder, "mig", quiet=True)
    scores = {row["method"]: row["mig.discrete_mig"] for row in rows}
    assert list(scores) == ["a", "b", "c"]
    assert scores["a"] == scores["b"] != scores["c"]
    assert all((run.path / "scores.jsonl").exists() for run in ub.load_runs(folder) if run.path)


def test_a_model_is_not_ranked_against_a_copy_of_itself(folder: Path) -> None:
    with pytest.warns(RuntimeWarning, match=SAME + " Only the first one is ranked"):
        rows = ub.select(folder, examples=50, quiet=True)
    assert sorted(row["method"] for row in rows) == ["a", "c"]
    alone = ub.select([folder / "a", folder / "c"], examples=50, quiet=True)
    assert [row["udr"] for row in rows] == [row["udr"] for row in alone]
    with pytest.raises(ub.UserError, match="at least 2 runs"), pytest.warns(RuntimeWarning, match="Only the first"):
        ub.select([folder / "a", folder / "b"], examples=50, quiet=True)


@pytest.mark.filterwarnings("ignore:.*are the same model")
def test_the_report_names_the_runs_that_are_the_same_model(folder: Path, tmp_path: Path) -> None:
    page = ub.report(folder, tmp_path / "page.html", metrics="mig", best=1, quiet=True).read_text()
    start = page.index('<script type="application/json"')
    facts = json.loads(page[page.index(">", start) + 1 : page.index("</script>", start)])
    assert len(facts["runs"]) == 3
    assert any("are the same model with the same weights" in note for note in facts["notes"])


@pytest.mark.filterwarnings("ignore:.*are the same model")
def test_sides_with_the_same_model_are_not_independent(folder: Path) -> None:
    ub.score(folder, "mig", quiet=True)
    remarks = ub.compare(folder / "a", folder / "b").remarks
    assert "1 run(s) are in both a and b, so the two are not independent." in remarks
    assert not any("in both" in text for text in ub.compare(folder / "a", folder / "c").remarks)


def test_runs_that_were_trained_here_are_never_the_same_model(tmp_path: Path, recwarn: Any) -> None:
    quick_train(tmp_path / "runs", "vae", seeds=range(2), steps=1)
    assert len(ub.score(tmp_path / "runs", "mig", quiet=True)) == 2
    assert len(ub.select(tmp_path / "runs", examples=50, quiet=True)) == 2
    assert not [str(one.message) for one in recwarn if "same model" in str(one.message)]
