"""The dataset Shapes3D, which is rendered by ray casting and not read from the published file."""

from __future__ import annotations

import math
from typing import cast

import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor

from unbraid.accel.capture import supports_kernels
from unbraid.accel.devices import one_thread
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
OVERSAMPLE = 3  # number of rays per pixel along each axis of the image
FIFTHS = 5  # the channels of a colour are integers from 0 to 5, in units of 1/5 (see `hue_colours`)
# Number of integer units per level of brightness. The layers from which images are blended are stored as integers (see
# `layer_table`), because integer sums are the same on all devices.
UNITS_PER_LEVEL = 32

# Parameters that benchmarks/calibrate_shapes3d.py fitted to 50 images of the published file.
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
    """Images of a solid in a coloured room, which are blended from layers when they are requested.

    A row of `table` contains the int16 layers of one view. A view is a combination of scale, shape and orientation.
    """

    categorical = ("shape",)
    cyclic = dict.fromkeys(NAMES[:3], 10)  # the hues

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """Return the images at `index`. Pixels are multiples of 1/255."""
        if supports_kernels(self.device):
            from unbraid.accel.kernels.paint import Blend

            return cast(Tensor, Blend.apply(self.table, index, self._colours()))  # type: ignore[no-untyped-call]
        return self._blend(index) / 255 if self.device.type != "cpu" else self._blend_on_cpu(index, 1)

    def _examples(self, index: Tensor) -> Tensor:
        return self._blend(index).to(torch.uint8) if self.device.type != "cpu" else self._blend_on_cpu(index, 255)

    def _blend_on_cpu(self, index: Tensor, white: int) -> Tensor:
        """Return the same images as `_blend`, computed in one pass over the pixels.

        `_blend` makes about a dozen passes, which take several times as long on a CPU.
        """
        from unbraid.data.rendered.blending import blend_images

        return blend_images(index, self.table, self._colours(), white)

    def _colours(self) -> Tensor:
        """Return the colours of all hues, int16 of shape (hues, 3)."""
        return hue_colours(torch.arange(SIZES[0], device=self.device)).to(torch.int16)

    def _blend(self, index: Tensor) -> Tensor:
        """Return the images at `index` as int16 levels from 0 to 255.

        All numbers are integers below 2^15, so the result is the same on all devices. The division by
        UNITS_PER_LEVEL = 2^5 rounds halves to even.
        """
        floor, wall, solid = hue_colours(self.factors_at(index)[..., :3]).to(torch.int16).unbind(-2)
        image = blend_layers(self.table[index % len(self.table)], floor, wall, solid)
        return image.add_((image >> 5).bitwise_and_(1)).add_(15).bitwise_right_shift_(5).clamp(0, 255)


def shapes3d_rendered(device: str | torch.device = "cpu", progress: Progress | None = None) -> Shapes3D:
    """Render Shapes3D: 480,000 images 64x64x3 of a cube, cylinder, sphere or capsule in a room.

    The images are rendered by this package and differ slightly from those of the published file. Camera, room, light
    and texture were fitted to 50 images of that file. These images have no labels. Each of them was compared with
    the rendered images of the same three hues, and the one with the smallest error was chosen. The outermost pixels
    were left out. On a scale from 0 to 255, the mean absolute error of an image is 1.24 on average over the 50 images,
    and 2.12 at most. Over the whole dataset, the means of the three channels are 0.5014, 0.5727 and 0.5960 (published
    file: 0.5026, 0.5788 and 0.6035). The standard deviations within an image are 0.2953, 0.3438 and 0.3648 (published
    file: 0.2941, 0.3444 and 0.3662). All images are distinct, because the room shows the orientation even if the solid
    is round. The layers from which images are blended take 39 MB.
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
    """Return the RGB colours of the HSV hues `hue` / 10 at full saturation and value, in integer units of 1/5."""
    channel = torch.arange(0, 30, 10, device=hue.device)
    away = (3 * hue[..., None] - channel + 15) % 30 - 15
    return (10 - away.abs()).clamp(0, FIFTHS).float()


def solid_scales() -> Float[Tensor, " s"]:
    """Return the scales of the solid."""
    return torch.linspace(0.75, 1.25, SIZES[3])


def camera_angles() -> Float[Tensor, " b"]:
    """Return the angles of the camera in radians. At the first angle, the far corner of the room is on the right."""
    return torch.linspace(-30, 30, SIZES[5]) * (math.pi / 180)


@one_thread()
def layer_table(scene: Scene, progress: Progress | None = None) -> Int16[Tensor, "g l h w"]:
    """Render the layers of all views, as integers. One level of brightness is `UNITS_PER_LEVEL` units.

    A view is a combination of scale, shape and orientation. For a coloured surface, the stored number is the brightness
    for a colour value of one fifth, and is multiplied by the colour in fifths (see `hue_colours`). The table is always
    computed on the CPU, because the results of other devices could differ. It is computed one view at a time, because
    the data of one view fit into the processor cache, and with one thread, because its operations are short.
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
