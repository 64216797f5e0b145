"""Controls start at the latents of the examples, stay in the latent space, and give the same latents in JavaScript."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from support.programs import LATENTS, node
from unbraid.distributions import Gaussian
from unbraid.methods import METHODS, PMP, DiffusionVAE, Method
from unbraid.methods.controls import Controls
from unbraid.methods.curved import CurvedMethod
from unbraid.methods.quantised import QuantisedAE
from unbraid.nets.registry import NETS

SHAPE, EXAMPLES = (1, 12, 12), 5
CASES: dict[str, tuple[Method, int]] = {
    **{name: (kind(), 6) for name, kind in METHODS.items()},
    **{space: (DiffusionVAE(space=space), n) for space, n in LATENTS.items()},  # type: ignore[arg-type]
    "circle": (DiffusionVAE(space="sphere"), 2),
    "projective line": (DiffusionVAE(space="projective"), 2),
    "one circle": (DiffusionVAE(space="flat_torus"), 2),
}


def make_controls(name: str) -> tuple[Controls, Tensor]:
    """Return the controls of a method for some examples, and the latents of the examples."""
    method, latents = CASES[name]
    torch.manual_seed(3)
    net = method.build(NETS["mlp"], SHAPE, latents, "bernoulli").requires_grad_(False)
    q, population = net.encode(4 * torch.rand(EXAMPLES, *SHAPE)), net.encode(4 * torch.rand(60, *SHAPE))
    return method.controls(net, q, population), method.point_latents(net, q)


def random_values(controls: Controls, n: int = 40) -> Tensor:
    """Return random values of the controls within their ranges."""
    low, high = torch.tensor(controls.low), torch.tensor(controls.high)
    return low + (high - low) * torch.rand(n, len(low))


@pytest.mark.parametrize("name", CASES)
def test_controls_start_at_the_latents_of_the_examples(name: str) -> None:
    controls, own = make_controls(name)
    assert len(controls.names) == len(set(controls.names)) == len(controls.low) == len(controls.high)
    assert controls.start.shape == (EXAMPLES, len(controls.names))
    for i in range(EXAMPLES):
        torch.testing.assert_close(
            controls.to_latents(controls.start[i : i + 1], i), own[i : i + 1], rtol=1e-5, atol=1e-5
        )
    assert (controls.start >= torch.tensor(controls.low)).all()
    assert (controls.start <= torch.tensor(controls.high)).all()


@pytest.mark.parametrize("name", CASES)
def test_every_control_changes_the_latents(name: str) -> None:
    controls, own = make_controls(name)
    step = 100.0 if "values" in controls.arrays else 0.5  # a small step does not reach the next value of the latent
    for i in range(len(controls.names)):
        values = controls.start[:1].clone()
        values[:, i] = torch.where(values[:, i] > 0, values[:, i] - step, values[:, i] + step)
        assert (controls.to_latents(values, 0) - own[:1]).norm() > 0.01, controls.names[i]


@pytest.mark.parametrize("name", [name for name, (method, _) in CASES.items() if isinstance(method, QuantisedAE)])
def test_quantised_latents_keep_to_their_values(name: str) -> None:
    controls, _ = make_controls(name)
    z = controls.to_latents(random_values(controls), 1)
    assert (z[..., None] == controls.arrays["values"]).any(-1).all()
    assert (z.std(0) > 0).any()


@pytest.mark.parametrize("name", [name for name, (method, _) in CASES.items() if isinstance(method, CurvedMethod)])
def test_latents_stay_in_the_latent_space(name: str) -> None:
    method, latents = CASES[name]
    controls, _ = make_controls(name)
    assert isinstance(method, CurvedMethod)
    z = controls.to_latents(random_values(controls), EXAMPLES - 1)
    torch.testing.assert_close(method.manifold(latents).project(z), z, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_javascript_computes_the_same_latents(name: str) -> None:
    controls, _ = make_controls(name)
    values = torch.cat([controls.start, random_values(controls), torch.zeros(1, len(controls.names))])
    examples = [i % EXAMPLES for i in range(len(values))]
    body = """
        const controls = unbraid.controls(job.spec);
        return job.values.map((values, i) => Array.from(controls.toLatents(values, job.examples[i])));
    """
    actual = torch.tensor(node(body, {"spec": controls.to_dict(), "values": values.tolist(), "examples": examples}))
    expected = torch.cat([controls.to_latents(row[None], i) for row, i in zip(values, examples, strict=True)])
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=2e-6)


MOVE = """
    const controls = unbraid.controls(job.spec);
    return job.moves.map(([values, i, value]) => {
        const moved = Float64Array.from(values);
        moved[i] = value;
        controls.adjust(moved, i);
        return Array.from(moved);
    });
