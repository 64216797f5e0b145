"""Properties that every dataset has, and known values of each."""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.func import jacrev, vmap

from oracles import raster as oracle
from support.builtin_data import draw_indices, load_dataset
from unbraid.data import BUILT_IN, DATASETS, FactorData, Toy, dsprites, load
from unbraid.data.rendered import raster
from unbraid.data.rendered.dsprites import SHA256
from unbraid.data.rendered.toy import mix_factors, nonlinearity
from unbraid.noise import Noise, mix

# Factors that may differ between two equal images: the first and last angle of dSprites are the same, and as pixels a
# square looks the same after almost a quarter turn, and an ellipse after almost half a turn.
INVISIBLE: dict[str, set[str]] = {name: {"orientation"} if name.endswith("dsprites") else set() for name in BUILT_IN}
DISTINCT = {name: 715_706 for name in BUILT_IN if name.endswith("dsprites")}
BLENDED = {"shapes3d_rendered"}  # does not store one row per example; test_shapes3d_rendered.py compares its images
ORACLES = {"dsprites": oracle.dsprite, "sprites": oracle.sprite}
SCENES = {name: importlib.import_module(f"unbraid.data.rendered.{name}").scene for name in ORACLES}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=BUILT_IN)
def data(request: pytest.FixtureRequest) -> FactorData:
    return load_dataset(request.param)


def fingerprints(table: Tensor) -> Tensor:
    """Return a 64-bit hash of each row. In 10^7 datasets of 737,280 different rows, about one has a collision."""
    words = table.flatten(1).view(torch.int64)
    return functools.reduce(lambda h, word: mix(h ^ word), words.unbind(1), torch.zeros(len(words), dtype=torch.int64))


def digest(table: Tensor) -> str:
    return hashlib.sha256(table.numpy().data).hexdigest()


def test_tests_cover_the_registry() -> None:
    assert ORACLES.keys() == {name for name in BUILT_IN if load_dataset(name).binary}
    assert DATASETS.keys() > BUILT_IN.keys()


def test_length_is_the_product_of_the_sizes(data: FactorData) -> None:
    assert len(data) == math.prod(data.sizes)
    assert len(data) == len(data.table) or data.name in BLENDED
    assert len(data.names) == len(data.sizes)


def test_index_and_factors_are_inverse_in_c_order(data: FactorData) -> None:
    everything = torch.arange(len(data))
    factors = data.factors(everything)
    assert np.array_equal(factors, np.stack(np.unravel_index(everything.numpy(), data.sizes), 1))
    assert torch.equal(data.index(factors), everything)


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name not in BLENDED])
def test_equal_images_agree_in_every_visible_factor(name: str) -> None:
    data = load_dataset(name)
    distinct, group = fingerprints(data.table).unique(return_inverse=True)
    for name, value in zip(data.names, data.factors(slice(None)).unbind(1), strict=True):
        low, high = (
            torch.zeros_like(distinct).scatter_reduce(0, group, value, r, include_self=False) for r in ("amin", "amax")
        )
        assert name in INVISIBLE[data.name] or torch.equal(low, high), name
    assert len(distinct) == DISTINCT.get(data.name, len(data))


def test_images_have_the_documented_shape_and_type(data: FactorData) -> None:
    images = data.images(draw_indices(data, 7))
    assert images.shape == (7, *data.shape)
    assert images.dtype == (torch.uint8 if len(data.shape) == 3 else torch.float32)
    assert not data.binary or images.unique().tolist() == [0, 255]


def test_batch_equals_the_images_scaled_to_one(data: FactorData) -> None:
    index = draw_indices(data, 64)
    images = data.images(index)
    assert data.batch(index).dtype == torch.float32
    assert torch.equal(data.batch(index), images / 255 if images.dtype == torch.uint8 else images)


def test_batch_under_vmap_equals_a_loop(data: FactorData) -> None:
    index = draw_indices(data, 12).view(3, 4)
    assert torch.equal(vmap(data.batch)(index), torch.stack([data.batch(i) for i in index]))


