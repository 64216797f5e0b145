"""Laws of every dataset, and known values of each."""

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
from unbraid.data import BUILT_IN, DATASETS, BinaryImages, FactorData, Toy, dsprites, load
from unbraid.data.rendered import raster
from unbraid.data.rendered.dsprites import SHA256
from unbraid.data.rendered.painted import Coloured, Noisy, OnPicture, swirls
from unbraid.data.rendered.toy import bend, mixing
from unbraid.noise import Noise, mix

# Factors that two equal images may disagree in: dSprites repeats its first angle as its last, and after rasterising a
# square looks the same at nearly a quarter turn and an ellipse at nearly half a turn.
INVISIBLE: dict[str, set[str]] = {name: {"orientation"} if name.endswith("dsprites") else set() for name in BUILT_IN}
DISTINCT = {name: 715_706 for name in BUILT_IN if name.endswith("dsprites")}
BLENDED = {"shapes3d_rendered"}  # no row an example; tests/test_shapes3d_rendered.py compares its images
ORACLES = {"dsprites": oracle.dsprite, "sprites": oracle.sprite}
SCENES = {name: importlib.import_module(f"unbraid.data.rendered.{name}").scene for name in ORACLES}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@functools.cache
def made(name: str) -> FactorData:
    if name == "dsprites":
        return dsprites(cache=False)
    if name.endswith("dsprites"):
        plain = made("dsprites")
        assert isinstance(plain, BinaryImages)
        painted = {"color_dsprites": Coloured, "noisy_dsprites": Noisy}
        return painted[name](plain, name) if name in painted else OnPicture(plain, name, swirls())
    return load(name)


@pytest.fixture(params=BUILT_IN)
def data(request: pytest.FixtureRequest) -> FactorData:
    return made(request.param)


def some(data: FactorData, n: int, key: int = 5) -> Tensor:
    return data.draw(Noise(torch.tensor(key)), n)


def fingerprints(table: Tensor) -> Tensor:
    """64 bits a row; two different rows of 737,280 agree by chance once in 10^7 sets."""
    words = table.view(torch.int64)
    return functools.reduce(lambda h, word: mix(h ^ word), words.unbind(1), torch.zeros(len(words), dtype=torch.int64))


def digest(table: Tensor) -> str:
    return hashlib.sha256(table.numpy().data).hexdigest()


def test_tables_cover_the_registry() -> None:
    assert ORACLES.keys() == {name for name in BUILT_IN if made(name).binary}
    assert DATASETS.keys() > BUILT_IN.keys()


def test_sizes_multiply_to_the_length(data: FactorData) -> None:
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
    data = made(name)
    distinct, group = fingerprints(data.table).unique(return_inverse=True)
    for name, value in zip(data.names, data.factors(slice(None)).unbind(1), strict=True):
        low, high = (
            torch.zeros_like(distinct).scatter_reduce(0, group, value, r, include_self=False) for r in ("amin", "amax")
        )
        assert name in INVISIBLE[data.name] or torch.equal(low, high), name
    assert len(distinct) == DISTINCT.get(data.name, len(data))


def test_images_have_the_promised_form(data: FactorData) -> None:
    images = data.images(some(data, 7))
    assert images.shape == (7, *data.shape)
    assert images.dtype == (torch.uint8 if len(data.shape) == 3 else torch.float32)
    assert not data.binary or images.unique().tolist() == [0, 255]


def test_batch_is_the_images_in_unit_range(data: FactorData) -> None:
    index = some(data, 64)
    images = data.images(index)
    assert data.batch(index).dtype == torch.float32
    assert torch.equal(data.batch(index), images / 255 if images.dtype == torch.uint8 else images)


def test_stacked_batches_equal_looped_ones(data: FactorData) -> None:
    index = some(data, 12).view(3, 4)
    assert torch.equal(vmap(data.batch)(index), torch.stack([data.batch(i) for i in index]))


def test_batch_and_draw_never_wait_for_the_device(data: FactorData) -> None:
    elsewhere = data.to("meta")  # where reading a value raises
    batch = elsewhere.batch(elsewhere.draw(Noise(torch.tensor(0, device="meta")), 6))
    assert batch.shape == (6, *data.shape)
    assert batch.device.type == "meta"
    assert data.device.type == "cpu"


def test_draw_is_a_function_of_the_key_alone(data: FactorData) -> None:
    keys = torch.tensor([3, 4, 99])
    alone = [some(data, 50, int(key)) for key in keys]
    assert torch.equal(vmap(lambda key: data.draw(Noise(key), 50))(keys), torch.stack(alone))
    assert torch.equal(alone[0], some(data, 50, 3))
    assert not torch.equal(alone[0], alone[1])


