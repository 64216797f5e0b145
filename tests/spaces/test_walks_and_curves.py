"""Tests of random walks on manifolds, closed curves through points, and coordinates of points."""

from __future__ import annotations

import math

import pytest
import torch
from test_spaces import ALL_SPACES, SPACES_WITH_ANGLES, constraint_error, noise, random_points, space_name

from oracles import heat
from unbraid.spaces import SPACES, FlatTorus, Projective, Rotations, Space, Sphere, Torus
from unbraid.spaces.projective import EvenDecoder
from unbraid.spaces.rotations import nearest_rotation


def mean_cosine(space: Space, t: float, steps: int, n: int, step: str = "sqrt") -> float:
    """Return the mean inner product of the start and the end of n random walks."""
    start = random_points(space, n)
    return float((space.diffuse(start, torch.full((n,), t), noise(1), steps, step) * start).sum(1).double().mean())


@pytest.mark.parametrize(("steps", "value"), [(1, 0.8999), (5, 0.9039), (10, 0.9044)])
def test_walk_on_the_sphere(steps: int, value: float) -> None:
    """In the limit of many steps, the mean inner product with the start is exp(-d t / 2) = 0.90484."""
    assert mean_cosine(Sphere(3), 0.1, steps, 300_000) == pytest.approx(value, abs=6e-4)
    assert math.exp(-0.1) == pytest.approx(0.90484, abs=1e-5)


@pytest.mark.parametrize(
    ("t", "steps", "value"), [(0.1, 5, 0.627), (0.1, 10, 0.617), (0.1, 50, 0.608), (0.3, 5, 0.292)]
)
def test_walk_on_the_ten_sphere(t: float, steps: int, value: float) -> None:
    """If d t is large, a walk with few steps stays too close to its start. The exact values are 0.6065 and 0.223."""
    assert mean_cosine(Sphere(11), t, steps, 40_000) == pytest.approx(value, abs=4e-3)
    assert math.exp(-5 * t) == pytest.approx({0.1: 0.6065, 0.3: 0.223}[t], abs=5e-4)


def test_time_of_a_walk_with_literal_steps() -> None:
    """If the noise is multiplied by t, the time is L t^2, which is 0.05 for t = 0.1 and L = 5."""
    found = mean_cosine(Sphere(3), 0.1, 5, 300_000, "literal")
    assert found == pytest.approx(0.9509, abs=6e-4)
    assert found == pytest.approx(math.exp(-5 * 0.1**2), abs=6e-4)


def test_walk_on_tori() -> None:
    """The mean cosine of the angle from the start is exp(-t / 2) on a unit circle.

    On the tube of radius 0.6, it is exp(-t / 0.72).
    """
    assert mean_cosine(FlatTorus(6), 0.1, 20, 100_000) == pytest.approx(3 * math.exp(-0.05), abs=3e-3)
    start = torch.tensor([[3.6, 0.0, 0.0]]).repeat(100_000, 1)
    end = Torus(3).diffuse(start, torch.full((100_000,), 0.02), noise(), 50)
    tube = Torus(3).angles(end)[:, 1]
    assert float(tube.cos().mean()) == pytest.approx(math.exp(-0.02 / 0.72), abs=3e-3)


@pytest.mark.parametrize("t", [0.1, 0.4])
def test_walk_on_rotations(t: float) -> None:
    """With the metric of R^9, the mean rotation matrix is exp(-t / 2) times the start."""
    assert mean_cosine(Rotations(9), t, 20, 10_000) / 3 == pytest.approx(math.exp(-t / 2), abs=5e-3)


def test_walk_samples_the_heat_kernel() -> None:
    """The KL divergence of the end points on a circle, estimated from a histogram, equals the exact value."""
    start = torch.tensor([[1.0, 0.0]]).repeat(400_000, 1)
    angle = Sphere(2).angles(Sphere(2).diffuse(start, torch.full((400_000,), 0.3), noise(), 20))[:, 0]
    frequency = torch.histc(angle.double(), 100, -math.pi, math.pi) / 400_000
    found = (frequency * (100 * frequency).clamp(min=1e-12).log()).sum()
    assert float(found) == pytest.approx(heat.circle_kl(0.3), abs=0.01)


def test_nearest_rotation_equals_the_result_of_a_singular_value_decomposition() -> None:
    m = noise().normal(1000, 3, 3)
    u, _, v = torch.linalg.svd(m)
    sign = torch.linalg.det(u @ v)
    flip = torch.diag_embed(torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign], -1))
    assert int((sign < 0).sum()) > 300
    torch.testing.assert_close(nearest_rotation(m), u @ flip @ v, rtol=0, atol=1e-4)
    torch.testing.assert_close(nearest_rotation(torch.zeros(3, 3)), torch.eye(3))


