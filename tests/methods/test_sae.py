"""Sparse autoencoders: activations and pseudo-derivatives by hand, and the recovery of known features."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import unbraid as ub
from support.engine_laws import (
    assert_every_parameter_learns,
    assert_stack_equals_single_runs,
    assert_vmap_equals_one_by_one,
    vary_hyperparameters,
)
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods import SAE, Batch
from unbraid.methods.ae import point_traversal
from unbraid.methods.sae import WINDOW, active_features, jump_relu, top_k
from unbraid.nets.mlp import mlp
from unbraid.noise import Noise

VARIANTS = {
    "relu": SAE(activation="relu"),
    "topk": SAE(activation="topk", k=3),
    "jumprelu": SAE(activation="jumprelu"),
}


def test_activations_by_hand() -> None:
    h = torch.tensor([[3.0, -1.0, 2.0, 0.5], [-3.0, -1.0, -2.0, 0.5]])
    assert top_k(h, 2).tolist() == [[3.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.5]]
    thresholds = torch.tensor([1.0, 1.0, 2.5, 0.4])
    assert jump_relu(h, thresholds).tolist() == [[3.0, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 0.5]]
    assert float(active_features(h, thresholds)) == 1.5


def test_pseudo_derivatives_by_hand() -> None:
    """Only the entry within the window around its threshold has an influence on it."""
    h = torch.tensor([[0.5 + 0.2 * WINDOW, 2.0]], requires_grad=True)
    threshold = torch.tensor([0.5, 0.5], requires_grad=True)
    value, gate = torch.autograd.grad(jump_relu(h, threshold).sum(), (threshold, h))
    torch.testing.assert_close(value, torch.tensor([-0.5 / WINDOW, 0.0]))
    assert gate.tolist() == [[1.0, 1.0]]
    (count,) = torch.autograd.grad(active_features(h, threshold), threshold)
    torch.testing.assert_close(count, torch.tensor([-1 / WINDOW, 0.0]))


def test_penalty_of_relu_does_not_change_with_the_scale() -> None:
    """If features are scaled up and decoder vectors down, the outputs and the penalty are the same."""
    method = SAE(activation="relu")
    net: Any = method.build(mlp, (5,), 8, "gaussian").requires_grad_(False)
    batch = Batch(torch.randn(6, 5), 6)
    before = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))[1]
    net.encoder.linear.weight.mul_(4)
    net.encoder.linear.bias.mul_(4)
    net.decoder[0].weight.div_(4)
    after = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))[1]
    for name in before:
        torch.testing.assert_close(before[name], after[name])
    assert float(before["penalty"]) > 0


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_obeys_the_laws_of_methods(name: str, toy: FactorData) -> None:
    assert_stack_equals_single_runs(vary_hyperparameters(VARIANTS[name]), toy, latents=24)
    assert_vmap_equals_one_by_one(vary_hyperparameters(VARIANTS[name]), toy, latents=24)
    assert_every_parameter_learns(dataclasses.replace(VARIANTS[name], threshold=0.05), toy, latents=24)


@pytest.mark.parametrize("name", ["topk", "relu"])
def test_recovers_the_features_of_sparse_mixtures(name: str) -> None:
    """Vectors are multiples of one of 12 directions in 16 dimensions. Each direction becomes a decoder vector."""
    g = np.random.default_rng(0)
    directions = g.normal(size=(12, 16))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    kind = g.integers(0, 12, size=2000)
    x = (directions[kind] * g.uniform(1, 2, size=(2000, 1))).astype(np.float32)
    method = SAE(activation="topk", k=1) if name == "topk" else SAE(activation="relu", sparsity=0.3)
    (run,) = ub.train(method, ub.data.from_arrays(x), steps=800, batch=64, latents=48, learning_rate=5e-3, quiet=True)
    decoder: Any = run.net.decoder
    learned = torch.nn.functional.normalize(decoder[0].weight.detach(), dim=0).numpy()
    best = (directions @ learned).max(axis=1)
    assert best.min() > 0.95
    codes = run.encode(torch.as_tensor(x))
    assert codes.shape == (2000, 48)
    assert float((codes > 0).float().sum(1).mean()) < 3


@torch.no_grad()
def test_a_traversal_has_no_negative_activations() -> None:
    torch.manual_seed(0)
    method = SAE(activation="topk", k=2)
    net = method.build(mlp, (16,), 24, "gaussian")
    q = net.encode(torch.randn(50, 16))
    one, positions = Gaussian(q.mean[:1], q.logvar[:1]), torch.linspace(-2, 2, 5)
    z, _, labels = method.traversal(net, one, q, positions)
    unbounded = point_traversal(method.points(net, one), method.points(net, q), positions)
    assert torch.equal(z, unbounded.z.relu())
    assert (unbounded.z < 0).any()
    assert labels == unbounded.labels


def test_more_active_features_than_latents_raise(toy: FactorData) -> None:
    with pytest.raises(UserError, match=r"at most the number of latents, 3. Got 4 instead"):
        SAE(k=4).check(toy, 8, 3)
