"""JointVAE: its terms by hand, the distributions of its samples, its codes and traversals, and a planted category."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import unbraid as ub
from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods import Batch, JointVAE
from unbraid.methods.joint_vae import categorical_kl, gumbel
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.spec import RunSpec

TWO = JointVAE(discrete=2, categories=3)  # with 8 latents, 2 of them are continuous
MANY = 20_000


def noise(key: int = 3) -> Noise:
    return Noise(torch.tensor(key))


def random_posterior(n: int = 5, latents: int = 8) -> Gaussian:
    g = torch.Generator().manual_seed(1)
    return Gaussian(torch.randn(n, latents, generator=g), torch.randn(n, latents, generator=g) - 1)


def kl_by_loops(logits: list[float]) -> float:
    total = sum(math.exp(value) for value in logits)
    shares = [math.exp(value) / total for value in logits]
    return sum(p * math.log(p * len(shares)) for p in shares)


def test_terms_by_hand(toy: FactorData) -> None:
    """At step 25 of 100, the capacities are a quarter of the final ones, and the KL terms equal their loops."""
    method = JointVAE(gamma=7.0, c_max=4.0, c_max_discrete=2.0, iteration_threshold=100.0, discrete=2)
    net = VAENet(*mlp((16,), 8), likelihood="gaussian")
    batch = Batch(toy.batch(torch.arange(6)), len(toy))
    with torch.no_grad():
        loss, terms = method.objective(net, batch, noise(), torch.tensor(25.0))
        q = net.encode(batch.x)
    rows = q.mean[:, 2:].unflatten(1, (2, 3)).tolist()
    wanted = sum(kl_by_loops(logits) for row in rows for logits in row) / 6
    assert float(terms["kl_discrete"]) == pytest.approx(wanted, rel=1e-4)
    torch.testing.assert_close(terms["kl"], Gaussian(q.mean[:, :2], q.logvar[:, :2]).kl().sum(1).mean())
    assert (float(terms["capacity"]), float(terms["capacity_discrete"])) == (1.0, 0.5)
    distances = (terms["kl"] - 1).abs() + (terms["kl_discrete"] - 0.5).abs()
    torch.testing.assert_close(loss, terms["rec"] + 7 * distances)


def test_defaults_are_those_of_the_authors_code_for_dsprites() -> None:
    """They are in trained_models/dsprites/specs.json of the author's repository, Schlumberger/joint-vae."""
    spec = RunSpec(JointVAE(), "dsprites")
    assert (spec.learning_rate, spec.batch, spec.steps) == (5e-4, 64, 300_000)
    method = spec.method
    assert isinstance(method, JointVAE)
    assert (method.c_max, method.c_max_discrete, method.iteration_threshold, method.gamma) == (40, 1.1, 300_000, 150)


def test_there_is_no_capacity_without_continuous_latents(toy: FactorData) -> None:
    method = JointVAE(gamma=7.0, c_max=40.0, c_max_discrete=0.5, iteration_threshold=1.0, discrete=2, categories=3)
    net = VAENet(*mlp((16,), 6), likelihood="gaussian")
    batch = Batch(toy.batch(torch.arange(6)), len(toy))
    with torch.no_grad():
        loss, terms = method.objective(net, batch, noise(), torch.tensor(5.0))
    assert (float(terms["kl"]), float(terms["capacity"])) == (0, 0)
    torch.testing.assert_close(loss, terms["rec"] + 7 * (terms["kl_discrete"] - 0.5).abs())


def test_capacity_of_the_categories_ends_at_their_entropy() -> None:
    method = JointVAE(c_max_discrete=50.0, discrete=2, iteration_threshold=10.0)
    assert float(method.capacities(torch.tensor(99.0))[1]) == pytest.approx(2 * math.log(3))


def test_kl_of_known_distributions() -> None:
    assert float(categorical_kl(torch.zeros(4))) == pytest.approx(0, abs=1e-6)
    assert float(categorical_kl(torch.tensor([0.0, -200.0, -200.0]))) == pytest.approx(math.log(3))


