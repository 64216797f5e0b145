"""Bodies and images of bodies. Tests that need the extra `bodies` are slow."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import itertools
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap

from unbraid.data import cache
from unbraid.data.dataset import FactorData
from unbraid.data.rendered.bodies import POSES, SUBJECTS, bodies
from unbraid.data.rendered.body_images import body_images, draw_bodies, phenotypes
from unbraid.data.rendered.body_model import (
    COORDINATE_STEP,
    FULL_VERTICES,
    TOPOLOGIES,
    BodyModel,
    rotation_between,
    rotation_matrix,
)
from unbraid.errors import UserError
from unbraid.noise import Noise

meshes, pictures = (importlib.import_module(f"unbraid.data.rendered.{name}") for name in ("bodies", "body_images"))
COARSE = min(TOPOLOGIES)


def test_rotation_matrices() -> None:
    assert torch.allclose(
        rotation_matrix((0, 0, 90)) @ torch.eye(3).double(), torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]).double()
    )
    turn = rotation_matrix((10, -40, 25))
    assert torch.allclose(turn @ turn.T, torch.eye(3).double())
    assert torch.allclose(torch.linalg.matrix_power(rotation_matrix((10, -40, 25), 5), 5), turn)
    a, b = torch.tensor([1.0, 2, 3]).double(), torch.tensor([-2.0, 1, 0.5]).double()
    assert torch.allclose(rotation_between(a, b) @ a / a.norm(), b / b.norm())
    assert torch.linalg.det(rotation_between(a, b)) == pytest.approx(1)


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("make", [bodies, body_images])
def test_without_anny_the_error_names_the_extra(
    make: object, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anny", None)
    with pytest.raises(UserError, match=r'pip install "unbraid\[bodies\]"') as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"must be one of 13718, 1229\. Got 7"):
        bodies(vertices=7)
    with pytest.raises(ValueError, match=r"half as many columns as rows.*Got \(64, 20\)"):
        body_images(size=(64, 20))


def cached_data(name: str) -> FactorData:
    """Return a dataset read from cache files with random coordinates or pixels, instead of those created by anny."""
    noise = Noise(torch.tensor(8))
    if name == "bodies":
        table, faces = meshes._file_names(COARSE)
        cache.write(table, noise.normal(meshes.ROWS, 3 * COARSE).view(torch.uint8))
        cache.write(faces, noise.integers(COARSE, TOPOLOGIES[COARSE].faces, 3).int().view(torch.uint8))
        return bodies(vertices=COARSE)
    cache.write(pictures._file_name((8, 4)), noise.bytes(10_000, 32))
    return body_images(size=(8, 4))


@pytest.mark.parametrize("name", ["bodies", "body_images"])
def test_cached_data_need_no_anny_and_satisfy_the_dataset_laws(
    name: str, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anny", None)
    data = cached_data(name)
    assert data.name == name
    assert len(data) == math.prod(data.sizes) == len(data.table)
    everything = torch.arange(len(data))
    assert np.array_equal(data.factors(everything), np.stack(np.unravel_index(everything.numpy(), data.sizes), 1))
    assert torch.equal(data.index(data.factors(everything)), everything)
    index = data.draw(Noise(torch.tensor(5)), 12).view(3, 4)
    images = data.images(index[0])
    assert images.shape == (4, *data.shape)
    assert torch.equal(data.batch(index[0]), images / 255 if images.dtype == torch.uint8 else images)
    assert torch.equal(vmap(data.batch)(index), torch.stack([data.batch(i) for i in index]))
    moved = data.to("meta")
    assert moved.batch(moved.draw(Noise(torch.tensor(0, device="meta")), 6)).shape == (6, *data.shape)
    assert data.device.type == "cpu"


def test_bodies_have_a_topology_and_units(cache_folder: Path) -> None:
    data = cached_data("bodies")
    assert isinstance(data, meshes.Bodies)
    assert data.vertices == COARSE
    assert data.units == "metres"
    assert data.faces.shape == (TOPOLOGIES[COARSE].faces, 3)
    assert data.faces.dtype == torch.int64
    assert set(data.categorical) == set(data.names)


def test_progress_is_reported_once_for_cached_data(cache_folder: Path) -> None:
    reported: list[float] = []
    cached_data("bodies")
    bodies(vertices=COARSE, progress=reported.append)
    cached_data("body_images")
    body_images(size=(8, 4), progress=reported.append)
    assert reported == [1, 1]


@pytest.fixture(scope="module")
def model() -> BodyModel:
    pytest.importorskip("anny")
    return BodyModel()


@pytest.fixture(scope="module")
def coordinates(model: BodyModel) -> Tensor:
    """Return newly created coordinates (subject, pose, vertex, axis)."""
    return torch.stack(list(meshes._coordinates_by_subject(model))).unflatten(-1, (-1, 3))


def extent(coordinates: Tensor, pose: str, axis: str) -> Tensor:
    part = coordinates[:, list(POSES).index(pose), :, "xyz".index(axis)]
    return part.amax(1) - part.amin(1)


def volumes(vertices: Tensor, faces: Tensor) -> Tensor:
    a, b, c = (vertices[:, corner].double() for corner in faces.T)
    return (a * torch.linalg.cross(b, c)).sum((-1, -2)) / 6


def assert_closed(faces: Tensor, vertices: int) -> None:
    """Check that every edge has one face on either side, and that every vertex is used."""
    edges = torch.cat([faces[:, [i, j]] for i, j in ((0, 1), (1, 2), (2, 0))])
    forward, reversed_edges = (set(map(tuple, part.tolist())) for part in (edges, edges.flip(1)))
    assert len(forward) == len(edges)
    assert forward == reversed_edges
    assert len(faces.unique()) == vertices


@pytest.mark.slow
def test_coordinates_have_the_recorded_digest(coordinates: Tensor) -> None:
    assert hashlib.sha256(coordinates.numpy().data).hexdigest() == meshes.SHA256


@pytest.mark.slow
def test_no_coordinate_is_near_a_rounding_tie(model: BodyModel) -> None:
    """Errors are below 1e-14 m, or 1e-9 rounding steps. The nearest tie of four million coordinates is farther."""
    for phenotype in SUBJECTS.values():
        rest = model.rest_bodies(torch.tensor([phenotype]).double())
        for pose in POSES.values():
            steps = model.pose_vertices_unrounded(rest, pose) / COORDINATE_STEP
            assert (steps - steps.floor() - 0.5).abs().min() > 1e-9


@pytest.mark.slow
def test_bodies_are_closed_and_of_human_size(model: BodyModel, coordinates: Tensor) -> None:
    assert_closed(model.faces, FULL_VERTICES)
    heights, litres = extent(coordinates, "stand", "y"), 1000 * volumes(coordinates[:, 0], model.faces)
    people = list(SUBJECTS)
    assert heights.argmin() == people.index("child")
    adults = [i for i, name in enumerate(people) if name != "child"]
    assert heights[adults].min() > 1.45
    assert heights.max() < 2.1
    assert litres.min() > 20
    assert litres.max() < 140
    assert litres[people.index("heavy woman")] > 1.5 * litres[people.index("tall slim woman")]


@pytest.mark.slow
def test_bodies_stand_upright_face_forward_and_are_symmetric(model: BodyModel, coordinates: Tensor) -> None:
    stand = coordinates[:, 0]
    for body in stand:
        above = body[:, 1] - body[:, 1].min()
        foot, ankle = body[above < 0.05, 2], body[(above > 0.06) & (above < 0.1), 2].mean()
        assert foot.max() - ankle > 1.2 * (ankle - foot.min())
        mirrored = body[::13] * torch.tensor([-1.0, 1, 1])
        assert torch.cdist(mirrored, body).amin(1).max() < 0.002
    left = model.model.bone_labels.index("wrist.L")
    assert model.model()["bone_poses"][0, left, 0, 3] > 0.2


@pytest.mark.slow
def test_poses_match_their_names(coordinates: Tensor) -> None:
    tall, wide, deep = (extent(coordinates, "stand", axis) for axis in "yxz")
    assert (extent(coordinates, "arms up", "y") > 1.15 * tall).all()  # hands well above the head
    assert (extent(coordinates, "arms out", "x") > 0.85 * tall).all()
    assert (extent(coordinates, "arms forward", "z") > 2 * deep).all()
    assert (extent(coordinates, "stride", "z") > 2 * deep).all()
    assert (extent(coordinates, "sit", "y") < 0.85 * tall).all()
    assert (extent(coordinates, "bow", "y") < 0.85 * tall).all()
    assert (extent(coordinates, "twist", "z") > 1.8 * deep).all()
    assert (extent(coordinates, "lean and wave", "y") > 1.05 * tall).all()
    thigh = coordinates[:, list(POSES).index("knee raised")]
    assert (thigh[..., 2].amax(1) > coordinates[:, 0, :, 2].amax(1) + 0.1).all()
    assert (wide < 0.6 * tall).all()


@pytest.mark.slow
def test_every_body_differs_from_every_other(coordinates: Tensor) -> None:
    flat = coordinates.flatten(0, 1)
    farthest = torch.stack([(flat - body).norm(dim=-1).amax(-1) for body in flat])
    assert (farthest + torch.eye(len(flat))).min() > 0.02


@pytest.mark.slow
def test_coarse_bodies_are_closed_and_near_the_full_ones(coordinates: Tensor, cache_folder: Path) -> None:
    data = bodies(vertices=COARSE)
    assert_closed(data.faces, COARSE)
    assert COARSE - 3 * len(data.faces) // 2 + len(data.faces) == 2
    coarse, full = data.table.view(100, COARSE, 3), coordinates.flatten(0, 1)
    for i in range(0, 100, 9):
        assert torch.cdist(coarse[i], full[i]).amin(1).max() < 0.05
    ratio = volumes(coarse, data.faces) / volumes(full, BodyModel().faces)
    assert 0.9 < ratio.min() <= ratio.max() < 1.02


@pytest.mark.slow
def test_arms_have_the_angles_of_the_reference(model: BodyModel) -> None:
    """The angle to the horizontal is the sum of collar and arm, up to a few degrees due to the skeleton of a body."""
    rest = model.rest_bodies(phenotypes()[::97])
    ends = [model.bones[name] for name in ("upperarm01.L", "lowerarm01.L", "upperarm01.R", "lowerarm01.R")]
    for (collar, arm), pose in zip(pictures.ARMS, pictures.POSES, strict=True):
        _, frames = model.model.get_bone_transforms(model.bone_rotations(pose)[None], rest["rest_bone_poses"])
        heads = frames[:, ends, :3, 3] @ model.axes.T
        for side, (shoulder, elbow) in ((1, (0, 1)), (-1, (2, 3))):
            along = heads[:, elbow] - heads[:, shoulder]
            angle = torch.rad2deg(torch.atan2(along[:, 1], side * along[:, 0]))
            assert (angle - (collar + arm)).abs().max() < 6


def draw_images(model: BodyModel, shapes: Tensor, size: tuple[int, int] = (64, 64)) -> Tensor:
    """Return images (pose, body, 1, h, w) of some shapes."""
    parts = [images for _, images in draw_bodies(model, shapes, pictures.camera(size), torch.device("cpu"))]
    return torch.cat(parts, 1).contiguous()


@pytest.mark.slow
def test_images_have_the_recorded_digest(model: BodyModel) -> None:
    assert hashlib.sha256(draw_images(model, phenotypes()[::97]).numpy().data).hexdigest() == pictures.SHA256


@pytest.mark.slow
@pytest.mark.parametrize("size", [(64, 64), (400, 200)])
def test_no_body_touches_the_frame(model: BodyModel, size: tuple[int, int]) -> None:
    corners = phenotypes().view(5, 5, 10, 10, 6)[::4, ::4, ::9, ::9].reshape(-1, 6)
    images = draw_images(model, corners, size)
    assert torch.stack([images[..., 0, :], images[..., -1, :]]).max() == 0
    assert torch.stack([images[..., 0], images[..., -1]]).max() == 0
    assert (images > 0).float().mean((2, 3, 4)).min() > 0.03


@pytest.mark.slow
def test_images_change_with_each_factor(model: BodyModel) -> None:
    grid = phenotypes().view(5, 5, 10, 10, 6)
    lines = {
        "gender": grid[:, 2, 5, 5],
        "proportions": grid[2, :, 5, 5],
        "weight": grid[2, 2, :, 5],
        "height": grid[2, 2, 5],
    }
    for name, line in lines.items():
        images = draw_images(model, line).int()
        assert (images.diff(dim=1).abs().sum((2, 3, 4)) > 255).all(), name
    for name in ("weight", "height"):
        assert (draw_images(model, lines[name]).int().sum((2, 3, 4)).diff(dim=1) > 0).all()


@pytest.mark.slow
def test_pose_changes_only_the_arms(model: BodyModel) -> None:
    images = draw_images(model, phenotypes()[::500]).int()
    assert torch.equal(images[..., 46:, :].amax(0), images[..., 46:, :].amin(0))
    for one, other in itertools.combinations(images, 2):
        assert ((one - other).abs().sum((1, 2, 3)) > 5 * 255).all()


@pytest.mark.slow
def test_errors_for_another_version_of_anny_and_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anny = pytest.importorskip("anny")
    (tmp_path / "file").touch()
    monkeypatch.setattr(anny.paths, "_ANNY_CACHE_DIR", [tmp_path / "file"])
    with pytest.raises(UserError, match=r"store 1 GB in .*file\. Got: .*set ANNY_CACHE_DIR"):
        BodyModel()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.7.0")
    with pytest.raises(UserError, match=r"version 0\.6\.2 of anny, .*Got 0\.7\.0\."):
        BodyModel()


@pytest.mark.slow
def test_example_of_the_guide_runs(model: BodyModel, cache_folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "bodies.md").read_text()
    (block,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(compile(block, "docs/guides/bodies.md", "exec"), {})
