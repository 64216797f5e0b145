"""Pictures of bodies: shape against pose, the open stand-in for images made with SMPL."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from unbraid.data import cache as disk
from unbraid.data.dataset import Progress
from unbraid.data.in_memory import ByteImages
from unbraid.data.rendered.bodies import ADULT, recipe
from unbraid.data.rendered.body_model import PHENOTYPES, BodyModel, Pose, both
from unbraid.data.rendered.zbuffer import View, draw
from unbraid.errors import UserError

NAMES = ("gender", "proportions", "weight", "height", "pose")
SIZES = (5, 5, 10, 10, 4)
LOW_HIGH = {"gender": (0, 1), "proportions": (0, 1), "weight": (0, 1), "height": (0.15, 0.55)}
FIXED = {"age": ADULT, "muscle": 0.2}
# Turns of collar and arm in degrees, of the left side; the reference has them in radians for both sides.
ARMS = ((-180 / 8, -180 / 3.5), (-180 / 16, -180 / 3.5), (180 / 16, 180 / 3.5), (180 / 8, 180 / 3.5))
POSES: list[Pose] = [both({"collar.L": (0, 0, collar), "arm.L": (0, 0, arm)}) for collar, arm in ARMS]
FRAME, MIDDLE = 2.75, (0.0, 0.115)  # metres: the height of the frame, and what its middle shows
BODIES = math.prod(SIZES[:-1])
# Of the 64 x 64 images of every 97th body, pose after pose; part of the names of files, as that of the meshes is.
SHA256 = "6ffcc21acff41da58597d533cfa2cbe29878fcb5141294aefb995a7acfdeb306"
STEP = 4  # bodies posed and drawn at a time


def body_images(
    device: str | torch.device = "cpu", progress: Progress | None = None, size: tuple[int, int] = (64, 64)
) -> ByteImages:
    """Images of bodies: 10,000 grey pictures of people who differ in shape and in how they hold their arms.

    The open stand-in for the SMPL images of VITAE: arms down close, down wide, up wide and up close by the angles of
    its table 2, on black, seen from the front without perspective. Pixels are square, the frame is 2.75 m high and the
    hips are at a fixed point of it. `size` is (rows, columns): (400, 200) is that paper's. Deviations: shapes lie on a
    grid of gender, proportions, weight and height instead of normal draws of SMPL's shape parameters. Made once by the
    package anny (some minutes) and kept on disk; a byte a pixel in memory, so 400 x 200 takes 800 MB.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement; Bregier et al. (2025), arXiv:2511.03589.
    """
    view = camera(size)
    table = disk.read(_file(size), (math.prod(SIZES), view.rows * view.columns))
    if table is None:
        table = _made(view, torch.device("cuda" if torch.device(device).type == "cuda" else "cpu"), progress)
        disk.write(_file(size), table)
    elif progress:
        progress(1.0)
    return ByteImages("body_images", NAMES, SIZES, (1, *size), table.view(-1, 1, *size).to(device))


def _file(size: tuple[int, int]) -> str:
    return f"body_images-{size[0]}x{size[1]}-{recipe(SHA256, NAMES, SIZES, LOW_HIGH, FIXED, ARMS, FRAME, MIDDLE)}"


def camera(size: tuple[int, int]) -> View:
    """The camera for images of `size`: at least 256 subpixels high and two to a pixel."""
    rows, columns = size
    if rows < 1 or columns < rows / 2:
        raise UserError(
            f"The 'size' of body_images must be (rows, columns) with at least half as many columns as rows, for arms "
            f"to fit. Got {size}."
        )
    return View(rows, columns, FRAME, MIDDLE, samples=max(2, -(-256 // rows)))


def phenotypes() -> Float[Tensor, "n 6"]:
    """What anny takes (bodies, 6) for every body of the grid, in its order."""
    values = {
        name: torch.linspace(*LOW_HIGH[name], size).double() for name, size in zip(NAMES[:-1], SIZES, strict=False)
    }
    columns = dict(zip(values, torch.cartesian_prod(*values.values()).T, strict=True))
    fixed = {name: torch.full((BODIES,), value).double() for name, value in FIXED.items()}
    return torch.stack([(columns | fixed)[name] for name in PHENOTYPES], 1)


def _made(view: View, device: torch.device, progress: Progress | None) -> Tensor:
    """The table (images, pixels) on the CPU; only the drawing is done on `device`."""
    table = torch.empty(BODIES, len(POSES), view.rows * view.columns, dtype=torch.uint8)
    for start, images in drawn(BodyModel(), phenotypes(), view, device):
        table[start : start + images.shape[1]] = images.transpose(0, 1).flatten(2).cpu()
        if progress:
            progress((start + images.shape[1]) / BODIES)
    return table.flatten(0, 1)


def drawn(
    model: BodyModel, shapes: Float[Tensor, "n 6"], view: View, device: torch.device
) -> Iterator[tuple[int, UInt8[Tensor, "p b 1 h w"]]]:
    """Where a few bodies start among `shapes` (n, 6), and their images (poses, bodies, 1, h, w)."""
    faces = model.faces.to(device)
    for start in range(0, len(shapes), STEP):
        rest = model.rest(shapes[start : start + STEP])
        yield start, torch.stack([draw(model.posed(rest, pose).to(device), faces, view) for pose in POSES])
