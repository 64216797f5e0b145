"""Controls for exploring a code: a few numbers that a user changes, and the latents they correspond to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.spaces import FlatTorus, Rotations, Space, Sphere, Torus
from unbraid.spaces.manifold import normalise
from unbraid.spaces.rotations import matrix_product, quaternion_to_matrix

MIN_RANGE = 3.0  # standard deviations that a slider reaches either way, at least
UNBOUNDED = ("latents", "directions")  # kinds of controls that may take any value


@dataclass(frozen=True)
class Controls:
    """Controls with names and ranges, and their values for each of n examples.

    `assets/controls.js` of the report computes the same latents on a page.

    Attributes:
        kind: How values become latents. "latents": the values are the latents. "directions": standard deviations
            along given directions, added to the rest of an example's latents. "sphere": ambient coordinates, which
            are scaled to length 1. "circles": one angle for every two latents. "torus": two angles. "rotations":
            three angles by which the rotation of an example is turned. Angles are in radians.
        names: One name per control.
        low: The smallest value of each control.
        high: The largest value of each control.
        start: The values that correspond to each example, of shape (n, m).
        arrays: The tensors that the conversion of this kind needs.
        columns: For each control, the column of the method's codes that it changes (see `Method.column_code_kind`), or
            None if it changes several. An empty sequence means None for all.
    """

    kind: str
    names: list[str]
    low: list[float]
    high: list[float]
    start: Float[Tensor, "n m"]
    arrays: dict[str, Tensor] = field(default_factory=dict)
    columns: Sequence[int | None] = ()

    @property
    def bounded(self) -> bool:
        """Whether values beyond `low` and `high` are invalid; otherwise these are only the ends of a slider."""
        return self.kind not in UNBOUNDED

    def column(self, control: int) -> int | None:
        """Return the column of the codes that a control changes, or None."""
        return self.columns[control] if self.columns else None

    def to_latents(self, values: Float[Tensor, "b m"], example: int) -> Float[Tensor, "b d"]:
        """Return the latents that correspond to values of the controls, starting from one of the examples."""
        return LATENTS_FROM_VALUES[self.kind](self, values, example)

    def to_dict(self) -> dict[str, Any]:
        """Return the controls as plain values for JSON, with tensors as nested lists."""
        arrays = {name: array.tolist() for name, array in self.arrays.items()}
        ranges = {"low": self.low, "high": self.high}
        return {"kind": self.kind, "names": self.names, **ranges, "start": self.start.tolist(), "arrays": arrays}


def unbounded_controls(
    kind: str,
    names: list[str],
    start: Float[Tensor, "n m"],
    arrays: dict[str, Tensor] | None = None,
    columns: Sequence[int | None] = (),
) -> Controls:
    """Return controls from -3 to 3, or further where the examples' own values lie beyond."""
    low, high = start.amin(0).clamp(max=-MIN_RANGE), start.amax(0).clamp(min=MIN_RANGE)
    return Controls(kind, names, low.tolist(), high.tolist(), start, arrays or {}, columns)


def direction_controls(
    names: list[str], own: Float[Tensor, "n d"], directions: Float[Tensor, "m d"], start: Float[Tensor, "n m"]
) -> Controls:
    """Return one control per direction of the latents, where direction i is column i of the method's codes.

    Args:
        names: One name per direction.
        own: The latents of n examples.
        directions: The directions, each as long as one standard deviation.
        start: Where the examples lie along the directions. The rest of their latents does not change.
    """
    arrays = {"rest": own - start @ directions, "directions": directions}
    return unbounded_controls("directions", names, start, arrays, list(range(len(names))))


def space_controls(space: Space, points: Float[Tensor, "n d"]) -> Controls:
    """Return the controls of a latent space, starting from points of it.

    There are as many controls as the space has dimensions, except on spheres and projective spaces of two or more
    dimensions, which have one control per ambient coordinate.
    """
    if isinstance(space, Sphere) and space.latents > 2:
        names = [f"coordinate {i}" for i in range(space.latents)]
        return Controls("sphere", names, [-1.0] * space.latents, [1.0] * space.latents, points)
    if isinstance(space, Sphere):
        return _angles("circles", ["angle"], torch.atan2(points[:, 1:], points[:, :1]))
    if isinstance(space, FlatTorus):
        return _angles("circles", [f"circle {i}" for i in range(space.dimension)], space.angles(points))
    if isinstance(space, Torus):
        radii = torch.tensor([space.c, space.a]).to(points)
        return _angles("torus", ["around ring", "around tube"], space.angles(points), {"radii": radii})
    if isinstance(space, Rotations):
        return _angles("rotations", ["axis x", "axis y", "axis z"], torch.zeros_like(points[:, :3]), {"own": points})
    raise UserError(f"There are no controls for the space {space.name}. Override `controls` in its method.")


def _angles(
    kind: str, names: list[str], start: Float[Tensor, "n m"], arrays: dict[str, Tensor] | None = None
) -> Controls:
    """Return controls that are angles from -pi to pi."""
    return Controls(kind, names, [-math.pi] * len(names), [math.pi] * len(names), start, arrays or {})


def _direction_latents(controls: Controls, values: Tensor, example: int) -> Tensor:
    return controls.arrays["rest"][example] + values @ controls.arrays["directions"]


def _circle_latents(controls: Controls, values: Tensor, example: int) -> Tensor:
    return torch.stack([values.cos(), values.sin()], -1).flatten(1)


def _torus_latents(controls: Controls, values: Tensor, example: int) -> Tensor:
    (ring, tube), (c, a) = values.unbind(1), controls.arrays["radii"]
    radius = c + a * tube.cos()
    return torch.stack([radius * ring.cos(), radius * ring.sin(), a * tube.sin()], 1)


def _rotation_latents(controls: Controls, values: Tensor, example: int) -> Tensor:
    """Return R X Y Z: the example's rotation R after turns about x, y and z, the turn about z first."""
    total: Tensor = controls.arrays["own"][example].unflatten(0, (3, 3)).expand(len(values), 3, 3)
    for axis, half in zip(torch.eye(3).to(values), (0.5 * values)[..., None].unbind(1), strict=True):
        total = matrix_product(total, quaternion_to_matrix(torch.cat([half.cos(), half.sin() * axis], -1)))
    return total.flatten(1)


LATENTS_FROM_VALUES: dict[str, Callable[[Controls, Tensor, int], Tensor]] = {
    "latents": lambda controls, values, example: values,
    "directions": _direction_latents,
    "sphere": lambda controls, values, example: normalise(values),
    "circles": _circle_latents,
    "torus": _torus_latents,
    "rotations": _rotation_latents,
}
"""How values of controls become latents, for each kind of controls."""
