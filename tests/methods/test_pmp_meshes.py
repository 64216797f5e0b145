"""PMP on meshes with the PointNet, and on generated data whose true factors it should recover."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from support.engine_laws import make_stack, vary_hyperparameters
from support.meshes import spheres
from support.pmp_examples import ALL_TERMS, make_noise
from unbraid.data import known_sources
from unbraid.methods import PMP
from unbraid.methods import pmp_losses as losses
from unbraid.metrics.mcc import absolute_correlations, best_assignment_mean
from unbraid.nets.checking import check_net
from unbraid.nets.mlp import mlp
from unbraid.nets.pointnet import PointFeatures, pointnet
from unbraid.nets.vae import VAENet
from unbraid.pictures.subspaces import swap_subspaces
from unbraid.runs.network import build_net
from unbraid.runs.run import Run, load_weights
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack


def test_pointnet_does_not_depend_on_the_order_of_vertices() -> None:
    encoder, decoder = pointnet((300,), 4)
    check_net(VAENet(encoder, decoder, "gaussian"), (300,), 4)
    x = torch.randn(5, 300)
    shuffled = x.view(5, 100, 3)[:, torch.randperm(100)].flatten(1)
    torch.testing.assert_close(encoder(x), encoder(shuffled))
    torch.testing.assert_close(encoder(x)[:2], encoder(x[:2]))  # an example does not depend on its batch
    assert not [name for name, _ in nn.ModuleList([encoder, decoder]).named_buffers()]


def test_pointnet_has_the_widths_of_the_paper() -> None:
    encoder, _ = pointnet((300,), 4)
    widths = [(layer.in_features, layer.out_features) for layer in encoder.modules() if isinstance(layer, nn.Linear)]
    assert widths == list(itertools.pairwise((3, 25, 50, 100, 200, 150, 120, 100, 8)))
    for shape in ((301,), (1, 64, 64)):
        with pytest.raises(ValueError, match="3 numbers per vertex"):
            pointnet(shape, 4)


def test_pointnet_has_the_gradients_of_a_plain_maximum() -> None:
    torch.manual_seed(0)
    features, points = PointFeatures((3, 5, 7, 6)), torch.randn(4, 50, 3, requires_grad=True)
    plain = features.last(features.layers(points)).amax(1)
    inputs = [points, *features.parameters()]
    weights = torch.randn_like(plain)
    for at_once in (1, 120, 10_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(importlib.import_module("unbraid.nets.pointnet"), "POINTS_AT_ONCE", at_once)
            output = features(points)
        torch.testing.assert_close(output, plain)
        pairs = [torch.autograd.grad((out * weights).sum(), inputs, retain_graph=True) for out in (output, plain)]
        for actual, expected in zip(*pairs, strict=True):
            torch.testing.assert_close(actual, expected)


def test_pointnets_train_in_a_stack() -> None:
    data, methods = spheres(), vary_hyperparameters(dataclasses.replace(ALL_TERMS, pairs="sharing"), 2, but=["horizon"])
    a, b = (make_stack(methods, data, [3, 1], [1e-3, 1e-4], vmapped, builder=pointnet) for vmapped in (False, True))
    _, grad = a._gradients_one_by_one(torch.tensor(4))
    for parameter, g in a.layout.unflatten(grad[0]).items():
        assert g.abs().sum() > 0, parameter
    for _ in range(4):
        a.advance()
        b.advance()
    torch.testing.assert_close(a.last, b.last, rtol=2e-3, atol=1e-3)


def test_pointnet_learns_meshes(tmp_path: Path) -> None:
    """Before the consistency term has much weight, the error falls far below the variance of the meshes."""
    data = spheres()
    s = make_stack([PMP(pairs="sharing", subspaces=2, horizon=600.0)], data, [0], [3e-3], builder=pointnet)
    for _ in range(150):
        s.advance()
    s.pop_mean_terms()
    for _ in range(50):
        s.advance()
    assert s.pop_mean_terms()[0]["rec"] < 0.4 * float((data.table - data.table.mean(0)).square().mean())
    net = load_weights(build_net(s.specs[0], data.shape, pointnet), s.weights(0), "memory")
    assert swap_subspaces(Run(s.specs[0], net), data, donors=[0, 24], out=tmp_path).exists()


@pytest.mark.slow
def test_recovers_the_factors_of_a_product() -> None:
    """With three subspaces of three coordinates and the paper's weights, each factor has its own coordinate.

    The medians of three seeds are compared with an autoencoder without the terms of PMP, which is the last run.
    """
    data, factors = known_sources.curved_product()
    no_terms = {"distance": 0.0, "sparsity": 0.0, "consistency": 0.0, "regularisation": 0.0}
    methods = [*[PMP(subspaces=3, horizon=2500.0)] * 3, PMP(subspaces=3, horizon=2500.0, **no_terms)]
    specs = [RunSpec(m, "product", seed, 2500, 64, 2e-3, 3, "mlp", "gaussian")
             for m, seed in zip(methods, (0, 1, 2, 0), strict=True)]  # fmt: skip
    stacked = Stack(specs, data, mlp)
    for _ in range(2500):
        stacked.advance()
    results = []
    for i, spec in enumerate(specs):
        net = load_weights(build_net(spec, data.shape, mlp), stacked.weights(i), "memory")
        q = net.encode(data.table)
        correlations = [
            absolute_correlations(methods[i].code(net, q, kind, make_noise()).numpy(), factors.numpy())
            for kind in PMP.code_kinds
        ]
        sparsity = float(losses.sparsity(methods[i].subspace_codes(net, q)))
        distinct = len(set(correlations[0].argmax(0).tolist()))
        results.append((sparsity, distinct, *map(best_assignment_mean, correlations)))
    *runs, autoencoder = results
    sparsity, distinct, mcc_of_sum, _ = np.median(runs, axis=0)
    assert sparsity < 1e-2 < autoencoder[0]
    assert distinct == 3
    assert mcc_of_sum > max(0.8, autoencoder[2])
