"""The Diffusion VAE: its terms by hand, its laws on every space, and the circle it finds."""

from __future__ import annotations

import dataclasses
import math
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor

import unbraid as ub
from families.curved import KNOWN
from support.engine_laws import (
    assert_divergence_stays_home,
    assert_every_parameter_learns,
    assert_resume_equals_uninterrupted,
    assert_stack_equals_solo,
    assert_vmap_equals_turns,
    before_and_after,
)
from support.training import quick
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.methods import Method
from unbraid.methods.diffusion_vae import DiffusionVAE
from unbraid.methods.method import Batch
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.pictures.traversal import decode_traversal
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec

LATENTS = {"sphere": 4, "flat_torus": 4, "torus": 3, "projective": 4, "rotations": 9}
METHODS = [DiffusionVAE(space=space) for space in LATENTS] + [
    DiffusionVAE(walk_step="literal", walk_steps=5, time="free"),
    DiffusionVAE(iteration_threshold=10, beta=2.5, walk_steps=5),
]


def named(method: Method) -> str:
    changed = [f for f in dataclasses.fields(method) if getattr(method, f.name) != f.default]
    return " ".join(str(getattr(method, f.name)) for f in changed) or "default"


EVERY = pytest.mark.parametrize("method", METHODS, ids=named)


def varied(method: DiffusionVAE) -> list[DiffusionVAE]:
    return [dataclasses.replace(method, beta=b, c_min=c, c_max=c + 9) for b, c in ((1.0, 0.0), (2.5, 3.0), (10.0, 1.0))]


@EVERY
def test_stack_equals_solo(method: DiffusionVAE, toy: FactorData) -> None:
    assert_stack_equals_solo(varied(method), toy, latents=LATENTS[method.space])


@EVERY
def test_vmap_equals_turns(method: DiffusionVAE, toy: FactorData) -> None:
    assert_vmap_equals_turns(varied(method), toy, latents=LATENTS[method.space])


@EVERY
def test_every_parameter_learns(method: DiffusionVAE, toy: FactorData) -> None:
    assert_every_parameter_learns(method, toy, latents=LATENTS[method.space])


@pytest.mark.parametrize("space", LATENTS)
def test_loss_falls(space: str, toy: FactorData) -> None:
    method = dataclasses.replace(KNOWN["diffusion_vae"].gentle, space=space)
    before, after = before_and_after(method, toy, latents=LATENTS[space])
    assert after["rec"] < 0.8 * before["rec"]


@pytest.mark.parametrize("vmapped", [False, True])
@pytest.mark.parametrize("space", LATENTS)
def test_divergence_stays_home(space: str, vmapped: bool, toy: FactorData) -> None:
    assert_divergence_stays_home(DiffusionVAE(space=space), toy, vmapped, latents=LATENTS[space])


