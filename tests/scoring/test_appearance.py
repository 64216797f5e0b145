"""The separation score of known codes, and images that are moved by known amounts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import unbraid as ub
from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import Labelled
from unbraid.data.moving import MOVE_BINS, MovedImages, bin_moves, move_images, warp_images
from unbraid.methods import CVITAE, VAE
from unbraid.scoring.appearance import (
    appearance_accuracy,
    appearance_columns,
    decode_appearance,
    predictability,
    separation,
)

RNG = np.random.default_rng(0)
N = 1000
DIGIT = RNG.integers(0, 4, N)
TURN, SHIFT = RNG.uniform(-1, 1, (2, N))
FACTORS = {"digit": DIGIT}, {"turn": TURN, "shift": SHIFT}
JITTER = 0.01 * RNG.normal(size=(N, 4))
KNOWN = np.stack([np.cos(DIGIT * 1.6), np.sin(DIGIT * 1.6), TURN, SHIFT], 1) + JITTER


def test_separated_code_scores_one() -> None:
    found = separation(KNOWN, *FACTORS, split=(0, 1))
    assert found.score > 0.95
    assert found.predictability["digit"][0] == pytest.approx(1, abs=0.01)
    assert found.predictability["turn"][0] < 0.05
    assert found.predictability["turn"][1] > 0.95


def test_swapped_split_scores_minus_one_and_noise_zero() -> None:
    assert separation(KNOWN, *FACTORS, split=(2, 3)).score < -0.95
    assert abs(separation(RNG.normal(size=(N, 4)), *FACTORS, split=(0, 1)).score) < 0.1


def test_best_split_is_found() -> None:
    shuffled = KNOWN[:, [2, 0, 3, 1]]
    found = separation(shuffled, *FACTORS)
    assert found.appearance == (1, 3)
    assert found.score > 0.95


def test_mixed_code_scores_low() -> None:
    rotation = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    assert separation(KNOWN @ rotation, *FACTORS, split=(0, 1)).score < 0.5


def test_predictability_does_not_depend_on_the_order_of_rows() -> None:
    """Rows of a grid, in which neighbouring rows have different classes."""
    kinds = np.arange(400) % 4
    assert predictability(np.eye(4)[kinds][:, :3] + 0.0, kinds) == pytest.approx(1)


def test_predictability_does_not_depend_on_scale() -> None:
    codes = KNOWN * np.array([1e-3, 1e3, 1.0, 1.0])
    assert predictability(codes[:, :2], DIGIT) == pytest.approx(predictability(KNOWN[:, :2], DIGIT), abs=0.01)
    assert predictability(np.zeros((N, 1)), DIGIT) == pytest.approx(0, abs=0.05)


# Moving.


def spots() -> Labelled:
    """Two images of 9 x 9: a spot right of the centre, and one above it."""
    table = torch.zeros(2, 1, 9, 9, dtype=torch.uint8)
    table[0, 0, 4, 7] = table[1, 0, 1, 4] = 255
    return Labelled("spots", ["kind"], [2], table, torch.tensor([[0], [1]]))


def spot_positions(images: Tensor) -> list[tuple[int, int]]:
    return [divmod(int(image.flatten().argmax()), 9) for image in images]


def test_rotations_are_anticlockwise_and_shifts_right_and_down() -> None:
    quarter = torch.tensor([[90.0, 0.0, 0.0], [90.0, 0.0, 0.0]])
    assert spot_positions(warp_images(spots().table, quarter)) == [(1, 4), (4, 1)]
    shift = torch.tensor([[0.0, -2 / 9, 1 / 9], [0.0, 1 / 9, 2 / 9]])
    assert spot_positions(warp_images(spots().table, shift)) == [(5, 5), (3, 5)]
    still = torch.zeros(2, 3)
    assert torch.equal(warp_images(spots().table, still), spots().table)


def test_rotation_comes_before_shift() -> None:
    both = torch.tensor([[90.0, 2 / 9, 0.0]])
    assert spot_positions(warp_images(spots().table[:1], both)) == [(1, 6)]


def test_moves_are_reproducible_and_labelled() -> None:
    a, b, c = (move_images(spots(), 20, 0.1, seed) for seed in (0, 0, 1))
    assert isinstance(a, MovedImages)
    assert torch.equal(a.table, b.table)
    assert not torch.equal(a.moves, c.moves)
    assert a.names == ("kind", "turn", "right", "down")
    assert a.sizes == (2, MOVE_BINS, MOVE_BINS, MOVE_BINS)
    assert bool((a.moves.abs() <= torch.tensor([20, 0.1, 0.1])).all())
    part = a.select_rows(slice(1, 2))
    assert len(part) == 1
    assert torch.equal(part.moves, a.moves[1:])  # type: ignore[attr-defined]
    assert torch.equal(part.labels, a.labels[1:])


def test_bins_are_equal() -> None:
    moves = torch.stack([torch.linspace(-20, 20, 2001)] * 3, 1)
    counts = bin_moves(moves, torch.tensor([20.0, 20.0, 20.0]))[:, 0].bincount()
    assert len(counts) == MOVE_BINS
    assert int(counts.max() - counts.min()) <= 2
    assert bin_moves(torch.zeros(1, 3), torch.zeros(3)).tolist() == [[5, 5, 5]]


@pytest.mark.parametrize(("degrees", "share"), [(-1, 0.1), (181, 0.1), (20, 1.0), (20, -0.1)])
def test_moves_out_of_range_raise_an_error(degrees: float, share: float) -> None:
    with pytest.raises(ValueError, match="0 to 180 degrees and shifted by 0 to 99 %"):
        move_images(spots(), degrees, share)


# Runs.


def test_decoded_appearance_of_runs(glyphs: FactorData) -> None:
    """For VITAE the image before the warp, for a VAE the reconstruction."""
    settings = {"steps": 5, "latents": 4, "net": "mlp", "quiet": True}
    (warp,), (plain,) = ub.train(CVITAE(), glyphs, **settings), ub.train(VAE(), glyphs, **settings)
    x = glyphs.images(range(len(glyphs)))
    codes = warp.encode(x)
    torch.testing.assert_close(decode_appearance(warp, x), warp.net.decoder.decode_appearance(codes[:, :2]))  # type: ignore[union-attr]
    torch.testing.assert_close(decode_appearance(plain, x), plain.decode(plain.encode(x)))
    assert appearance_columns(warp) == (0, 1)
    assert appearance_columns(plain) is None
    kinds = glyphs.factors(range(len(glyphs)))[:, 0].numpy()
    assert 0 <= appearance_accuracy(warp, (x, kinds), (x, kinds)) <= 1


@pytest.mark.parametrize("rows", [200, 2_000, 20_000])
@pytest.mark.parametrize("kind", ["classes", "rare class", "numbers"])
def test_noise_predicts_nothing(rows: int, kind: str) -> None:
    """A half of the rows is predicted from the other half, so codes that carry nothing are at chance."""
    rng = np.random.default_rng(rows)
    codes = rng.normal(size=(rows, 4))
    values = {"classes": rng.integers(3, size=rows), "rare class": (rng.random(rows) < 0.1).astype(int),
              "numbers": rng.random(rows)}[kind]  # fmt: skip
    assert predictability(codes, values) < 3 / np.sqrt(rows / 2)
