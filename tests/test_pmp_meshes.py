"""PMP on meshes and planted products, and pictures of swapped subspaces."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from engine_laws import stack, varied
from oracles import pmp as loops
from test_pmp import ACTIVE, Vectors, codes, noise
from unbraid.data.base import FactorData
from unbraid.data.toy import bend
from unbraid.engine.stack import Stack
from unbraid.errors import Refusal
from unbraid.methods import VAE
from unbraid.methods import pmp_losses as losses
from unbraid.methods.pmp import PMP
from unbraid.nets.build import build_net, check_net, name_net
from unbraid.nets.mlp import mlp
from unbraid.nets.pointnet import pointnet
from unbraid.nets.vae import VAENet
from unbraid.run import Run, load_weights
from unbraid.spec import RunSpec
from unbraid.swapping import swap_rows, swap_subspaces, swapped

# Swapping.


def test_swapped_by_hand() -> None:
    own, donors = codes(3, 2, seed=1), codes(4, 3, 2, seed=2)
    found = swapped(own, donors)
    for i, j in itertools.product(range(3), range(4)):
        expected = loops.mixture(donors[j].tolist(), own.tolist(), i)
        assert found[i, j].tolist() == pytest.approx([sum(v) for v in zip(*expected, strict=True)])


def test_swapping_draws_a_row_a_subspace(sprites: FactorData, tmp_path: Path) -> None:
    spec = RunSpec(PMP(subspaces=3), "sprites", latents=4)
    run = Run(spec, build_net(spec, sprites.shape, name_net("locatello")[1]).eval())
    rows = swap_rows(run, PMP(subspaces=3), sprites, torch.tensor([5, 5, 9]))
    assert [len(tiles) for _, tiles in rows] == [3] * 4
    assert torch.equal(rows[0][1][2], sprites.batch(torch.tensor([9]))[0])
    for _, tiles in rows[1:]:
        torch.testing.assert_close(tiles[0], tiles[1])  # the example's own subspace changes nothing
        assert not torch.equal(tiles[0], tiles[2])
    path = swap_subspaces(run, example=5, donors=[7, 9], out=tmp_path)
    with Image.open(path) as picture:
        assert picture.width > picture.height > 0
    assert swap_subspaces(run, sprites, out=tmp_path) == path


def test_swapping_refuses(sprites: FactorData, tmp_path: Path) -> None:
    def untrained(method: VAE | PMP) -> Run:
        spec = RunSpec(method, "sprites", latents=4)
        return Run(spec, build_net(spec, sprites.shape, name_net("locatello")[1]).eval())

    with pytest.raises(Refusal, match="needs a run of PMP"):
        swap_subspaces(untrained(VAE()), sprites, out=tmp_path)
    with pytest.raises(Refusal, match="pass out="):
        swap_subspaces(untrained(PMP()), sprites)
    with pytest.raises(ValueError, match="at least one donor"):
        swap_subspaces(untrained(PMP()), sprites, donors=[], out=tmp_path)
    with pytest.raises(ValueError, match="must lie in"):
        swap_subspaces(untrained(PMP()), sprites, donors=[10**9], out=tmp_path)


# Meshes.


def spheres() -> Vectors:
    """5 subjects (proportions) in 5 poses (bends) of a sphere of 100 points."""
    i = torch.arange(100) + 0.5
    polar, turn = (1 - i / 50).acos(), math.pi * (1 + 5**0.5) * i
    sphere = torch.stack([polar.sin() * turn.cos(), polar.sin() * turn.sin(), polar.cos()], 1)
    meshes = []
    for subject, pose in itertools.product(torch.linspace(-1, 1, 5), torch.linspace(-1, 1, 5)):
        body = sphere * torch.stack([1 + 0.3 * subject, 1 - 0.2 * subject, torch.tensor(1.5)])
        bend = 0.6 * pose * body[:, 2]
        x, z = body[:, 0] * bend.cos() - body[:, 2] * bend.sin(), body[:, 0] * bend.sin() + body[:, 2] * bend.cos()
        meshes.append(torch.stack([x, body[:, 1], z], 1).flatten())
    table = torch.stack(meshes)
    data = Vectors("spheres", ("subject", "pose"), (5, 5), (300,), table)
    data.faces = torch.zeros(1, 3).long()  # type: ignore[attr-defined]
    return data


def test_pointnet_sees_a_set_of_points() -> None:
    encoder, decoder = pointnet((300,), 4)
    check_net(VAENet(encoder, decoder, "gaussian"), (300,), 4)
    x = torch.randn(5, 300)
    shuffled = x.view(5, 100, 3)[:, torch.randperm(100)].flatten(1)
    torch.testing.assert_close(encoder(x), encoder(shuffled))
    torch.testing.assert_close(encoder(x)[:2], encoder(x[:2]))  # an example does not depend on its batch
    assert not [name for name, _ in nn.ModuleList([encoder, decoder]).named_buffers()]
    widths = [(layer.in_features, layer.out_features) for layer in encoder.modules() if isinstance(layer, nn.Linear)]
    assert widths == list(itertools.pairwise((3, 25, 50, 100, 200, 150, 120, 100, 8)))
    for shape in ((301,), (1, 64, 64)):
        with pytest.raises(ValueError, match="3 numbers a vertex"):
            pointnet(shape, 4)


def test_pointnet_stacks() -> None:
    data, methods = spheres(), varied(dataclasses.replace(ACTIVE, pairs="sharing"), 2, but=["horizon"])
    a, b = (stack(methods, data, [3, 1], [1e-3, 1e-4], vmapped, builder=pointnet) for vmapped in (False, True))
    _, grad = a._gradients_in_turn(torch.tensor(4))
    for parameter, g in a.layout.unflatten(grad[0]).items():
        assert g.abs().sum() > 0, parameter
    for _ in range(4):
        a.advance()
        b.advance()
    torch.testing.assert_close(a.last, b.last, rtol=2e-3, atol=1e-3)


def test_pointnet_learns_meshes(tmp_path: Path) -> None:
    """With all terms but the slowest at work the error of steps 150 to 200 is far below the meshes' variance."""
    data = spheres()
    s = stack([PMP(pairs="sharing", subspaces=2, horizon=600.0)], data, [0], [3e-3], builder=pointnet)
    for _ in range(150):
        s.advance()
    s.means()
    for _ in range(50):
        s.advance()
    assert s.means()[0]["rec"] < 0.4 * float((data.table - data.table.mean(0)).square().mean())
    net = load_weights(build_net(s.specs[0], data.shape, pointnet), s.weights(0), "memory")
    assert swap_subspaces(Run(s.specs[0], net), data, donors=[0, 24], out=tmp_path).exists()


