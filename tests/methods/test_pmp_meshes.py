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
from scipy.spatial import ConvexHull
from test_pmp import ACTIVE, Vectors, codes, noise
from torch import nn

from oracles import pmp as loops
from support.engine_laws import stack, varied
from unbraid.data import known_sources as planted
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import VAE
from unbraid.methods import pmp_losses as losses
from unbraid.methods.pmp import PMP
from unbraid.metrics.mcc import correlation, matched
from unbraid.nets.mlp import mlp
from unbraid.nets.pointnet import PointFeatures, pointnet
from unbraid.nets.registry import check_net, name_net
from unbraid.nets.vae import VAENet
from unbraid.pictures.dataset import as_pictures, frame, mesh_pictures, points_picture
from unbraid.pictures.subspaces import swap_rows, swap_subspaces, swapped
from unbraid.pictures.traversal import LABEL, MARGIN, traverse
from unbraid.runs.network import build_net
from unbraid.runs.run import Run, load_weights
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

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

    with pytest.raises(UserError, match="needs a run of PMP"):
        swap_subspaces(untrained(VAE()), sprites, out=tmp_path)
    with pytest.raises(UserError, match="pass out="):
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
    faces = torch.from_numpy(ConvexHull(sphere.numpy()).simplices).long()
    a, b, c = (sphere[corner] for corner in faces.T)
    inward = (torch.linalg.cross(b - a, c - a) * a).sum(1) < 0
    data.faces = torch.where(inward[:, None], faces.flip(1), faces)  # type: ignore[attr-defined]
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


def test_pointnet_gives_the_gradients_of_a_plain_maximum() -> None:
    torch.manual_seed(0)
    features, points = PointFeatures((3, 5, 7, 6)), torch.randn(4, 50, 3, requires_grad=True)
    plain = features.last(features.layers(points)).amax(1)
    given = [points, *features.parameters()]
    weights = torch.randn_like(plain)
    for at_once in (1, 120, 10_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("unbraid.nets.pointnet.AT_ONCE", at_once)
            found = features(points)
        torch.testing.assert_close(found, plain)
        pairs = [torch.autograd.grad((out * weights).sum(), given, retain_graph=True) for out in (found, plain)]
        for ours, expected in zip(*pairs, strict=True):
            torch.testing.assert_close(ours, expected)


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


def untrained(data: FactorData) -> Run:
    spec = RunSpec(PMP(pairs="sharing", subspaces=2), "spheres", latents=4, net="pointnet", likelihood="gaussian")
    return Run(spec, build_net(spec, data.shape, pointnet).eval())


def test_meshes_are_drawn_as_surfaces_in_one_frame() -> None:
    data = spheres()
    first, wide = as_pictures(data, torch.tensor([2, 22]))
    assert first.shape == wide.shape
    assert first.shape[1] >= 96
    across, down = ((picture > 0).any(1)[0].sum() for picture in (wide, first)), first.shape[1:]
    (w, f), (rows, columns) = across, down
    assert w > 1.3 * f  # the same scale for both: subject 0 is 0.7 wide, subject 4 is 1.3
    view = frame(data)
    assert (view.rows, view.columns) == (rows, columns)
    inside = (data.table.view(-1, 3)[:, :2] - torch.tensor(view.centre)).abs().amax(0)
    assert (inside <= view.metres / 2 * torch.tensor([columns / rows, 1])).all()
    filled = first[0] > 0
    lit = filled.nonzero()
    (top, left), (bottom, right) = lit.amin(0), lit.amax(0)
    assert filled[top : bottom + 1, left : right + 1].float().mean() > 0.6  # a surface, not 100 points


def test_meshes_without_a_surface_are_drawn_as_points() -> None:
    data = spheres()
    for faces in (torch.zeros(0, 3).long(), torch.zeros(1, 3).long()):
        data.faces = faces  # type: ignore[attr-defined]
        (picture,) = as_pictures(data, torch.tensor([3]))
        assert torch.equal(picture, points_picture(data.table[3].view(-1, 3)))
        assert 0 < int((picture > 0).sum()) <= 100


def test_swapping_and_traversal_draw_decoded_meshes(tmp_path: Path) -> None:
    data = spheres()
    run = untrained(data)
    rows = swap_rows(run, PMP(subspaces=2), data, torch.tensor([3, 3, 20]))
    code = run.encode(data.images([3]))
    expected = mesh_pictures(run.decode(code), data)[0]
    assert torch.equal(rows[0][1][2], as_pictures(data, torch.tensor([20]))[0])
    torch.testing.assert_close(rows[1][1][0], expected)
    png, gif = traverse(run, data, columns=3, out=tmp_path)
    with Image.open(png) as picture:
        high, wide = expected.shape[1] + MARGIN, expected.shape[2] + MARGIN
        assert picture.size == (LABEL + 3 * wide + MARGIN, 3 * high + MARGIN)
    assert gif.exists()


# What is learned.


@pytest.mark.slow
def test_recovers_the_factors_of_a_product() -> None:
    """Three subspaces of three coordinates, the paper's weights, medians of three seeds: a coordinate for each factor.

    The autoencoder without them (the last run) has neither.
    """
    data, factors = planted.product()
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
        codes_of = [
            correlation(methods[i].code(net, q, kind, noise()).numpy(), factors.numpy()) for kind in PMP.code_kinds
        ]
        rest = float(losses.sparsity(methods[i].project(net, q)))
        found.append((rest, len(set(codes_of[0].argmax(0).tolist())), *map(matched, codes_of)))
    *runs, plain = found
    rest, distinct, by_sum, _ = np.median(runs, axis=0)
    assert rest < 1e-2 < plain[0]
    assert distinct == 3
    assert by_sum > max(0.8, plain[2])
