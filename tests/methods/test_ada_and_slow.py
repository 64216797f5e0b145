"""Ada-GVAE, Ada-ML-VAE and SlowVAE compared with hand calculations, plain loops, and a beta-VAE without pairs."""

from __future__ import annotations

import math
from statistics import median

import pytest
import torch
from torch import Tensor

import unbraid as ub
from oracles import pairs as oracle
from support.posteriors import gaussian, random_pairs
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.methods.ada_vae import (
    AdaGVAE,
    AdaMLVAE,
    arithmetic_mean,
    changed_latents,
    doubled_kl,
    mark_above_midpoint,
    mark_largest,
    precision_weighted_mean,
    share_posteriors,
)
from unbraid.methods.method import Batch, Method
from unbraid.methods.pairs import Paired, split_pairs
from unbraid.methods.slow_vae import SlowVAE, entropy, laplace_cross_entropy, transition_loss
from unbraid.nets.registry import resolve_net
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec

# Ada-GVAE and Ada-ML-VAE


def test_doubled_kl_is_twice_the_kl() -> None:
    first, second = random_pairs(3, 4)
    delta = doubled_kl(gaussian(first), gaussian(second))
    for i, j in ((0, 0), (1, 3), (2, 2)):
        assert float(delta[i, j]) == pytest.approx(2 * oracle.kl(first[i][j], second[i][j]), rel=1e-5)
    assert doubled_kl(gaussian(first), gaussian(first)).abs().max() < 1e-12


def test_doubled_kl_is_not_symmetric() -> None:
    """The KL of a narrow normal from a wide one is smaller than the KL in the other direction."""
    narrow, wide = gaussian([[(0.0, 0.1)]]), gaussian([[(1.0, 1.0)]])
    assert float(doubled_kl(narrow, wide)) == pytest.approx(0.1 + 1 - 1 + math.log(10))
    assert float(doubled_kl(wide, narrow)) == pytest.approx(10 + 10 - 1 - math.log(10))


def test_choices_equal_their_loops() -> None:
    first, second = random_pairs(5, 4)
    delta = doubled_kl(gaussian(first), gaussian(second))
    assert mark_above_midpoint(delta).tolist() == [
        oracle.over_midpoint(a, b) for a, b in zip(first, second, strict=True)
    ]
    count = torch.tensor([1, 2, 3, 4, 0])
    expected = [oracle.among_largest(a, b, int(k)) for a, b, k in zip(first, second, count, strict=True)]
    assert mark_largest(delta, count).tolist() == expected


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        ([0.0, 1.0, 4.0], [False, False, True]),
        ([0.0, 2.0, 4.0], [False, True, True]),  # a value equal to the midpoint is marked
        ([0.0, 1.9, 4.0], [False, False, True]),
        ([4.0, 0.0, 4.0], [True, False, True]),
        ([3.0, 3.0, 3.0], [True, True, True]),  # if all are equal, no latents are averaged
        ([0.0, 0.0, 0.0], [True, True, True]),
        ([0.3], [True]),
    ],
)
def test_threshold_by_hand(delta: list[float], expected: list[bool]) -> None:
    assert mark_above_midpoint(torch.tensor([delta])).tolist() == [expected]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, [False, False, False, False]),
        (1, [False, True, False, False]),
        (2, [True, True, False, True]),  # the second and third largest are equal, so both are marked
        (3, [True, True, False, True]),
        (4, [True, True, True, True]),
        (9, [True, True, True, True]),
    ],
)
def test_count_by_hand(count: int, expected: list[bool]) -> None:
    delta = torch.tensor([[2.0, 5.0, 0.5, 2.0]])
    assert mark_largest(delta, torch.tensor([count])).tolist() == [expected]


def test_rounding_does_not_choose_among_equal_latents() -> None:
    delta = torch.tensor([[0.0, 1e-17, -1e-8, 0.0], [1.0, 1.0 + 1e-7, 0.5, 2.0]])
    assert mark_largest(delta, torch.tensor([1, 2])).tolist() == [[True] * 4, [True, True, False, True]]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_choices_do_not_depend_on_the_order_of_latents(k: int) -> None:
    """Permuting the latents permutes the mask in the same way, also with ties."""
    delta = torch.tensor([[2.0, 5.0, 0.5, 2.0, 5.0, 0.1]])
    order = torch.tensor([4, 2, 0, 5, 3, 1])
    count = torch.tensor([k])
    assert torch.equal(mark_largest(delta[:, order], count), mark_largest(delta, count)[:, order])
    assert torch.equal(mark_above_midpoint(delta[:, order]), mark_above_midpoint(delta)[:, order])


