"""Tests of the warm-up of the KL term, and of the three weights of the beta-TCVAE."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.methods import METHODS, VAE, BetaTCVAE, BetaVAE, Method
from unbraid.methods.beta_tcvae import ESTIMATORS, decompose_kl
from unbraid.methods.method import Batch
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.reporting.runs_table import short_labels
from unbraid.runs.network import build_net
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec

WARMED = ("vae", "beta_vae", "beta_tcvae", "dip_vae_i", "dip_vae_ii")
STEPS = 100


def loss_at(method: Method, data: FactorData, step: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss and the terms of a method at a step of a training of `STEPS` steps, always on the same batch."""
    torch.manual_seed(0)
    net = VAENet(*mlp(data.shape, 3), likelihood="gaussian").double()
    batch = Batch(data.batch(torch.arange(12)).double(), len(data), steps=STEPS)
    return method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(float(step)))


@pytest.mark.parametrize("name", WARMED)
@pytest.mark.parametrize(("step", "weight"), [(0, 0.0), (10, 0.25), (40, 1.0), (99, 1.0)])
def test_warmup_scales_the_divergences(name: str, step: int, weight: float, toy: FactorData) -> None:
    """The loss lies between that without divergences and that without warm-up, as the paper's weight prescribes."""
    method = METHODS[name]()
    full, terms = loss_at(method, toy, step)
    penalty = terms.get("dip", torch.tensor(0.0))
    warmed = loss_at(replace(method, warmup=0.4), toy, step)[0]  # type: ignore[call-arg]
    torch.testing.assert_close(warmed, (1 - weight) * (terms["rec"] + penalty) + weight * full)


@pytest.mark.parametrize("name", WARMED)
def test_new_fields_at_their_defaults_leave_specs_unchanged(name: str) -> None:
    """Ids and records are those of a method without the field. Any other value changes the id and survives JSON."""
    spec = RunSpec(METHODS[name](), "sprites")
    warmed = RunSpec(METHODS[name](warmup=0.5), "sprites")
    assert not {"warmup", "alpha"} & set(spec.to_dict()["method"])
    assert not {"warmup", "alpha"} & set(spec.flat())
    assert spec.flat(complete=True)["warmup"] == 0.0
    assert warmed.to_dict()["method"]["warmup"] == 0.5
    assert warmed.id != spec.id
    assert warmed.stack_key() == spec.stack_key()
    assert RunSpec.from_dict(warmed.to_dict()) == warmed
    assert sorted([warmed, spec], key=RunSpec.sort_key) == [spec, warmed]


def test_ids_of_the_release_before_are_kept() -> None:
    """The ids were computed before the methods had optional fields."""
    ids = {
        "vae": "7e704f19a709",
        "beta_vae": "1181bb84ef86",
        "beta_tcvae": "6ce0947e0eb4",
        "dip_vae_i": "134364513605",
        "dip_vae_ii": "87d796728f5d",
    }
    assert {name: RunSpec(METHODS[name](), "sprites").id for name in WARMED} == ids


@pytest.mark.parametrize("cls", METHODS.values())
def test_optional_fields_come_last(cls: type[Method]) -> None:
    """Positional arguments keep their meaning when a field is added."""
    optional = [bool(field.metadata.get("optional")) for field in dataclasses.fields(cls)]
    assert optional == sorted(optional)


def latents(n: int = 40, d: int = 3) -> tuple[Gaussian, Tensor]:
    """Return posteriors and one sample of each."""
    g = torch.Generator().manual_seed(4)
    q = Gaussian(torch.randn(n, d, generator=g).double(), torch.randn(n, d, generator=g).double() - 2)
    return q, q.mean + (0.5 * q.logvar).exp() * torch.randn(n, d, generator=g).double()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_three_parts_sum_to_the_sampled_kl(estimator: str) -> None:
    q, z = latents()
    parts = decompose_kl(q, z, ESTIMATORS[estimator](40, 500).double())
    torch.testing.assert_close(sum(parts), q.log_ratio(z).sum(1).mean())


