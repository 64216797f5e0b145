"""The z-buffer compared with a direct implementation, and images with known pixels."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from unbraid.data.rendered.zbuffer import AMBIENT_FRACTION, FAR, LIGHT, UNIT, View, draw_meshes
from unbraid.noise import Noise

SMALL = View(5, 6, 5.0, samples=1)  # one pixel per metre


def square(left: float, right: float, bottom: float, top: float, z: float = 0.0) -> Tensor:
    """Return the corners of a square of two triangles that faces the viewer."""
    return torch.tensor([[left, bottom, z], [right, bottom, z], [right, top, z], [left, top, z]])


QUAD = torch.tensor([[0, 1, 2], [0, 2, 3]])


def random_meshes(key: int, faces: int = 7) -> tuple[Tensor, Tensor]:
    """Return three meshes of random triangles that share vertices and extend beyond the frame."""
    noise = Noise(torch.tensor(key))
    return 7 * noise.uniform(3, 9, 3) - 3.5, noise.integers(9, faces, 3)


def ball(radius: float, rings: int = 40) -> tuple[Tensor, Tensor]:
    """Return a sphere with two triangles per cell of latitude and longitude, with their fronts outside."""
    up, around = torch.meshgrid(
        torch.linspace(0, math.pi, rings), 2 * math.pi / rings * torch.arange(rings), indexing="ij"
    )
    points = radius * torch.stack([up.sin() * around.sin(), up.cos(), up.sin() * around.cos()], -1).flatten(0, 1)
    faces = []
    for i, j in itertools.product(range(rings - 1), range(rings)):
        a, b, c, d = (row * rings + column % rings for row in (i, i + 1) for column in (j, j + 1))
        faces += [[a, c, d], [a, d, b]]
    return points[None], torch.tensor(faces)


def draw_directly(vertices: Tensor, faces: Tensor, view: View) -> list[list[int]]:
    """Draw one mesh by loops over subpixels and faces, with fractions."""
    points = list(zip(*view.to_fixed_point(vertices[None])[:, 0].tolist(), strict=True))
    normals: list[list[int]] = [[0, 0, 0] for _ in points]
    for corners in faces.tolist():
        a, b, c = (np.array([points[i][0], -points[i][1], points[i][2]], dtype=object) for i in corners)
        for i in corners:
            normals[i] = [n + m for n, m in zip(normals[i], np.cross(b - a, c - a), strict=True)]
    shades = []
    for normal in normals:
        cosine = sum(n * light for n, light in zip(normal, LIGHT, strict=True)) / (math.hypot(*normal) or 1)
        shades.append(math.floor(255 * (AMBIENT_FRACTION + (1 - AMBIENT_FRACTION) * max(0, cosine)) + 0.5))
    tall, wide = view.rows * view.samples, view.columns * view.samples
    fine = [[nearest_shade(points, shades, faces, column, row) for column in range(wide)] for row in range(tall)]
    image = np.array(fine).reshape(view.rows, view.samples, view.columns, view.samples)
    return [[math.floor(Fraction(int(v), view.samples**2) + Fraction(1, 2)) for v in row] for row in image.sum((1, 3))]


def nearest_shade(points: list[tuple[int, ...]], shades: list[int], faces: Tensor, column: int, row: int) -> int:
    """Return the shade of the nearest front face at a subpixel centre, or 0 if there is none."""
    x, y = column * UNIT + UNIT // 2, row * UNIT + UNIT // 2
    found = []
    for corners in faces.tolist():
        (ax, ay, az), (bx, by, bz), (cx, cy, cz) = (points[i] for i in corners)
        area = (cx - ax) * (by - ay) - (cy - ay) * (bx - ax)
        if area <= 0:
            continue
        v = Fraction((cx - ax) * (y - ay) - (cy - ay) * (x - ax), area)
        w = Fraction((x - ax) * (by - ay) - (y - ay) * (bx - ax), area)
        if min(1 - v - w, v, w) >= 0:
            depth = -math.floor((1 - v - w) * az + v * bz + w * cz)
            tones = [shades[i] for i in corners]
            found.append((depth, math.floor((1 - v - w) * tones[0] + v * tones[1] + w * tones[2])))
    return min(found)[1] if found else 0


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("key", range(4))
def test_drawing_equals_the_direct_implementation(key: int, samples: int) -> None:
    vertices, faces = random_meshes(key)
    view = View(5, 6, 5.0, (0.2, -0.1), samples)
    images = draw_meshes(vertices, faces, view)
    assert images.shape == (3, 1, 5, 6)
    assert images.dtype == torch.uint8
    assert images.max() > 0
    for mesh, image in zip(vertices, images, strict=True):
        assert draw_directly(mesh, faces, view) == image[0].tolist()


def test_order_of_faces_and_other_meshes_do_not_matter() -> None:
    vertices, faces = random_meshes(11, 30)
    view = View(16, 20, 6.0)
    images = draw_meshes(vertices, faces, view)
    assert torch.equal(draw_meshes(vertices, faces.flip(0).roll(1, 1), view), images)
    assert torch.equal(torch.cat([draw_meshes(mesh[None], faces, view) for mesh in vertices]), images)


def test_square_covers_only_its_pixels() -> None:
    image = draw_meshes(square(-2, 1, -0.5, 1.5)[None], QUAD, SMALL)[0, 0]
    expected = torch.zeros(5, 6, dtype=torch.uint8)
    expected[1:3, 1:4] = math.floor(255 * (AMBIENT_FRACTION + (1 - AMBIENT_FRACTION) * LIGHT[2]) + 0.5)
    assert torch.equal(image, expected)
    assert draw_meshes(square(-2, 1, -0.5, 1.5)[None], QUAD.flip(1), SMALL).max() == 0


def test_half_covered_pixel_is_half_as_bright() -> None:
    view = View(5, 6, 5.0, samples=4)
    image = draw_meshes(square(-2, 0.5, -0.5, 1.5)[None], QUAD, view)[0, 0].int()
    assert image[1, 3] == (image[1, 1] + 1) // 2
    assert image[1, 4] == 0


def test_nearer_surface_hides_farther_surface() -> None:
    near = torch.tensor([[-2.0, -2, 1], [2, -2, 1], [2, 2, 1.5], [-2, 2, 1.5]])
    both = torch.cat([square(-3, 3, -2.5, 2.5), near])[None]
    image = draw_meshes(both, torch.cat([QUAD, QUAD + 4]), SMALL)[0, 0]
    alone = draw_meshes(near[None], QUAD, SMALL)[0, 0]
    assert torch.equal(image[alone > 0], alone[alone > 0])
    assert (image[alone == 0] == draw_meshes(both[:, :4], QUAD, SMALL)[0, 0][alone == 0]).all()
    assert image.min() > 0


def test_meshes_are_clipped_to_the_frame() -> None:
    assert draw_meshes(square(-99, 99, -99, 99)[None], QUAD, SMALL).unique().numel() == 1
    assert draw_meshes(square(3.1, 9, -1, 1)[None], QUAD, SMALL).max() == 0
    assert draw_meshes(square(-1, 1, -9, -2.6)[None], QUAD, SMALL).max() == 0
    assert FAR & 255 == 0


def test_ball_is_round_and_brightest_towards_the_lamp() -> None:
    points, faces = ball(1.0)
    view = View(100, 100, 2.5, samples=1)
    image = draw_meshes(points, faces, view)[0, 0]
    assert (image > 0).sum().item() == pytest.approx(math.pi * 40**2, rel=0.01)
    row, column = np.unravel_index(int(image.argmax()), image.shape)
    brightest = ((column + 0.5) / 40 - 1.25, 1.25 - (row + 0.5) / 40)
    assert brightest == pytest.approx(LIGHT[:2], abs=0.12)
    assert image.max() >= 254
    assert math.hypot(*LIGHT) == pytest.approx(1)


@pytest.mark.gpu
def test_gpu_draws_the_same_images() -> None:
    for vertices, faces, view in (
        (*random_meshes(3, 200), View(64, 50, 6.0, samples=3)),
        (*ball(1.0), View(200, 100, 2.2)),
    ):
        assert torch.equal(draw_meshes(vertices.cuda(), faces.cuda(), view).cpu(), draw_meshes(vertices, faces, view))
