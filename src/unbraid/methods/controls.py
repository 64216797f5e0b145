"""Knobs to explore a code with: how few numbers, moved by hand, become latents a decoder understands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.spaces import FlatTorus, Rotations, Space, Sphere, Torus
from unbraid.spaces.manifold import unit
from unbraid.spaces.rotations import product, rotation

REACH = 3.0  # standard deviations that a knob turns either way, at least


@dataclass(frozen=True)
class Controls:
    """Knobs with their names and ranges, their values for each of n examples, and what `place` needs of a `kind`.

    Kinds: "latents", the latents themselves; "directions", standard deviations along some directions, added to what an
    example has besides; "sphere", ambient coordinates, whose length does not matter; "circles", an angle for every two
    latents; "torus", two angles; "rotations", three angles by which an example's own rotation is turned. Angles are in
    radians. `assets/controls.js` of the report does the same on a page.
    """

    kind: str
    names: list[str]
    low: list[float]
    high: list[float]
    start: Float[Tensor, "n m"]
    arrays: dict[str, Tensor] = field(default_factory=dict)

    def place(self, knobs: Float[Tensor, "b m"], example: int) -> Float[Tensor, "b d"]:
        """The latents that knobs stand for when one starts from this example."""
        return KINDS[self.kind](self, knobs, example)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, tensors as nested lists."""
        arrays = {name: array.tolist() for name, array in self.arrays.items()}
        ranges = {"low": self.low, "high": self.high}
        return {"kind": self.kind, "names": self.names, **ranges, "start": self.start.tolist(), "arrays": arrays}


def straight(
    kind: str, names: list[str], start: Float[Tensor, "n m"], arrays: dict[str, Tensor] | None = None
) -> Controls:
    """Knobs from -3 to 3, and further where that is needed to hold every example's own values."""
    low, high = start.amin(0).clamp(max=-REACH), start.amax(0).clamp(min=REACH)
    return Controls(kind, names, low.tolist(), high.tolist(), start, arrays or {})


def along(
    names: list[str], own: Float[Tensor, "n d"], directions: Float[Tensor, "m d"], start: Float[Tensor, "n m"]
) -> Controls:
    """One knob a direction of the latents; what else there is of an example stays as it is."""
    return straight("directions", names, start, {"rest": own - start @ directions, "directions": directions})


def curved(space: Space, points: Float[Tensor, "n d"]) -> Controls:
    """Knobs of a latent space, starting from points of it: as many as it has dimensions, but of larger spheres.

    A circle has one angle, and so has the projective line; the other spheres and projective spaces have a knob for
    every ambient coordinate.
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
    raise UserError(f"There are no knobs for the space {space.name}. Override `controls` in its method.")


def _angles(
    kind: str, names: list[str], start: Float[Tensor, "n m"], arrays: dict[str, Tensor] | None = None
) -> Controls:
    """Knobs that go once around."""
    return Controls(kind, names, [-math.pi] * len(names), [math.pi] * len(names), start, arrays or {})


def _along(controls: Controls, knobs: Tensor, example: int) -> Tensor:
    return controls.arrays["rest"][example] + knobs @ controls.arrays["directions"]


def _circles(controls: Controls, knobs: Tensor, example: int) -> Tensor:
    return torch.stack([knobs.cos(), knobs.sin()], -1).flatten(1)


def _torus(controls: Controls, knobs: Tensor, example: int) -> Tensor:
    (ring, tube), (c, a) = knobs.unbind(1), controls.arrays["radii"]
    reach = c + a * tube.cos()
    return torch.stack([reach * ring.cos(), reach * ring.sin(), a * tube.sin()], 1)


def _rotations(controls: Controls, knobs: Tensor, example: int) -> Tensor:
    """The example's rotation after turns about x, y and z: R X Y Z, the turn about z first."""
    total: Tensor = controls.arrays["own"][example].unflatten(0, (3, 3)).expand(len(knobs), 3, 3)
    for axis, half in zip(torch.eye(3).to(knobs), (0.5 * knobs)[..., None].unbind(1), strict=True):
        total = product(total, rotation(torch.cat([half.cos(), half.sin() * axis], -1)))
    return total.flatten(1)


KINDS: dict[str, Callable[[Controls, Tensor, int], Tensor]] = {
    "latents": lambda controls, knobs, example: knobs,
    "directions": _along,
    "sphere": lambda controls, knobs, example: unit(knobs),
    "circles": _circles,
    "torus": _torus,
    "rotations": _rotations,
}
"""How latents are made of knobs, by the kind of controls."""
