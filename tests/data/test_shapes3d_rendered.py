"""Ray-cast Shapes3D: solids compared with their definitions, images with original ones, and the laws of a dataset."""

from __future__ import annotations

import colorsys
import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap

from unbraid.data.rendered import blending, raycast
from unbraid.data.rendered.raycast import FLOOR, FLOOR_COVERAGE, LAYERS, SKY_RED, SOLID_COVERAGE, WALL, WALL_COVERAGE
from unbraid.data.rendered.shapes3d_rendered import (
    OVERSAMPLE,
    SCENE,
    SIZES,
    UNITS_PER_LEVEL,
    Shapes3D,
    camera_angles,
    hue_colours,
    shapes3d_rendered,
)
from unbraid.methods import VAE
from unbraid.nets.registry import resolve_net
from unbraid.noise import Noise, mix
from unbraid.runs.spec import RunSpec
from unbraid.runtime import jit
from unbraid.training.stack import Stack

SHAPES = ("cube", "cylinder", "sphere", "capsule")
# Of the original file (480,000 images): the mean of each channel, and its mean standard deviation within an image.
MEANS, DEVIATIONS = (0.502585, 0.578760, 0.603450), (0.294081, 0.344398, 0.366169)


@pytest.fixture(scope="module")
def data() -> Shapes3D:
    return shapes3d_rendered()


def random_indices(data: Shapes3D, n: int, key: int = 5) -> Tensor:
    return data.draw(Noise(torch.tensor(key)), n)


def inside(shape: int, point: Tensor) -> Tensor:
    """Return whether points (3, n) lie in the solid of scale 1, by its definition."""
    x, y, z = point
    away = (x * x + y * y).sqrt()
    if shape == 0:
        return (x.abs() < SCENE.cube) & (y.abs() < SCENE.cube) & (z > 0) & (z < SCENE.cube_height)
    if shape == 1:
        return (away < SCENE.cylinder) & (z > 0) & (z < SCENE.cylinder_height)
    if shape == 2:
        return away**2 + (z - SCENE.sphere) ** 2 < SCENE.sphere**2
    spine = z.clamp(SCENE.capsule, SCENE.capsule_height - SCENE.capsule)
    return away**2 + (z - spine) ** 2 < SCENE.capsule**2


@pytest.mark.parametrize("shape", range(4), ids=SHAPES)
def test_rays_hit_the_surface_of_the_solid(shape: int) -> None:
    noise = Noise(torch.tensor(shape))
    origin = (8 * noise.normal(3, 1, 1, 4000)).double()
    origin = origin / origin.norm(dim=0) * 9
    target = torch.stack([*(4 * noise.uniform(2, 1, 1, 4000) - 2), 4.5 * noise.uniform(1, 1, 4000) - 0.3]).double()
    one = torch.ones(1, dtype=torch.float64)
    hit = raycast.intersect_solid(SCENE, shape, one, origin, target - origin)
    met = hit.t < torch.inf
    steps = torch.linspace(0, 2.5, 2000, dtype=torch.float64)
    walked = torch.stack([inside(shape, (origin + t * (target - origin))[:, 0, 0]) for t in steps])
    assert 0.2 < met.double().mean() < 0.95
    assert not walked[:, ~met[0, 0]].any()
    assert not (walked & (steps[:, None] < hit.t[0, 0] - 1e-9)).any()
    point, normal = (v[:, met] for v in (origin + hit.t * (target - origin), hit.normal))
    assert torch.allclose(normal.norm(dim=0), torch.ones_like(point[0]))
    assert inside(shape, point - 1e-6 * normal).all()
    assert not inside(shape, point + 1e-6 * normal).any()


def test_downsampling_equals_pillow() -> None:
    from PIL import Image

    tall = np.random.default_rng(0).normal(size=(192, 192)).astype(np.float32)
    small = np.asarray(Image.fromarray(tall).resize((64, 64), Image.Resampling.LANCZOS))
    down = raycast.lanczos(64, 3).float()
    assert torch.allclose(down @ torch.from_numpy(tall) @ down.T, torch.from_numpy(small.copy()), atol=1e-5)
    assert torch.allclose(raycast.lanczos(8, 1), torch.eye(8, dtype=torch.float64), atol=1e-12)


