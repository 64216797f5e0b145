"""LSBD-VAE: rotations, averages and labelled pairs by hand, and what it learns from them."""

from __future__ import annotations

import copy
import math

import pytest
import torch

import unbraid as ub
from unbraid.data import load
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods import LSBDVAE, Batch
from unbraid.methods.lsbd_vae import rotate
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

SMALL = "square_torus?size=16"


def on_circles(*angles: float, rest: float = 0.0) -> torch.Tensor:
    """Return the coordinates of one point on each circle, followed by one latent."""
    return torch.tensor([[f(a) for a in angles for f in (math.cos, math.sin)] + [rest]])


def test_rotations_add_angles_and_keep_other_latents() -> None:
    turned = rotate(on_circles(0.3, -1.0, rest=4.0), torch.tensor([[0.5, 2.0]]))
    torch.testing.assert_close(turned, on_circles(0.8, 1.0, rest=4.0))
    torch.testing.assert_close(rotate(turned, -torch.tensor([[0.5, 2.0]])), on_circles(0.3, -1.0, rest=4.0))


def test_the_average_of_a_pair_is_between_the_rotated_points() -> None:
    """Rotating the second point back by 1 gives the angle 0.4. The mean of 0 and 0.4 on the circle is 0.2."""
    z = torch.cat([on_circles(0.0, rest=1.0), on_circles(1.4, rest=3.0)])
    target = LSBDVAE().transformed_average(z, torch.tensor([[1.0]]))
    torch.testing.assert_close(target, torch.cat([on_circles(0.2, rest=2.0), on_circles(1.2, rest=2.0)]))


def test_the_distance_is_zero_for_equivariant_codes_and_known_for_others() -> None:
    """Both points are 0.2 from their targets, a chord of 2 sin 0.1, and the other latents are 1 from their mean."""
    method = LSBDVAE(beta=0.0, gamma=1.0, labels=1, log_t_min=-40.0, log_t_max=-39.0)
    net = VAENet(torch.nn.Identity(), torch.nn.Linear(3, 3), likelihood="gaussian")
    variances = torch.full((4, 3), -80.0)
    for other, rest, expected in ((1.0, 1.0, 0.0), (1.4, 3.0, (2 * math.sin(0.1)) ** 2 + 1)):
        pair = torch.cat([on_circles(0.0, rest=1.0), on_circles(other, rest=rest)])
        x = torch.cat([torch.cat([on_circles(2.0), on_circles(3.0), pair]), variances], 1)
        net.decoder = torch.nn.Linear(3, 6)
        batch = Batch(x, 10, labels=torch.tensor([[1.0]]))
        _, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
        assert float(terms["distance"]) == pytest.approx(expected, abs=1e-6)


def test_labelled_pairs_differ_by_their_angles_in_cyclic_factors_only(glyphs: FactorData) -> None:
    data = copy.copy(glyphs)
    data.cyclic = {"x": 4, "y": 5}
    pairs = LSBDVAE(circles=2, labels=50).labelled_pairs(data)
    before, after = data.factors(pairs.first), data.factors(pairs.second)
    difference = after - before
    assert (difference[:, 0] == 0).all()
    assert ((difference[:, 1:] != 0).float().mean(0) > 0.5).all()
    torch.testing.assert_close(pairs.angles, difference[:, 1:] * (2 * math.pi / torch.tensor([4, 5])))


def test_a_batch_has_as_many_labelled_examples_as_others(sprites: FactorData) -> None:
    data = load(SMALL)
    drawn = LSBDVAE(circles=2, labels=7).draw(data, Noise(torch.tensor(1)), 10)
    assert drawn.examples.shape == (20,)
    assert drawn.labels is not None
    assert drawn.labels.shape == (5, 2)
    assert LSBDVAE(labels=0).draw(sprites, Noise(torch.tensor(1)), 10).examples.shape == (10,)