def test_gumbel_noise_is_finite_and_has_its_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stats.kstest(gumbel(noise(), MANY).numpy(), "gumbel_r").pvalue > 1e-5
    monkeypatch.setattr(Noise, "uniform", lambda self, *shape: torch.ones(shape))  # rounding can give 1
    assert bool(gumbel(noise(), 2).isfinite().all())


def test_concrete_samples_have_the_gumbel_max_law() -> None:
    """The largest entry of a sample is at each value with its probability. At a low temperature it is nearly 1."""
    logits = torch.tensor([[[0.5, -1.0, 1.5]]]).expand(MANY, 1, 3)
    counts = []
    for temperature in (0.67, 0.01):
        soft = JointVAE(temperature=temperature).concrete_sample(logits, noise())
        torch.testing.assert_close(soft.sum(-1), torch.ones(MANY, 1))
        counts.append(np.bincount(soft.argmax(-1).flatten(), minlength=3))
    assert np.array_equal(*counts)
    assert stats.chisquare(counts[0], logits[0, 0].double().softmax(0).numpy() * MANY).pvalue > 1e-5
    assert float((soft.amax(-1) > 0.99).float().mean()) > 0.97


def test_codes_have_one_column_per_latent_or_per_value() -> None:
    q, net = random_posterior(), VAENet(*mlp((16,), 8))
    values, shares, sampled = (TWO.code(net, q, kind, noise()) for kind in TWO.code_kinds)
    assert values.shape == sampled.shape == (5, 4)
    assert torch.equal(values[:, :2], q.mean[:, :2])
    assert torch.equal(values[:, 2:].long(), q.mean[:, 2:].unflatten(1, (2, 3)).argmax(-1))
    torch.testing.assert_close(shares[:, 2:5].sum(1), torch.ones(5))
    assert torch.equal(shares[:, 5:].argmax(1), values[:, 3].long())
    assert set(sampled[:, 2:].flatten().tolist()) <= {0.0, 1.0, 2.0}
    assert TWO.column_names(4) == ["latent 0", "latent 1", "categorical 0", "categorical 1"]
    assert TWO.information(q).shape == (4,)


def test_parts_of_the_latents_have_their_sum(toy: FactorData) -> None:
    q, net = random_posterior(), VAENet(*mlp((16,), 8))
    parts, z = TWO.subspace_codes(net, q), TWO.point_latents(net, q)
    assert parts.shape == (5, 4, 8)
    assert torch.equal(parts.sum(1), z)
    assert ((parts != 0).sum((1, 2)) == 4).all()
    assert torch.equal(z[:, 2:].unflatten(1, (2, 3)).sum(-1), torch.ones(5, 2))


@pytest.mark.parametrize("columns", [3, 7])
def test_traversal_shows_every_value(columns: int) -> None:
    """Each row changes one latent. The row of a categorical latent has all its values in order."""
    q, net = random_posterior(), VAENet(*mlp((16,), 8))
    positions = torch.linspace(-2, 2, columns)
    z, start, labels = TWO.traversal(net, Gaussian(q.mean[:1], q.logvar[:1]), q, positions)
    assert z.shape == (4, columns, 8)
    assert [label.nats for label in labels] == sorted((label.nats for label in labels), reverse=True)  # type: ignore[type-var]
    blocks = {"latent 0": [0], "latent 1": [1], "categorical 0": [2, 3, 4], "categorical 1": [5, 6, 7]}
    assert {label.name for label in labels} == set(blocks)
    for row, label in zip(z, labels, strict=True):
        own = blocks[label.name]
        others = [i for i in range(8) if i not in own]
        assert torch.equal(row[:, others], start[:, others].expand(columns, -1))
        assert label.column == list(blocks).index(label.name)
        if len(own) == 1:
            assert torch.equal(row[:, own[0]], positions)
        else:
            values = row[:, own].argmax(1).tolist()
            assert values == sorted(values)
            assert set(values) == {0, 1, 2}
            assert torch.equal(row[:, own].sort(1).values, torch.tensor([[0.0, 0.0, 1.0]]).expand(columns, -1))