def test_surfaces_show_colour_times_light_up_to_their_coverage() -> None:
    layers = torch.zeros(LAYERS, 1, 2)
    layers[FLOOR], layers[FLOOR_COVERAGE] = torch.tensor([[0.5, 2.0]]), torch.tensor([[1.0, 0.25]])
    layers[WALL], layers[WALL_COVERAGE] = 0.125, 0.5
    layers[SKY_RED] = 0.0625
    image = raycast.blend_layers(layers, torch.tensor([1.0, 0.5, 0.0]), torch.tensor([0.0, 1.0, 0.0]), torch.zeros(3))
    assert image[:, 0].tolist() == [[0.5625, 0.3125], [0.375, 0.375], [0.0, 0.0]]


def test_hues_equal_hsv() -> None:
    expected = torch.tensor([colorsys.hsv_to_rgb(i / 10, 1, 1) for i in range(10)])
    assert torch.allclose(hue_colours(torch.arange(10)) / 5, expected, atol=1e-6)


def test_coverages_add_up_to_one_pixel(data: Shapes3D) -> None:
    """Except where the filter has negative values, floor, wall, solid and sky make up one pixel."""
    table = data.table.float() / (255 * UNITS_PER_LEVEL)
    sky = table[:, SKY_RED] * 255 / raycast.SKY[0]
    whole = table[:, [FLOOR_COVERAGE, WALL_COVERAGE, SOLID_COVERAGE]].sum(1) + sky
    assert (whole > 1 - 1e-3).all()
    assert (whole < 1.25).all()
    assert ((whole - 1).abs() < 1e-3).float().mean() > 0.75


def test_round_solids_look_the_same_from_all_sides_and_the_cube_is_symmetric(data: Shapes3D) -> None:
    coverage = data.table.view(*SIZES[3:], LAYERS, 64, 64)[:, :, :, SOLID_COVERAGE].int()
    assert (
        coverage[:, 1:] - coverage[:, 1:, :1]
    ).abs().max() < 0.12 * 255 * UNITS_PER_LEVEL  # one or two of nine samples differ
    assert (coverage[:, 1:] - coverage[:, 1:, :1]).abs().float().mean() < 0.001 * 255 * UNITS_PER_LEVEL
    assert (coverage[:, 0] - coverage[:, 0].flip(1, 3)).abs().float().mean() < 0.001 * 255 * UNITS_PER_LEVEL
    width = (coverage[:, 0, :, 44] > 0.5 * 255 * UNITS_PER_LEVEL).sum(-1)
    assert (width[:, 0] > width[:, 7]).all()


def test_larger_scales_cover_more(data: Shapes3D) -> None:
    coverage = data.table.view(*SIZES[3:], LAYERS, 64, 64)[:, :, :, SOLID_COVERAGE].float().sum((-1, -2))
    assert (coverage.diff(dim=0) > 0).all()


def test_shadow_darkens_the_floor_to_the_right_of_the_solid(data: Shapes3D) -> None:
    empty = raycast.trace_room(SCENE, camera_angles()[7:8], OVERSAMPLE)
    bare = raycast.render_layers(SCENE, empty, 2, torch.tensor([1e-6]))[0, FLOOR]
    ball = raycast.render_layers(SCENE, empty, 2, torch.ones(1))[0]
    clear = ball[SOLID_COVERAGE] == 0
    change = (ball[FLOOR] - bare)[clear & (ball[FLOOR_COVERAGE] > 0.999)]
    assert change.max() < 0.15  # the filter brightens pixels beside the shadow
    assert change.min() < -0.5
    dark = clear & (ball[FLOOR] - bare < -0.3)
    assert dark.nonzero()[:, 1].float().mean() > 34


def test_grid_is_in_c_order_and_batches_are_in_the_unit_range(data: Shapes3D) -> None:
    assert len(data) == 480_000 == len(data.table) * 10**3
    assert data.factors([0, 1, 479_999]).tolist() == [[0] * 6, [0] * 5 + [1], [s - 1 for s in SIZES]]
    index = random_indices(data, 100)
    assert torch.equal(data.index(data.factors(index)), index)
    images = data.images(index)
    assert (images.shape, images.dtype) == ((100, 3, 64, 64), torch.uint8)
    assert torch.equal(data.batch(index), images / 255)
    assert data.images([]).shape == (0, 3, 64, 64)


def test_batches_under_vmap_equal_a_loop_and_run_on_any_device(data: Shapes3D) -> None:
    index = random_indices(data, 12).view(3, 4)
    assert torch.equal(vmap(data.batch)(index), torch.stack([data.batch(i) for i in index]))
    moved_data = data.to("meta")
    batch = moved_data.batch(moved_data.draw(Noise(torch.tensor(0, device="meta")), 6))
    assert (batch.shape, batch.device.type) == ((6, 3, 64, 64), "meta")
    assert data.to("cpu").table is data.table


