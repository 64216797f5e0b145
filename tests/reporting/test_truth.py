"""Images rendered by JavaScript are those of the dataset, and other datasets are not mistaken for it."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unbraid import data as datasets
from unbraid import reporting
from unbraid.data import from_arrays
from unbraid.data.dataset import BinaryImages, FactorData
from unbraid.data.rendered.dsprites import scene as large_scene
from unbraid.data.rendered.painted import SpritesOnNoise
from unbraid.data.rendered.raster import Scene
from unbraid.data.rendered.sprites import scene as small_scene
from unbraid.noise import Noise
from unbraid.reporting.truth import SCRIPTS, renderer_spec

ASSETS = Path(reporting.__file__).parent / "assets"
DRAW = """
const fs = require("node:fs");
const vm = require("node:vm");
const { scripts, spec, rows } = JSON.parse(fs.readFileSync(0, "utf8"));
scripts.forEach((path) => vm.runInThisContext(fs.readFileSync(path, "utf8"), path));
const render = unbraid.truth(spec);
rows.forEach((row) => fs.writeSync(1, new Uint8Array(render(row).buffer)));
"""
Array = np.ndarray[Any, np.dtype[np.float32]]


@pytest.fixture(scope="module", params=["dsprites", "color_dsprites", "noisy_dsprites"])
def painted(request: pytest.FixtureRequest) -> FactorData:
    return datasets.load(request.param)


@pytest.fixture(scope="module")
def rooms() -> FactorData:
    return datasets.load("shapes3d_rendered")


def run_node(spec: dict[str, Any], rows: Any) -> subprocess.CompletedProcess[bytes]:
    """Render in node, outside a browser."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed; tests/browser draws the same in Chromium")
    given = json.dumps({"scripts": [str(ASSETS / name) for name in SCRIPTS], "spec": spec, "rows": rows})
    return subprocess.run([program, "-e", DRAW], input=given.encode(), capture_output=True, check=False)


def rendered_images(data: FactorData, index: torch.Tensor) -> Array:
    """The images at `index` as JavaScript renders them from their factors."""
    spec = renderer_spec(data)
    assert spec is not None
    done = run_node(spec, data.factors(index).tolist())
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, "<f4").reshape(len(index), *data.shape)


def true_images(data: FactorData, index: torch.Tensor) -> Array:
    return data.images(index).numpy().astype(np.float32) / np.float32(255)


def test_all_small_sprites_are_rendered_exactly(sprites: FactorData) -> None:
    every = torch.arange(len(sprites))
    assert np.array_equal(rendered_images(sprites, every), true_images(sprites, every))


def test_sprites_colours_and_noise_are_rendered_exactly(painted: FactorData) -> None:
    ends = torch.tensor([0, len(painted) - 1])
    index = torch.cat([ends, painted.draw(Noise(torch.tensor(3)), 300)])
    assert np.array_equal(rendered_images(painted, index), true_images(painted, index))


def test_rooms_are_rendered_within_one_grey_level(rooms: FactorData) -> None:
    index = rooms.draw(Noise(torch.tensor(4)), 300)
    index = index[rooms.factors(index)[:, 5].argsort()]  # each orientation's empty room is then made once
    off = 255 * np.abs(rendered_images(rooms, index) - true_images(rooms, index))
    assert off.max() < 1.01
    assert (off > 0.5).mean() < 1e-4


@pytest.mark.parametrize("scene", [small_scene(), large_scene()], ids=["sprites", "dsprites"])
def test_no_vertex_is_close_to_a_rounding_boundary(scene: Scene) -> None:
    """Sines and products may differ in their last bit between machines; rounding to 1/256 px must not depend on it."""
    nearest = 1.0
    for polygons in scene.polygons(torch.device("cpu")):
        for centres, axis in ((scene.x, 0), (scene.y, 1)):
            place = 256 * (polygons[..., axis, None] + centres)
            nearest = min(nearest, float((place - place.floor() - 0.5).abs().min()))
    assert nearest > 1e-9


@pytest.mark.parametrize("options", ["subset=50", "subset=9&seed=3", "correlate=x:y:0.2"])
def test_options_of_the_name_are_ignored(options: str, sprites: FactorData) -> None:
    spec = renderer_spec(datasets.load(f"sprites?{options}"))
    assert spec is not None
    assert spec == renderer_spec(sprites)


def test_the_specs_are_small(sprites: FactorData, painted: FactorData, rooms: FactorData) -> None:
    for data in (sprites, painted, rooms):
        assert len(json.dumps(renderer_spec(data), allow_nan=False)) < 8_000


def test_other_data_are_not_rendered(toy: FactorData, glyphs: FactorData, sprites: FactorData) -> None:
    assert renderer_spec(toy) is None
    assert renderer_spec(glyphs) is None
    assert (
        renderer_spec(from_arrays(sprites.images(slice(0, 48)), sprites.factors(slice(0, 48)), name="sprites")) is None
    )
    assert renderer_spec(datasets.load("scream_dsprites")) is None


def test_sprites_with_other_content_are_not_rendered(sprites: FactorData) -> None:
    table = sprites.table.clone()
    table[5000, 64] ^= 1
    grid = (sprites.names, sprites.sizes, sprites.shape)
    assert renderer_spec(BinaryImages("sprites", *grid, sprites.table)) == renderer_spec(sprites)
    assert renderer_spec(BinaryImages("sprites", *grid, table)) is None
    assert renderer_spec(BinaryImages("sprites_of_mine", *grid, sprites.table)) is None
    assert renderer_spec(BinaryImages("dsprites", *grid, sprites.table)) is None
    assert renderer_spec(BinaryImages("sprites", ("a", *sprites.names[1:]), *grid[1:], sprites.table)) is None


def test_dsprites_with_other_content_are_not_rendered(painted: FactorData) -> None:
    changed = copy.copy(painted)
    changed.table = painted.table.clone()
    assert renderer_spec(changed) == renderer_spec(painted)
    changed.table[-1, -1] ^= 1
    assert renderer_spec(changed) is None


def test_subclasses_are_not_rendered(painted: FactorData) -> None:
    class Mine(SpritesOnNoise):
        pass

    own = Mine(BinaryImages("dsprites", painted.names, painted.sizes, (1, 64, 64), painted.table), "noisy_dsprites")
    assert renderer_spec(own) is None


def test_rooms_of_another_scene_are_not_rendered(rooms: FactorData) -> None:
    changed = copy.copy(rooms)
    for table in (rooms.table[:, :, :, ::2], rooms.table.roll(1, 0), (rooms.table * 1.01).short()):
        changed.table = table
        assert renderer_spec(changed) is None


@pytest.mark.parametrize("bad", [3, -1, 0.5, None])
def test_factors_outside_the_grid_raise(bad: float | None, sprites: FactorData) -> None:
    spec = renderer_spec(sprites)
    assert spec is not None
    done = run_node(spec, [[bad, 0, 0, 0, 0]])
    assert done.returncode != 0
    assert b"RangeError: Factor 0 must be a whole number from 0 to 2." in done.stderr
