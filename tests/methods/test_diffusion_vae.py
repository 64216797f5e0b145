"""The diffusion VAE compared with hand calculations, and the shared tests of methods on every space."""

from __future__ import annotations

import dataclasses
import math
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor

import unbraid as ub
from families.curved import FACTS
from support.engine_laws import (
    assert_divergence_affects_one_run,
    assert_every_parameter_learns,
    assert_resume_equals_uninterrupted,
    assert_stack_equals_single_runs,
    assert_vmap_equals_one_by_one,
    terms_before_and_after,
)
from support.training import quick_train
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


def changed_fields(method: Method) -> str:
    changed = [f for f in dataclasses.fields(method) if getattr(method, f.name) != f.default]
    return " ".join(str(getattr(method, f.name)) for f in changed) or "default"


each_method = pytest.mark.parametrize("method", METHODS, ids=changed_fields)


def vary_weights(method: DiffusionVAE) -> list[DiffusionVAE]:
    return [dataclasses.replace(method, beta=b, c_min=c, c_max=c + 9) for b, c in ((1.0, 0.0), (2.5, 3.0), (10.0, 1.0))]


@each_method
def test_stack_equals_single_runs(method: DiffusionVAE, toy: FactorData) -> None:
    assert_stack_equals_single_runs(vary_weights(method), toy, latents=LATENTS[method.space])


@each_method
def test_vmap_equals_one_by_one(method: DiffusionVAE, toy: FactorData) -> None:
    assert_vmap_equals_one_by_one(vary_weights(method), toy, latents=LATENTS[method.space])


@each_method
def test_every_parameter_learns(method: DiffusionVAE, toy: FactorData) -> None:
    assert_every_parameter_learns(method, toy, latents=LATENTS[method.space])


@pytest.mark.parametrize("space", LATENTS)
def test_loss_falls(space: str, toy: FactorData) -> None:
    method = dataclasses.replace(FACTS["diffusion_vae"].lightly_regularised, space=space)
    before, after = terms_before_and_after(method, toy, latents=LATENTS[space])
    assert after["rec"] < 0.8 * before["rec"]


@pytest.mark.parametrize("vmapped", [False, True])
@pytest.mark.parametrize("space", LATENTS)
def test_divergence_affects_one_run(space: str, vmapped: bool, toy: FactorData) -> None:
    assert_divergence_affects_one_run(DiffusionVAE(space=space), toy, vmapped, latents=LATENTS[space])


def test_resume_equals_uninterrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run that is interrupted while its capacity rises continues with the same capacity."""
    method = DiffusionVAE(iteration_threshold=12, c_min=2.0, c_max=5.0)
    assert_resume_equals_uninterrupted(method, tmp_path, monkeypatch)


def build_network(method: DiffusionVAE, data: FactorData) -> VAENet:
    spec = RunSpec(method, data.name, latents=LATENTS[method.space], net="mlp", likelihood="gaussian")
    return build_net(spec, data.shape, resolve_net("mlp")[1])


def compute_terms(method: DiffusionVAE, data: FactorData, step: int = 0) -> tuple[float, dict[str, float], Gaussian]:
    net, x = build_network(method, data), data.batch(torch.arange(8))
    with torch.no_grad():
        loss, terms = method.objective(
            net, Batch(x, len(data)), Noise.from_seed(torch.tensor(1), torch.tensor(0), 1), torch.tensor(float(step))
        )
        return float(loss), {name: float(value) for name, value in terms.items()}, net.encode(x)


def test_terms_by_hand(toy: FactorData) -> None:
    """The KL on the 3-sphere is computed for one example at a time, from the average of its log variances."""
    loss, terms, q = compute_terms(DiffusionVAE(beta=2.5), toy)
    kl = []
    for row in q.logvar.tolist():
        log_t = -5.5 + 4.5 * math.tanh(sum(row) / 4)
        kl.append(-1.5 * math.log(2 * math.pi) - 1.5 * log_t - 1.5 + math.log(2 * math.pi**2) + 1.5 * math.exp(log_t))
    assert terms["kl"] == pytest.approx(sum(kl) / 8, rel=1e-5)
    assert loss == pytest.approx(terms["rec"] + 2.5 * terms["kl"], rel=1e-6)


@pytest.mark.parametrize(("step", "capacity"), [(0, 1.0), (250, 4.5), (1000, 15.0), (5000, 15.0)])
def test_capacity_applies_to_each_example(step: int, capacity: float, toy: FactorData) -> None:
    method = DiffusionVAE(beta=10.0, iteration_threshold=1000, c_min=1.0)
    loss, terms, q = compute_terms(method, toy, step)
    kl = method.manifold(4).kl(q.mean, method.log_t(q))
    assert terms["capacity"] == pytest.approx(capacity)
    assert loss == pytest.approx(terms["rec"] + 10 * float((kl - capacity).abs().mean()), rel=1e-5)


def test_capacity_does_not_apply_to_the_mean(toy: FactorData) -> None:
    """If the capacity is the mean KL, the loss is positive, because it averages the distances of single examples."""
    _, terms, _ = compute_terms(DiffusionVAE(), toy)
    loss, at_capacity, q = compute_terms(DiffusionVAE(iteration_threshold=1, c_min=terms["kl"], c_max=terms["kl"]), toy)
    kl = DiffusionVAE().manifold(4).kl(q.mean, DiffusionVAE().log_t(q))
    assert loss - at_capacity["rec"] == pytest.approx(float((kl - kl.mean()).abs().mean()), rel=1e-3)
    assert loss - at_capacity["rec"] > 0.01


def test_time_is_within_its_bounds() -> None:
    """The bounds are exact. In the authors' code they are twice as wide as those it names."""
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
def test_initial_capacity_of_the_challenge_submissions_is_out_of_reach(d: int, beta: float, toy: FactorData) -> None:
    """C starts at 0, but the minimum of the formula is 1.362 nats on the 10-sphere and 2.906 on the 20-sphere."""
    method = DiffusionVAE(beta=beta, walk_steps=5, iteration_threshold=1000)
    assert (method.c_min, method.c_max) == (0.0, 15.0)
    with pytest.warns(RuntimeWarning, match={10: "never below 1.362 nats", 20: "never below 2.906 nats"}[d]):
        method.check(toy, 64, d + 1)