def test_length_of_a_full_turn() -> None:
    """A closed geodesic of a projective space of radius r has length pi r. This determines the metric of SO(3)."""
    s = torch.linspace(0, 2 * math.pi, 20_001, dtype=torch.float64)
    path = Rotations(9).closed_curves(torch.eye(3, dtype=torch.float64).flatten(), s)[0][2]
    length = float(path.diff(dim=0).norm(dim=1).sum())
    radius = length / math.pi
    assert radius == pytest.approx(2 * math.sqrt(2), rel=1e-6)
    assert math.exp(Rotations(9).log_volume) == pytest.approx(math.pi**2 * radius**3, rel=1e-5)
    assert Rotations(9).curvatures[0] == pytest.approx(6 / radius**2, rel=1e-5)


@pytest.mark.parametrize("space", ALL_SPACES, ids=space_name)
def test_closed_curves_pass_through_the_point(space: Space) -> None:
    """The curves lie on the manifold, are closed, are at the given point for s = 0, and are not constant."""
    s = torch.tensor([-2.0, 0.0, 1.0, 2 * math.pi])
    for z in random_points(space, 20):
        rows, names = space.closed_curves(z, s)
        assert rows.shape == (len(names), 4, space.latents)
        assert len(names) >= space.dimension
        assert float(constraint_error(space, rows).max()) < 2e-5
        torch.testing.assert_close(rows[:, 1], z.expand_as(rows[:, 1]), rtol=0, atol=1e-5)
        torch.testing.assert_close(rows[:, 3], z.expand_as(rows[:, 3]), rtol=0, atol=1e-5)
        assert float((rows[:, 2] - z).norm(dim=1).min()) > 0.1


@pytest.mark.parametrize("space", [Sphere(2), Sphere(5), FlatTorus(4), Projective(3), Rotations(9)], ids=space_name)
def test_closed_curves_are_geodesics(space: Space) -> None:
    """The acceleration is normal to the manifold, so a small step along it is projected back to the point."""
    h = 1e-3
    s = torch.tensor([-h, 0.0, h], dtype=torch.float64)
    for z in random_points(space, 5).double():
        z = space.project(z)
        before, at, after = space.closed_curves(z, s)[0].unbind(1)
        acceleration = (before + after - 2 * at) / h**2
        assert float((space.project(z + 1e-3 * acceleration) - z).abs().max()) < 1e-6


def test_closed_curves_of_a_point_on_an_axis_leave_out_this_axis() -> None:
    rows, names = Sphere(3).closed_curves(torch.tensor([0.0, 1.0, 0.0]), torch.tensor([0.5]))
    assert names == ["towards 0", "towards 2"]
    torch.testing.assert_close(rows[0, 0], torch.tensor([math.sin(0.5), math.cos(0.5), 0.0]))


@pytest.mark.parametrize("space", SPACES_WITH_ANGLES, ids=space_name)
def test_there_is_one_angle_per_dimension(space: Space) -> None:
    z = random_points(space, 100)
    angles = space.angles(z)
    assert angles.shape == (100, space.dimension)
    assert bool((angles.abs() <= math.pi + 1e-6).all())
    assert len(torch.unique(angles, dim=0)) == 100


def test_spherical_coordinates_determine_the_point() -> None:
    z = random_points(Sphere(4), 50).double()
    a, b, c = Sphere(4).angles(z).unbind(1)
    back = [a.cos(), a.sin() * b.cos(), a.sin() * b.sin() * c.cos(), a.sin() * b.sin() * c.sin()]
    torch.testing.assert_close(torch.stack(back, 1), z, rtol=0, atol=1e-6)


@pytest.mark.parametrize("space", [Projective(3), Rotations(9)], ids=space_name)
def test_spaces_without_angles_raise_an_error(space: Space) -> None:
    with pytest.raises(ValueError, match="ambient"):
        space.angles(random_points(space, 2))


def test_opposite_points_of_a_projective_space_are_the_same() -> None:
    """Embedded coordinates and decoded outputs are equal for z and -z, and differ for other points."""
    space, z = Projective(3), random_points(Projective(3), 20)
    assert torch.equal(space.embed(z), space.embed(-z))
    assert space.embed(z).shape == (20, 6)
    assert len(torch.unique(space.embed(z), dim=0)) == 20
    decoder = EvenDecoder(torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5)))
    torch.testing.assert_close(decoder(z), decoder(-z))
    torch.testing.assert_close(decoder(z), 0.5 * (decoder.inner(z) + decoder.inner(-z)))
    assert float((decoder(z[:1]) - decoder(z[1:2])).detach().abs().max()) > 1e-3


@pytest.mark.parametrize(
    ("name", "latents", "message"),
    [
        ("sphere", 1, "at least 2"),
        ("projective", 1, "at least 2"),
        ("flat_torus", 3, "even"),
        ("flat_torus", 0, "even"),
        ("torus", 4, "exactly 3"),
        ("rotations", 10, "exactly 9"),
    ],
)
def test_wrong_number_of_latents_is_rejected(name: str, latents: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SPACES[name](latents)


def test_spaces_have_their_registered_names_and_compare_by_value() -> None:
    assert all(cls.name == name for name, cls in SPACES.items())
    assert Sphere(3) == Sphere(3) != Sphere(4)
    assert len({Sphere(3), Sphere(3), Projective(3)}) == 2
