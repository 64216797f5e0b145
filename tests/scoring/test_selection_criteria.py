"""ModelCentrality and PIPE: laws, and planted models of which the good ones are known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import unbraid as ub
from support.command_line import FAST_TRAINING, unbraid
from support.known_codes import noise
from support.planted_models import embedding, linear_run, random_rotation, square_data, turn
from support.training import quick_train
from unbraid.errors import UserError
from unbraid.methods import AE, PCL, DiffusionVAE, JointVAE
from unbraid.metrics import model_centrality
from unbraid.metrics.centrality import vote_similarity
from unbraid.scoring import selection
from unbraid.scoring.centrality import choose_partners, prior_groups, rank_by_centrality
from unbraid.scoring.pipe import pipe

I4 = torch.eye(4)
ALIGNED = [I4, -I4[[2, 0, 1, 3]], 3 * I4[[1, 0, 3, 2]], I4[[3, 2, 1, 0]]]


def test_model_centrality_of_a_table_by_hand() -> None:
    table = np.array([[9, 0.8, 0.2], [1.0, 9, 0.4], [0.2, 0.2, 9]])
    assert model_centrality(table) == pytest.approx([(0.9 + 0.2) / 2, (0.9 + 0.3) / 2, (0.2 + 0.3) / 2])
    order = np.array([2, 0, 1])
    assert model_centrality(table[order][:, order]) == pytest.approx(model_centrality(table)[order])
    assert model_centrality(table.T) == pytest.approx(model_centrality(table))
    table[0, 2] = np.nan  # models 0 and 2 were not compared
    assert model_centrality(table) == pytest.approx([0.9, 0.6, 0.3])
    with pytest.raises(ValueError, match=r"square array with at least 2 rows\. Got shape \(1, 1\)"):
        model_centrality([[1.0]])
    with pytest.raises(ValueError, match="compared with another"):
        model_centrality(np.full((2, 2), np.nan))


def fixed_groups(d: int, groups: int = 200) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Return independent codes in groups of 20 that share one code, and which one they share."""
    codes, fixed = noise(groups * 20, d).reshape(groups, 20, d), np.arange(groups) % d
    codes[np.arange(groups), :, fixed] = codes[np.arange(groups), :1, fixed]
    return codes, fixed


def test_vote_similarity_of_known_codes() -> None:
    codes, fixed = fixed_groups(4)
    assert vote_similarity(codes, fixed, 4) == 1
    assert vote_similarity(-5 * codes[..., [2, 0, 3, 1]] + 1, fixed, 4) == 1
    assert vote_similarity(np.zeros_like(codes), fixed, 4) == 0
    assert vote_similarity(noise(4000, 4, seed=1).reshape(200, 20, 4), fixed, 4) == pytest.approx(1 / 4, abs=0.1)
    assert vote_similarity(codes[..., :2], fixed, 4) == pytest.approx(1 / 2, abs=0.02)  # two latents are lost


def test_votes_equal_their_loops() -> None:
    rng = np.random.default_rng(0)
    codes, fixed = rng.normal(size=(40, 5, 3)), np.arange(40) % 4
    codes[..., 1] *= 1 + fixed[:, None]
    counts = [[[0] * 3 for _ in range(4)] for _ in range(2)]
    seen = [0] * 4
    for t in range(40):
        ratios = [np.var(codes[t, :, i], ddof=1) / np.var(codes[:, :, i], ddof=1) for i in range(3)]
        counts[seen[fixed[t]] % 2][fixed[t]][ratios.index(min(ratios))] += 1
        seen[fixed[t]] += 1
    assigned = [max(range(4), key=lambda j: counts[0][j][i]) for i in range(3)]
    correct = sum(counts[1][assigned[i]][i] for i in range(3))
    assert vote_similarity(codes, fixed, 4) == pytest.approx(correct / 20)


def test_model_centrality_ranks_planted_models() -> None:
    """Four models have one latent per source and agree. Two have rotated latents and agree with nobody."""
    data = square_data(500, sources=4)
    good = [linear_run(data, mixing, seed) for seed, mixing in enumerate(ALIGNED)]
    bad = [linear_run(data, random_rotation(4, seed), 10 + seed) for seed in (2, 3)]
    assert rank_by_centrality(good, 800, 0, 50) == [1, 1, 1, 1]
    rows = ub.select([*bad, *good], by="model_centrality", within="data", examples=2000, quiet=True)
    scores = {row["run"]: row["model_centrality"] for row in rows}
    assert {row["run"] for row in rows[:4]} == {run.id for run in good}
    assert min(scores[run.id] for run in good) > max(scores[run.id] for run in bad) + 0.05
    assert [row["informative"] for row in rows] == [4] * 6
    assert "model centrality" in str(rows)


