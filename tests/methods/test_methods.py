"""Tests that every method must pass, and values that particular methods must reproduce.

`tests/training/test_training.py` has one more: every method can be interrupted and resumed.
"""

from __future__ import annotations

import dataclasses
import inspect
import math

import pytest
import torch
from torch import Tensor

from families import METHOD_FACTS
from oracles import methods as oracle
from support.engine_laws import (
    assert_divergence_affects_one_run,
    assert_every_parameter_learns,
    assert_stack_equals_single_runs,
    assert_vmap_equals_one_by_one,
    assert_vmap_equals_one_by_one_on_images,
    make_stack,
    terms_before_and_after,
    vary_hyperparameters,
)
from support.training import flatten_gradients
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.methods import METHODS, VAE, AnnealedVAE, BetaVAE, FactorVAE, Method
from unbraid.methods.beta_tcvae import decompose_kl, stratified_log_weights, weighted_log_weights
from unbraid.methods.dip_vae import covariance_of_means, covariance_of_samples, identity_penalty
from unbraid.methods.method import Batch
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

NAMES = list(METHODS)


@pytest.mark.parametrize("name", NAMES)
def test_stack_equals_single_runs(name: str, sprites: FactorData) -> None:
    assert_stack_equals_single_runs(vary_hyperparameters(METHODS[name]()), sprites)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_equals_one_by_one(name: str, smallest_data: FactorData) -> None:
    tolerance = METHOD_FACTS[name].vmap_tolerance
    assert_vmap_equals_one_by_one(vary_hyperparameters(METHODS[name]()), smallest_data, rtol=tolerance)


@pytest.mark.parametrize("name", ["beta_vae", "factor_vae", "pcl", "ice_beem"])
def test_vmap_equals_one_by_one_on_images(name: str, sprites: FactorData) -> None:
    assert_vmap_equals_one_by_one_on_images(vary_hyperparameters(METHODS[name](), 2), sprites)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_learns(name: str, smallest_data: FactorData) -> None:
    assert_every_parameter_learns(METHODS[name](), smallest_data, METHOD_FACTS[name].all_learn_at)


@pytest.mark.parametrize("name", NAMES)
def test_loss_falls(name: str, smallest_data: FactorData) -> None:
    case = METHOD_FACTS[name]
    before, after = terms_before_and_after(case.lightly_regularised, smallest_data)
    assert after[case.falling_term] < 0.8 * before[case.falling_term]