@pytest.mark.parametrize(
    ("method", "data", "latents", "message"),
    [
        (LSBDVAE(circles=3), SMALL, 6, r"at least 3 cyclic factor\(s\). square_torus.* has 2"),
        (LSBDVAE(circles=0), "square_torus", 2, "needs at least 1 circle.* Got circles=0, labels=256 and square_torus"),
        (LSBDVAE(circles=0), "toy", 2, "needs at least 1 circle.* Got circles=0, labels=256 and toy. Pass labels=0"),
        (LSBDVAE(), "toy", 6, "toy has 0"),
        (LSBDVAE(circles=2), SMALL, 3, "needs at least 4 latents. Got 3"),
    ],
)
def test_check_names_what_is_missing(method: LSBDVAE, data: str, latents: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        method.check(load(data), 16, latents)
    LSBDVAE(labels=0).check(load("toy"), 15, 2)


def test_pairs_need_all_examples() -> None:
    """A transformed example can lie outside a subset, or be held out."""
    for option in ("subset=20", "holdout=x:8-15"):
        data = load(f"{SMALL}&{option}")
        with pytest.raises(UserError, match=r"all combinations of factor values must be available"):
            LSBDVAE().check(data, 16, 6)
        LSBDVAE(labels=0).check(data, 16, 6)


def test_bounds_of_the_time_must_be_ordered() -> None:
    with pytest.raises(UserError, match=r"'log_t_max' parameter of LSBDVAE must be above log_t_min, -10. Got -11"):
        LSBDVAE(log_t_max=-11.0)


def test_codes_are_points_on_circles_or_angles() -> None:
    method, net = LSBDVAE(circles=2), VAENet(*mlp((4,), 5))
    q = Gaussian(3 * torch.randn(7, 5), torch.zeros(7, 5))
    z = method.code(net, q, "ambient", Noise(torch.tensor(0)))
    torch.testing.assert_close(z[:, :4].view(7, 2, 2).norm(dim=2), torch.ones(7, 2))
    assert torch.equal(z[:, 4], q.mean[:, 4])
    angles = method.code(net, q, "angles", Noise(torch.tensor(0)))
    assert angles.shape == (7, 3)
    torch.testing.assert_close(angles[:, :2], torch.atan2(q.mean[:, 1:4:2], q.mean[:, :4:2]))
    walks = method.traversal(net, Gaussian(q.mean[:1], q.logvar[:1]), q, torch.tensor([-1.0, 0.0, 2.0]))
    assert [label.name for label in walks.labels] == ["circle 0", "circle 1", "latent 4"]
    torch.testing.assert_close(walks.z[0, 1], z[0])
    assert walks.z[2, :, 4].tolist() == [-1.0, 0.0, 2.0]


@pytest.mark.slow
def test_labelled_pairs_make_the_factors_rotations() -> None:
    """Without labelled pairs, the circles do not represent one factor each."""
    settings = {"net": "mlp", "steps": 800, "latents": 4, "learning_rate": 1e-3, "quiet": True}
    runs = ub.train([LSBDVAE(circles=2), LSBDVAE(circles=2, labels=0)], data=SMALL, **settings)
    with_pairs, without = (row["d_lsbd.d_lsbd"] for row in ub.score(runs, "d_lsbd", codes="ambient", quiet=True))
    assert with_pairs < 0.01
    assert without > 0.2


def test_the_prior_is_uniform_on_circles() -> None:
    z = LSBDVAE(circles=2).prior_sample(20_000, 5, Noise(torch.tensor(3)))
    torch.testing.assert_close(z[:, :4].reshape(-1, 2).norm(dim=1), torch.ones(40_000))
    turns = torch.atan2(z[:, 1:4:2], z[:, :4:2])
    assert turns.var(0).tolist() == pytest.approx([math.pi**2 / 3] * 2, rel=0.05)
    assert float(z[:, 4].var()) == pytest.approx(1, rel=0.05)