def test_changed_latents() -> None:
    """Latent i belongs to factor i. The other latents have no factor."""
    changed = torch.tensor([[True, False, True], [False, False, True]])
    assert changed_latents(changed, 5).int().tolist() == [[1, 0, 1, 0, 0], [0, 0, 1, 0, 0]]
    assert torch.equal(changed_latents(changed, 3), changed)


def test_averages_by_hand() -> None:
    """The average of N(1, 1) and N(4, 3) is N(2.5, 2). Weighted by precision (3 to 1), it is N(1.75, 1.5)."""
    q1, q2 = gaussian([[(1.0, 1.0)]]), gaussian([[(4.0, 3.0)]])
    for mean, m, v in ((arithmetic_mean(q1, q2), 2.5, 2.0), (precision_weighted_mean(q1, q2), 1.75, 1.5)):
        assert (float(mean.mean), float(mean.logvar.exp())) == pytest.approx((m, v))


@pytest.mark.parametrize("name", ["arithmetic_mean", "precision_weighted_mean"])
def test_averages_equal_their_loops(name: str) -> None:
    function = {"arithmetic_mean": arithmetic_mean, "precision_weighted_mean": precision_weighted_mean}[name]
    first, second = random_pairs(3, 2)
    actual, back = function(gaussian(first), gaussian(second)), function(gaussian(second), gaussian(first))
    expected = gaussian(
        [[getattr(oracle, name)(p, q) for p, q in zip(a, b, strict=True)] for a, b in zip(first, second, strict=True)]
    )
    for mean in (actual, back):
        torch.testing.assert_close(mean.mean, expected.mean)
        torch.testing.assert_close(mean.logvar, expected.logvar)
    same = function(gaussian(first), gaussian(first))
    torch.testing.assert_close(same.mean, gaussian(first).mean)
    torch.testing.assert_close(same.logvar, gaussian(first).logvar)


def test_averages_of_extreme_variances_are_finite() -> None:
    q1, q2 = Gaussian(torch.ones(1, 1), torch.tensor([[-200.0]])), Gaussian(-torch.ones(1, 1), torch.tensor([[95.0]]))
    for function in (arithmetic_mean, precision_weighted_mean):
        mean = function(q1, q2)
        assert mean.mean.isfinite().all()
        assert mean.logvar.isfinite().all()


@pytest.mark.parametrize(
    ("method", "mean"),
    [(AdaGVAE(), (0.5, 2.0)), (AdaMLVAE(), (0.25, 1.5))],
    ids=["arithmetic", "precision"],
)
def test_shared_posteriors_by_hand(method: AdaGVAE, mean: tuple[float, float]) -> None:
    """Both examples keep their own posterior of the changed latent. The posterior of the other latent is averaged."""
    q = gaussian([[(0.0, 1.0), (-9.0, 0.5)], [(1.0, 3.0), (9.0, 2.0)]])
    q1, q2 = split_pairs(q)
    apart = method.unshared_latents(q1, q2, None)
    actual = share_posteriors(q, method.average(q1, q2), apart)
    assert apart.tolist() == [[False, True]]
    assert actual.mean.tolist() == [[mean[0], -9.0], [mean[0], 9.0]]
    assert actual.logvar.exp().flatten().tolist() == pytest.approx([mean[1], 0.5, mean[1], 2.0])


@pytest.mark.parametrize("apart", ["threshold", "count"])
def test_the_choice_depends_on_the_order_of_the_pair(apart: str) -> None:
    """The doubled KL is 2.4 if a latent widens, 16.7 if it narrows, and 9 if it shifts by 3."""
    q1, q2 = gaussian([[(0.0, 0.1), (0.0, 1.0)]]), gaussian([[(1.0, 1.0), (3.0, 1.0)]])
    method, changed = AdaGVAE(apart=apart), torch.tensor([[True, False]])  # type: ignore[arg-type]
    assert method.unshared_latents(q1, q2, changed).tolist() == [[False, True]]
    assert method.unshared_latents(q2, q1, changed).tolist() == [[True, False]]


def test_both_examples_of_a_pair_are_treated_equally() -> None:
    """With the same mask, exchanging the two examples of each pair exchanges their posteriors."""
    first, second = random_pairs(4, 3)
    apart = torch.tensor([[True, False, True]] * 4)
    for mean in (arithmetic_mean, precision_weighted_mean):
        forward, backward = (
            share_posteriors(gaussian(a + b), mean(gaussian(a), gaussian(b)), apart)
            for a, b in ((first, second), (second, first))
        )
        for x, y in ((forward.mean, backward.mean), (forward.logvar, backward.logvar)):
            torch.testing.assert_close(x, y.roll(4, 0))


