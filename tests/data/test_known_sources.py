"""Datasets with known sources have the documented structure; pairs of a series and walks, for PCL and SlowVAE."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import vmap

import unbraid as ub
from support.engine_laws import (
    assert_divergence_affects_one_run,
    assert_every_parameter_learns,
    assert_stack_equals_single_runs,
    assert_vmap_equals_one_by_one,
    vary_hyperparameters,
)
from unbraid.data import known_sources
from unbraid.data.dataset import FactorData
from unbraid.data.sampling import consecutive_pairs, neighbour_pairs, random_walks
from unbraid.methods.pcl import PCL
from unbraid.methods.slow_vae import SlowVAE
from unbraid.noise import Noise


def test_sources_are_independent_autoregressive_and_laplace() -> None:
    _, s = known_sources.mixed_time_series(2**14, sources=3, rho=0.6)
    rows = s.numpy()
    np.testing.assert_allclose(np.corrcoef(rows.T), np.eye(3), atol=0.05)
    np.testing.assert_allclose(rows.std(0), 1, atol=0.05)
    innovations = rows[1:] - 0.6 * rows[:-1]
    np.testing.assert_allclose(
        [np.corrcoef(a, b)[0, 1] for a, b in zip(rows[1:].T, rows[:-1].T, strict=True)], 0.6, atol=0.03
    )
    scale = math.sqrt((1 - 0.6**2) / 2)
    assert all(stats.kstest(column, "laplace", args=(0, scale)).pvalue > 1e-3 for column in innovations.T)


def test_a_series_is_a_reproducible_linear_mixing() -> None:
    data, s = known_sources.mixed_time_series(200)
    assert (len(data), data.shape, data.gridded) == (200, (5,), False)
    mixing = torch.linalg.lstsq(s, data.table.double()).solution
    torch.testing.assert_close(s @ mixing, data.table.double(), rtol=1e-4, atol=1e-4)
    assert float(torch.linalg.cond(mixing)) < known_sources.MAX_CONDITION_NUMBER
    assert torch.equal(data.table, known_sources.mixed_time_series(200)[0].table)


def test_the_product_is_curved_injective_and_on_a_grid() -> None:
    data, factors = known_sources.curved_product()
    assert (data.gridded, data.sizes, data.shape) == (True, (8, 8, 8), (12,))
    torch.testing.assert_close(factors, data.factors(slice(None)) / 3.5 - 1)
    gaps = torch.cdist(data.table, data.table).fill_diagonal_(math.inf)
    assert float(gaps.min()) > 0.01
    centred = data.table - data.table.mean(0)
    straight = factors @ torch.linalg.lstsq(factors, centred).solution
    assert float((centred - straight).square().mean() / centred.square().mean()) > 0.01  # not a linear mixing


def test_the_half_disc_rotates_by_a_full_turn() -> None:
    data, angle = known_sources.rotating_half_disc(n=24)
    assert (data.shape, data.sizes, len(angle)) == ((1, 32, 32), (24,), 24)
    images = data.images(slice(None))[:, 0].float()
    grid = torch.arange(32) - 15.5
    centre = torch.stack([(images * grid).sum((1, 2)), (images * grid[:, None]).sum((1, 2))], 1)
    heading = torch.atan2(centre[:, 1], centre[:, 0])
    assert float((heading - angle).cos().min()) > 0.999


def test_consecutive_pairs_are_rows_with_the_next_row() -> None:
    data, _ = known_sources.mixed_time_series(9)
    sampled = consecutive_pairs(data, Noise(torch.tensor(3)), 8000)
    assert torch.equal(sampled.examples[:, 1], sampled.examples[:, 0] + 1)
    assert stats.chisquare(np.bincount(sampled.examples[:, 0], minlength=8)).pvalue > 1e-5
    assert sampled.changed.shape == (8000, 0)


def test_consecutive_pairs_mark_the_labels_that_differ(toy: FactorData) -> None:
    rows = ub.data.from_arrays(torch.rand(5, 2), [[0, 1], [0, 0], [1, 0], [1, 0], [0, 1]])
    assert not rows.gridded
    sampled = consecutive_pairs(rows, Noise(torch.tensor(0)), 100)
    expected = torch.tensor([[False, True], [True, False], [False, False], [True, True]])
    assert torch.equal(sampled.changed, expected[sampled.examples[:, 0]])
    on_grid = consecutive_pairs(toy, Noise(torch.tensor(0)), 100)
    assert on_grid.changed[:, -1].all()


@pytest.mark.parametrize("draw", [neighbour_pairs, consecutive_pairs])
def test_pairs_depend_only_on_the_key(draw: object, toy: FactorData) -> None:
    assert callable(draw)
    keys = torch.tensor([3, 4])
    alone = [draw(toy, Noise(key), 50) for key in keys]
    together = vmap(lambda key: tuple(draw(toy, Noise(key), 50)))(keys)
    for part in (0, 1):
        assert torch.equal(together[part], torch.stack([pairs[part] for pairs in alone]))
    assert not torch.equal(alone[0].examples, alone[1].examples)


@pytest.mark.parametrize("pairs", ["walk", "consecutive"])
def test_laws_of_pairs_of_steps(pairs: Any, toy: FactorData) -> None:
    """Steps on a grid and rows of a series satisfy the laws of all methods. A series needs no labels."""
    method, data = SlowVAE(pairs=pairs), known_sources.mixed_time_series(50)[0] if pairs == "consecutive" else toy
    assert_stack_equals_single_runs(vary_hyperparameters(method), data)
    assert_vmap_equals_one_by_one(vary_hyperparameters(method), data)
    assert_every_parameter_learns(method, data)
    assert_divergence_affects_one_run(method, data, vmapped=True)


def test_walks_equal_those_of_pcl(toy: FactorData) -> None:
    key = torch.tensor(5)
    ours, theirs = (method.draw(toy, Noise(key), 40).examples for method in (SlowVAE(pairs="walk"), PCL(pairs="walk")))
    assert torch.equal(ours, theirs)
    assert torch.equal(ours.view(2, 20).T, random_walks(toy, Noise(key), 20, length=2))


def test_walks_without_a_factor_that_can_change_are_rejected() -> None:
    data = ub.data.from_arrays(torch.rand(3, 2), [[0], [1], [2]], names=["kind"])
    data.categorical = ("kind",)
    SlowVAE(pairs="uniform").check(data, 4, 2)
    for pairs in ("walk", "laplace"):
        with pytest.raises(
            ValueError, match=r"factor of arrays must be free to change. Got only fixed factors instead: kind"
        ):
            SlowVAE(pairs=pairs).check(data, 4, 2)  # type: ignore[arg-type]
