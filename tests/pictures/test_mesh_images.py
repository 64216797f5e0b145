"""Images of meshes, and traversals of runs on meshes."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image

from support.meshes import spheres, untrained_run
from unbraid.pictures.examples import example_images, mesh_images, mesh_view, points_image
from unbraid.pictures.images import LABEL, MARGIN
from unbraid.pictures.traversal import traverse


def test_all_meshes_have_the_same_view() -> None:
    """Subject 0 is 0.7 wide and subject 4 is 1.3 wide, and the second image is wider in the same view."""
    data = spheres()
    narrow, wide = example_images(data, torch.tensor([2, 22]))
    assert narrow.shape == wide.shape
    assert narrow.shape[1] >= 96
    widths = [(image > 0).any(1)[0].sum() for image in (narrow, wide)]
    assert widths[1] > 1.3 * widths[0]
    view, (rows, columns) = mesh_view(data), narrow.shape[1:]
    assert (view.rows, view.columns) == (rows, columns)
    inside = (data.table.view(-1, 3)[:, :2] - torch.tensor(view.centre)).abs().amax(0)
    assert (inside <= view.metres / 2 * torch.tensor([columns / rows, 1])).all()


def test_meshes_are_drawn_as_surfaces() -> None:
    (image,) = example_images(spheres(), torch.tensor([2]))
    filled = image[0] > 0
    lit = filled.nonzero()
    (top, left), (bottom, right) = lit.amin(0), lit.amax(0)
    assert filled[top : bottom + 1, left : right + 1].float().mean() > 0.6  # a surface, not 100 points


def test_meshes_without_faces_are_drawn_as_points() -> None:
    data = spheres()
    for faces in (torch.zeros(0, 3).long(), torch.zeros(1, 3).long()):
        data.faces = faces  # type: ignore[attr-defined]
        (picture,) = example_images(data, torch.tensor([3]))
        assert torch.equal(picture, points_image(data.table[3].view(-1, 3)))
        assert 0 < int((picture > 0).sum()) <= 100


def test_points_are_drawn_upright() -> None:
    body = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.1, 1.0, 0.2]])
    picture = points_image(body, size=32)[0]
    lit = picture.nonzero()
    assert picture.shape == (32, 32)
    assert int(lit[:, 0].min()) <= 6 < 26 <= int(lit[:, 0].max())
    assert float(picture[lit[0, 0]].max()) > float(picture[lit[-1, 0]].max())  # the head is nearer


def test_traversals_show_decoded_meshes(tmp_path: Path) -> None:
    data = spheres()
    run = untrained_run(data)
    (expected,) = mesh_images(run.decode(run.encode(data.images([3]))), data)
    png, gif = traverse(run, data, columns=3, out=tmp_path).paths
    with Image.open(png) as picture:
        high, wide = expected.shape[1] + MARGIN, expected.shape[2] + MARGIN
        assert picture.size == (LABEL + 3 * wide + MARGIN, 3 * high + MARGIN)
    assert gif.exists()