# What is learned.


def product() -> tuple[Vectors, Tensor]:
    """512 vectors, a smooth curved embedding of three factors of equal strength, as spread as pixels are; the factors.

    Orthonormal mixing, the increasing `bend`, orthonormal mixing: injective.
    """
    g = torch.Generator().manual_seed(4)
    factors = torch.cartesian_prod(*[torch.linspace(-1, 1, 8)] * 3)
    p, r = (torch.linalg.qr(torch.randn(12, width, generator=g))[0] for width in (3, 12))
    x = bend(2 * factors @ p.T) @ r.T
    x = x - x.mean(0)
    return Vectors("product", ("a", "b", "c"), (8, 8, 8), (12,), 0.25 * x / x.square().mean().sqrt()), factors


def correlations(factors: Tensor, code: Tensor) -> Tensor:
    """Absolute correlations, (factors, codes)."""
    a, b = ((v - v.mean(0)) / (v.std(0, correction=0) + 1e-9) for v in (factors, code))
    return (a.T @ b / len(a)).abs()


def matched(corr: Tensor) -> float:
    """The mean correlation of the best one-to-one assignment."""
    rows, columns = linear_sum_assignment(-corr.numpy())
    return float(corr[rows, columns].mean())


@pytest.mark.slow
def test_recovers_the_factors_of_a_product() -> None:
    """Three subspaces of three coordinates, the paper's weights, medians of three seeds: a coordinate for each factor.

    The autoencoder without them (the last run) has neither.
    """
    data, factors = product()
    bare = {"distance": 0.0, "sparsity": 0.0, "consistency": 0.0, "regularisation": 0.0}
    methods = [*[PMP(subspaces=3, horizon=2500.0)] * 3, PMP(subspaces=3, horizon=2500.0, **bare)]
    specs = [RunSpec(m, "product", seed, 2500, 64, 2e-3, 3, "mlp", "gaussian")
             for m, seed in zip(methods, (0, 1, 2, 0), strict=True)]  # fmt: skip
    stacked = Stack(specs, data, mlp)
    for _ in range(2500):
        stacked.advance()
    found = []
    for i, spec in enumerate(specs):
        net = load_weights(build_net(spec, data.shape, mlp), stacked.weights(i), "memory")
        q = net.encode(data.table)
        codes_of = [correlations(factors, methods[i].code(net, q, kind, noise())) for kind in PMP.code_kinds]
        rest = float(losses.sparsity(methods[i].project(net, q)))
        found.append((rest, len(set(codes_of[0].argmax(1).tolist())), *map(matched, codes_of)))
    *runs, plain = found
    rest, distinct, by_sum, _ = np.median(runs, axis=0)
    assert rest < 1e-2 < plain[0]
    assert distinct == 3
    assert by_sum > max(0.8, plain[2])