@pytest.mark.parametrize(
    ("method", "latents", "message"),
    [
        (DiffusionVAE(iteration_threshold=9, c_min=1.4), 11, None),
        (DiffusionVAE(), 11, None),
        (DiffusionVAE(c_max=30.0), 11, "no effect, because iteration_threshold is 0"),
        (DiffusionVAE(c_min=2.0), 11, "no effect, because iteration_threshold is 0"),
        (DiffusionVAE(iteration_threshold=9, c_min=1.0), 2, "c_max of 15 nats is out of reach"),
        (DiffusionVAE(iteration_threshold=9, c_min=1.0, c_max=5.4), 2, None),
        (DiffusionVAE(time="free"), 2, "without limit"),
        (DiffusionVAE(time="free"), 3, None),
        (DiffusionVAE(space="torus", time="free"), 3, "without limit"),
        (DiffusionVAE(space="flat_torus", time="free", iteration_threshold=9), 4, None),
    ],
    ids=str,
)
def test_check_warns_of_unreachable_capacities(
    method: DiffusionVAE, latents: int, message: str | None, toy: FactorData
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        method.check(toy, 64, latents)
    assert [w.category for w in caught] == ([] if message is None else [RuntimeWarning])
    assert message is None or message in str(caught[0].message)


def test_wrong_number_of_latents_raises() -> None:
    with pytest.raises(ValueError, match="exactly 9"):
        quick_train(method=DiffusionVAE(space="rotations"), latents=10)


def test_projective_decoder_is_even(toy: FactorData) -> None:
    net = build_network(DiffusionVAE(space="projective"), toy)
    z = Noise(torch.tensor(1)).normal(6, 4)
    torch.testing.assert_close(net.decode(z), net.decode(-z))
    plain = build_network(DiffusionVAE(), toy)
    torch.testing.assert_close(net.decode(z), 0.5 * (plain.decode(z) + plain.decode(-z)))


class OwnLikelihood(torch.nn.Linear):
    def nll(self, x: Tensor, z: Tensor) -> Tensor:
        return (x - self(z)).abs().sum(1)


def test_projective_space_rejects_decoders_with_a_likelihood() -> None:
    net = VAENet(torch.nn.Linear(5, 8), OwnLikelihood(4, 5))
    assert DiffusionVAE().extend(net, 4).decoder is net.decoder
    with pytest.raises(ValueError, match="OwnLikelihood"):
        DiffusionVAE(space="projective").extend(net, 4)


def test_codes(toy: FactorData) -> None:
    """Each kind of codes has the right width, only some spaces have angles, and samples depend on the noise."""
    widths = {"sphere": (4, 3), "flat_torus": (4, 2), "torus": (3, 2), "projective": (10, None), "rotations": (9, None)}
    for space, (ambient, angles) in widths.items():
        method = DiffusionVAE(space=space)
        assert ("angles" in method.code_kinds) == (angles is not None)
        q = build_network(method, toy).encode(toy.batch(torch.arange(6)))
        net = build_network(method, toy)
        codes = {kind: method.code(net, q, kind, Noise(torch.tensor(1))).detach() for kind in method.code_kinds}
        assert codes["ambient"].shape == codes["sampled"].shape == (6, ambient)
        assert angles is None or codes["angles"].shape == (6, angles)
        other = method.code(net, q, "sampled", Noise(torch.tensor(2)))
        assert float((codes["sampled"] - other).detach().abs().min(1).values.max()) > 0
    assert dataclasses.replace(DiffusionVAE(), space="rotations").code_kinds == ("ambient", "sampled")
    assert DiffusionVAE() == DiffusionVAE(space="sphere")


@pytest.mark.parametrize("space", LATENTS)
def test_traversal_stays_in_the_latent_space(space: str, toy: FactorData) -> None:
    (run,) = quick_train(method=DiffusionVAE(space=space), latents=LATENTS[space])
    positions = torch.linspace(-2, 2, 5)
    q = run.posterior(toy.images([3]))
    traversal = run.spec.method.traversal(run.net, q, q, positions)
    manifold = DiffusionVAE(space=space).manifold(LATENTS[space])
    torch.testing.assert_close(manifold.project(traversal.z), traversal.z, rtol=0, atol=1e-5)
    start = traversal.start.expand_as(traversal.z[:, 2])
    torch.testing.assert_close(traversal.z[:, 2], start, rtol=0, atol=1e-5)
    assert decode_traversal(run, toy, 3, positions).decoded.shape == (len(traversal.labels), 5, 16)


def test_scores_of_every_kind_of_code(toy: FactorData) -> None:
    (run,) = quick_train(method=DiffusionVAE(), latents=4)
    (scores,) = ub.score([run], metrics=["mig"], quiet=True)
    assert {name.rpartition(".")[2] for name in scores if name.startswith("mig.")} >= {"angles", "sampled"}
