"""Alignment of factors with local principal axes, on data with known axes."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid import analysis
from unbraid import data as datasets
from unbraid.analysis import Alignment, alignment, distance_to_orthogonality, random_distance, rotation
from unbraid.analysis.alignment import cell_corners
from unbraid.data.dataset import FactorData
from unbraid.data.own.arrays import from_arrays
from unbraid.errors import UserError
from unbraid.noise import Noise

LEVELS = 8
GRID = np.stack(np.meshgrid(*[np.arange(LEVELS)] * 3, indexing="ij"), -1).reshape(-1, 3)
W = (GRID - 3.5) / math.sqrt((LEVELS**2 - 1) / 12)
BASIS = rotation(400, seed=1)  # one per pixel, so that noise is nearly orthogonal to every change
STRENGTHS = np.array([3.0, 2.0, 1.0])


def vectors(x: np.ndarray, name: str) -> FactorData:
    """A dataset of vectors on the grid of three factors."""
    return from_arrays(x.astype(np.float32), GRID, names=["a", "b", "c"], name=name)


def linear(degrees: float = 0.0) -> np.ndarray:
    """Vectors that change linearly in orthogonal directions, with the first two factors rotated by an angle."""
    angle = math.radians(degrees)
    turn = np.eye(3)
    turn[:2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    return W @ turn.T * STRENGTHS @ BASIS[:3]


@pytest.fixture(scope="module")
def straight() -> Alignment:
    return alignment(vectors(linear(), "straight"))


def test_orthogonal_changes_are_aligned(straight: Alignment) -> None:
    assert straight.score == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(straight.strengths["strength"], STRENGTHS, rtol=1e-5)
    assert (straight.table["mixing"] < 1e-9).all()
    assert (straight.table["cosine"] < 1e-5).all()
    assert straight.table["ratio"].tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 2], rel=1e-4)
    equal = alignment(vectors(W @ BASIS[:3], "equal"))
    assert equal.score == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("degrees", [15, 30, 45])
def test_a_rotated_pair_is_detected(degrees: float) -> None:
    """The distance of two of three axes rotated by t is 2 sqrt(2) sin(t / 2). At 45 degrees they are fully mixed."""
    found = alignment(vectors(linear(degrees), "rotated"))
    expected = 1 - 2 * math.sqrt(2) * math.sin(math.radians(degrees) / 2) / random_distance(3).mean
    assert found.score == pytest.approx(max(expected, 0), abs=1e-3)
    worst = found.table.iloc[0]
    assert {worst["first"], worst["second"]} == {"a", "b"}
    assert worst["mixing"] == pytest.approx(math.sin(2 * math.radians(degrees)) ** 2, abs=1e-3)
    assert (found.table["mixing"][1:] < 1e-6).all()
    assert "a and b are mixed most" in found.text


def test_score_of_random_directions() -> None:
    x = W @ rotation(3, seed=5).T * STRENGTHS @ BASIS[:3]
    found = alignment(vectors(x, "mixed"))
    j = (rotation(3, seed=5).T * STRENGTHS @ BASIS[:3]).T
    assert found.place_scores[0] == pytest.approx(
        1 - distance_to_orthogonality(j[None])[0] / random_distance(3).mean, abs=1e-3
    )


def test_a_common_change_mixes_two_factors_and_noise_does_not(straight: Alignment) -> None:
    """An added change eps m(w1 + w2) along a curve, compared with noise of the same size."""
    scalar = (W[:, :1] + W[:, 1:2]) / math.sqrt(2)
    added = 1.5 * (np.sin(2 * scalar) * BASIS[5] + np.cos(2 * scalar) * BASIS[6])
    noise = np.random.default_rng(0).normal(size=added.shape)
    noise *= np.linalg.norm(added) / np.linalg.norm(noise)
    modified = alignment(vectors(linear() + added, "modified"))
    noisy = alignment(vectors(linear() + noise, "noisy"))
    for other in (straight, noisy):
        more, error = other.difference_from(modified)
        assert more > max(0.1, 5 * error)
        assert more == pytest.approx(other.place_scores.mean() - modified.place_scores.mean())
    assert {modified.table["first"][0], modified.table["second"][0]} == {"a", "b"}


class Modified(FactorData):
    """Images with an added pattern that depends on the sum of two factors, or with noise, reflected into [0, 1]."""

    def __init__(self, data: FactorData, first: str, second: str, eps: float, noise: bool = False) -> None:
        super().__init__("noise" if noise else "modified", data.names, data.sizes, data.shape, data.table)
        self.data, self.eps, self.noisy, self.categorical = data, eps, noise, data.categorical
        self.pair = [data.names.index(first), data.names.index(second)]
        self.deviations = [math.sqrt((data.sizes[j] ** 2 - 1) / 12) for j in self.pair]
        self.phase = 2 * math.pi * torch.rand(data.shape, generator=torch.Generator().manual_seed(0))

    def change(self, index: Int[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
        if self.noisy:
            return 2 * Noise.from_seed(torch.tensor(0), torch.tensor(0)).uniform(len(index), *self.shape) - 1
        w = self.data.factors_at(index)
        s = sum(w[:, j] / deviation for j, deviation in zip(self.pair, self.deviations, strict=True))
        return 0.5 + 0.5 * torch.sin(4 * s[:, None, None, None] + self.phase)

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        x = self.data.batch(index) + self.eps * self.change(index)
        return x - 2 * torch.relu(x - 1) + 2 * torch.relu(-x)

    def _examples(self, index: Tensor) -> Tensor:
        return (255 * self.batch(index)).byte()


@pytest.mark.parametrize("name", ["dsprites", pytest.param("shapes3d_rendered", marks=pytest.mark.slow)])
def test_modified_images_have_a_lower_alignment(name: str) -> None:
    """With patterns of the published strengths, .1 and .175."""
    pair, eps = {"dsprites": (("x", "y"), 0.1), "shapes3d_rendered": (("wall_hue", "orientation"), 0.175)}[name]
    data = datasets.load(name)
    original = alignment(data, places=128)
    modified = alignment(Modified(data, *pair, eps), places=128)
    noisy = alignment(Modified(data, *pair, eps, noise=True), places=128)
    for other in (original, noisy):
        more, error = other.difference_from(modified)
        assert more > 4 * error
        assert more > 0.05
    difference, _ = original.difference_from(noisy)
    assert abs(difference) < 0.05


def test_x_and_y_of_dsprites_are_mixed(toy: FactorData) -> None:
    """X and y change images of dSprites equally strongly. The known mixing of toy vectors is at chance level."""
    found = alignment(datasets.load("dsprites"), places=64)
    assert found.names == ("scale", "orientation", "x", "y")
    assert 0.3 < found.score < 0.65
    worst = found.table.iloc[0]
    assert {worst["first"], worst["second"]} == {"x", "y"}
    assert worst["ratio"] > 0.95
    assert alignment(toy, places=64).score < 0.15


def test_corners_separate_the_factors() -> None:
    for k in range(2, 18):
        corners = cell_corners(k)
        assert len(corners) <= 4 * k
        np.testing.assert_array_equal(corners.T @ corners, len(corners) * np.eye(k))
        products = [corners[:, i] * corners[:, j] for i in range(k) for j in range(i)]
        np.testing.assert_array_equal(corners.T @ np.stack(products, 1), 0)
        np.testing.assert_array_equal(corners.sum(axis=0), 0)


def test_reach_is_in_standard_deviations(straight: Alignment) -> None:
    data = vectors(linear(), "straight")
    assert straight.steps == (1, 1, 1)
    assert alignment(data, reach=0).steps == (1, 1, 1)
    assert alignment(data, reach=1.0).steps == (2, 2, 2)
    assert alignment(data, reach=99).steps == (7, 7, 7)
    np.testing.assert_allclose(alignment(data, reach=1.0).strengths["strength"], STRENGTHS, rtol=1e-5)


def test_a_factor_without_effect_is_reported() -> None:
    x = linear()
    x = x - np.outer(W[:, 2], STRENGTHS[2] * BASIS[2])
    found = alignment(vectors(x, "blind"))
    assert "These factors do not change the images: c." in found.text
    assert found.score == pytest.approx(1.0, abs=1e-6)
    assert alignment(vectors(x, "blind"), ["a", "b"]).names == ("a", "b")


def test_figure_and_text(straight: Alignment) -> None:
    file = io.BytesIO()
    straight.figure.savefig(file)
    assert len(file.getvalue()) > 5_000
    assert straight.text.startswith("The alignment of straight is 1.00 ± 0.00 over 256 cells of the factor grid")


def test_invalid_arguments_raise_an_error(sprites: FactorData, straight: Alignment) -> None:
    x = linear()
    loose = from_arrays(x[:100].astype(np.float32), GRID[:100] // 3, name="loose")
    single = from_arrays(x[:8].astype(np.float32), GRID[:8, 2:], names=["c"], name="single")
    for wrong, match in (
        (lambda: alignment(loose), "full grid"),
        (lambda: alignment(single), "at least 2 factors"),
        (lambda: alignment(sprites, ["shape", "x"]), "with an order: scale.*'shape'"),
        (lambda: alignment(sprites, ["x", "z"]), "'z'"),
        (lambda: alignment(sprites, places=1), "must be at least 2"),
        (lambda: alignment(sprites, reach=-1), "finite and >= 0"),
        (lambda: straight.difference_from(alignment(sprites, places=4)), "same factors"),
    ):
        with pytest.raises(UserError, match=match):
            wrong()


def test_places_depend_on_the_seed(sprites: FactorData) -> None:
    first, again, other = (analysis.alignment(sprites, places=20, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.place_scores, again.place_scores)
    assert not np.array_equal(first.place_scores, other.place_scores)