def test_batch_and_draw_never_wait_for_the_device(data: FactorData) -> None:
    on_meta = data.to("meta")  # reading a value on this device raises an error
    batch = on_meta.batch(on_meta.draw(Noise(torch.tensor(0, device="meta")), 6))
    assert batch.shape == (6, *data.shape)
    assert batch.device.type == "meta"
    assert data.device.type == "cpu"


def test_draw_depends_only_on_the_key(data: FactorData) -> None:
    keys = torch.tensor([3, 4, 99])
    alone = [draw_indices(data, 50, int(key)) for key in keys]
    assert torch.equal(vmap(lambda key: data.draw(Noise(key), 50))(keys), torch.stack(alone))
    assert torch.equal(alone[0], draw_indices(data, 50, 3))
    assert not torch.equal(alone[0], alone[1])


def test_draw_is_uniform_over_every_pair_of_factors(data: FactorData) -> None:
    factors = data.factors(draw_indices(data, 200_000))
    for i, j in itertools.combinations(range(len(data.sizes)), 2):
        cells = factors[:, i] * data.sizes[j] + factors[:, j]
        counts = torch.bincount(cells, minlength=data.sizes[i] * data.sizes[j])
        assert stats.chisquare(counts.numpy()).pvalue > 1e-5


def test_index_may_be_any_array_like(data: FactorData) -> None:
    expected = data.images(torch.tensor([2, 3, 4]))
    for index in (
        [2, 3, 4],
        (2, 3, 4),
        range(2, 5),
        slice(2, 5),
        np.array([2, 3, 4], np.uint16),
        torch.tensor([2, 3, 4]).int(),
    ):
        assert torch.equal(data.images(index), expected)
    assert data.factors(slice(5, 2)).shape == (0, len(data.sizes))
    assert data.images([]).shape == (0, *data.shape)
    assert data.factors([]).shape == (0, len(data.sizes))


@pytest.mark.parametrize("name", ["dsprites", "noisy_dsprites", "shapes3d_rendered", "sprites", "toy"])
def test_progress_increases_to_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path))
    for _ in range(2):  # the second time from the cache, if the dataset has one
        fractions: list[float] = []
        load(name, progress=fractions.append)
        assert fractions == sorted(fractions)
        assert fractions[0] > 0
        assert fractions[-1] == 1


def test_first_line_of_each_docstring_is_a_sentence() -> None:
    for function in DATASETS.values():
        assert (function.__doc__ or "").split("\n")[0].endswith(".")


