"""Tests of piecewise-affine velocity fields and their flows.

Flows are compared with a Runge-Kutta integration in many small steps.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap

from oracles import cpab as oracle
from oracles.cpab_exact import integrate_exactly
from unbraid.spaces import cpab
from unbraid.spaces.cpab import Tessellation, field_matrices, find_cells, integrate, velocity

SEED_MODEL, CELEBA = Tessellation(2, 4), Tessellation(4, 4)  # the tessellations of the VITAE paper


def random_case(t: Tessellation, b: int = 2, n: int = 50, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return standard normal parameters (b, dim) and uniform points (n, 2), in float64."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(b, t.dim, generator=generator, dtype=torch.float64)
    return theta, torch.rand(n, 2, generator=generator, dtype=torch.float64)


def runge_kutta(t: Tessellation, theta: Tensor, points: Tensor, steps: int = 2000) -> Tensor:
    """Integrate the flow with many small Runge-Kutta steps of the oracle."""
    matrices = field_matrices(t, theta).numpy()
    return torch.tensor(np.stack([oracle.runge_kutta(t.nx, t.ny, a, points.numpy(), steps) for a in matrices]))


def max_error(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


@pytest.mark.parametrize(
    ("rectangles", "dim_zero_boundary", "dim_free"),
    [((1, 1), 2, 10), ((2, 2), 14, 26), ((3, 3), 34, 50), ((2, 4), 30, 46), ((4, 4), 62, 82)],
)
def test_dimensions_of_the_basis(rectangles: tuple[int, int], dim_zero_boundary: int, dim_free: int) -> None:
    """The dimensions for the tessellations of the paper are 30 and 62."""
    assert cpab.basis(rectangles).shape == (24 * rectangles[0] * rectangles[1], dim_zero_boundary)
    assert cpab.basis(rectangles, zero_boundary=False).shape[1] == dim_free


@pytest.mark.parametrize(("rectangles", "dim"), [((2, 4), 7), ((4, 4), 15)])
def test_dimensions_of_the_basis_without_divergence(rectangles: tuple[int, int], dim: int) -> None:
    assert cpab.basis(rectangles, volume_preserving=True).shape[1] == dim


@given(st.integers(1, 6), st.integers(1, 6))
def test_dimension_equals_the_formula(nx: int, ny: int) -> None:
    vertices, edge = (nx + 1) * (ny + 1) + nx * ny, 2 * (nx + 1) + 2 * (ny + 1)
    assert Tessellation(nx, ny).dim == 2 * vertices - edge
    assert Tessellation(nx, ny, zero_boundary=False).dim == 2 * vertices


@pytest.mark.parametrize("rectangles", [(1, 1), (2, 1), (2, 4), (3, 3)])
@pytest.mark.parametrize(
    ("zero_boundary", "divergence_free"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_basis_spans_the_null_space_of_the_constraints(
    rectangles: tuple[int, int], zero_boundary: bool, divergence_free: bool
) -> None:
    """The oracle lists the constraints vertex by vertex, and computes their null space from singular vectors."""
    rows = oracle.constraints(*rectangles, zero_boundary, divergence_free)
    expected = oracle.null_space(rows)
    if not expected.shape[1]:
        with pytest.raises(ValueError, match="No velocity field except zero"):
            cpab.basis(rectangles, zero_boundary, divergence_free)
        return
    found = cpab.basis(rectangles, zero_boundary, divergence_free).numpy()
    assert np.abs(rows @ found).max() < 1e-12
    np.testing.assert_allclose(found.T @ found, np.eye(expected.shape[1]), atol=1e-12)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-10)


def test_basis_has_the_symmetry_of_the_square() -> None:
    """If x and y are exchanged, the basis is the same up to the order and the signs of its columns."""
    b = cpab.basis((3, 3)).unflatten(0, (3, 3, 4, 2, 3))
    exchanged = b.transpose(0, 1)[:, :, [3, 2, 1, 0]].flip(3)[:, :, :, :, [1, 0, 2]]
    match = (exchanged.flatten(0, 4).T @ b.flatten(0, 4)).abs()
    assert torch.allclose(match.amax(1), torch.ones(b.shape[-1], dtype=b.dtype), atol=1e-10)


def test_cells_equal_those_of_the_oracle() -> None:
    """The points are random, on edges, in corners, at centres, and outside the square."""
    t, (_, p) = Tessellation(3, 2), random_case(Tessellation(3, 2), n=500)
    steps = torch.arange(-1, 14, dtype=torch.float64) / 12
    p = torch.cat([1.4 * p - 0.2, torch.cartesian_prod(steps, steps)])
    assert find_cells(t, *p.unbind(-1)).tolist() == oracle.cell(3, 2, p.numpy()).tolist()
    middles = [np.mean(triangle, 0).tolist() for triangle in oracle.triangles(3, 2)]
    assert find_cells(t, *torch.tensor(middles).unbind(-1)).tolist() == list(range(t.n_cells))
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30])
    assert find_cells(t, odd, odd).clamp(0, t.n_cells - 1).equal(find_cells(t, odd, odd))


@pytest.mark.parametrize("t", [SEED_MODEL, CELEBA, Tessellation(3, 2, zero_boundary=False)], ids=str)
def test_velocity_is_continuous(t: Tessellation) -> None:
    """The velocity equals that of the oracle, and is the same on all sides of every vertex."""
    theta, p = random_case(t)
    matrices = field_matrices(t, theta).numpy()
    expected = np.stack([oracle.velocity(t.nx, t.ny, a, p.numpy()) for a in matrices])
    assert max_error(velocity(t, theta, p), torch.tensor(expected)) < 1e-12
    corners = torch.tensor(oracle.triangles(t.nx, t.ny), dtype=torch.float64).flatten(0, 1)
    for a, b in itertools.product([-1e-9, 1e-9], repeat=2):
        near = (corners + torch.tensor([a, b])).clamp(0, 1)
        assert max_error(velocity(t, theta, near), velocity(t, theta, corners)) < 1e-6


def test_points_on_the_boundary_move_only_along_it() -> None:
    t, (theta, p) = CELEBA, random_case(CELEBA)
    for axis, side in itertools.product([0, 1], [0.0, 1.0]):
        edge = p.clone()
        edge[:, axis] = side
        v = velocity(t, theta, edge)
        assert float(v[..., axis].abs().max()) < 1e-12
        assert float(v[..., 1 - axis].abs().max()) > 0.1
        assert max_error(integrate(t, theta, edge)[..., axis], edge[:, axis]) < 1e-12


@pytest.mark.parametrize("t", [SEED_MODEL, CELEBA], ids=str)
def test_error_decreases_with_the_number_of_steps(t: Tessellation) -> None:
    """The errors are those of the flow, and of the flow followed by its inverse, for 5 random fields and 100 points."""
    theta, p = random_case(t, 5, 100)
    expected = runge_kutta(t, theta, p, 1000)
    for steps, error in ((10, 1.7e-3), (50, 8e-5), (200, 4e-6)):
        end = integrate(t, theta, p, steps)
        assert max_error(end, expected) < 2 * error
        assert max_error(integrate(t, -theta, end, steps), p) < 2 * 9e-5 * (50 / steps) ** 2


@pytest.mark.parametrize("t", [SEED_MODEL, CELEBA, Tessellation(4, 4, volume_preserving=True)], ids=str)
def test_exact_solution_equals_runge_kutta(t: Tessellation) -> None:
    """The exact solution for negated parameters is the inverse, up to rounding."""
    theta, p = random_case(t, 2, 30)
    end = integrate_exactly(t, theta, p)
    assert max_error(end, runge_kutta(t, theta, p)) < 1e-7
    assert max_error(integrate_exactly(t, -theta, end), p) < 1e-9


def test_exact_solution_at_the_edges_of_triangles() -> None:
    """Corners of the square do not move. Points on vertices, edges and centres move like points next to them."""
    t, (theta, _) = Tessellation(2, 2), random_case(Tessellation(2, 2))
    p = torch.cartesian_prod(*2 * [torch.linspace(0, 1, 9, dtype=torch.float64)])
    end = integrate_exactly(t, theta, p)
    assert max_error(end, integrate(t, theta, p, 2000)) < 1e-6
    assert max_error(end, integrate_exactly(t, theta, (p + 1e-10).clamp(0, 1))) < 1e-8
    corner = (p == p.round()).all(-1)
    assert max_error(end[:, corner], p[corner]) < 1e-12


def test_points_stay_in_the_square() -> None:
    """This also holds in float32 with parameters that are ten times as large."""
    for t, size in itertools.product([SEED_MODEL, CELEBA], [1.0, 10.0]):
        theta, p = random_case(t, 20, 200)
        end = integrate(t, size * theta.float(), p.float())
        assert float(end.min()) > -1e-5
        assert float(end.max()) < 1 + 1e-5


def test_zero_huge_and_nan_parameters() -> None:
    """Zero parameters move no point, huge parameters cause no error, and NaN parameters give NaN."""
    t, (theta, p) = CELEBA, random_case(CELEBA)
    zero = torch.zeros_like(theta)
    assert torch.equal(integrate(t, zero, p), p.expand(2, -1, -1))
    assert torch.equal(integrate_exactly(t, zero, p), p.expand(2, -1, -1))
    assert integrate(t, 1e6 * theta, p).shape == (2, 50, 2)
    assert integrate(t, theta * torch.nan, p).isnan().all()


def test_volume_preserving_flows_preserve_areas() -> None:
    """The map of each step has determinant 1, and the area of a polygon with many corners does not change."""
    t = Tessellation(4, 4, volume_preserving=True)
    theta, _ = random_case(t, 3)
    step = cpab.step_table(t, theta, 50)[..., :2] + torch.eye(2, dtype=torch.float64)
    assert max_error(torch.linalg.det(step), torch.ones(3, t.n_cells, dtype=torch.float64)) < 1e-12
    angle = torch.arange(4000, dtype=torch.float64) * 2 * torch.pi / 4000
    ring = 0.5 + 0.3 * torch.stack([angle.cos(), angle.sin()], -1)
    x, y = integrate(t, theta, ring, 1000).unbind(-1)
    area = 0.5 * (x * y.roll(-1, -1) - x.roll(-1, -1) * y).sum(-1)
    assert area.tolist() == pytest.approx([torch.pi * 0.09] * 3, abs=1e-6)


def test_gradients_equal_finite_differences() -> None:
    """This holds for parameters and points. Points are shared by all fields or separate for each field."""
    t = Tessellation(2, 2)
    theta, p = random_case(t, 2, 4)
    theta.requires_grad_()
    for steps, points in ((1, p), (7, p), (10, torch.stack([p, p.flip(0)]))):
        start = points.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda a, b, n=steps: integrate(t, a, b, n), (theta, start))
    assert torch.autograd.gradcheck(lambda a: velocity(t, a, p), (theta,))
    assert torch.autograd.gradcheck(lambda a: cpab.scaling_and_squaring(t, a, (5, 4), 3), (theta,))


@pytest.mark.parametrize("steps", [1, 3, 16, 50])
def test_gradient_equals_autograd_through_all_steps(steps: int) -> None:
    """The gradient is the same whether positions are recomputed segment by segment or all are saved."""
    t, (theta, p) = CELEBA, random_case(CELEBA, 3)
    table = cpab.step_table(t, theta, steps).requires_grad_()
    x, y = p.expand(3, -1, -1).unbind(-1)
    saved = torch.stack(cpab.advance_points(t, table.flatten(2).mT, x, y, steps), -1)
    recomputed = cpab.apply_steps(t, table, p, steps)
    assert torch.equal(saved, recomputed)
    weight = torch.randn(3, 50, 2, dtype=torch.float64)
    a, b = (torch.autograd.grad((moved * weight).sum(), table)[0] for moved in (saved, recomputed))
    assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_saved_memory_does_not_grow_with_the_number_of_steps() -> None:
    """The backward pass needs far less saved memory than the positions at all steps would take."""
    t, (theta, p) = CELEBA, random_case(CELEBA, 2, 2000)
    theta.requires_grad_()

    def saved_bytes(steps: int) -> int:
        sizes: list[int] = []

        def record(x: Tensor) -> Tensor:
            sizes.append(x.nbytes)
            return x

        with torch.autograd.graph.saved_tensors_hooks(record, lambda x: x):
            integrate(t, theta, p, steps)
        return sum(sizes)

    assert saved_bytes(200) == saved_bytes(64) < 10 * 2 * p.nbytes


@pytest.mark.parametrize("mode", ["shared", "per field", "per run"])
def test_vmap_equals_a_loop(mode: str) -> None:
    """Values and gradients of a stack of batches agree, with points that are shared, per field or per run."""
    t, (theta, p) = SEED_MODEL, random_case(SEED_MODEL, 6)
    theta = theta.unflatten(0, (3, 2)).requires_grad_()
    choice = {"shared": p, "per field": torch.stack([p, 1 - p]), "per run": torch.stack([p, 1 - p, p.flip(1)])}[mode]
    start = choice.clone().requires_grad_()
    dims = (0, 0 if mode == "per run" else None)
    mapped = vmap(lambda a, b: integrate(t, a, b, 9), in_dims=dims)(theta, start)
    looped = torch.stack([integrate(t, theta[i], start[i] if mode == "per run" else start, 9) for i in range(3)])
    assert torch.allclose(mapped, looped)
    found = (torch.autograd.grad(x.square().sum(), (theta, start)) for x in (mapped, looped))
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b)


def test_gradients_inside_vmap_equal_a_loop() -> None:
    t, (theta, p) = SEED_MODEL, random_case(SEED_MODEL, 6)
    theta = theta.unflatten(0, (3, 2))

    def loss(a: Tensor) -> Tensor:
        return integrate(t, a, p, 9).square().sum()

    assert torch.allclose(vmap(grad(loss))(theta), torch.stack([grad(loss)(a) for a in theta]))


def test_scaling_and_squaring_approaches_integration_in_steps() -> None:
    """The error decreases with finer grids, and zero parameters give no displacement."""
    t, (theta, p) = CELEBA, random_case(CELEBA, 2, 100)
    expected, errors = integrate(t, theta, p, 500), []
    for side in (17, 65, 129):
        u = cpab.scaling_and_squaring(t, theta, (side, side), 8)
        errors.append(float((p + cpab.interpolate_displacement(u, p.expand(2, -1, -1)) - expected).norm(dim=-1).mean()))
    assert errors[0] < 1e-2
    assert errors[1] < 1e-3
    assert errors[2] < errors[1] / 2
    assert not cpab.scaling_and_squaring(t, 0 * theta, (9, 5)).any()


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"'nx' of a tessellation must be an integer >= 1\. Got 0"):
        Tessellation(0, 2)
    with pytest.raises(ValueError, match=r"'ny' of a tessellation must be an integer >= 1\. Got 2\.5"):
        Tessellation(2, 2.5)  # type: ignore[arg-type]
    theta, p = random_case(CELEBA)
    with pytest.raises(ValueError, match=r"have 62 parameters\. Got 61 instead"):
        integrate(CELEBA, theta[:, 1:], p)
    with pytest.raises(ValueError, match=r"must be at least 1\. Got 0"):
        integrate(CELEBA, theta, p, 0)
    with pytest.raises(ValueError, match=r"or 2 sets, one per field\. Got 3"):
        integrate(CELEBA, theta, p.expand(3, -1, -1))
    for bad in ((theta * torch.nan, p), (theta, p + 1)):
        with pytest.raises(ValueError, match="finite parameters and points in the unit square"):
            integrate_exactly(CELEBA, *bad)
    with pytest.raises(ValueError, match="needs fields with zero_boundary"):
        integrate_exactly(Tessellation(1, 1, zero_boundary=False), theta[:, :10], p)