def test_parts_of_known_posteriors() -> None:
    """Far-apart, equally likely examples have the information log n. One example for all has none, and no correlation.

    With uniform weights over all examples, q(z) is exact.
    """
    n = 16
    uniform = torch.full((n, n), 1 / n, dtype=torch.float64).log()
    place = torch.arange(n).double()[:, None]
    apart = Gaussian(100 * torch.cat([place, -place], 1), torch.zeros(n, 2).double())
    parts = decompose_kl(apart, apart.mean, uniform)
    assert float(parts.information) == pytest.approx(math.log(n))
    assert float(parts.total_correlation) == pytest.approx(math.log(n))  # each latent determines the other
    alike = Gaussian(torch.ones(n, 2).double(), torch.zeros(n, 2).double())
    parts = decompose_kl(alike, alike.mean, uniform)
    assert [float(part) for part in parts[:2]] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert float(parts.dimension_wise) == pytest.approx(1.0)  # log N(1; 1, 1) - log N(1; 0, 1) = 1/2 per latent


def test_each_weight_multiplies_its_part(toy: FactorData) -> None:
    """The loss is linear in alpha, beta and gamma, and each slope is the part that it weights."""
    torch.manual_seed(0)
    net = VAENet(*mlp(toy.shape, 3), likelihood="gaussian").double()
    x, weights = toy.batch(torch.arange(12)).double(), ESTIMATORS["weighted"](12, len(toy)).double()
    q = net.encode(x)
    parts = decompose_kl(q, q.sample(Noise(torch.tensor(0))), weights)
    plain = loss_at(BetaTCVAE(beta=1.0), toy, 0)[0]
    for method, part in zip(
        (BetaTCVAE(beta=1.0, alpha=3.0), BetaTCVAE(beta=3.0), BetaTCVAE(beta=1.0, gamma=3.0)), parts, strict=True
    ):
        torch.testing.assert_close(loss_at(method, toy, 0)[0] - plain, 2 * part, rtol=1e-5, atol=1e-6)


def test_equal_weights_give_the_beta_vae_on_average() -> None:
    """With alpha = beta = gamma the loss weights the KL alone: the sum of the parts estimates the KL without bias."""
    q, z = latents(4000, 2)
    parts = decompose_kl(q, z, torch.full((4000, 4000), 1 / 4000).log().double())
    assert float(sum(parts)) == pytest.approx(float(q.kl().sum(1).mean()), rel=0.02)


def test_warmed_beta_vae_with_beta_one_is_a_warmed_vae(toy: FactorData) -> None:
    for step in (0, 30, 80):
        losses = [loss_at(method, toy, step)[0] for method in (BetaVAE(beta=1.0, warmup=0.5), VAE(warmup=0.5))]
        torch.testing.assert_close(*losses, rtol=0, atol=0)


def test_labels_of_a_report_name_an_optional_field_that_differs(toy: FactorData) -> None:
    """The field is shown for all runs, also for those whose spec leaves it out."""
    spec = RunSpec(BetaVAE(), "toy", net="mlp", likelihood="gaussian")
    specs = [spec, replace(spec, method=BetaVAE(warmup=0.5))]
    runs = [Run(one, build_net(one, toy.shape, mlp)) for one in specs]
    labels = short_labels(runs)
    assert [labels[run.id] for run in runs] == ["beta_vae warmup=0", "beta_vae warmup=0.5"], "beta is the same"


@pytest.mark.parametrize("name", [*WARMED, "u_vitae"])
def test_a_warmup_is_a_schedule_of_the_run(name: str) -> None:
    """A warm-up that is longer than the run does not end in it, so that training can warn about it."""
    assert METHODS[name](warmup=0.25).schedule_end(400) == 100
    assert METHODS[name](warmup=1.5).schedule_end(400) == 600
