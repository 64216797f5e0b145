"""The settings that a page needs to render the true image for any factor values of a rendered dataset."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeAlias

import torch

from unbraid.data.dataset import BinaryImages, FactorData
from unbraid.data.options import split_name
from unbraid.data.rendered.dsprites import NAMES, SHA256, SIZES
from unbraid.data.rendered.dsprites import scene as large_scene
from unbraid.data.rendered.painted import ColouredSprites, SpritesOnNoise
from unbraid.data.rendered.raster import Scene
from unbraid.data.rendered.raycast import (
    FLOOR,
    LAYERS,
    PIXELS,
    SKY,
    SOLID,
    WALL,
    camera_rays,
    render_layers,
    trace_room,
)
from unbraid.data.rendered.shapes3d_rendered import (
    FIFTHS,
    OVERSAMPLE,
    SCENE,
    UNITS_PER_LEVEL,
    Shapes3D,
    camera_angles,
    hue_colours,
    solid_scales,
)
from unbraid.data.rendered.shapes3d_rendered import NAMES as ROOM_NAMES
from unbraid.data.rendered.shapes3d_rendered import SIZES as ROOM_SIZES
from unbraid.data.rendered.sprites import scene as small_scene
from unbraid.data.rendered.sprites import sprites

Spec: TypeAlias = dict[str, Any]
SCRIPTS = ("room.js", "truth.js")  # in `assets`, in the order in which a page loads them


def renderer_spec(data: FactorData) -> Spec | None:
    """Return the argument of `unbraid.truth` in assets/truth.js as JSON, or None if the page cannot render the data.

    Options in the name of the dataset that only change which examples are sampled are ignored. Options that change the
    images also change the class of the data, so the result is None for them. The result is also None for data with the
    name and class of a built-in dataset, but with a different grid or content.
    """
    make = RENDERERS.get((split_name(data.name)[0], type(data)))
    spec = make(data) if make else None
    return None if spec is None else {**spec, "sizes": list(data.sizes), "shape": list(data.shape)}


def _sprites_spec(data: FactorData) -> Spec | None:
    own = sprites()
    same = _has_grid(data, own.names, own.sizes, own.shape) and torch.equal(data.table.cpu(), own.table)
    return _silhouette_spec(small_scene(), "white") if same else None


def _dsprites_spec(data: FactorData, paint: str = "white", channels: int = 1) -> Spec | None:
    if not _has_grid(data, NAMES, SIZES, (channels, 64, 64)):
        return None
    bits = data.table.cpu().contiguous().numpy()
    return _silhouette_spec(large_scene(), paint) if hashlib.sha256(bits.data).hexdigest() == SHA256 else None


def _silhouette_spec(scene: Scene, paint: str) -> Spec:
    """Return the spec of sprites as `raster` draws them.

    `paint` is "white", "colour" or "noise". Colours and noise depend on the index of the example.
    """
    positions = {name: getattr(scene, name).tolist() for name in ("scales", "angles", "x", "y")}
    return {"kind": "sprites", "paint": paint, "pixels": scene.pixels, **positions}


def _room_spec(data: FactorData) -> Spec | None:
    """Return the scene of `raycast`, the cameras and the colours, or None if the data are not the built-in dataset."""
    if not _has_grid(data, ROOM_NAMES, ROOM_SIZES, (3, PIXELS, PIXELS)) or not _has_room_views(data):
        return None
    angle = camera_angles()
    origin, _, axis = (part[..., 0, 0] for part in camera_rays(SCENE, angle, 1))
    right = torch.stack([angle.cos(), angle.sin(), 0 * angle])
    up = torch.linalg.cross(right, axis, dim=0)
    cameras = torch.stack([origin, axis, right, up]).permute(2, 0, 1)
    return {
        "kind": "room",
        "scene": asdict(SCENE),
        "cameras": cameras.tolist(),
        "scales": solid_scales().tolist(),
        "colours": hue_colours(torch.arange(ROOM_SIZES[0])).long().tolist(),
        "sky": list(SKY),
        "oversample": OVERSAMPLE,
        "grain": UNITS_PER_LEVEL,
        "fifths": FIFTHS,
    }


def _has_room_views(data: FactorData) -> bool:
    """Return whether the views at the first scale and orientation equal those of the built-in scene.

    The stored views are integers, and a difference of 1 is accepted. Comparing these views is sufficient, because they
    depend on all numbers of the scene. It takes one hundredth of the time that is needed to compare the whole table.
    """
    _, shapes, turns = ROOM_SIZES[3:]
    if data.table.shape != (math.prod(ROOM_SIZES[3:]), LAYERS, PIXELS, PIXELS):
        return False
    unit = torch.full((LAYERS, 1, 1), 255.0 * UNITS_PER_LEVEL)
    unit[[FLOOR, WALL, SOLID]] /= FIFTHS
    view = trace_room(SCENE, camera_angles()[:1], OVERSAMPLE)
    rendered = torch.stack([render_layers(SCENE, view, shape, solid_scales()[:1])[0] * unit for shape in range(shapes)])
    stored = data.table[: shapes * turns : turns].cpu()
    return bool((rendered - stored).abs().max() <= 1)


def _has_grid(data: FactorData, names: tuple[str, ...], sizes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return (data.names, data.sizes, data.shape) == (names, sizes, shape)


# Keys are the name without options and the exact class, because a subclass may render different images.
RENDERERS: dict[tuple[str, type[FactorData]], Callable[[FactorData], Spec | None]] = {
    ("sprites", BinaryImages): _sprites_spec,
    ("dsprites", BinaryImages): _dsprites_spec,
    ("color_dsprites", ColouredSprites): functools.partial(_dsprites_spec, paint="colour", channels=3),
    ("noisy_dsprites", SpritesOnNoise): functools.partial(_dsprites_spec, paint="noise", channels=3),
    ("shapes3d_rendered", Shapes3D): _room_spec,
}