def test_only_the_fixed_latent_is_shared_in_a_group() -> None:
    run = linear_run(square_data(100, sources=4), I4, 0)
    z, fixed = prior_groups(run, 400, seed=3)
    assert fixed.tolist() == [0, 1, 2, 3] * 5
    shared = (z == z[:, :1]).all(1)
    assert shared.numpy().tolist() == (np.arange(4) == fixed[:, None]).tolist()
    assert float(z.std()) == pytest.approx(1, abs=0.1)
    with pytest.raises(UserError, match=r"4 latents needs at least 160 examples\. Got 159"):
        prior_groups(run, 159, seed=3)


def test_a_large_group_is_compared_with_few_partners() -> None:
    chosen = choose_partners(9, 4, seed=1)
    assert all(len(set(others)) == 4 and i not in others for i, others in enumerate(chosen))
    assert all(i in chosen[j] for i, others in enumerate(chosen) for j in others)
    data = square_data(100, sources=4)
    runs = [linear_run(data, ALIGNED[seed % 4], seed) for seed in range(6)]
    assert rank_by_centrality(runs, 400, 0, 2) == [1] * 6


def test_pipe_of_a_rotated_square_is_known() -> None:
    """The best classifier of a square in its bounding box has the score 1 / (cos + sin)^2, the ratio of their areas."""
    data = square_data(2000)
    runs = {angle: linear_run(data, turn(angle), seed) for seed, angle in enumerate((0, 20, 45))}
    scores = {angle: pipe(run, data, torch.arange(2000), steps=300) for angle, run in runs.items()}
    assert scores[0] > 0.9
    for angle, score in scores.items():
        best = 1 / (math.cos(math.radians(angle)) + math.sin(math.radians(angle))) ** 2
        assert best - 0.05 < score < best + 0.2
    assert scores[0] > scores[20] + 0.1 > scores[45] + 0.1


def test_pipe_of_aligned_normal_codes_is_low() -> None:
    """The limitation that the documentation states: the classifier detects that normal codes are not uniform."""
    for latents, low, high in ((1, 0.4, 0.6), (4, 0.1, 0.35)):
        sources = torch.from_numpy(noise(2000, latents)).float()
        data = ub.data.from_arrays((sources @ embedding(latents)).numpy(), name="normal")
        assert low <= pipe(linear_run(data, torch.eye(latents), 0), data, torch.arange(2000), steps=500) < high
        square = square_data(2000, sources=latents)
        assert pipe(linear_run(square, torch.eye(latents), 0), square, torch.arange(2000), steps=500) > 0.9


def test_pipe_ranks_runs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "__defaults__", (0, 150))
    data = square_data(1000)
    rows = ub.select([linear_run(data, turn(45), 0), linear_run(data, turn(0), 1)], by="pipe", quiet=True)
    assert [row["seed"] for row in rows] == [1, 0]
    assert rows[0]["pipe"] > rows[1]["pipe"] + 0.1
    (alone,) = ub.select(linear_run(data, turn(45), 0), by="pipe", quiet=True)
    assert alone == rows[1]
    collapsed = linear_run(data, turn(0), 2)
    collapsed.net.encoder.weights[:] = 0  # type: ignore[index, operator]
    assert ub.select(collapsed, by="pipe", quiet=True)[0]["pipe"] == 1


def test_criteria_say_what_they_need() -> None:
    for method, by in ((PCL(), "pipe"), (PCL(), "model_centrality"), (AE(), "model_centrality")):
        with pytest.raises(UserError, match=r"(PIPE|ModelCentrality) needs runs with a decoder"):
            ub.select(quick_train(method=method, seeds=range(2)), by=by, examples=200, quiet=True)
    joint = quick_train(method=JointVAE(discrete=1, categories=2), seeds=range(2), data="toy")
    with pytest.raises(UserError, match="ModelCentrality needs runs with a decoder and a normal prior"):
        ub.select(joint, by="model_centrality", examples=200, quiet=True)
    with pytest.raises(UserError, match="PIPE needs"):
        ub.select(joint, by="pipe", examples=200, quiet=True)
    curved = quick_train(method=DiffusionVAE(), seeds=range(2), data="toy")
    with pytest.raises(UserError, match="PIPE needs"):
        ub.select(curved, by="pipe", examples=200, quiet=True)
    with pytest.raises(UserError, match=r"Unknown criterion to rank by 'pip'\. Did you mean 'pipe'\?"):
        ub.select(curved, by="pip")
    with pytest.raises(UserError, match="at least 2 runs"):
        ub.select(curved[0], by="model_centrality", quiet=True)


@pytest.mark.parametrize("by", selection.CRITERIA)
def test_the_command_ranks_by_each_criterion(
    by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe, "__defaults__", (0, 5))
    assert unbraid("train", "vae", *FAST_TRAINING, "--seeds", "0-1", "--out", tmp_path) == 0
    capsys.readouterr()
    assert unbraid("select", tmp_path, "--by", by, "--examples", "200", "--quiet", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row[by] for row in rows] == sorted((row[by] for row in rows), reverse=True)
    assert all(0 <= row[by] <= 1 for row in rows)