@pytest.mark.parametrize("vmapped", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_divergence_affects_one_run(name: str, vmapped: bool, smallest_data: FactorData) -> None:
    assert_divergence_affects_one_run(METHODS[name](), smallest_data, vmapped)


def test_threads_equal_one_by_one(sprites: FactorData) -> None:
    """Runs on separate threads have the same results as runs that are trained one after another."""
    specs = [RunSpec(BetaVAE(beta=b), "sprites", s, 100, 16, 1e-3, 4) for s, b in enumerate((1.0, 2.0, 4.0))]
    one_by_one, threads = (Stack(specs, sprites, resolve_net("locatello")[1], threads=n) for n in (1, 2))
    for _ in range(3):
        one_by_one.advance()
        threads.advance()
    torch.testing.assert_close(one_by_one.last, threads.last, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("vmapped", [False, True])
def test_bf16_gradients_are_close_to_fp32(vmapped: bool, sprites: FactorData) -> None:
    """Only convolutions are rounded, so gradients keep their directions, and posteriors stay float32."""
    results = []
    for precision in ("fp32", "bf16"):
        s = Stack([RunSpec(BetaVAE(), "sprites", 0, 9, 64, 1e-3, 4, precision=precision)], sprites,
                  resolve_net("locatello")[1], vmapped=vmapped)  # fmt: skip
        for _ in range(3):
            s.advance()
        step = torch.tensor(3)
        if vmapped:
            values, grads = s._gradients_vmapped(step)
            grad = flatten_gradients(grads)
        else:
            values, grad = s._gradients_one_by_one(step)
        assert values.dtype == grad.dtype == torch.float32
        assert s.modules[0].net.encode(sprites.batch(torch.arange(2))).mean.dtype == torch.float32
        results.append((values.clone(), s.layout.unflatten(grad[0].clone())))
    (full, full_gradients), (half, half_gradients) = results
    assert not torch.equal(full, half)
    torch.testing.assert_close(full, half, rtol=0.02, atol=0.02)
    for name, g in full_gradients.items():
        assert torch.cosine_similarity(g.flatten(), half_gradients[name].flatten(), dim=0) > 0.95, name


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_result(name: str, smallest_data: FactorData) -> None:
    a, b, c = (make_stack([METHODS[name]()], smallest_data, [seed], [1e-3]) for seed in (5, 5, 6))
    for s in (a, b, c):
        s.advance()
    assert torch.equal(a.rows, b.rows)
    assert not torch.equal(a.rows, c.rows)


@pytest.mark.parametrize("name", NAMES)
def test_docstring_has_equation_and_reference(name: str) -> None:
    text = inspect.getdoc(METHODS[name]) or ""
    assert ".. math::" in text
    assert "Reference:" in text
    assert all("help" in field.metadata for field in dataclasses.fields(METHODS[name]))


def test_families_cover_the_registry() -> None:
    assert set(METHOD_FACTS) == set(METHODS)


@pytest.mark.parametrize(("method", "limit"), [pair for case in METHOD_FACTS.values() for pair in case.limits], ids=str)
def test_method_equals_its_limit(method: Method, limit: Method, toy: FactorData) -> None:
    """The loss (without that of a critic) and the updates of encoder and decoder are the same."""
    a, b = make_stack([method], toy, [7], [1e-3]), make_stack([limit], toy, [7], [1e-3])
    for _ in range(2):
        a.advance()
        b.advance()
    a_terms, b_terms = (dict(zip(s.terms, s.last[0].tolist(), strict=True)) for s in (a, b))
    assert a_terms["loss"] - a_terms.get("critic", 0.0) == pytest.approx(b_terms["loss"], rel=1e-5)
    torch.testing.assert_close(a.rows[0, : b.rows.shape[1]], b.rows[0], rtol=0, atol=1e-5)


def random_posterior(n: int, d: int) -> tuple[Gaussian, Tensor]:
    g = torch.Generator().manual_seed(1)
    q = Gaussian(torch.randn(n, d, generator=g, dtype=torch.float64), torch.randn(n, d, generator=g).double() - 1)
    return q, q.mean + (0.5 * q.logvar).exp() * torch.randn(n, d, generator=g)


def total_correlation(q: Gaussian, z: Tensor, log_weights: Tensor) -> Tensor:
    return decompose_kl(q, z, log_weights).total_correlation


@pytest.mark.parametrize("population", [6, 50, 737_280])
def test_total_correlation_equals_its_loops(population: int) -> None:
    q, z = random_posterior(6, 3)
    for estimator, loops in (
        (weighted_log_weights, oracle.weighted_tc),
        (stratified_log_weights, oracle.stratified_tc),
    ):
        actual = total_correlation(q, z, estimator(6, population).double())
        assert float(actual) == pytest.approx(loops(q.mean, q.logvar, z, population), rel=1e-5)


def test_stratified_weights() -> None:
    """Every row sums to 1 and, unlike in published implementations, the diagonal is 1 / N."""
    w = stratified_log_weights(4, 100).exp()
    assert w.sum(1).tolist() == pytest.approx([1.0] * 4)
    assert w.diagonal().tolist() == pytest.approx([0.01] * 4)
    assert sorted(w[2].tolist()) == pytest.approx(sorted([0.01, 1 / 3, 1 / 3, 97 / 300]))


def test_weighted_estimate_has_a_constant_offset() -> None:
    """It exceeds the estimate without weights by (d - 1) log(B N), which is 11.07 for B = 64, N = 1000, d = 2."""
    q, z = random_posterior(64, 2)
    without = total_correlation(q, z, torch.zeros(64, 64, dtype=torch.float64))
    full = total_correlation(q, z, weighted_log_weights(64, 1000).double())
    assert float(full - without) == pytest.approx(math.log(64 * 1000), abs=1e-5)
    assert round(math.log(64 * 1000), 2) == 11.07


def test_stratified_estimate_is_close_to_the_exact_value() -> None:
    """The exact total correlation uses all N posteriors of a mixture. The weighted estimate is far above it."""
    g = torch.Generator().manual_seed(3)
    n, b = 1000, 64
    mean = torch.randn(n, 1, generator=g, dtype=torch.float64) @ torch.ones(1, 2, dtype=torch.float64)
    q = Gaussian(
        mean + 0.6 * torch.randn(n, 2, generator=g, dtype=torch.float64), torch.full((n, 2), math.log(0.3)).double()
    )
    z = q.mean + math.sqrt(0.3) * torch.randn(n, 2, generator=g, dtype=torch.float64)
    exact = total_correlation(q, z, torch.full((n, n), -math.log(n), dtype=torch.float64))
    estimates = {stratified_log_weights: 0.0, weighted_log_weights: 0.0}
    for _ in range(60):
        rows = torch.randperm(n, generator=g)[:b]
        part = Gaussian(q.mean[rows], q.logvar[rows])
        for estimator in estimates:
            estimates[estimator] += float(total_correlation(part, z[rows], estimator(b, n).double())) / 60
    assert estimates[stratified_log_weights] == pytest.approx(float(exact), abs=0.06)
    assert estimates[weighted_log_weights] > float(exact) + 5


def test_stratified_weights_of_a_batch_larger_than_the_data_raise() -> None:
    with pytest.raises(ValueError, match="at least as many examples as the batch"):
        stratified_log_weights(64, 10)


def test_dip_covariances_equal_their_loops() -> None:
    q, _ = random_posterior(7, 3)
    torch.testing.assert_close(covariance_of_means(q), oracle.covariance(q.mean))
    samples = covariance_of_samples(q)
    assert samples.diagonal().tolist() == pytest.approx((q.logvar.exp().mean(0) + q.mean.var(0, correction=0)).tolist())
    off = ~torch.eye(3, dtype=torch.bool)
    torch.testing.assert_close(samples[off], oracle.covariance(q.mean)[off])


def test_dip_penalty_by_hand() -> None:
    cov = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    assert float(identity_penalty(cov, 10.0, 100.0)) == pytest.approx(10 * 2 * 0.25 + 100 * 1.0)
    assert float(identity_penalty(torch.eye(3), 10.0, 100.0)) == 0


@pytest.mark.parametrize(("step", "capacity"), [(0, 0.0), (25_000, 6.25), (100_000, 25.0), (250_000, 25.0)])
def test_capacity_schedule(step: int, capacity: float, toy: FactorData) -> None:
    s = make_stack([AnnealedVAE()], toy, [0], [1e-3])
    _, values = s.objective(
        s.layout.unflatten(s.rows[0]), {}, {k: v[0] for k, v in s.hypers.items()}, s.seeds[0], torch.tensor(step)
    )
    terms = dict(zip(s.terms, values.tolist(), strict=True))
    assert terms["capacity"] == pytest.approx(capacity)
    assert terms["loss"] == pytest.approx(terms["rec"] + 1000 * abs(terms["kl"] - capacity), rel=1e-5)


class ConstantCritic(torch.nn.Module):
    """A critic that returns the same logits for every input."""

    def __init__(self, logits: list[list[float]]) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits))

    def forward(self, z: Tensor) -> Tensor:
        return self.logits.expand(len(z), 2) + 0 * z.sum()


