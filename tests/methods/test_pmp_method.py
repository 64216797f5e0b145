"""The objective, pairs and codes of PMP, and the shared tests of methods while every term has a positive weight."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from oracles import pmp as loops
from support.engine_laws import (
    assert_divergence_affects_one_run,
    assert_every_parameter_learns,
    assert_resume_equals_uninterrupted,
    assert_stack_equals_single_runs,
    assert_vmap_equals_one_by_one,
    assert_vmap_equals_one_by_one_on_images,
    vary_hyperparameters,
)
from support.pmp_examples import ALL_TERMS, VectorTable, build_pmp, make_noise, random_codes
from unbraid.data import load
from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import Labelled
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods import PMP, Batch, RowLabel
from unbraid.methods import pmp_losses as losses
from unbraid.methods.pmp import pairs_sharing_one_factor, reconstruction_error
from unbraid.methods.pmp_losses import Projectors
from unbraid.nets.vae import VAENet
from unbraid.training import loop


def test_projectors_equal_separate_networks() -> None:
    """With the same seed, the weights and outputs are those of k separate networks and those of plain loops."""
    torch.manual_seed(5)
    projectors = Projectors(3, 4).double()
    torch.manual_seed(5)
    separate = [nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).double() for _ in range(3)]
    z = random_codes(6, 4)
    actual = projectors(z)
    torch.testing.assert_close(actual, torch.stack([net(z) for net in separate], 1))
    for i in range(3):
        layers = [(w[i].tolist(), c[i].tolist()) for w, c in ((projectors.weight1, projectors.bias1),
                                                              (projectors.weight2, projectors.bias2))]  # fmt: skip
        assert actual[0, i].tolist() == pytest.approx(loops.projected_vector(z[0].tolist(), layers))


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_reconstruction_is_averaged_over_pixels(likelihood: str) -> None:
    net = VAENet(nn.Flatten(), nn.Sequential(nn.Linear(2, 12), nn.Unflatten(1, (3, 2, 2))), likelihood)
    x, z = torch.rand(5, 3, 2, 2), torch.randn(5, 2)
    expected = nn.BCELoss() if likelihood == "bernoulli" else nn.MSELoss()
    torch.testing.assert_close(reconstruction_error(net, x, z), expected(net.decode(z), x))


@pytest.mark.parametrize("step", [0, 10, 41, 44, 47, 60, 200])
@pytest.mark.parametrize("preset", ["paper", "code"])
def test_objective_is_the_weighted_sum(step: int, preset: losses.Preset, toy: FactorData) -> None:
    """Each term equals its plain loops. The consistency term has weight 0 while b2 <= 0.01."""
    method = PMP(preset, "pairs", 3, 100.0, 0.3, 0.7, 50.0, 0.02)
    net = build_pmp(toy, method)
    with torch.no_grad():
        x = toy.batch(method.draw(toy, make_noise(1), 12).examples)
        loss, terms = method.objective(net, Batch(x, len(toy)), make_noise(2), torch.tensor(float(step)))
        s = method.subspace_codes(net, net.encode(x))
        first, second = s.chunk(2)
        mixed = losses.mix_subspaces(first, second, make_noise(2))
        recovered = method.subspace_codes(net, net.encode(net.decode(mixed.sum(1))))
        rec = (net.decode(s.sum(1)) - x).square().mean()
    a, b = first.tolist(), second.tolist()
    expected = {
        "rec": float(rec),
        "distance": loops.distance(a, b),
        "sparsity": loops.sparsity(a + b),
        "consistency": float((recovered - mixed).square().mean()),
        "regularisation": loops.regularisation(a, b),
    }
    assert {name: float(value) for name, value in terms.items()} == pytest.approx(expected, rel=1e-4)
    b1, b2, b3 = loops.weights(step / 100, 1, preset)
    total = expected["rec"] + b1 * (0.3 * expected["distance"] + 0.7 * expected["sparsity"])
    total += (b2 if b2 > 1e-2 else 0) * 50 * expected["consistency"] + b3 * 0.02 * expected["regularisation"]
    assert float(loss) == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("term", ["distance", "sparsity", "consistency", "regularisation"])
def test_a_weight_of_zero_removes_its_term(term: str, toy: FactorData) -> None:
    full = PMP(subspaces=3, horizon=100.0)
    net = build_pmp(toy, full)
    batch = Batch(toy.batch(full.draw(toy, make_noise(1), 12).examples), len(toy))
    step = torch.tensor(45.0)
    with torch.no_grad():
        loss, terms = full.objective(net, batch, make_noise(2), step)
        without, _ = dataclasses.replace(full, **{term: 0.0}).objective(net, batch, make_noise(2), step)
    b1, b2, b3 = loops.weights(0.45, 1, "paper")
    weight = {"distance": b1, "sparsity": b1, "consistency": b2, "regularisation": b3}[term]
    assert float(loss - without) == pytest.approx(weight * getattr(full, term) * float(terms[term]), rel=1e-3, abs=1e-6)


def test_consistency_has_gradients_for_all_networks(toy: FactorData) -> None:
    """Nothing is detached, so encoder, projectors and decoder receive gradients."""
    method = PMP(subspaces=3, horizon=1.0, distance=0.0, sparsity=0.0, regularisation=0.0)
    net = build_pmp(toy, method)
    batch = Batch(toy.batch(method.draw(toy, make_noise(1), 12).examples), len(toy))
    _, terms = method.objective(net, batch, make_noise(2), torch.tensor(1.0))
    named = dict(net.named_parameters())
    grads = torch.autograd.grad(terms["consistency"], list(named.values()))
    assert all(grad.abs().sum() > 0 for grad in grads)


def test_log_variances_are_not_used(toy: FactorData) -> None:
    method = dataclasses.replace(ALL_TERMS, horizon=1.0)
    net = build_pmp(toy, method)
    batch = Batch(toy.batch(method.draw(toy, make_noise(1), 12).examples), len(toy))
    loss, _ = method.objective(net, batch, make_noise(2), torch.tensor(1.0))
    last = list(net.encoder.parameters())[-1]
    (grad,) = torch.autograd.grad(loss, last)
    assert grad[:4].all()
    assert not grad[4:].any()


def test_sharing_pairs_agree_in_one_factor(toy: FactorData) -> None:
    pairs = pairs_sharing_one_factor(toy, make_noise(), 4_000)
    a, b = toy.factors(pairs.examples[:, 0]), toy.factors(pairs.examples[:, 1])
    same = ~pairs.changed
    assert same.sum(1).eq(1).all()
    assert (a == b)[same].all()
    assert same.float().mean(0).tolist() == pytest.approx([0.25] * 4, abs=0.03)
    for j, size in enumerate(toy.sizes):
        repeated = (a == b)[:, j][pairs.changed[:, j]].float().mean()
        assert float(repeated) == pytest.approx(1 / size, abs=0.04)


@pytest.mark.parametrize("kind", ["pairs", "sharing"])
@pytest.mark.parametrize("option", ["subset=20", "holdout=range"])
def test_pairs_need_all_examples(kind: Literal["pairs", "sharing"], option: str) -> None:
    """The second example of a pair can lie outside a subset, or be held out."""
    with pytest.raises(UserError, match=r"all combinations of factor values must be available"):
        PMP(pairs=kind).draw(load(f"sprites?{option}"), make_noise(), 16)


@pytest.mark.parametrize("kind", ["pairs", "sharing"])
def test_first_examples_come_before_their_partners(kind: str, toy: FactorData) -> None:
    drawn = PMP(pairs=kind).draw(toy, make_noise(), 64)
    assert drawn.examples.shape == (64,)
    assert drawn.changed is not None
    assert drawn.changed.shape == (32, 4)
    first, second = toy.factors(drawn.examples[:32]), toy.factors(drawn.examples[32:])
    assert (first == second)[~drawn.changed].all()
    assert (first != second).any()


def test_invalid_settings_raise(toy: FactorData) -> None:
    method = PMP()
    method.check(toy, 64, 10)
    with pytest.raises(ValueError, match=r"must be even. Got 63"):
        method.check(toy, 63, 10)
    with pytest.raises(ValueError, match="full grid"):
        method.check(Labelled("own", ("a", "b"), (2, 2), torch.zeros(3, 2), torch.zeros(3, 2).long()), 64, 10)
    with pytest.raises(ValueError, match="two factors that vary"):
        method.check(VectorTable("line", ("a", "b"), (5, 1), (2,), torch.zeros(5, 2)), 64, 10)
    for wrong in ({"subspaces": 1}, {"horizon": -1.0}, {"preset": "both"}, {"distance": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PMP(**wrong)  # type: ignore[arg-type]


def random_posteriors(n: int, d: int = 4) -> Gaussian:
    return Gaussian(torch.randn(n, d, generator=torch.Generator().manual_seed(2)), torch.zeros(n, d))


def test_codes(toy: FactorData) -> None:
    """Codes are the sum of all subspaces, or the first principal component of each, here computed with NumPy's SVD."""
    method, q = PMP(subspaces=3), random_posteriors(50)
    net = build_pmp(toy, method)
    with torch.no_grad():
        s = method.subspace_codes(net, q)
        torch.testing.assert_close(method.code(net, q, "sum", make_noise()), s.sum(1))
        components = method.code(net, q, "components", make_noise())
    assert components.shape == (50, 3)
    for i in range(3):
        centred = s[:, i].double().numpy() - s[:, i].double().numpy().mean(0)
        first = np.linalg.svd(centred)[2][0]
        first = first * np.sign(first[np.abs(first).argmax()])
        np.testing.assert_allclose(components[:, i].numpy(), centred @ first, atol=1e-5)
    assert method.code_kinds == ("sum", "components")
    assert method.information(q) is None  # there is no posterior