def test_draw_is_uniform_over_every_pair_of_factors(data: FactorData) -> None:
    factors = data.factors(some(data, 200_000))
    for i, j in itertools.combinations(range(len(data.sizes)), 2):
        cells = factors[:, i] * data.sizes[j] + factors[:, j]
        counts = torch.bincount(cells, minlength=data.sizes[i] * data.sizes[j])
        assert stats.chisquare(counts.numpy()).pvalue > 1e-5


def test_anything_like_an_array_is_an_index(data: FactorData) -> None:
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
def test_progress_rises_to_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path))
    for _ in range(2):  # the second time from the cache, where there is one
        seen: list[float] = []
        load(name, progress=seen.append)
        assert seen == sorted(seen)
        assert seen[0] > 0
        assert seen[-1] == 1


def test_first_line_of_each_docstring_is_a_sentence() -> None:
    for make in DATASETS.values():
        assert (make.__doc__ or "").split("\n")[0].endswith(".")


BAD: dict[str, tuple[Callable[[FactorData], Any], type[Exception], str]] = {
    "too high": (lambda d: d.images([0, len(d)]), ValueError, "'index' of {0} must lie in 0..{1}. Got {2} instead."),
    "negative": (lambda d: d.factors([-1]), ValueError, "'index' of {0} must lie in 0..{1}. Got -1 instead."),
    "scalar": (
        lambda d: d.images(3),
        ValueError,
        "must have shape (n,). Got () instead. Put a single index in a list.",
    ),
    "ragged": (lambda d: d.images([[1], [2, 3]]), ValueError, "Got rows of unequal length instead."),
    "float": (lambda d: d.images([0.5]), TypeError, "'index' of {0} must be integers. Got float64 instead."),
    "text": (lambda d: d.images("three"), TypeError, "'index' of {0} must be integers. Got <U5 instead."),
    "mask": (lambda d: d.images(torch.ones(4) > 0), TypeError, "Got bool instead. Use mask.nonzero()"),
    "columns": (lambda d: d.index([[0, 0]]), ValueError, "must have shape (n, {3}). Got (1, 2) instead. Columns are"),
    "factor": (lambda d: d.index([[*d.sizes]]), ValueError, "of {0} must lie in 0.."),
    "floats": (lambda d: d.index(torch.zeros(1, len(d.sizes))), TypeError, "must be integers. Got float32 instead."),
}


@pytest.mark.parametrize("case", BAD)
def test_refusals_say_what_must_hold_and_what_came(data: FactorData, case: str) -> None:
    act, kind, message = BAD[case]
    with pytest.raises(kind) as error:
        act(data)
    assert message.format(data.name, len(data) - 1, len(data), len(data.sizes)) in str(error.value)


def test_unknown_name_gets_the_nearest_and_the_list() -> None:
    with pytest.raises(ValueError, match=r"'dsprite'.*mean 'dsprites'\?.*sprites, toy.*folder or file of your own"):
        load("dsprite")