def test_compiled_blending_is_bitwise_equal_to_tensor_operations(data: Shapes3D) -> None:
    """For random images, the corners of the grid, all views, and all triples of hues."""
    corners = torch.cartesian_prod(*(torch.tensor([0, size - 1]) for size in SIZES))
    views, triples = torch.arange(len(data.table)), torch.arange(1000)
    hues = triples * len(views) + triples % len(views)
    for index in torch.cat([random_indices(data, 1500), data.index(corners), views, hues]).split(64):
        expected = data._blend(index)
        assert torch.equal(data.images(index), expected.to(torch.uint8))
        assert torch.equal(data.batch(index), expected / 255)


def test_compiled_blending_of_arbitrary_layers(data: Shapes3D) -> None:
    """Sums that overflow int16 wrap in the same way, and levels outside 0 to 255 are clipped in the same way."""
    wild = copy.copy(data)
    wild.table = Noise(torch.tensor(1)).bytes(2, LAYERS, 64, 128).view(torch.int16)
    assert torch.equal(wild.images([0, 1, 479_998, 479_999]), wild._blend(torch.tensor([0, 1, 479_998, 479_999])))


def test_compiled_blending_under_vmap(data: Shapes3D) -> None:
    """Indices are mapped over any axis, mapped twice, shared by the whole stack, or strided."""
    index = random_indices(data, 24).view(4, 6)
    each = data.batch(index.flatten()).view(4, 6, 3, 64, 64)
    assert torch.equal(vmap(data.batch, in_dims=1)(index), each.transpose(0, 1))
    assert torch.equal(vmap(vmap(data.batch))(index.view(2, 2, 6)), each.view(2, 2, 6, 3, 64, 64))
    mapped = vmap(lambda key: data.batch(index[1]) + 0 * key)(torch.zeros(2))
    assert torch.equal(mapped, each[1].expand(2, -1, -1, -1, -1))
    assert torch.equal(data.batch(index[:, 2]), each[:, 2])
    views, colours = data.table[:2].expand(3, -1, -1, -1, -1), torch.zeros(10, 3, dtype=torch.int16)
    with pytest.raises(NotImplementedError, match="Only the index"):
        vmap(lambda table: blending.blend_images(index[0], table, colours, 1))(views)


def test_a_stack_under_vmap_gets_the_same_images_as_single_runs(data: Shapes3D) -> None:
    net, builder = resolve_net("mlp")
    specs = [RunSpec(VAE(), data.name, seed, steps=1, batch=4, latents=2, net=net) for seed in (0, 1)]
    single, mapped = (Stack(specs, data, builder, vmapped=vmapped) for vmapped in (False, True))
    for stack in (single, mapped):
        stack.advance()
    assert torch.allclose(single.last, mapped.last, rtol=1e-4)