def test_a_row_that_is_too_short_for_all_values_is_reported() -> None:
    q, net = random_posterior(), VAENet(*mlp((16,), 8))
    method, one = JointVAE(discrete=1, categories=6), Gaussian(q.mean[:1], q.logvar[:1])
    with pytest.warns(RuntimeWarning, match="A row of 4 pictures shows only 4 of the 6 values of a categorical latent"):
        method.traversal(net, one, q, torch.linspace(-2, 2, 4))


def test_log_ratios_of_samples_average_to_the_kl() -> None:
    """The mean of log q - log p over samples is the KL of the continuous and of the categorical latents."""
    net = VAENet(*mlp((16,), 8))
    x = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        continuous, logits = TWO.split(net.encode(3 * x))
        z, ratio = TWO.posterior_sample(net, (3 * x).expand(MANY, -1), noise())
    wanted = float(continuous.kl().sum() + categorical_kl(logits).sum())
    assert float(ratio.mean()) == pytest.approx(wanted, abs=5 * float(ratio.std()) / MANY**0.5)
    assert torch.equal(z[:, 2:].unflatten(1, (2, 3)).sum(-1), torch.ones(MANY, 2))


def test_samples_of_the_prior_have_uniform_values() -> None:
    z = TWO.prior_sample(MANY, 8, noise())
    assert stats.kstest(z[:, 0].numpy(), "norm").pvalue > 1e-5
    values = z[:, 2:].unflatten(1, (2, 3))
    assert torch.equal(values.sum(-1), torch.ones(MANY, 2))
    for j in range(2):
        assert stats.chisquare(values[:, j].sum(0).numpy()).pvalue > 1e-5


def clusters() -> FactorData:
    """Points in 16 dimensions of three separate clusters, each of which is a line segment."""
    g = np.random.default_rng(0)
    kind, position = np.divmod(np.arange(300), 100)
    centres, direction = 2 * g.normal(size=(3, 16)), g.normal(size=16)
    x = centres[kind] + np.outer(position / 50 - 1, direction)
    return ub.data.from_arrays(
        x.astype(np.float32), np.stack([kind, position], 1), names=["kind", "position"], discrete=["position"]
    )


def test_a_planted_category_is_found() -> None:
    """The most probable value identifies the cluster, and within a cluster the other latent follows the position.

    The concrete relaxation has local optima. Some other seeds give two clusters the same value.
    """
    data = clusters()
    method = JointVAE(gamma=20.0, c_max=2.0, c_max_discrete=1.1, iteration_threshold=250.0)
    (run,) = quick_train(None, method, data=data, steps=300, learning_rate=3e-3, batch=32, latents=4, seeds=[1])
    codes, factors = run.encode(data.images(slice(None))).numpy(), data.factors(slice(None)).numpy()
    assert len(np.unique(np.stack([codes[:, 1], factors[:, 0]], 1), axis=0)) == len(np.unique(codes[:, 1])) == 3
    for kind in range(3):
        rows = factors[:, 0] == kind
        assert abs(np.corrcoef(codes[rows, 0], factors[rows, 1])[0, 1]) > 0.9
    assert run.sample(3).shape == (3, 16)
    (row,) = ub.score([run], ["mig"], data=data, quiet=True)
    assert row["mig.discrete_mig"] > 0.3


def test_too_few_latents_raise(toy: FactorData) -> None:
    with pytest.raises(UserError, match=r"Got 5 latents instead\. Use at least 6"):
        TWO.check(toy, 4, 5)
    only_categories: Tensor = TWO.split(random_posterior(2, 6))[0].mean
    assert only_categories.shape == (2, 0)
