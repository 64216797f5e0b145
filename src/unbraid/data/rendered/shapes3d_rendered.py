"""Shapes3D, ray-cast anew: a solid in a coloured room."""

from __future__ import annotations

import math
from typing import cast

import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor

from unbraid.accel.capture import supports_kernels
from unbraid.data.dataset import FactorData, Progress
from unbraid.data.rendered.raycast import (
    FLOOR,
    LAYERS,
    PIXELS,
    SOLID,
    WALL,
    Scene,
    blend_layers,
    render_layers,
    trace_room,
)
from unbraid.noise import Noise

NAMES = ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")
SIZES = (10, 10, 10, 8, 4, 15)
OVERSAMPLE = 3
FIFTHS = 5
UNITS_PER_LEVEL = 32  # a level of brightness is so many units of the table: whole numbers add up alike on every device

# Fitted to 50 images of the original file by benchmarks/calibrate_shapes3d.py.
SCENE = Scene(
    distance=7.8358, height=2.3596, aim=2.1608, zoom=2.2343, wall=5.7045,
    cube=1.0629, cube_height=2.1151, cylinder=1.1323, cylinder_height=2.276, sphere=1.2818, capsule=0.97274,
    capsule_height=3.9119,
    ambient=0.35562, head=0.58565, lamp=0.94981, lamp_x=-3.245, lamp_y=1.0837, lamp_z=18.06,
    spot_x=-3.7962, spot_y=1.3704, spot_power=8.1607, gloss=0.12827, gloss_edge=0.10241,
    hexagons=0.010832, fade=10.262, shift=0.14477, blot=0.055306, blot_u=0.10079, blot_v=-0.014239,
    stroke_u=0.15857, stroke_v=-0.2113, stroke_width=0.094093,
)  # fmt: skip


class Shapes3D(FactorData):
    """Images blended on demand: a row of `layer_table` is the layers of one (scale, shape, orientation), int16."""

    categorical = ("shape",)

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """The images at `index`, in steps of 1/255."""
        if supports_kernels(self.device):
            from unbraid.accel.kernels.paint import Blend

            return cast(Tensor, Blend.apply(self.table, index, self._colours()))  # type: ignore[no-untyped-call]
        return self._blended(index) / 255 if self.device.type != "cpu" else self._compiled(index, 1)

    def _examples(self, index: Tensor) -> Tensor:
        return self._blended(index).to(torch.uint8) if self.device.type != "cpu" else self._compiled(index, 255)

    def _compiled(self, index: Tensor, white: int) -> Tensor:
        """The same bits in one pass, for a CPU: there the dozen passes of `_blended` cost several times as much."""
        from unbraid.data.rendered.blending import blend_images

        return blend_images(index, self.table, self._colours(), white)

    def _colours(self) -> Tensor:
        """Those of every hue."""
        return hue_colours(torch.arange(SIZES[0], device=self.device)).to(torch.int16)

    def _blended(self, index: Tensor) -> Tensor:
        """Whole numbers throughout, so devices agree: below 2^15, and divided by GRAIN = 2^5 with halves to even."""
        floor, wall, solid = hue_colours(self.factors_at(index)[..., :3]).to(torch.int16).unbind(-2)
        image = blend_layers(self.table[index % len(self.table)], floor, wall, solid)
        return image.add_((image >> 5).bitwise_and_(1)).add_(15).bitwise_right_shift_(5).clamp(0, 255)


def shapes3d_rendered(device: str | torch.device = "cpu", progress: Progress | None = None) -> Shapes3D:
    """Ray-cast Shapes3D: 480,000 colour images, 64x64, of a cube, cylinder, sphere or capsule in a room.

    Rendered here, not the original file. Camera, room, light and texture were fitted to 50 images of that file; at the
    best factors the mean absolute error over those images (without their outermost pixels) is 1.24 levels of 255 on
    average and 2.12 at most. Over the whole set the channel means are .5014/.5727/.5960 (original .5026/.5788/.6035),
    the deviations within an image .2953/.3438/.3648 (original .2941/.3444/.3662). All images are distinct: where a
    solid is round, the orientation shows in the room. The layers that images are blended from take 39 MB.

    Reference: Burgess & Kim (2018), github.com/deepmind/3d-shapes (Apache-2.0).
    """
    return Shapes3D("shapes3d_rendered", NAMES, SIZES, (3, PIXELS, PIXELS), layer_table(SCENE, progress).to(device))


def hue_colours(hue: Int[Tensor, "*n"]) -> Float[Tensor, "*n 3"]:
    """The colours of HSV hue 0, .1, .., .9 at full saturation, whose channels are whole numbers of fifths."""
    channel = torch.arange(0, 30, 10, device=hue.device)
    away = (3 * hue[..., None] - channel + 15) % 30 - 15
    return (10 - away.abs()).clamp(0, FIFTHS).float()


def solid_scales() -> Float[Tensor, " s"]:
    """The sizes of the solid."""
    return torch.linspace(0.75, 1.25, SIZES[3])


def camera_angles() -> Float[Tensor, " b"]:
    """Where the camera stands, in radians; at the first the far corner is on the right."""
    return torch.linspace(-30, 30, SIZES[5]) * (math.pi / 180)


def layer_table(scene: Scene, progress: Progress | None = None) -> Int16[Tensor, "g l h w"]:
    """The layers of every (scale, shape, orientation), in whole units of 1/GRAIN level; light in fifths.

    Always made on the CPU, one view at a time for its caches' sake, so that every device has the same table.
    """
    unit = torch.full((LAYERS, 1, 1), 255.0 * UNITS_PER_LEVEL)
    unit[[FLOOR, WALL, SOLID]] /= FIFTHS
    done = torch.empty(*SIZES[3:], LAYERS, PIXELS, PIXELS, dtype=torch.int16)
    for k, angle in enumerate(camera_angles().split(1)):
        view = trace_room(scene, angle, OVERSAMPLE)
        for i, scale in enumerate(solid_scales().split(1)):
            for shape in range(SIZES[4]):
                done[i, shape, k] = (render_layers(scene, view, shape, scale)[0] * unit).round()
        if progress:
            progress((k + 1) / SIZES[5])
    return done.flatten(0, 2)