def test_kernels_compile_without_a_writable_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a read-only home and installation, numba finds no folder for its cache. Images must not need one."""
    original = jit.njit

    def njit_without_cache(function: Any, **options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return original(function, **options)

    monkeypatch.setattr(jit, "njit", njit_without_cache)
    fill = jit.kernel()(blending.fill_channel.py_func)  # type: ignore[attr-defined]
    layers, image = np.full((LAYERS, 4), 64, np.int16), np.empty(4, np.uint8)
    fill(layers, np.int16(1), np.int16(1), np.int16(1), layers[SKY_RED], np.float32(1), image)
    assert image.tolist() == [
        8,
        8,
        8,
        8,
    ]  # 64 units from each of floor, wall, solid and sky, divided by UNITS_PER_LEVEL


def test_importing_data_needs_no_numba() -> None:
    program = "import sys, unbraid.data; unbraid.data.load('sprites').images([0]); print('numba' in sys.modules)"
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=path)
    assert done.stdout.split() == ["False"]


def test_every_factor_changes_the_image(data: Shapes3D) -> None:
    """Neighbours along each factor differ. The orientation of a ball or cylinder is visible in the room around it."""
    base = data.factors(random_indices(data, 150))
    images = data.images(data.index(base))
    for column, size in enumerate(SIZES):
        moved = base.clone()
        moved[:, column] = (moved[:, column] + 1) % size
        assert (images != data.images(data.index(moved))).flatten(1).any(1).all(), data.names[column]


def test_no_two_of_many_images_are_equal(data: Shapes3D) -> None:
    index = random_indices(data, 12_000).unique()
    assert len(fingerprints(data, index).unique()) == len(index)


@pytest.mark.slow
def test_no_two_images_are_equal(data: Shapes3D) -> None:
    assert len(fingerprints(data, torch.arange(len(data))).unique()) == len(data)


def fingerprints(data: Shapes3D, index: Tensor) -> Tensor:
    """Return 64 bits per image. The chance that any two of 480,000 different images agree is 10^-8."""
    found = []
    for part in index.split(512):
        words = data.images(part).flatten(1).view(torch.int64)
        place = torch.arange(words.shape[1]) * 0x9E3779B9
        found.append(mix(mix(words + place).sum(1)))
    return torch.cat(found)


def test_progress_rises_to_one() -> None:
    reported: list[float] = []
    shapes3d_rendered(progress=reported.append)
    assert reported == sorted(reported)
    assert reported[0] > 0
    assert reported[-1] == 1


def test_channel_statistics_are_near_the_original(data: Shapes3D) -> None:
    """The standard error over 6,000 images is below 0.003. The whole dataset is nearer; see its docstring."""
    pixels = torch.cat([data.batch(part).flatten(2) for part in random_indices(data, 6000).split(64)])
    assert pixels.mean((0, 2)).tolist() == pytest.approx(MEANS, abs=0.02)
    assert pixels.std(2).mean(0).tolist() == pytest.approx(DEVIATIONS, abs=0.01)


def images_of_hues(data: Shapes3D, hues: list[int]) -> Tensor:
    """Return the 480 images of three hues, without the border."""
    start = int(data.index([[*hues, 0, 0, 0]]))
    return data.images(slice(start, start + len(data.table)))[..., 1:-1, 1:-1].int()


def errors(views: Tensor, real: Tensor) -> Tensor:
    """Return the mean absolute error of each view, in levels."""
    return (views - real[:, 1:-1, 1:-1]).abs().float().mean((1, 2, 3))


def hue(patch: Tensor) -> int:
    """Return the hue (0..9) of a patch (3, h, w). Gloss is equal in all channels and does not change it."""
    colour = patch.flatten(1).float().median(1).values / 255
    return round(10 * colorsys.rgb_to_hsv(*colour.tolist())[0]) % 10


def test_images_match_the_original(data: Shapes3D, shared: Path) -> None:
    tiles = torch.from_numpy(np.load(shared / "data" / "shapes3d" / "real_tiles_64x64x3.npz")["images"])
    tiles = tiles.permute(0, 3, 1, 2).int()[::3]
    least = []
    for tile in tiles:
        hues = [hue(tile[:, 57:62, 2:8]), hue(tile[:, 20:27, 2:6]), hue(tile[:, 44:49, 29:34])]
        least.append(errors(images_of_hues(data, hues), tile).min().item())
    assert np.mean(least) < 2
    assert max(least) < 3


def test_official_animation_has_the_same_order_of_factors(data: Shapes3D, shared: Path) -> None:
    """The first 15 frames rotate the camera, the next three change the shape, and the next seven increase the scale."""
    from PIL import Image

    rotations = [[0, 0, k] for k in range(15)]
    rest = [[0, k, 14] for k in range(1, 4)] + [[k, 3, 14] for k in range(1, 8)]
    ours, found = images_of_hues(data, [0, 6, 3]), []
    with Image.open(shared / "data" / "shapes3d" / "3dshapes.gif") as film:
        for frame in range(25):
            film.seek(frame)
            small = film.convert("RGB").crop((2, 2, 225, 225)).resize((64, 64), Image.Resampling.BOX)
            found.append(errors(ours, torch.from_numpy(np.array(small)).permute(2, 0, 1).int()).argmin())
    assert data.factors(torch.stack(found))[:, 3:].tolist() == rotations + rest


@pytest.mark.gpu
def test_gpu_blends_the_same_images(data: Shapes3D) -> None:
    index = random_indices(data, 2000)
    assert torch.equal(data.to("cuda").images(index.cuda()).cpu(), data.images(index))


def test_gpu_kernel_equals_the_cpu_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU kernel, run by Triton's interpreter, is bitwise equal to the CPU code, also under vmap."""
    pytest.importorskip("triton")
    data = shapes3d_rendered()
    index = torch.tensor([[0, 5, 123_456], [70_000, 333_333, len(data) - 1]])
    plain = data.batch(index.flatten())
    monkeypatch.setattr(sys.modules[Shapes3D.__module__], "supports_kernels", lambda device: True)
    assert torch.equal(data.batch(index.flatten()), plain)
    assert torch.equal(vmap(data.batch)(index).flatten(0, 1), plain)