@pytest.mark.parametrize("name", ORACLES)
def test_images_equal_the_oracle(name: str) -> None:
    data = made(name)
    index = some(data, 120)
    for factors, image in zip(data.factors(index).tolist(), data.images(index) // 255, strict=True):
        assert oracle.picture(ORACLES[name](factors), data.shape[1]) == image[0].tolist(), factors


@pytest.mark.parametrize("name", SCENES)
def test_no_vertex_lies_outside_or_near_a_rounding_tie(name: str) -> None:
    """Tenths of a millionth of a unit are 10^4 times the error of any cosine, so every machine rounds alike."""
    scene = SCENES[name]()
    for polygons in scene.polygons(torch.device("cpu")):
        for axis, centres in enumerate((scene.x, scene.y)):
            v = 256 * (polygons[:, :, axis, None] + centres)
            assert v.min() >= 0
            assert v.max() <= 256 * scene.pixels
            assert (v - v.floor() - 0.5).abs().min() > 1e-8


def fill(corners: list[tuple[float, float]], pixels: int) -> Tensor:
    """One polygon about the origin, as pixels."""
    here = torch.zeros(1, dtype=torch.float64)
    bits = raster.fill(torch.tensor([corners], dtype=torch.float64), here, here, pixels).reshape(pixels, -1)
    return torch.from_numpy(np.unpackbits(bits.numpy(), axis=1, bitorder="little"))


def test_centre_on_a_left_edge_is_in_and_on_a_right_edge_out() -> None:
    image = fill([(2.5, 2.5), (5.5, 2.5), (5.5, 5.5), (2.5, 5.5)], 8)
    lit = torch.zeros(8, 8, dtype=torch.uint8)
    lit[3:6, 2:5] = 1  # a row is crossed when its centre is below the top vertex and not below the bottom one
    assert torch.equal(image, lit)


@pytest.mark.parametrize(
    ("left", "first"), [(-9.0, 0), (0.0, 0), (31.5, 31), (31.6, 32), (63.5, 63), (63.6, 64), (70.0, 64)]
)
def test_polygon_beyond_the_frame_is_cut_at_the_frame(left: float, first: int) -> None:
    image = fill([(left, -9), (99, -9), (99, 99), (left, 99)], 64)
    assert image.sum() == 64 * (64 - first)
    assert image[:, first:].all()


def test_outline_walked_twice_is_empty() -> None:
    square = [(1.0, 1.0), (7.0, 1.0), (7.0, 7.0), (1.0, 7.0)]
    assert fill(square, 8).sum() == 36
    assert fill(square * 2, 8).sum() == 0


def test_dsprites_is_the_known_set() -> None:
    table = made("dsprites").table
    assert int(np.bitwise_count(table.numpy()).sum(dtype=np.int64)) == 128_328_864
    assert digest(table) == SHA256


def test_first_and_last_orientation_of_dsprites_coincide() -> None:
    grid = made("dsprites").table.view(3, 6, 40, -1)
    assert torch.equal(grid[:, :, 0], grid[:, :, 39])


@pytest.mark.parametrize("device", DEVICES)
def test_every_device_renders_the_same(device: str) -> None:
    assert digest(dsprites(device, cache=False).to("cpu").table) == SHA256


def test_real_dsprites_are_identical_but_for_nine_pixels(shared: Path) -> None:
    wrong: dict[int, int] = {}
    for name in ("subset", "downsampled"):
        real = np.load(shared / "data" / "dsprites_real" / f"neuromatch_dsprites_{name}.npz")
        index, images = real["original_dataset_indices"], real["imgs"]
        for part in np.array_split(np.arange(len(index)), 10):
            ours = made("dsprites").images(index[part])[:, 0].numpy() > 0
            wrong.update(zip(index[part].tolist(), (ours != (images[part] > 0)).sum((1, 2)).tolist(), strict=True))
    assert len(wrong) == 64_834
    assert [count for count in wrong.values() if count] == [1] * 9


def test_twelve_labelled_real_images_are_identical(shared: Path) -> None:
    real = np.load(shared / "data" / "dsprites_real" / "twelve_labelled.npz")
    _, shape, scale, angle, x, y = real["latents_values"].T
    factors = np.stack([shape - 1, (scale - 0.5) * 10, angle * 39 / (2 * np.pi), x * 31, y * 31], 1).round().astype(int)
    data = made("dsprites")
    assert np.array_equal(data.images(data.index(factors))[:, 0] > 0, real["imgs"] > 0)


def test_position_explains_most_of_what_single_factors_explain_in_sprites() -> None:
    data = made("sprites")
    images = data.batch(torch.arange(len(data))).view(*data.sizes, -1)
    alone = [images.mean([j for j in range(5) if j != i]).var(0).sum() for i in range(5)]
    assert min(alone[3:]) > 3 * max(alone[:3])


def test_toy_codes_are_standardised_and_mixed_beyond_a_line() -> None:
    data = made("toy")
    assert isinstance(data, Toy)
    codes, x = data.codes(slice(None)), data.images(slice(None))
    assert torch.allclose(codes.mean(0), torch.zeros(4), atol=1e-6)
    assert torch.allclose(codes.var(0, correction=0), torch.ones(4), atol=1e-6)
    assert x.square().mean().item() == pytest.approx(1, abs=1e-5)
    assert x.std(0).min() > 0.3
    residue = torch.linalg.lstsq(codes, x).solution
    assert 0.05 < (x - codes @ residue).square().mean() < 0.6


def test_toy_mixing_never_folds() -> None:
    """The slope of a layer is at least 0.1 and the first is doubled, so no direction shrinks below 0.02."""
    codes = 2 * Noise(torch.tensor(1)).normal(100, 4).double()
    slopes = vmap(jacrev(lambda c: mixing(c[None])[0]))(codes)
    assert torch.linalg.svdvals(slopes).min() > 0.02
    line = torch.linspace(-4, 4, 801, dtype=torch.float64)
    assert (bend(line).diff() / line.diff()).min() == pytest.approx(0.1, abs=1e-3)
    assert torch.pdist(made("toy").images(slice(None))).min() > 0.02