BAD: dict[str, tuple[Callable[[FactorData], Any], type[Exception], str]] = {
    "too high": (lambda d: d.images([0, len(d)]), ValueError, "'index' of {0} must lie in 0..{1}. Got {2} instead."),
    "negative": (lambda d: d.factors([-1]), ValueError, "'index' of {0} must lie in 0..{1}. Got -1 instead."),
    "scalar": (
        lambda d: d.images(3),
        ValueError,
        "must have shape (n,). Got () instead. Put a single index in a list.",
    ),
    "ragged": (lambda d: d.images([[1], [2, 3]]), ValueError, "Got rows of unequal length instead."),
    "float": (lambda d: d.images([0.5]), ValueError, "'index' of {0} must be integers. Got float64 instead."),
    "text": (lambda d: d.images("three"), ValueError, "'index' of {0} must be integers. Got <U5 instead."),
    "mask": (lambda d: d.images(torch.ones(4) > 0), ValueError, "Got bool instead. Use mask.nonzero()"),
    "columns": (
        lambda d: d.index([[0]]),
        ValueError,
        "must have shape (n, {3}). Got (1, 1) instead. The columns are",
    ),
    "factor": (lambda d: d.index([[*d.sizes]]), ValueError, "of {0} must lie in 0.."),
    "floats": (lambda d: d.index(torch.zeros(1, len(d.sizes))), ValueError, "must be integers. Got float32 instead."),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_state_the_requirement_and_the_value(data: FactorData, case: str) -> None:
    act, kind, message = BAD[case]
    with pytest.raises(kind) as error:
        act(data)
    assert message.format(data.name, len(data) - 1, len(data), len(data.sizes)) in str(error.value)


def test_unknown_name_suggests_the_nearest_and_lists_all() -> None:
    with pytest.raises(ValueError, match=r"'dsprite'.*mean 'dsprites'\?.*square_torus, toy.*your own folder or file"):
        load("dsprite")


@pytest.mark.parametrize("name", ORACLES)
def test_images_equal_the_oracle(name: str) -> None:
    data = load_dataset(name)
    index = draw_indices(data, 120)
    for factors, image in zip(data.factors(index).tolist(), data.images(index) // 255, strict=True):
        assert oracle.picture(ORACLES[name](factors), data.shape[1]) == image[0].tolist(), factors


@pytest.mark.parametrize("name", SCENES)
def test_no_vertex_is_outside_or_close_to_a_rounding_tie(name: str) -> None:
    """A margin of 1e-8 is much larger than the error of any cosine, so every machine rounds the same way."""
    scene = SCENES[name]()
    for polygons in scene.polygons(torch.device("cpu")):
        for axis, centres in enumerate((scene.x, scene.y)):
            v = 256 * (polygons[:, :, axis, None] + centres)
            assert v.min() >= 0
            assert v.max() <= 256 * scene.pixels
            assert (v - v.floor() - 0.5).abs().min() > 1e-8


def fill(corners: list[tuple[float, float]], pixels: int) -> Tensor:
    """Return the pixels of one polygon around the origin."""
    origin = torch.zeros(1, dtype=torch.float64)
    bits = raster.fill_polygons(torch.tensor([corners], dtype=torch.float64), origin, origin, pixels).reshape(
        pixels, -1
    )
    return torch.from_numpy(np.unpackbits(bits.numpy(), axis=1, bitorder="little"))


def test_pixel_centre_on_a_left_edge_is_inside_and_on_a_right_edge_outside() -> None:
    image = fill([(2.5, 2.5), (5.5, 2.5), (5.5, 5.5), (2.5, 5.5)], 8)
    lit = torch.zeros(8, 8, dtype=torch.uint8)
    lit[3:6, 2:5] = 1  # a row is covered if its centre is below the top vertex and not below the bottom vertex
    assert torch.equal(image, lit)


@pytest.mark.parametrize(
    ("left", "first"), [(-9.0, 0), (0.0, 0), (31.5, 31), (31.6, 32), (63.5, 63), (63.6, 64), (70.0, 64)]
)
def test_polygon_is_clipped_at_the_image_border(left: float, first: int) -> None:
    image = fill([(left, -9), (99, -9), (99, 99), (left, 99)], 64)
    assert image.sum() == 64 * (64 - first)
    assert image[:, first:].all()


def test_outline_traversed_twice_is_empty() -> None:
    square = [(1.0, 1.0), (7.0, 1.0), (7.0, 7.0), (1.0, 7.0)]
    assert fill(square, 8).sum() == 36
    assert fill(square * 2, 8).sum() == 0


def test_dsprites_has_the_known_checksum() -> None:
    table = load_dataset("dsprites").table
    assert int(np.bitwise_count(table.numpy()).sum(dtype=np.int64)) == 128_328_864
    assert digest(table) == SHA256


def test_first_and_last_orientation_of_dsprites_coincide() -> None:
    grid = load_dataset("dsprites").table.view(3, 6, 40, -1)
    assert torch.equal(grid[:, :, 0], grid[:, :, 39])


@pytest.mark.parametrize("device", DEVICES)
def test_every_device_renders_the_same_images(device: str) -> None:
    assert digest(dsprites(device, cache=False).to("cpu").table) == SHA256


def test_published_dsprites_differ_in_only_nine_pixels(shared: Path) -> None:
    wrong: dict[int, int] = {}
    for name in ("subset", "downsampled"):
        real = np.load(shared / "data" / "dsprites_real" / f"neuromatch_dsprites_{name}.npz")
        index, images = real["original_dataset_indices"], real["imgs"]
        for part in np.array_split(np.arange(len(index)), 10):
            ours = load_dataset("dsprites").images(index[part])[:, 0].numpy() > 0
            wrong.update(zip(index[part].tolist(), (ours != (images[part] > 0)).sum((1, 2)).tolist(), strict=True))
    assert len(wrong) == 64_834
    assert [count for count in wrong.values() if count] == [1] * 9


def test_twelve_published_labelled_images_are_identical(shared: Path) -> None:
    real = np.load(shared / "data" / "dsprites_real" / "twelve_labelled.npz")
    _, shape, scale, angle, x, y = real["latents_values"].T
    factors = np.stack([shape - 1, (scale - 0.5) * 10, angle * 39 / (2 * np.pi), x * 31, y * 31], 1).round().astype(int)
    data = load_dataset("dsprites")
    assert np.array_equal(data.images(data.index(factors))[:, 0] > 0, real["imgs"] > 0)


def test_position_explains_most_single_factor_variance_in_sprites() -> None:
    data = load_dataset("sprites")
    images = data.batch(torch.arange(len(data))).view(*data.sizes, -1)
    alone = [images.mean([j for j in range(5) if j != i]).var(0).sum() for i in range(5)]
    assert min(alone[3:]) > 3 * max(alone[:3])


def test_toy_codes_are_standardised_and_mixed_nonlinearly() -> None:
    data = load_dataset("toy")
    assert isinstance(data, Toy)
    codes, x = data.codes(slice(None)), data.images(slice(None))
    assert torch.allclose(codes.mean(0), torch.zeros(4), atol=1e-6)
    assert torch.allclose(codes.var(0, correction=0), torch.ones(4), atol=1e-6)
    assert x.square().mean().item() == pytest.approx(1, abs=1e-5)
    assert x.std(0).min() > 0.3
    residue = torch.linalg.lstsq(codes, x).solution
    assert 0.05 < (x - codes @ residue).square().mean() < 0.6


def test_toy_mixing_is_injective() -> None:
    """The slope of a layer is at least 0.1 and the first is doubled, so no direction shrinks below 0.02."""
    codes = 2 * Noise(torch.tensor(1)).normal(100, 4).double()
    slopes = vmap(jacrev(lambda c: mix_factors(c[None])[0]))(codes)
    assert torch.linalg.svdvals(slopes).min() > 0.02
    line = torch.linspace(-4, 4, 801, dtype=torch.float64)
    assert (nonlinearity(line).diff() / line.diff()).min() == pytest.approx(0.1, abs=1e-3)
    assert torch.pdist(load_dataset("toy").images(slice(None))).min() > 0.02


def test_cyclic_factors_are_factors_with_positive_periods(data: FactorData) -> None:
    assert all(name in data.names and 1 < period <= data.sizes[data.names.index(name)]
               for name, period in data.cyclic.items())  # fmt: skip


def test_values_that_are_a_period_apart_look_the_same() -> None:
    data = load_dataset("dsprites")
    assert dict(data.cyclic) == {"orientation": 39}
    assert torch.equal(data.images(data.index([[2, 3, 0, 9, 9]])), data.images(data.index([[2, 3, 39, 9, 9]])))


def test_moving_the_square_on_the_torus_rolls_the_image() -> None:
    data = load("square_torus?size=12")
    assert (data.sizes, dict(data.cyclic)) == ((12, 12), {"x": 12, "y": 12})
    images = data.images(slice(None)).view(12, 12, 12, 12)
    assert images[0, 0].float().sum() == 255 * 3 * 3
    for x, y in ((0, 0), (1, 0), (0, 1), (11, 5)):
        assert torch.equal(images[x, y], images[0, 0].roll((y, x), (0, 1)))
    with pytest.raises(ValueError, match=r"'size' of square_torus must be at least 4. Got 3"):
        load("square_torus?size=3")
