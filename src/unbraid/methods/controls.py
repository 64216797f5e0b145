"""Controls for exploring a latent space. A user changes a few numbers, which are converted to latents."""

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

MIN_RANGE = 3.0  # unbounded controls reach at least from -3 to 3
UNBOUNDED = ("latents", "directions")  # kinds of controls that accept any value


@dataclass(frozen=True)
class Controls:
    """m controls with names and ranges, and their values for each of n examples.

    The script `assets/controls.js` of the report converts values to latents in the same way as `to_latents`.

    Attributes:
        kind: The conversion from values to latents:

            - "latents": The values are the latents.
            - "directions": The values are coordinates along given directions. The resulting vector is added to the part
              of an example's latents that does not depend on the controls. Quantised latents are then replaced by the
              nearest of their values.
            - "sphere": The values are ambient coordinates. They are scaled to length 1.
            - "circles": Each value is the angle of one circle, which has two latents.
            - "cylinder": The first values are angles of circles, as for "circles", and the others are latents.
            - "torus": The two values are angles.
            - "rotations": The three values are angles by which the rotation of an example is turned.
            - "categories": A value is either a continuous latent or the index of a category. A categorical latent is
              one-hot, with one number per category. For an index between two whole numbers, such as 1.25, the numbers
              of categories 1 and 2 are 0.75 and 0.25.

            Angles are in radians.
        names: One name per control.
        low: The minimum value of each control.
        high: The maximum value of each control.
        start: The values that correspond to each example, of shape (n, m).
        arrays: The tensors that the conversion needs.
        columns: For each control, the column of the method's codes that it changes (see `Method.column_code_kind`), or
            None if it changes several columns. An empty sequence means None for all controls.
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
        """Whether values below `low` or above `high` are invalid. If False, these are only the ends of a slider."""
        return self.kind not in UNBOUNDED

    def column(self, control: int) -> int | None:
        """Return the column of the codes that a control changes, or None if there is no single column."""
        return self.columns[control] if self.columns else None

    def to_latents(self, values: Float[Tensor, "b m"], example: int) -> Float[Tensor, "b d"]:
        """Return the latents for values of the controls. `example` is the index of the example that is changed."""
        return LATENTS_FROM_VALUES[self.kind](self, values, example)

    def to_dict(self) -> dict[str, Any]:
        """Return the controls as a dictionary for JSON, in which tensors are nested lists."""
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
    """Return controls with ranges from -3 to 3, or wider if the values of an example lie outside this range."""
    low, high = start.amin(0).clamp(max=-MIN_RANGE), start.amax(0).clamp(min=MIN_RANGE)
    return Controls(kind, names, low.tolist(), high.tolist(), start, arrays or {}, columns)


def direction_controls(
    names: list[str], own: Float[Tensor, "n d"], directions: Float[Tensor, "m d"], start: Float[Tensor, "n m"]
) -> Controls:
    """Return one control per direction in the latent space. Direction i belongs to column i of the method's codes.

    Args:
        names: One name per direction.
        own: The latents of n examples.
        directions: The vectors that a change of each control by 1 adds to the latents.
        start: The values of the controls for each example.
    """
    arrays = {"rest": own - start @ directions, "directions": directions}
    return unbounded_controls("directions", names, start, arrays, list(range(len(names))))


def category_controls(names: list[str], start: Float[Tensor, "n m"], sizes: Sequence[int]) -> Controls:
    """Return controls for continuous and categorical latents.

    Args:
        names: One name per control.
        start: The values of the controls for n examples: continuous latents, and the indices of categories.
        sizes: The number of values of each categorical latent, and 0 for each continuous latent.
    """
    low, high = start.amin(0).clamp(max=-MIN_RANGE).tolist(), start.amax(0).clamp(min=MIN_RANGE).tolist()
    low = [0.0 if size else value for size, value in zip(sizes, low, strict=True)]
    high = [size - 1.0 if size else value for size, value in zip(sizes, high, strict=True)]
    return Controls("categories", names, low, high, start, {"sizes": torch.tensor(sizes)}, list(range(len(names))))


def space_controls(space: Space, points: Float[Tensor, "n d"]) -> Controls:
    """Return the controls of a latent space. They start from the given points of the space.

    Spheres and projective spaces of two or more dimensions have one control per ambient coordinate. All other spaces
    have one control per dimension.
    """
    if isinstance(space, Sphere) and space.latents > 2:
        names = [f"coordinate {i}" for i in range(space.latents)]
        return Controls("sphere", names, [-1.0] * space.latents, [1.0] * space.latents, points)
    if isinstance(space, Sphere):
        return _angle_controls("circles", ["angle"], torch.atan2(points[:, 1:], points[:, :1]))
    if isinstance(space, FlatTorus):
        return _angle_controls("circles", [f"circle {i}" for i in range(space.dimension)], space.angles(points))
    if isinstance(space, Torus):
        radii = torch.tensor([space.c, space.a]).to(points)
        return _angle_controls("torus", ["around ring", "around tube"], space.angles(points), {"radii": radii})
    if isinstance(space, Rotations):
        start = torch.zeros_like(points[:, :3])
        return _angle_controls("rotations", ["axis x", "axis y", "axis z"], start, {"own": points})
    raise UserError(f"There are no controls for the space {space.name}. Override `controls` in the method.")


def cylinder_controls(circles: int, start: Float[Tensor, "n m"]) -> Controls:
    """Return one control for the angle of each circle, and one control for each of the other latents.

    Args:
        circles: The number of circles.
        start: For n examples, the angles of the circles, followed by the other latents.
    """
    angles, flat = start[:, :circles], start[:, circles:]
    names = [f"circle {i}" for i in range(circles)] + [f"latent {2 * circles + j}" for j in range(flat.shape[1])]
    low = [-math.pi] * circles + flat.amin(0).clamp(max=-MIN_RANGE).tolist()
    high = [math.pi] * circles + flat.amax(0).clamp(min=MIN_RANGE).tolist()
    kinds = torch.arange(start.shape[1], device=start.device) < circles
    return Controls("cylinder", names, low, high, torch.cat([angles, flat], 1), {"is_angle": kinds.to(start)})


def _angle_controls(
    kind: str, names: list[str], start: Float[Tensor, "n m"], arrays: dict[str, Tensor] | None = None
) -> Controls:
    """Return controls whose values are angles from -pi to pi."""
    return Controls(kind, names, [-math.pi] * len(names), [math.pi] * len(names), start, arrays or {})


def _direction_latents(controls: Controls, values: Tensor, example: int) -> Tensor:
    z = controls.arrays["rest"][example] + values @ controls.arrays["directions"]
    if (own := controls.arrays.get("values")) is None:
        return z
    chosen = (z[..., None] - own).abs().argmin(-1, keepdim=True)
    return own.expand(*z.shape, -1).gather(-1, chosen)[..., 0]


def _circle_latents(controls: Controls, values: Tensor, example: int) -> Tensor:
    return torch.stack([values.cos(), values.sin()], -1).flatten(1)


def _cylinder_latents(controls: Controls, values: Tensor, example: int) -> Tensor:
    circles = int(controls.arrays["is_angle"].sum())
    return torch.cat([_circle_latents(controls, values[:, :circles], example), values[:, circles:]], 1)


def _torus_latents(controls: Controls, values: Tensor, example: int) -> Tensor:
    (ring, tube), (c, a) = values.unbind(1), controls.arrays["radii"]
    radius = c + a * tube.cos()
    return torch.stack([radius * ring.cos(), radius * ring.sin(), a * tube.sin()], 1)


def _rotation_latents(controls: Controls, values: Tensor, example: int) -> Tensor:
    """Return the matrix product R X Y Z of the example's rotation R and turns about the axes x, y and z."""
    total: Tensor = controls.arrays["own"][example].unflatten(0, (3, 3)).expand(len(values), 3, 3)
    for axis, half in zip(torch.eye(3).to(values), (0.5 * values)[..., None].unbind(1), strict=True):
        total = matrix_product(total, quaternion_to_matrix(torch.cat([half.cos(), half.sin() * axis], -1)))
    return total.flatten(1)


def _category_latents(controls: Controls, values: Tensor, example: int) -> Tensor:
    """Return continuous latents unchanged, and categorical latents as weights max(0, 1 - |value - category|)."""
    parts = []
    for value, size in zip(values.unbind(1), controls.arrays["sizes"].tolist(), strict=True):
        category = torch.arange(size).to(values)
        parts.append((1 - (value[:, None] - category).abs()).relu() if size else value[:, None])
    return torch.cat(parts, 1)


LATENTS_FROM_VALUES: dict[str, Callable[[Controls, Tensor, int], Tensor]] = {
    "latents": lambda controls, values, example: values,
    "directions": _direction_latents,
    "sphere": lambda controls, values, example: normalise(values),
    "circles": _circle_latents,
    "cylinder": _cylinder_latents,
    "torus": _torus_latents,
    "rotations": _rotation_latents,
    "categories": _category_latents,
}
"""The function that converts values to latents, for each kind of controls."""