def test_traversal_moves_one_subspace_along_its_axis(toy: FactorData) -> None:
    method, population = PMP(subspaces=3), random_posteriors(80)
    net = build_pmp(toy, method)
    q = Gaussian(population.mean[:1], population.logvar[:1])
    positions = torch.linspace(-2, 2, 5)
    with torch.no_grad():
        traversal = method.traversal(net, q, population, positions)
        s, own = method.subspace_codes(net, population), method.subspace_codes(net, q)
    assert traversal.z.shape == (3, 5, 4)
    torch.testing.assert_close(traversal.start, own.sum(1))
    order = [label.column or 0 for label in traversal.labels]
    deviations = [float(losses.principal_axis(s[:, i]).std) for i in order]
    assert traversal.labels == [RowLabel(f"subspace {i}", i, std=v) for i, v in zip(order, deviations, strict=True)]
    assert sorted(order) == [0, 1, 2]
    assert deviations == sorted(deviations, reverse=True)
    for row, i in enumerate(order):
        axis = losses.principal_axis(s[:, i])
        subspace = traversal.z[row] - (own.sum(1) - own[:, i])
        torch.testing.assert_close(axis.coordinate(subspace), positions * axis.std, atol=1e-5, rtol=1e-4)
        assert float((subspace[1:] - subspace[:-1]).norm(dim=1).std()) < 1e-5


