"""Tests of manifolds: volumes, curvatures, projections, and the KL divergence compared with exact heat kernels."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from oracles import heat
from unbraid.noise import Noise
from unbraid.spaces import FlatTorus, Projective, Rotations, Space, Sphere, Torus

ALL_SPACES: list[Space] = [
    Sphere(2), Sphere(3), Sphere(11), FlatTorus(2), FlatTorus(6), Torus(3), Projective(2), Projective(4), Rotations(9)
]  # fmt: skip
SPACES_WITH_ANGLES = [space for space in ALL_SPACES if space.has_angles]


def space_name(space: Space) -> str:
    return f"{space.name}{space.latents}"


def noise(seed: int = 0) -> Noise:
    return Noise.from_seed(torch.tensor(seed), torch.tensor(0))


def random_points(space: Space, n: int, seed: int = 0) -> Tensor:
    """Return n random points of the space."""
    return space.project(3 * noise(seed).normal(n, space.latents))


def constraint_error(space: Space, z: Tensor) -> Tensor:
    """Return how much each point violates the equations of the manifold."""
    if isinstance(space, FlatTorus):
        return (z.unflatten(-1, (-1, 2)).norm(dim=-1) - 1).abs().amax(-1)
    if isinstance(space, Torus):
        return ((z[..., :2].norm(dim=-1) - space.c) ** 2 + z[..., 2] ** 2 - space.a**2).abs()
    if isinstance(space, Rotations):
        r = z.unflatten(-1, (3, 3))
        return (r.mT @ r - torch.eye(3).to(r)).abs().amax((-2, -1)) + (torch.linalg.det(r) - 1).abs()
    return (z.norm(dim=-1) - 1).abs()


def approximate_kl(space: Space, t: float) -> float:
    """Return the KL divergence at one point after the time t, in nats."""
    z = space.project(torch.ones(1, space.latents, dtype=torch.float64))
    return float(space.kl(z, torch.tensor([math.log(t)], dtype=torch.float64)))


@pytest.mark.parametrize(
    ("space", "volume", "dimension"),
    [
        (Sphere(2), 2 * math.pi, 1),
        (Sphere(3), 4 * math.pi, 2),
        (Sphere(4), 2 * math.pi**2, 3),
        (Sphere(11), 64 * math.pi**5 / 945, 10),
        (FlatTorus(4), 4 * math.pi**2, 2),
        (FlatTorus(6), 8 * math.pi**3, 3),
        (Torus(3), 71.06, 2),
        (Projective(3), 2 * math.pi, 2),
        (Projective(4), math.pi**2, 3),
        (Rotations(9), 16 * math.sqrt(2) * math.pi**2, 3),
    ],
    ids=str,
)
def test_volumes_and_dimensions(space: Space, volume: float, dimension: int) -> None:
    assert math.exp(space.log_volume) == pytest.approx(volume, rel=1e-4)
    assert space.dimension == dimension


def test_area_of_the_torus_by_quadrature() -> None:
    """The area equals the sum of the areas of small patches of the parametrised surface."""
    n, space = 200, Torus(3)
    angle = torch.arange(n, dtype=torch.float64) * 2 * math.pi / n
    theta, phi = torch.cartesian_prod(angle, angle).unbind(1)

    def surface(angles: Tensor) -> Tensor:
        radius = 3 + 0.6 * angles[1].cos()
        return torch.stack([radius * angles[0].cos(), radius * angles[0].sin(), 0.6 * angles[1].sin()])

    slopes = vmap(torch.func.jacrev(surface))(torch.stack([theta, phi], 1))
    area = torch.linalg.cross(slopes[..., 0], slopes[..., 1]).norm(dim=1).sum() * (2 * math.pi / n) ** 2
    assert float(area) == pytest.approx(math.exp(space.log_volume), rel=1e-9)


def test_curvature_of_the_torus() -> None:
    """The extreme values equal the formula, and the mean over the area is zero, by the Gauss-Bonnet theorem."""
    space = Torus(3)
    phi = torch.linspace(0, 2 * math.pi, 1001, dtype=torch.float64)[:-1]
    z = torch.stack([3 + 0.6 * phi.cos(), torch.zeros_like(phi), 0.6 * phi.sin()], 1)
    curvature = space.curvature(z)
    low, high = space.curvatures
    assert (float(curvature.min()), float(curvature.max())) == pytest.approx((low, high))
    assert (low, high) == pytest.approx((-2 / (0.6 * 2.4), 2 / (0.6 * 3.6)))
    assert float((curvature * (3 + 0.6 * phi.cos())).mean()) == pytest.approx(0, abs=1e-12)


EXACT_AND_APPROXIMATE_KL = [
    ("circle", Sphere(2), 0.1, 1.57023, 1.57023),
    ("sphere", Sphere(3), 0.01, 4.30332, 4.30332),
    ("sphere", Sphere(3), 0.1, 2.04588, 2.04573),
    ("sphere", Sphere(3), 0.5, 0.64092, 0.63629),
    ("sphere", Sphere(3), 1.0, 0.2165, 0.1932),
    ("sphere", Sphere(3), 2.0, 0.0278, 0.0000),
    ("sphere", Sphere(4), 0.1, 2.32882, 2.32967),
    ("sphere", Sphere(4), 0.5, 0.4917, 0.5155),
    ("sphere", Sphere(4), 1.0, 0.1026, 0.2258),
]


@pytest.mark.parametrize(("kind", "space", "t", "exact", "approximate"), EXACT_AND_APPROXIMATE_KL, ids=str)
def test_kl_equals_the_published_formula_and_is_near_the_exact_value(
    kind: str, space: Space, t: float, exact: float, approximate: float
) -> None:
    truth = heat.circle_kl(t) if kind == "circle" else heat.sphere_kl(space.dimension, t)
    assert truth == pytest.approx(exact, abs=6e-5)
    assert approximate_kl(space, t) == pytest.approx(approximate, abs=6e-5)


def test_curvature_term_is_the_corrected_one() -> None:
    """With the wrong factor (d + 4) / 24 instead of 1 / 4, the value on the 3-sphere at t = 0.1 would be 2.35467.

    On the 2-sphere, both factors are equal.
    """
    wrong = approximate_kl(Sphere(4), 0.1) + (7 / 24 - 1 / 4) * 6 * 0.1
    assert wrong == pytest.approx(2.35467, abs=1e-5)
    exact = heat.sphere_kl(3, 0.1)
    assert abs(approximate_kl(Sphere(4), 0.1) - exact) < 0.001 < 0.02 < abs(wrong - exact)


def test_kl_of_tori_projective_spaces_and_rotations_is_near_the_exact_value() -> None:
    """The exact value is a sum over circles for flat tori, and uses only even harmonics for projective spaces.

    For SO(3), it uses the characters of the group.
    """
    assert approximate_kl(FlatTorus(4), 0.1) == pytest.approx(2 * heat.circle_kl(0.1), abs=1e-6)
    assert approximate_kl(FlatTorus(6), 0.1) == pytest.approx(3 * heat.circle_kl(0.1), abs=1e-6)
    assert approximate_kl(Projective(3), 0.05) == pytest.approx(heat.sphere_kl(2, 0.05, every=2), abs=1e-4)
    assert approximate_kl(Projective(4), 0.05) == pytest.approx(heat.sphere_kl(3, 0.05, every=2), abs=1e-3)
    assert approximate_kl(Projective(2), 0.05) == pytest.approx(heat.circle_kl(0.2), abs=1e-5)
    for t in (0.1, 0.37, 1.0):
        assert approximate_kl(Rotations(9), t) == pytest.approx(heat.rotations_kl(t), abs=1e-3)


@pytest.mark.parametrize(
    ("d", "minimum", "t_of_minimum", "values"),
    [(10, 1.362, 0.2222, (26.354, 13.994, 3.189)), (20, 2.906, 0.1053, (45.446, 21.034, 3.192))],
)
def test_minimum_kl_of_spheres(d: int, minimum: float, t_of_minimum: float, values: tuple[float, ...]) -> None:
    """The KL divergence has its minimum at t = 2 / (d - 1). The values are for log t = -7.5, -5 and -2.5."""
    space = Sphere(d + 1)
    assert space.kl_range(-math.inf, math.inf)[0] == pytest.approx(minimum, abs=5e-4)
    assert 2 / (d - 1) == pytest.approx(t_of_minimum, abs=5e-5)
    assert approximate_kl(space, 2 / (d - 1)) == pytest.approx(minimum, abs=5e-4)
    assert [approximate_kl(space, math.exp(x)) for x in (-7.5, -5, -2.5)] == pytest.approx(values, abs=1e-3)


@pytest.mark.parametrize("space", ALL_SPACES, ids=space_name)
def test_kl_range_contains_all_values(space: Space) -> None:
    """The range equals that of the values at many points and on a fine grid of times."""
    low, high = space.kl_range(-8.0, 1.0)
    z, log_t = random_points(space, 5000).double(), torch.linspace(-8, 1, 5000, dtype=torch.float64)
    found = torch.stack([space.kl(z[i : i + 50].repeat(5000, 1)[:5000], log_t) for i in range(0, 500, 50)])
    assert float(found.min()) == pytest.approx(low, abs=0.02)
    assert float(found.max()) == pytest.approx(high, abs=0.02)
    assert low - 1e-9 <= float(found.min()) <= float(found.max()) <= high + 1e-9


def test_kl_is_unbounded_without_positive_curvature() -> None:
    assert FlatTorus(4).kl_range(-math.inf, math.inf) == (-math.inf, math.inf)
    assert Torus(3).kl_range(-math.inf, math.inf)[0] == -math.inf


def test_the_kl_grows_without_bound_with_time_on_a_sphere() -> None:
    assert Sphere(4).kl_range(0.0, math.inf)[1] == math.inf


@pytest.mark.parametrize("space", ALL_SPACES, ids=space_name)
def test_projection_is_the_nearest_point(space: Space) -> None:
    """The projection lies on the manifold and is idempotent. Other points of the manifold are not nearer."""
    x = 3 * noise().normal(2000, space.latents)
    z = space.project(x)
    assert float(constraint_error(space, z).max()) < 2e-5
    torch.testing.assert_close(space.project(z), z, rtol=0, atol=2e-6)
    for seed, t in ((1, 1e-3), (2, 0.1), (3, 3.0)):
        other = space.diffuse(z, torch.full((2000,), t), noise(seed), 3)
        assert bool(((x - z).norm(dim=1) <= (x - other).norm(dim=1) + 1e-4).all())


@pytest.mark.parametrize("space", ALL_SPACES, ids=space_name)
@pytest.mark.parametrize("size", [0.0, 1e-20, 1e-7, 1e-4, 1.0, 1e4])
def test_projection_has_finite_gradients(space: Space, size: float) -> None:
    x = (size * noise(5).normal(500, space.latents)).requires_grad_()
    z = space.project(x)
    (grad,) = torch.autograd.grad((z * noise(6).normal(*z.shape)).sum(), x)
    assert bool(grad.isfinite().all())
    assert float(constraint_error(space, z.detach()).max()) < 2e-5


@pytest.mark.parametrize("space", ALL_SPACES, ids=space_name)
def test_projection_gradient_equals_finite_differences(space: Space) -> None:
    x = 3 * noise(7).normal(300, space.latents).double()
    direction, weight = noise(8).normal(*x.shape).double(), noise(9).normal(*x.shape).double()
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad((space.project(leaf) * weight).sum(), leaf)
    h = 1e-6
    slope = ((space.project(x + h * direction) - space.project(x - h * direction)) * weight).sum(1) / (2 * h)
    error = (slope - (grad * direction).sum(1)).abs() / (1 + slope.abs())
    assert float(error.median()) < 1e-3
    assert float(error.quantile(0.99)) < 0.02


@pytest.mark.parametrize("space", ALL_SPACES, ids=space_name)
def test_gradients_through_a_random_walk_are_finite_and_not_zero(space: Space) -> None:
    mu, log_t = noise(1).normal(64, space.latents).requires_grad_(), torch.full((64,), -4.0).requires_grad_()
    z = space.diffuse(space.project(mu), log_t.exp(), noise(2), 5)
    weight = noise(3).normal(*z.shape)
    grads = torch.autograd.grad((z * weight).sum() + space.kl(space.project(mu), log_t).sum(), [mu, log_t])
    for grad in grads:
        assert bool(grad.isfinite().all())
        assert float(grad.abs().sum()) > 0


@pytest.mark.parametrize("space", ALL_SPACES, ids=space_name)
def test_vmap_equals_a_loop(space: Space) -> None:
    keys, t = torch.tensor([3, 1, 4]), torch.full((3, 20), 0.05)
    mu = noise().normal(3, 20, space.latents)

    def walk(x: Tensor, time: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        start = space.project(x)
        z = space.diffuse(start, time, Noise(key), 4)
        return z, space.kl(start, time.log())

    for mapped, looped in zip(
        vmap(walk)(mu, t, keys), zip(*(walk(*row) for row in zip(mu, t, keys, strict=True)), strict=True), strict=True
    ):
        torch.testing.assert_close(mapped, torch.stack(looped), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("space", ALL_SPACES, ids=space_name)
@pytest.mark.parametrize("step", ["sqrt", "literal"])
def test_random_walks_stay_on_the_manifold(space: Space, step: str) -> None:
    z = space.diffuse(random_points(space, 3000), torch.full((3000,), 0.3), noise(1), 5, step)
    assert float(constraint_error(space, z).max()) < 2e-5