def test_pairs_are_corresponding_rows_of_both_halves() -> None:
    """Row i of the first half and row i of the second half are a pair."""
    q = Gaussian(torch.arange(6.0).view(6, 1), torch.zeros(6, 1))
    actual = share_posteriors(q, arithmetic_mean(*split_pairs(q)), torch.zeros(3, 1, dtype=torch.bool))
    assert actual.mean.flatten().tolist() == [1.5, 2.5, 3.5, 1.5, 2.5, 3.5]


def compute_terms(method: Method, data: FactorData, **batch: Tensor) -> tuple[float, dict[str, float], Gaussian]:
    """Return the loss and the logged terms of a fixed batch, and the posteriors of its examples."""
    spec = RunSpec(method, data.name, latents=4, net="mlp", likelihood="gaussian")
    net = build_net(spec, data.shape, resolve_net("mlp")[1])
    x = data.batch(torch.arange(8) * 100)
    noise = Noise.from_seed(torch.tensor(1), torch.tensor(0), 1)
    with torch.no_grad():
        loss, terms = method.objective(net, Batch(x, len(data), **batch), noise, torch.tensor(0.0))
        return float(loss), {name: float(value) for name, value in terms.items()}, net.encode(x)


@pytest.mark.parametrize("cls", [AdaGVAE, AdaMLVAE])
@pytest.mark.parametrize("apart", ["threshold", "count", "factors"])
def test_ada_objective_sums_its_terms(cls: type[AdaGVAE], apart: str, toy: FactorData) -> None:
    changed = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 1]]).bool()
    method = cls(beta=3.0, apart=apart)  # type: ignore[arg-type]
    loss, terms, q = compute_terms(method, toy, changed=changed)
    rows = [[(float(m), math.exp(float(v))) for m, v in zip(*row, strict=True)]
            for row in zip(q.mean, q.logvar, strict=True)]  # fmt: skip
    mean = oracle.arithmetic_mean if cls is AdaGVAE else oracle.precision_weighted_mean
    total = 0.0
    for i, changed_factors in enumerate(changed.tolist()):
        a, b = rows[i], rows[i + 4]
        choice = {
            "threshold": oracle.over_midpoint(a, b),
            "count": oracle.among_largest(a, b, sum(changed_factors)),
            "factors": changed_factors,
        }
        for p, r, own in zip(a, b, choice[apart], strict=True):
            for each in (p, r) if own else (mean(p, r), mean(p, r)):
                total += oracle.kl(each, (0.0, 1.0)) / 8
    assert terms["kl"] == pytest.approx(total, rel=1e-4)
    assert loss == pytest.approx(terms["rec"] + 3 * terms["kl"], rel=1e-6)


def test_the_threshold_does_not_use_the_changed_factors(toy: FactorData) -> None:
    actual = [compute_terms(AdaGVAE(), toy, changed=torch.full((4, 4), value)) for value in (False, True)]
    assert actual[0][:2] == actual[1][:2]


# SlowVAE


@pytest.mark.parametrize(
    ("m", "s", "expected"), [(0.0, 1.0, 3.6887), (0.5, 0.3, 1.9728), (-1.2, 0.2, 6.1014), (0.0, 0.1, -0.6199)]
)
def test_laplace_cross_entropy_values(m: float, s: float, expected: float) -> None:
    """The values at rate 6 were computed independently. Adding 1e-6 to the variance does not change their digits."""
    actual = laplace_cross_entropy(gaussian([[(m, s * s)]]), torch.zeros(1, 1), 6.0)
    assert float(actual) == pytest.approx(expected, abs=1e-4)
    assert float(actual) == pytest.approx(oracle.laplace_cross_entropy((m, s * s), 0.0, 6.0), abs=1e-4)


def test_laplace_cross_entropy_depends_on_the_difference() -> None:
    q, moved = gaussian([[(0.5, 0.09)]]), gaussian([[(2.5, 0.09)]])
    at_zero = laplace_cross_entropy(q, torch.zeros(1, 1), 6.0)
    torch.testing.assert_close(at_zero, laplace_cross_entropy(moved, torch.full((1, 1), 2.0), 6.0))
    torch.testing.assert_close(at_zero, laplace_cross_entropy(gaussian([[(-0.5, 0.09)]]), torch.zeros(1, 1), 6.0))


