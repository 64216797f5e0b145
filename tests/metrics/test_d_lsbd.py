"""D_LSBD: periods, factors that are not cyclic, incomplete tables, and runs on datasets with cyclic factors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import unbraid as ub
from laws.symmetry import by_loops, circle_codes
from support.known_codes import GRID, NOISY, factor_grid, noise
from unbraid.errors import UserError
from unbraid.metrics import d_lsbd
from unbraid.metrics.protocol import Protocol


def test_a_period_can_be_shorter_than_the_range_of_values() -> None:
    """The first and the last value of the orientation of dSprites are the same angle."""
    factors = factor_grid(9, 3)
    angle = 2 * np.pi * factors[:, 0] / 8
    codes = np.c_[np.cos(angle), np.sin(angle)]
    assert d_lsbd(codes, factors, periods=[8, None])["d_lsbd"] == pytest.approx(0, abs=1e-12)
    assert d_lsbd(codes, factors, periods=[9, None])["d_lsbd"] > 0.03


def test_planes_may_differ_between_values_of_factors_that_are_not_cyclic() -> None:
    """Each object has a circle in other latents, one of them with the opposite orientation."""
    factors = factor_grid(3, 10)
    angle = 2 * np.pi * factors[:, 1] / 10
    codes = np.zeros((30, 6))
    for item in range(3):
        rows = factors[:, 0] == item
        sign = -1 if item == 1 else 1
        codes[rows, 2 * item], codes[rows, 2 * item + 1] = np.cos(angle[rows]), sign * np.sin(angle[rows])
    assert d_lsbd(codes, factors, periods=[None, 10]) == pytest.approx({"d_lsbd": 0, "d_lsbd_factor_1": 0}, abs=1e-12)
    assert d_lsbd(codes, factors)["d_lsbd_factor_1"] > 0.3


def test_the_score_of_objects_is_the_mean_of_their_scores() -> None:
    """All objects have circles of frequency 1 with noise, so the best frequency is the same for all."""
    factors = factor_grid(4, 12)
    angle = 2 * np.pi * factors[:, 1] / 12
    codes = np.c_[np.cos(angle), np.sin(angle), 0 * angle] + 0.1 * noise(48, 3)
    alone = [by_loops(codes[factors[:, 0] == i], factors[factors[:, 0] == i, 1:]) for i in range(4)]
    assert d_lsbd(codes, factors, periods=[None, 12])["d_lsbd"] == pytest.approx(np.mean(alone), abs=1e-9)


def test_incomplete_lines_are_not_used() -> None:
    factors = factor_grid(4, 5)
    codes = circle_codes(factors, (4, 5)) + 0.1 * noise(20, 4)
    kept = np.arange(20) != 7
    whole = factors[:, 1] != 7 % 5
    expected = d_lsbd(codes[whole], factors[whole], periods=[4, None])
    assert d_lsbd(codes[kept], factors[kept], periods=[4, None]) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(UserError, match="must occur with all values of the cyclic factor column 0"):
        d_lsbd(codes, np.c_[factors[:, 0], np.arange(20)])


def test_exact_angles_of_a_continuous_factor() -> None:
    angle = 360 * np.random.default_rng(0).random(3000)
    codes = np.c_[np.cos(np.radians(angle)), np.sin(np.radians(angle))]
    exact = d_lsbd(codes, angle[:, None], [True], [360])["d_lsbd"]
    bins = d_lsbd(codes, angle[:, None], [True])["d_lsbd"]
    assert exact < 0.001 < 0.01 < bins < 0.05


@pytest.mark.parametrize(
    ("periods", "message"),
    [
        ([None, None, None], "at least one cyclic factor"),
        ([5, 4], "one number or None per factor. Got 2 for 3 factors"),
        ([5, 0, 6], "must be a positive number. Got 0"),
    ],
)
def test_wrong_periods_raise(periods: list[float | None], message: str) -> None:
    with pytest.raises(UserError, match=message):
        d_lsbd(NOISY, GRID, periods=periods)


def test_rows_pass_periods_and_name_them_in_the_identity() -> None:
    rows = Protocol().rows(NOISY, GRID, periods=[5, None, 6])
    assert rows.score(["d_lsbd"], 0).values["d_lsbd"] == d_lsbd(NOISY, GRID, periods=[5, None, 6])
    assert rows.identity("d_lsbd", 0)["periods"] == [5, None, 6]
    assert "periods" not in rows.identity("mig", 0)
    assert "periods" not in Protocol().rows(NOISY, GRID).identity("d_lsbd", 0)


def test_runs_are_scored_on_the_cyclic_factors_of_their_data() -> None:
    (run,) = ub.train("vae", data="toy", steps=2, quiet=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (row,) = ub.score(run, codes="mean", protocol=Protocol(train=60, test=40), quiet=True)
    assert not any(key.startswith("d_lsbd") for key in row)
    with pytest.raises(UserError, match="d_lsbd: D_LSBD needs at least one cyclic factor"):
        ub.score(run, "d_lsbd", quiet=True)
    (run,) = ub.train("vae", data="square_torus?size=16", net="mlp", steps=2, quiet=True)
    (row,) = ub.score(run, "d_lsbd", codes="mean", quiet=True)
    assert 0 < row["d_lsbd.d_lsbd"] <= 1
    assert {key for key in row if key.startswith("d_lsbd.")} == {
        "d_lsbd.d_lsbd",
        "d_lsbd.d_lsbd_factor_0",
        "d_lsbd.d_lsbd_factor_1",
    }