def test_killed_and_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A capacity on its way up goes on where it was."""
    method = DiffusionVAE(iteration_threshold=12, c_min=2.0, c_max=5.0)
    assert_resume_equals_uninterrupted(method, tmp_path, monkeypatch)


def network(method: DiffusionVAE, data: FactorData) -> VAENet:
    spec = RunSpec(method, data.name, latents=LATENTS[method.space], net="mlp", likelihood="gaussian")
    return build_net(spec, data.shape, resolve_net("mlp")[1])


def terms(method: DiffusionVAE, data: FactorData, step: int = 0) -> tuple[float, dict[str, float], Gaussian]:
    net, x = network(method, data), data.batch(torch.arange(8))
    with torch.no_grad():
        loss, found = method.objective(
            net, Batch(x, len(data)), Noise.of(torch.tensor(1), torch.tensor(0), 1), torch.tensor(float(step))
        )
        return float(loss), {name: float(value) for name, value in found.items()}, net.encode(x)


def test_terms_by_hand(toy: FactorData) -> None:
    """On the 3-sphere, with log t from the average of the log variances, one example after another."""
    loss, found, q = terms(DiffusionVAE(beta=2.5), toy)
    kl = []
    for row in q.logvar.tolist():
        log_t = -5.5 + 4.5 * math.tanh(sum(row) / 4)
        kl.append(-1.5 * math.log(2 * math.pi) - 1.5 * log_t - 1.5 + math.log(2 * math.pi**2) + 1.5 * math.exp(log_t))
    assert found["kl"] == pytest.approx(sum(kl) / 8, rel=1e-5)
    assert loss == pytest.approx(found["rec"] + 2.5 * found["kl"], rel=1e-6)


@pytest.mark.parametrize(("step", "capacity"), [(0, 1.0), (250, 4.5), (1000, 15.0), (5000, 15.0)])
def test_capacity_is_of_each_example(step: int, capacity: float, toy: FactorData) -> None:
    method = DiffusionVAE(beta=10.0, iteration_threshold=1000, c_min=1.0)
    loss, found, q = terms(method, toy, step)
    kl = method.manifold(4).kl(q.mean, method.log_t(q))
    assert found["capacity"] == pytest.approx(capacity)
    assert loss == pytest.approx(found["rec"] + 10 * float((kl - capacity).abs().mean()), rel=1e-5)


def test_capacity_pulls_examples_not_their_mean(toy: FactorData) -> None:
    """Where the capacity lies among the examples' divergences, the mean of distances exceeds the distance of means."""
    _, found, _ = terms(DiffusionVAE(), toy)
    loss, held, q = terms(DiffusionVAE(iteration_threshold=1, c_min=found["kl"], c_max=found["kl"]), toy)
    kl = DiffusionVAE().manifold(4).kl(q.mean, DiffusionVAE().log_t(q))
    assert loss - held["rec"] == pytest.approx(float((kl - kl.mean()).abs().mean()), rel=1e-3)
    assert loss - held["rec"] > 0.01


def test_time_keeps_its_bounds() -> None:
    """The bounds are those that are named: the published program's range was twice as wide."""
    q = Gaussian(torch.zeros(5, 3), torch.tensor([-1e3, -1.0, 0.0, 1.0, 1e3])[:, None].repeat(1, 3))
    bounded = DiffusionVAE(log_t_min=-7.5, log_t_max=-5.0).log_t(q)
    torch.testing.assert_close(bounded[[0, 2, 4]], torch.tensor([-7.5, -6.25, -5.0]))
    torch.testing.assert_close(bounded[3], torch.tensor(-6.25 + 1.25 * math.tanh(1)))
    torch.testing.assert_close(DiffusionVAE(time="free").log_t(q), q.logvar[:, 0])


def test_bounds_must_be_in_order() -> None:
    with pytest.raises(ValueError, match="above log_t_min"):
        DiffusionVAE(log_t_min=-3.0, log_t_max=-3.0)


@pytest.mark.parametrize("d", [10, 20])
@pytest.mark.parametrize("beta", [1.0, 2.5, 10.0])
def test_submissions_to_the_challenge_start_out_of_reach(d: int, beta: float, toy: FactorData) -> None:
    """C from 0 to 15 with L = 5: zero nats lie below the formula's minimum, 1.362 on the 10-sphere, 2.906 on the 20."""
    method = DiffusionVAE(beta=beta, walk_steps=5, iteration_threshold=1000)
    assert (method.c_min, method.c_max) == (0.0, 15.0)
    with pytest.warns(RuntimeWarning, match={10: "never below 1.362 nats", 20: "never below 2.906 nats"}[d]):
        method.check(toy, 64, d + 1)