"""


def test_coordinates_of_a_sphere_have_length_one() -> None:
    """The changed coordinate takes the given value, and the others keep their direction, also at the pole."""
    controls, own = make_controls("sphere")
    size = own.shape[1]
    moves = [(own[0].tolist(), i, value) for i in range(size) for value in (-1.0, -0.3, 0.0, 0.8, 1.0)]
    actual = torch.tensor(node(MOVE, {"spec": controls.to_dict(), "moves": moves}), dtype=torch.float64)
    torch.testing.assert_close(actual.norm(dim=1), torch.ones(len(actual), dtype=torch.float64), rtol=0, atol=1e-9)
    start = torch.nn.functional.normalize(own[0].double(), dim=0)
    for row, (_, i, value) in zip(actual, moves, strict=True):
        assert row[i] == value
        others = torch.arange(size) != i
        cosine = torch.cosine_similarity(row[others], start[others], dim=0, eps=0)
        torch.testing.assert_close(cosine, torch.ones_like(cosine))


def test_a_coordinate_can_leave_the_pole() -> None:
    """At the pole the other coordinates are 0, so the next one gets the rest of the length. Values are clamped."""
    spec = make_controls("sphere")[0].to_dict()
    moves = [([1.0, 0, 0, 0, 0], 0, 0.6), ([0, 0, 0, 0, 1.0], 4, 3.0), ([0, 0, 0, 0, 1.0], 4, -0.6)]
    leaves, beyond, last = node(MOVE, {"spec": spec, "moves": moves})
    assert leaves == pytest.approx([0.6, 0.8, 0, 0, 0])
    assert beyond == pytest.approx([0, 0, 0, 0, 1], abs=1e-5)
    assert last == pytest.approx([0.8, 0, 0, 0, -0.6])


def test_other_controls_are_independent() -> None:
    controls, _ = make_controls("vae")
    moves: list[Any] = [([1.0, 2, 3, 0, 0, 0], 1, 0.5)]
    assert node(MOVE, {"spec": controls.to_dict(), "moves": moves}) == [[1, 0.5, 3, 0, 0, 0]]


def test_ranges_include_every_example() -> None:
    net = METHODS["vae"]().build(NETS["mlp"], SHAPE, 2, "bernoulli")
    q = Gaussian(torch.tensor([[-5.0, 0.0], [1.0, 4.0]]), torch.zeros(2, 2))
    controls = METHODS["vae"]().controls(net, q, q)
    assert (controls.low, controls.high) == ([-5.0, -3.0], [3.0, 4.0])


def test_control_of_a_constant_subspace_has_no_effect() -> None:
    method = PMP(subspaces=3)
    net = method.build(NETS["mlp"], SHAPE, 4, "bernoulli").requires_grad_(False)
    net.get_parameter("projectors.weight1")[1] = 0
    q = net.encode(torch.rand(8, *SHAPE))
    controls = method.controls(net, q, q)
    start, moved = controls.start[:1], controls.start[:1] + torch.tensor([[0.0, 2.0, 0.0]])
    assert controls.start.isfinite().all()
    torch.testing.assert_close(controls.to_latents(moved, 0), controls.to_latents(start, 0), rtol=0, atol=1e-5)


def test_names_of_controls() -> None:
    names = {name: make_controls(name)[0].names for name in ("vae", "u_vitae", "pmp", "torus", "circle", "one circle")}
    assert names["vae"][:2] == ["latent 0", "latent 1"]
    assert names["u_vitae"] == [*[f"appearance {i}" for i in range(4)], "perspective 4", "perspective 5"]
    assert names["pmp"] == [f"subspace {i}" for i in range(10)]
    assert names["torus"] == ["around ring", "around tube"]
    assert (names["circle"], names["one circle"]) == (["angle"], ["circle 0"])


def test_both_ends_of_an_angle_are_the_same_point() -> None:
    controls, _ = make_controls("rotations")
    assert (controls.low, controls.high) == ([-math.pi] * 3, [math.pi] * 3)
    ends = torch.tensor([controls.low, controls.high])
    torch.testing.assert_close(*controls.to_latents(ends, 0), rtol=0, atol=1e-5)


def test_rotations_about_one_axis_equal_those_of_a_traversal() -> None:
    controls, own = make_controls("rotations")
    angles = torch.linspace(-3, 3, 7)
    curves, _ = DiffusionVAE(space="rotations").manifold(9).closed_curves(own[2], angles)
    for axis in range(3):
        latents = controls.to_latents(angles[:, None] * torch.eye(3)[axis], 2)
        torch.testing.assert_close(latents, curves[axis], rtol=0, atol=1e-6)