def test_principal_axis_of_points_on_a_line() -> None:
    t = torch.linspace(-1, 1, 101, dtype=torch.float64)[:, None]
    axis = losses.principal_axis(torch.tensor([3.0, 1.0], dtype=torch.float64) + t * torch.tensor([0.6, -0.8]).double())
    assert axis.direction.tolist() == pytest.approx([-0.6, 0.8])  # the largest entry is positive
    assert axis.centre.tolist() == pytest.approx([3.0, 1.0])
    assert float(axis.std) == pytest.approx(float(t.std(correction=0)))


# The shared tests of methods, while every term has a positive weight.


def test_stack_equals_single_runs(sprites: FactorData) -> None:
    assert_stack_equals_single_runs(vary_hyperparameters(ALL_TERMS, but=["horizon"]), sprites)


@pytest.mark.parametrize("preset", ["paper", "code"])
@pytest.mark.parametrize("kind", ["pairs", "sharing"])
def test_vmap_equals_one_by_one(preset: losses.Preset, kind: str, toy: FactorData) -> None:
    base = dataclasses.replace(ALL_TERMS, preset=preset, pairs=kind)
    methods = [
        dataclasses.replace(m, horizon=4.0 + i) for i, m in enumerate(vary_hyperparameters(base, but=["horizon"]))
    ]
    assert_vmap_equals_one_by_one(methods, toy, steps=(0, 3), rtol=2e-3)


def test_vmap_equals_one_by_one_on_images(sprites: FactorData) -> None:
    assert_vmap_equals_one_by_one_on_images(
        vary_hyperparameters(ALL_TERMS, 2, but=["horizon"]), sprites, taken=4, rtol=2e-3
    )


@pytest.mark.parametrize("step", [1, 4])
def test_every_parameter_learns(step: int, toy: FactorData) -> None:
    assert_every_parameter_learns(ALL_TERMS, toy, step)


@pytest.mark.parametrize("vmapped", [False, True])
def test_divergence_affects_one_run(vmapped: bool, toy: FactorData) -> None:
    assert_divergence_affects_one_run(ALL_TERMS, toy, vmapped, steps_before=3)


def test_resume_equals_uninterrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_LOG_LINES", 4)
    assert_resume_equals_uninterrupted(ALL_TERMS, tmp_path, monkeypatch, seeds=[0, 1])