def test_laplace_cross_entropy_limits() -> None:
    """For a rate near 0 it is -log(rate / 2). For variance 0 it is rate * distance - log(rate / 2).

    The gradient is always finite.
    """
    q = gaussian([[(0.7, 0.25)]])
    rate = 1e-6
    assert float(laplace_cross_entropy(q, torch.zeros(1, 1), rate)) == pytest.approx(-math.log(rate / 2), abs=1e-5)
    mean = torch.tensor([[0.0, 0.7, -30.0]], requires_grad=True)
    sharp = laplace_cross_entropy(Gaussian(mean, torch.full((1, 3), -200.0)), torch.zeros(1, 3), 6.0)
    expected = torch.tensor([[0.0, 4.2, 180.0]]) - math.log(3)
    torch.testing.assert_close(sharp, expected, rtol=0, atol=6e-3)
    (grad,) = torch.autograd.grad(sharp.sum(), mean)
    torch.testing.assert_close(grad, torch.tensor([[0.0, 6.0, -6.0]]))


def test_entropies_give_the_analytic_kl() -> None:
    """The cross-entropy with a standard normal minus the entropy is the KL of `Gaussian`."""
    q = gaussian(random_pairs(4, 3)[0])
    cross = 0.5 * (q.mean**2 + q.logvar.exp()) + 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(cross - entropy(q), q.kl())


def test_transition_loss_equals_its_loops() -> None:
    first, second = random_pairs(3, 2)
    actual = transition_loss(gaussian(first + second), 6.0)
    assert float(actual) == pytest.approx(oracle.transition_loss(first, second, 6.0), rel=1e-4)
    assert float(transition_loss(gaussian(second + first), 6.0)) == pytest.approx(float(actual))


def test_transition_loss_by_hand() -> None:
    """For two unit normals at a distance of 1, the loss is two cross-entropies minus one entropy."""
    m = math.sqrt(2 / math.pi) * math.exp(-0.5) + math.erf(math.sqrt(0.5))
    expected = 2 * (6 * m - math.log(3)) - 0.5 * math.log(2 * math.pi * math.e)
    assert float(transition_loss(gaussian([[(0.0, 1.0)], [(1.0, 1.0)]]), 6.0)) == pytest.approx(expected, abs=1e-5)


def test_slow_objective_sums_its_terms(toy: FactorData) -> None:
    """The loss is twice the mean reconstruction error, plus the weighted KL, plus the weighted transition loss."""
    method = SlowVAE(beta=2.0, gamma=5.0, rate=3.0)
    loss, terms, q = compute_terms(method, toy)
    assert list(terms) == ["rec", "kl", "transition"]
    assert loss == pytest.approx(2 * terms["rec"] + 2 * terms["kl"] + 5 * terms["transition"], rel=1e-6)
    assert terms["kl"] == pytest.approx(float(q.kl().sum(1).mean()), rel=1e-6)
    assert terms["transition"] == pytest.approx(float(transition_loss(q, 3.0)), rel=1e-6)
    plain, single, _ = compute_terms(Paired(beta=2.0, weight=2.0), toy)
    assert single["rec"] == pytest.approx(terms["rec"], rel=1e-6)
    assert plain == pytest.approx(loss - 5 * terms["transition"], rel=1e-5)


# Methods that use pairs have a higher DCI disentanglement of posterior means (median over seeds) than a beta-VAE.


def median_dci(method: Method) -> float:
    """Return the median DCI disentanglement of short runs on sprites."""
    runs = ub.train(method, data="sprites", seeds=(0, 1), steps=1500, learning_rate=1e-3, latents=6, quiet=True)
    rows = ub.score(runs, ["dci"], codes=["mean"], jobs=1, quiet=True)
    return median(row["dci.disentanglement"] for row in rows)


@pytest.mark.slow
def test_ada_gvae_beats_beta_vae_on_its_pairs() -> None:
    """Both train on the same images with the same weight of the KL, but only Ada-GVAE uses the pairs."""
    assert median_dci(AdaGVAE(beta=1.0)) > median_dci(Paired(beta=1.0))


@pytest.mark.slow
def test_slow_vae_beats_beta_vae_on_laplace_pairs() -> None:
    """The beta-VAE of the authors' comparison has beta 8 and twice the reconstruction error, on the same images."""
    assert median_dci(SlowVAE()) > median_dci(Paired(beta=8.0, weight=2.0, pairs="laplace"))