def test_factor_vae_terms_by_hand(toy: FactorData) -> None:
    """The total correlation is the mean log-odds. The critic's loss is half the sum of both cross-entropies."""
    method = FactorVAE(gamma=7.0)
    spec = RunSpec(method, "toy", latents=4, net="mlp", likelihood="gaussian")
    net: VAENet = build_net(spec, toy.shape, resolve_net("mlp")[1])
    net.critic = ConstantCritic([[0.3, -0.2]])
    noise = Noise.from_seed(torch.tensor(1), torch.tensor(0), 1)
    loss, terms = method.objective(net, Batch(toy.batch(torch.arange(8)), len(toy)), noise, torch.tensor(0.0))
    loss, terms = loss.detach(), {name: value.detach() for name, value in terms.items()}
    odds = math.log(1 + math.exp(-0.5)), math.log(1 + math.exp(0.5))
    assert float(terms["tc"]) == pytest.approx(0.5, rel=1e-6)
    assert float(terms["critic"]) == pytest.approx(0.5 * (odds[0] + odds[1]), rel=1e-6)
    assert float(loss) == pytest.approx(float(terms["rec"] + terms["kl"]) + 7 * 0.5 + float(terms["critic"]), rel=1e-6)


def test_factor_vae_losses_share_no_gradients(toy: FactorData) -> None:
    """The critic's loss has no gradient for the encoder, and gamma has no effect on the critic."""
    grads = []
    for gamma in (0.0, 10.0):
        s = make_stack([FactorVAE(gamma=gamma)], toy, [0], [1e-3])
        _, grad = s._gradients_one_by_one(torch.tensor(0))
        grads.append(s.layout.unflatten(grad[0]))
    plain = make_stack([VAE()], toy, [0], [1e-3])
    _, grad = plain._gradients_one_by_one(torch.tensor(0))
    for name, value in plain.layout.unflatten(grad[0]).items():
        torch.testing.assert_close(grads[0][name], value)
    critic = [name for name in grads[0] if name.startswith("critic.")]
    assert critic
    for name in critic:
        torch.testing.assert_close(grads[0][name], grads[1][name])


def test_factor_vae_critic_has_its_own_optimiser_constants(toy: FactorData) -> None:
    s = make_stack([FactorVAE(critic_learning_rate=5e-4)], toy, [0], [1e-3])
    main, critic = s.segments
    assert (main.adam.beta1, main.adam.beta2, float(main.adam.learning_rate)) == pytest.approx((0.9, 0.999, 1e-3))
    assert (critic.adam.beta1, critic.adam.beta2, float(critic.adam.learning_rate)) == pytest.approx((0.5, 0.9, 5e-4))
    assert critic.stop - critic.start == sum(p.numel() for n, p in s.modules[0].net.named_parameters() if "critic" in n)
