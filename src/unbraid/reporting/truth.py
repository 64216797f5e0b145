"""What a page needs to draw the true image of any factor values, for data that is made and not read."""

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
from unbraid.data.rendered.raycast import FLOOR, LAYERS, PIXELS, SKY, SOLID, WALL, camera_rays, render_layers, trace_room
from unbraid.data.rendered.shapes3d_rendered import FIFTHS, UNITS_PER_LEVEL, OVERSAMPLE, SCENE, Shapes3D, camera_angles, hue_colours, solid_scales
from unbraid.data.rendered.shapes3d_rendered import NAMES as ROOM_NAMES
from unbraid.data.rendered.shapes3d_rendered import SIZES as ROOM_SIZES
from unbraid.data.rendered.sprites import scene as small_scene
from unbraid.data.rendered.sprites import sprites

Spec: TypeAlias = dict[str, Any]
SCRIPTS = ("room.js", "truth.js")  # in assets/, to be loaded in this order


def renderer_spec(data: FactorData) -> Spec | None:
    """JSON for `unbraid.truth` of assets/truth.js, or None for data that it cannot draw.

    Options after the name change which examples are drawn, not what they look like, and are ignored. Data that merely
    shares the name and class of a built-in set is told apart by its grid and its content.
    """
    known = RENDERERS.get((split_name(data.name)[0], type(data)))
    made = known(data) if known else None
    return None if made is None else {**made, "sizes": list(data.sizes), "shape": list(data.shape)}


def _small(data: FactorData) -> Spec | None:
    own = sprites()
    same = _like(data, own.names, own.sizes, own.shape) and torch.equal(data.table.cpu(), own.table)
    return _silhouettes(small_scene(), "white") if same else None


def _large(data: FactorData, paint: str = "white", channels: int = 1) -> Spec | None:
    if not _like(data, NAMES, SIZES, (channels, 64, 64)):
        return None
    bits = data.table.cpu().contiguous().numpy()
    return _silhouettes(large_scene(), paint) if hashlib.sha256(bits.data).hexdigest() == SHA256 else None


def _silhouettes(scene: Scene, paint: str) -> Spec:
    """Sprites as `raster` fills them; `paint` is white, or how `painted` draws a colour or noise from the index."""
    places = {name: getattr(scene, name).tolist() for name in ("scales", "angles", "x", "y")}
    return {"kind": "sprites", "paint": paint, "pixels": scene.pixels, **places}


def _room(data: FactorData) -> Spec | None:
    """The scene of `raycast`, what is the same for all rays of a camera, and the colours of the hues."""
    if not _like(data, ROOM_NAMES, ROOM_SIZES, (3, PIXELS, PIXELS)) or not _is_room(data):
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


def _is_room(data: FactorData) -> bool:
    """Whether the views at the first scale and orientation are those of the built-in scene, up to a unit of the table.

    All numbers of the scene have a part in them, and they cost a hundredth of the whole table.
    """
    _, shapes, turns = ROOM_SIZES[3:]
    if data.table.shape != (math.prod(ROOM_SIZES[3:]), LAYERS, PIXELS, PIXELS):
        return False
    unit = torch.full((LAYERS, 1, 1), 255.0 * UNITS_PER_LEVEL)
    unit[[FLOOR, WALL, SOLID]] /= FIFTHS
    view = trace_room(SCENE, camera_angles()[:1], OVERSAMPLE)
    made = torch.stack([render_layers(SCENE, view, shape, solid_scales()[:1])[0] * unit for shape in range(shapes)])
    stored = data.table[: shapes * turns : turns].cpu()
    return bool((made - stored).abs().max() <= 1)


def _like(data: FactorData, names: tuple[str, ...], sizes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return (data.names, data.sizes, data.shape) == (names, sizes, shape)


# By bare name and exact class: a subclass may draw anything.
RENDERERS: dict[tuple[str, type[FactorData]], Callable[[FactorData], Spec | None]] = {
    ("sprites", BinaryImages): _small,
    ("dsprites", BinaryImages): _large,
    ("color_dsprites", ColouredSprites): functools.partial(_large, paint="colour", channels=3),
    ("noisy_dsprites", SpritesOnNoise): functools.partial(_large, paint="noise", channels=3),
    ("shapes3d_rendered", Shapes3D): _room,
}
