"""Abstract reasoning from trained runs: panels, stored curves, the command and its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

import unbraid as ub
from support.builtin_data import load_dataset
from support.command_line import Capture, unbraid
from support.training import quick_train
from unbraid.errors import UserError
from unbraid.reasoning import evaluate
from unbraid.reasoning.learning import learning_curves
from unbraid.reasoning.panels import choose_panels
from unbraid.reasoning.picture import draw_example_puzzles
from unbraid.reasoning.stored_curves import FILE

TINY = ub.ReasoningSettings(steps=6, batch=4, points=3, test=30, edge=(8,), graph=(8,))
FLAGS = ("--steps", "4", "--batch", "4", "--points", "2", "--test", "20", "--quiet")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("dsprites", (3, 3, 1, 4, 4)),
        pytest.param("shapes3d_rendered", (10, 10, 10, 4, 4, 4), marks=pytest.mark.slow),
        ("toy", (4,) * 4),
    ],
)
def test_panels_are_spread_over_the_values_of_the_data(name: str, sizes: tuple[int, ...]) -> None:
    data = load_dataset(name)
    panels = choose_panels(data)
    assert panels.sizes == sizes
    factors = data.factors(panels.index)
    for column, size, used in zip(factors.unbind(1), data.sizes, sizes, strict=True):
        assert column.unique().tolist() == [i * size // used for i in range(used)]
    assert panels.at(panels.combinations()).tolist() == list(range(len(panels.index)))
    assert panels.one_hot().sum(1).unique().tolist() == [len(sizes)]


def test_values_can_be_chosen_and_are_checked() -> None:
    toy = ub.data.load("toy")
    assert choose_panels(toy, {"a": 8, "b": 1}).sizes == (8, 1, 4, 4)
    with pytest.raises(UserError, match="must be at least 1 and at most: a 8, b 6, c 5, d 4"):
        choose_panels(toy, {"a": 9})
    with pytest.raises(UserError, match="Unknown factor 'shape'"):
        choose_panels(toy, {"shape": 2})
    with pytest.raises(UserError, match="toy_pairs is not a full grid"):
        choose_panels(ub.data.from_arrays([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [[0], [1], [1]], name="toy_pairs"))


def test_curves_are_stored_and_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = quick_train(tmp_path / "runs", seeds=[0, 1])
    wide = quick_train(tmp_path / "wide", latents=5)
    first = ub.abstract_reasoning([*runs, *wide], TINY, out=tmp_path / "out", quiet=True)
    assert first.table["run"].tolist()[::3] == [*(run.id for run in (*runs, *wide)), "true factors"]
    assert first.table["step"].tolist() == [2, 4, 6] * 4
    assert first.table["accuracy"].between(0, 1).all()
    assert "Chance is 0.17." in first.text
    assert (tmp_path / "out" / "reasoning.png").read_bytes().startswith(b"\x89PNG")
    calls: list[int] = []

    def count_and_learn(codes: Tensor, *rest: Any) -> Tensor:
        calls.append(len(codes))
        return learning_curves(codes, *rest)

    monkeypatch.setattr(evaluate, "learning_curves", count_and_learn)
    again = ub.abstract_reasoning([*runs, *wide], TINY, out=tmp_path / "out", quiet=True)
    assert calls == []
    assert again.table.equals(first.table)
    (more,) = quick_train(tmp_path / "more", seeds=[2])
    ub.abstract_reasoning([*runs, more], TINY, out=tmp_path / "out", quiet=True)
    assert calls == [1]


def test_a_damaged_file_of_curves_is_reported(tmp_path: Path) -> None:
    (run,) = quick_train(tmp_path / "runs")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / FILE).write_text('{"key": 1}\n')
    with pytest.raises(UserError, match=r"is damaged.*Delete the file"):
        ub.abstract_reasoning(run, TINY, out=tmp_path / "out", quiet=True)


def test_command_prints_accuracies_and_writes_files(tmp_path: Path, capsys: Capture) -> None:
    quick_train(tmp_path / "runs", seeds=[0, 1])
    capsys.readouterr()
    assert unbraid("reasoning", tmp_path / "runs", "--alternatives", "hard", "--relations", "1,2", *FLAGS) == 0
    printed = capsys.readouterr().out
    assert "step 2  step 4" in printed
    labels = [line[:15].strip() for line in printed.splitlines()[2:5]]
    assert labels == ["beta_vae seed=0", "beta_vae seed=1", "true factors"]
    assert {file.name for file in (tmp_path / "runs" / "reasoning").iterdir()} >= {"reasoning.csv", "reasoning.png"}
    assert unbraid("reasoning", tmp_path / "runs", "--only", "seed=1", "--json", *FLAGS) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["setting"], row["step"]) for row in rows] == [
        ("beta_vae beta=4 warmup=0", 2), ("beta_vae beta=4 warmup=0", 4), ("true factors", 2), ("true factors", 4),
    ]  # fmt: skip


def test_picture_frames_the_correct_answer(tmp_path: Path) -> None:
    file = draw_example_puzzles("sprites", tmp_path / "puzzles.png", count=2)
    picture = np.asarray(Image.open(file).convert("RGB")).astype(int)
    frame = (picture == (0, 158, 115)).all(2)
    top, bottom = np.split(frame, 2)
    side = 64 + 8
    assert top.sum() == bottom.sum() == side**2 - 64**2
    assert not frame[:, : frame.shape[1] // 2].any()


def test_no_runs_are_rejected() -> None:
    with pytest.raises(UserError, match="at least one trained run"):
        ub.abstract_reasoning([], TINY)


def test_a_learning_rate_with_which_all_trainings_diverge_is_reported(tmp_path: Path, capsys: Capture) -> None:
    quick_train(tmp_path / "runs")
    assert unbraid("reasoning", tmp_path / "runs", "--learning-rate", "1e30", *FLAGS) == 2
    assert "All of them diverged with the learning rate 1e+30. Use a smaller one." in capsys.readouterr().err
