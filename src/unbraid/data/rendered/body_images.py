"""Images of bodies that differ in shape and pose, as an open substitute for images made with SMPL."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from unbraid.data import cache as disk
from unbraid.data.dataset import Progress
from unbraid.data.in_memory import ByteImages
from unbraid.data.rendered.bodies import ADULT_AGE, cache_key
from unbraid.data.rendered.body_model import PHENOTYPES, BodyModel, Pose, mirror_pose
from unbraid.data.rendered.zbuffer import View, draw_meshes
from unbraid.errors import UserError

NAMES = ("gender", "proportions", "weight", "height", "pose")
SIZES = (5, 5, 10, 10, 4)
LOW_HIGH = {"gender": (0, 1), "proportions": (0, 1), "weight": (0, 1), "height": (0.15, 0.55)}
FIXED = {"age": ADULT_AGE, "muscle": 0.2}
# Rotations of the left collar and arm in degrees. The paper (see `body_images`) lists them in radians for both sides.
ARMS = ((-180 / 8, -180 / 3.5), (-180 / 16, -180 / 3.5), (180 / 16, 180 / 3.5), (180 / 8, 180 / 3.5))
POSES: list[Pose] = [mirror_pose({"collar.L": (0, 0, collar), "arm.L": (0, 0, arm)}) for collar, arm in ARMS]
FRAME_HEIGHT, FRAME_CENTRE = 2.75, (0.0, 0.115)  # the height of the frame and the point (x, y) at its centre, in metres
BODIES = math.prod(SIZES[:-1])
# Digest of the 64 x 64 images of every 97th body: all of these bodies in the first pose, then in the second pose, and
# so on. It is part of the names of cache files, for the same reason as the digest in `bodies`.
SHA256 = "6ffcc21acff41da58597d533cfa2cbe29878fcb5141294aefb995a7acfdeb306"
BODIES_AT_ONCE = 4  # number of bodies that are posed and drawn together


def body_images(
    device: str | torch.device = "cpu", progress: Progress | None = None, size: tuple[int, int] = (64, 64)
) -> ByteImages:
    """Render 10,000 grey images of people who differ in shape and in the position of their arms.

    This is an open substitute for the images of the VITAE paper (Detlefsen & Hauberg), which were made with the body
    model SMPL. There are four poses. The arms point down or up, and are either close to the body or spread wide. The
    angles are those of table 2 of the paper. Bodies are drawn on black, from the front and without perspective. Pixels
    are square, the frame is 2.75 m high, and the hips are always at the same point of the frame. Deviation from the
    paper: shapes lie on a grid of gender, proportions, weight and height. In the paper, the shape parameters of SMPL
    are drawn from a normal distribution. The package anny creates the bodies on first use, which takes some minutes.
    The images are then cached on disk.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement; Bregier et al. (2025), arXiv:2511.03589.

    Args:
        device: Device on which to store the examples.
        progress: Called with the finished fraction, from 0 to 1.
        size: Number of rows and columns of an image. The paper uses (400, 200). Images take one byte per pixel in
            memory, which is 800 MB in total for the size of the paper.

    Returns:
        10,000 images of shape (1, rows, columns), with the factors gender, proportions, weight, height and pose.

    Raises:
        UserError: If the arms do not fit into images of this size, or if anny is not installed.
    """
    view = camera(size)
    table = disk.read(_file_name(size), (math.prod(SIZES), view.rows * view.columns))
    if table is None:
        table = _render(view, torch.device("cuda" if torch.device(device).type == "cuda" else "cpu"), progress)
        disk.write(_file_name(size), table)
    elif progress:
        progress(1.0)
    return ByteImages("body_images", NAMES, SIZES, (1, *size), table.view(-1, 1, *size).to(device))


def _file_name(size: tuple[int, int]) -> str:
    key = cache_key(SHA256, NAMES, SIZES, LOW_HIGH, FIXED, ARMS, FRAME_HEIGHT, FRAME_CENTRE)
    return f"body_images-{size[0]}x{size[1]}-{key}"


def camera(size: tuple[int, int]) -> View:
    """Return the camera for images of `size`.

    There are at least 256 rows of subpixels, and at least 2 x 2 subpixels per pixel.
    """
    rows, columns = size
    if rows < 1 or columns < rows / 2:
        raise UserError(
            f"The option 'size' of body_images must be (rows, columns) with at least half as many columns as rows, "
            f"because the arms do not fit otherwise. Got {size} instead."
        )
    return View(rows, columns, FRAME_HEIGHT, FRAME_CENTRE, samples=max(2, -(-256 // rows)))


def phenotypes() -> Float[Tensor, "n 6"]:
    """Return the phenotypes of all bodies for anny, float64 of shape (bodies, 6), in the order of the grid."""
    values = {
        name: torch.linspace(*LOW_HIGH[name], size).double() for name, size in zip(NAMES[:-1], SIZES, strict=False)
    }
    columns = dict(zip(values, torch.cartesian_prod(*values.values()).T, strict=True))
    fixed = {name: torch.full((BODIES,), value).double() for name, value in FIXED.items()}
    return torch.stack([(columns | fixed)[name] for name in PHENOTYPES], 1)


def _render(view: View, device: torch.device, progress: Progress | None) -> Tensor:
    """Render all images and return them on the CPU, uint8 of shape (images, pixels). Only drawing uses `device`."""
    table = torch.empty(BODIES, len(POSES), view.rows * view.columns, dtype=torch.uint8)
    for start, images in draw_bodies(BodyModel(), phenotypes(), view, device):
        table[start : start + images.shape[1]] = images.transpose(0, 1).flatten(2).cpu()
        if progress:
            progress((start + images.shape[1]) / BODIES)
    return table.flatten(0, 1)


def draw_bodies(
    model: BodyModel, shapes: Float[Tensor, "n 6"], view: View, device: torch.device
) -> Iterator[tuple[int, UInt8[Tensor, "p b 1 h w"]]]:
    """Draw a few bodies at a time in all poses.

    Yields the index of the first of these bodies, and their images (poses, bodies, 1, h, w).
    """
    faces = model.faces.to(device)
    for start in range(0, len(shapes), BODIES_AT_ONCE):
        rest = model.rest_bodies(shapes[start : start + BODIES_AT_ONCE])
        yield (
            start,
            torch.stack([draw_meshes(model.pose_vertices(rest, pose).to(device), faces, view) for pose in POSES]),
        )
