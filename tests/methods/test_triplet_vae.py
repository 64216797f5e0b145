"""The triplet VAE: the loss and the sampler of triplets by hand, and the order of distances after training."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import unbraid as ub
from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.data.sampling import factor_distances, triplets
from unbraid.errors import UserError
from unbraid.methods import TripletVAE
from unbraid.methods.triplet_vae import triplet_loss
from unbraid.noise import Noise


def test_loss_by_hand() -> None:
    """The first triplet has squared distances 1 and 4, the second 4 and 1."""
    mean = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, 1.0]])
    assert float(triplet_loss(mean, 0.0)) == 1.5
    assert float(triplet_loss(mean, 5.0)) == 0.5 * (2 + 8)


def test_distances_of_factors_by_hand(toy: FactorData) -> None:
    """Each difference is divided by the number of values minus 1. A categorical factor counts 0 or 1."""
    first, second = toy.index([[0, 0, 0, 0]]), toy.index([[7, 1, 2, 3]])
    assert float(factor_distances(toy, first, second)) == pytest.approx(1 + 1 / 5 + 2 / 4 + 1)
    other = copy.copy(toy)
    other.categorical = ("b",)
    assert float(factor_distances(other, first, second)) == pytest.approx(1 + 1 + 2 / 4 + 1)


def test_second_examples_are_nearer_than_third_ones(toy: FactorData) -> None:
    anchor, near, far = triplets(toy, Noise(torch.tensor(0)), 500).unbind(1)
    a, b = factor_distances(toy, anchor, near), factor_distances(toy, anchor, far)
    assert (a <= b).all()
    assert (a < b).float().mean() > 0.9
    assert len(anchor.unique()) > 300


def test_training_lowers_the_loss_of_new_triplets(toy: FactorData) -> None:
    index, losses = triplets(toy, Noise(torch.tensor(9)), 400), []
    for gamma in (0.0, 10.0):
        method = TripletVAE(gamma=gamma, beta=0.01)
        (run,) = quick_train(None, method, steps=200, learning_rate=3e-3, batch=30, latents=4)
        losses.append(float(triplet_loss(run.encode(toy.images(index.T.flatten())), 1.0)))
    assert losses[1] < 0.75 * losses[0]  # 0.50 to 0.64 for the seeds 0 to 3


def test_small_batches_and_missing_labels_raise(toy: FactorData) -> None:
    with pytest.raises(UserError, match=r"must hold a triplet. Got 2 instead"):
        TripletVAE().check(toy, 2, 3)
    points = np.zeros((9, 4), dtype=np.float32)
    with pytest.raises(UserError, match="has none"):
        TripletVAE().check(ub.data.from_arrays(points), 6, 3)
    assert len(TripletVAE().draw(toy, Noise(torch.tensor(0)), 8).examples) == 6