@pytest.mark.parametrize(
    ("method", "latents", "said"),
    [
        (DiffusionVAE(iteration_threshold=9, c_min=1.4), 11, None),
        (DiffusionVAE(), 11, None),
        (DiffusionVAE(iteration_threshold=9, c_min=1.0), 2, "c_max of 15 nats is out of reach"),
        (DiffusionVAE(iteration_threshold=9, c_min=1.0, c_max=5.4), 2, None),
        (DiffusionVAE(time="free"), 2, "without end"),
        (DiffusionVAE(time="free"), 3, None),
        (DiffusionVAE(space="torus", time="free"), 3, "without end"),
        (DiffusionVAE(space="flat_torus", time="free", iteration_threshold=9), 4, None),
    ],
    ids=str,
)
def test_check_warns_where_the_formula_fails(
    method: DiffusionVAE, latents: int, said: str | None, toy: FactorData
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        method.check(toy, 64, latents)
    assert [w.category for w in caught] == ([] if said is None else [RuntimeWarning])
    assert said is None or said in str(caught[0].message)


def test_check_refuses_latents_of_another_space(toy: FactorData) -> None:
    with pytest.raises(ValueError, match="exactly 9"):
        quick(method=DiffusionVAE(space="rotations"), latents=10)


def test_projective_decoder_is_even(toy: FactorData) -> None:
    net = network(DiffusionVAE(space="projective"), toy)
    z = Noise(torch.tensor(1)).normal(6, 4)
    torch.testing.assert_close(net.decode(z), net.decode(-z))
    plain = network(DiffusionVAE(), toy)
    torch.testing.assert_close(net.decode(z), 0.5 * (plain.decode(z) + plain.decode(-z)))


class OwnLikelihood(torch.nn.Linear):
    def nll(self, x: Tensor, z: Tensor) -> Tensor:
        return (x - self(z)).abs().sum(1)


def test_projective_space_refuses_a_likelihood_of_its_own() -> None:
    net = VAENet(torch.nn.Linear(5, 8), OwnLikelihood(4, 5))
    assert DiffusionVAE().extend(net, 4).decoder is net.decoder
    with pytest.raises(ValueError, match="OwnLikelihood"):
        DiffusionVAE(space="projective").extend(net, 4)


def test_codes(toy: FactorData) -> None:
    """Points of the space; angles only where there are some; samples that differ with the noise."""
    widths = {"sphere": (4, 3), "flat_torus": (4, 2), "torus": (3, 2), "projective": (10, None), "rotations": (9, None)}
    for space, (ambient, angles) in widths.items():
        method = DiffusionVAE(space=space)
        assert ("angles" in method.code_kinds) == (angles is not None)
        q = network(method, toy).encode(toy.batch(torch.arange(6)))
        net = network(method, toy)
        found = {kind: method.code(net, q, kind, Noise(torch.tensor(1))).detach() for kind in method.code_kinds}
        assert found["ambient"].shape == found["sampled"].shape == (6, ambient)
        assert angles is None or found["angles"].shape == (6, angles)
        other = method.code(net, q, "sampled", Noise(torch.tensor(2)))
        assert float((found["sampled"] - other).detach().abs().min(1).values.max()) > 0
    assert dataclasses.replace(DiffusionVAE(), space="rotations").code_kinds == ("ambient", "sampled")
    assert DiffusionVAE() == DiffusionVAE(space="sphere")


@pytest.mark.parametrize("space", LATENTS)
def test_traversal_stays_on_the_space(space: str, toy: FactorData) -> None:
    (run,) = quick(method=DiffusionVAE(space=space), latents=LATENTS[space])
    positions = torch.linspace(-2, 2, 5)
    q = run.posterior(toy.images([3]))
    walk = run.spec.method.walk(run.net, q, q, positions)
    manifold = DiffusionVAE(space=space).manifold(LATENTS[space])
    torch.testing.assert_close(manifold.project(walk.z), walk.z, rtol=0, atol=1e-5)
    torch.testing.assert_close(walk.z[:, 2], walk.start.expand_as(walk.z[:, 2]), rtol=0, atol=1e-5)
    assert decode_traversal(run, toy, 3, positions).images.shape == (len(walk.labels), 5, 16)


def test_scores_of_every_kind_of_code(toy: FactorData) -> None:
    (run,) = quick(method=DiffusionVAE(), latents=4)
    (scores,) = ub.score([run], metrics=["mig"], quiet=True)
    assert {name.rpartition(".")[2] for name in scores if name.startswith("mig.")} >= {"angles", "sampled"}
