"""Shapes3D, re-created by ray casting: a solid in a coloured room."""

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
UNITS_PER_LEVEL = 32  # units of the table per brightness level; integers add up equally on all devices

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
    """Images that are blended when they are needed. A row of `table` contains the int16 layers of one view.

    A view is a combination of scale, shape and orientation.
    """

    categorical = ("shape",)

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """Return the images at `index`, with pixels in steps of 1/255."""
        if supports_kernels(self.device):
            from unbraid.accel.kernels.paint import Blend

            return cast(Tensor, Blend.apply(self.table, index, self._colours()))  # type: ignore[no-untyped-call]
        return self._blend(index) / 255 if self.device.type != "cpu" else self._blend_on_cpu(index, 1)

    def _examples(self, index: Tensor) -> Tensor:
        return self._blend(index).to(torch.uint8) if self.device.type != "cpu" else self._blend_on_cpu(index, 255)

    def _blend_on_cpu(self, index: Tensor, white: int) -> Tensor:
        """Return the same images as `_blend`, in one pass. On a CPU its dozen passes take several times as long."""
        from unbraid.data.rendered.blending import blend_images

        return blend_images(index, self.table, self._colours(), white)

    def _colours(self) -> Tensor:
        """Return the int16 colours (hues, 3) of all hues."""
        return hue_colours(torch.arange(SIZES[0], device=self.device)).to(torch.int16)

    def _blend(self, index: Tensor) -> Tensor:
        """Return the images in levels from 0 to 255.

        All numbers are integers below 2^15, so that all devices agree. The division by UNITS_PER_LEVEL = 2^5 rounds
        halves to even.
        """
        floor, wall, solid = hue_colours(self.factors_at(index)[..., :3]).to(torch.int16).unbind(-2)
        image = blend_layers(self.table[index % len(self.table)], floor, wall, solid)
        return image.add_((image >> 5).bitwise_and_(1)).add_(15).bitwise_right_shift_(5).clamp(0, 255)


def shapes3d_rendered(device: str | torch.device = "cpu", progress: Progress | None = None) -> Shapes3D:
    """Ray-cast Shapes3D: 480,000 colour images, 64x64, of a cube, cylinder, sphere or capsule in a room.

    The images are rendered by this package; they are not the original file. Camera, room, light and texture were fitted
    to 50 images of that file. At the best factors the mean absolute error of these images (without their outermost
    pixels) is 1.24 levels of 255 on average and 2.12 at most. Over the whole dataset the channel means are
    .5014/.5727/.5960 (original .5026/.5788/.6035), and the standard deviations within an image .2953/.3438/.3648
    (original .2941/.3444/.3662). All images are distinct: if a solid is round, the orientation is visible in the room.
    The layers from which images are blended take 39 MB.
    Reference: Burgess & Kim (2018), github.com/deepmind/3d-shapes (Apache-2.0).

    Args:
        device: Device on which to store the examples.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        480,000 images of shape (3, 64, 64), with the factors floor_hue, wall_hue, object_hue, scale, shape and
        orientation.
    """
    return Shapes3D("shapes3d_rendered", NAMES, SIZES, (3, PIXELS, PIXELS), layer_table(SCENE, progress).to(device))


def hue_colours(hue: Int[Tensor, "*n"]) -> Float[Tensor, "*n 3"]:
    """Return the RGB colours of HSV hues 0, 0.1, .., 0.9 at full saturation, in integer units of 1/5."""
    channel = torch.arange(0, 30, 10, device=hue.device)
    away = (3 * hue[..., None] - channel + 15) % 30 - 15
    return (10 - away.abs()).clamp(0, FIFTHS).float()


def solid_scales() -> Float[Tensor, " s"]:
    """Return the sizes of the solid."""
    return torch.linspace(0.75, 1.25, SIZES[3])


def camera_angles() -> Float[Tensor, " b"]:
    """Return the angles of the camera in radians. At the first one the far corner of the room is on the right."""
    return torch.linspace(-30, 30, SIZES[5]) * (math.pi / 180)


def layer_table(scene: Scene, progress: Progress | None = None) -> Int16[Tensor, "g l h w"]:
    """Return the layers of all views (scale, shape, orientation), in integer units of 1/UNITS_PER_LEVEL level.

    Light is per fifth of a colour channel. The table is always computed on the CPU, so that it is the same for all
    devices, and one view at a time, so that the data fit in the cache.
    """
    unit = torch.full((LAYERS, 1, 1), 255.0 * UNITS_PER_LEVEL)
    unit[[FLOOR, WALL, SOLID]] /= FIFTHS
    table = torch.empty(*SIZES[3:], LAYERS, PIXELS, PIXELS, dtype=torch.int16)
    for k, angle in enumerate(camera_angles().split(1)):
        view = trace_room(scene, angle, OVERSAMPLE)
        for i, scale in enumerate(solid_scales().split(1)):
            for shape in range(SIZES[4]):
                table[i, shape, k] = (render_layers(scene, view, shape, scale)[0] * unit).round()
        if progress:
            progress((k + 1) / SIZES[5])
    return table.flatten(0, 2)
