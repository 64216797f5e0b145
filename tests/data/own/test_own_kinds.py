"""Labels are classes or continuous, as declared or recognised, and some of them may be missing."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unbraid as ub
from support.own import GRID_FACTORS, TWO_IMAGES, random_pixels, save_images, write_csv
from unbraid.data import from_arrays, from_dataset, from_file, from_folder, load
from unbraid.data.own.labels import parse_values
from unbraid.data.own.load import load_own
from unbraid.errors import UserError

N = 60
ANGLES = np.random.default_rng(0).normal(size=N)
SHAPES = np.arange(N) % 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images with a continuous label, a class, and missing labels of both."""
    photos = tmp_path / "photos"
    files = [f"{i:02}.png" for i in range(N)]
    save_images(photos, *files)
    rows = [f"{file},{'' if i == 5 else angle},{'nan' if i == 7 else shape}" for i, (file, angle, shape)
            in enumerate(zip(files, ANGLES, SHAPES, strict=True))]  # fmt: skip
    write_csv(photos, "\n".join(["file,angle,shape", *rows]))
    return photos


def check_labels(data: Any, bins: int = 10) -> None:
    """Check labels that are made from `ANGLES` and `SHAPES` without row 5 of the first and row 7 of the second."""
    assert (data.names, data.sizes, data.continuous) == (("angle", "shape"), (bins, 3), ("angle",))
    assert not data.gridded
    assert data.missing_labels == {"angle": 1, "shape": 1}
    values, labels = data.factor_values(slice(None)), data.factors(slice(None))
    assert values.dtype == torch.float64
    assert labels.dtype == torch.int64
    wanted = np.stack([np.where(np.arange(N) == 5, np.nan, ANGLES), np.where(np.arange(N) == 7, np.nan, SHAPES)], 1)
    np.testing.assert_array_equal(values.numpy(), wanted)
    assert ((labels == -1) == values.isnan()).all()
    counts = np.bincount(labels[labels[:, 0] >= 0, 0].numpy(), minlength=bins)
    assert counts.max() - counts.min() <= 1
    order = np.argsort(ANGLES[np.arange(N) != 5])
    assert (np.diff(labels[np.arange(N) != 5, 0].numpy()[order]) >= 0).all()
    assert len(data.values["angle"]) == bins
    assert data.values["shape"] == [0, 1, 2]
    assert "angle" in repr(data)
    assert "1 missing" in repr(data)


def test_told_kinds_of_a_folder(folder: Path) -> None:
    data = from_folder(folder, size=8, continuous="angle", bins=5)
    check_labels(data, bins=5)
    again = load(data.name)
    assert data.name.endswith("?size=8&continuous=angle&bins=5")
    assert again.fingerprint == data.fingerprint  # type: ignore[attr-defined]
    assert load(f"{folder}?size=8&continuous=angle,shape").continuous == ("angle", "shape")
    assert from_folder(folder, continuous=["angle", "shape"]).name == load_own(f"{folder}?continuous=angle,shape").name


def test_continuous_labels_are_recognised_and_announced(folder: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"angle: 59 distinct values in 59 rows, treated as continuous\. .*discrete=ang"
    ):
        check_labels(from_folder(folder, size=8))
    assert from_folder(folder, size=8, discrete="angle").sizes == (59, 3)


def test_arrays_datasets_and_files_agree(tmp_path: Path) -> None:
    table = np.stack([ANGLES, SHAPES], 1)
    table[5, 0] = table[7, 1] = np.nan
    images = random_pixels(N, 8, 8)
    objects = [[None if math.isnan(v) else v for v in row] for row in table.tolist()]
    options: dict[str, Any] = {"names": ["angle", "shape"], "continuous": "angle"}
    np.savez(tmp_path / "data.npz", images=images, factors=table)
    masked = np.ma.masked_invalid(table)
    variants = [from_arrays(images, factors, **options) for factors in (table, torch.tensor(table), objects, masked)]
    variants += [
        from_dataset(zip(images, objects, strict=True), **options),
        from_file(tmp_path / "data.npz", **options),
    ]
    for data in variants:
        check_labels(data)
    assert len({data.fingerprint for data in variants[:-1]}) == 1
    with pytest.warns(UserWarning, match="angle: 59 distinct values"):
        check_labels(from_arrays(images, table, names=["angle", "shape"]))


def test_fingerprint_depends_on_the_exact_numbers() -> None:
    images = random_pixels(N, 8, 8)
    moved = ANGLES.copy()
    moved[np.argmax(ANGLES)] += 1.0
    one, two = (from_arrays(images, v, continuous="label") for v in (ANGLES, moved))
    assert torch.equal(one.factors(slice(None)), two.factors(slice(None)))
    assert one.fingerprint != two.fingerprint


def test_labels_that_look_discrete_stay_classes() -> None:
    """Factors of fractions with few values, grids, and classes with many examples are classes, without a warning."""
    images = random_pixels(600, 8, 8)
    halves = np.arange(600) % 40 / 2
    assert from_arrays(images, halves).values["label"] == sorted(set(halves.tolist()))
    assert from_arrays(images, np.arange(600) % 55).sizes == (55,)
    assert from_arrays(TWO_IMAGES, [0.5, 1.0]).values == {"label": [0.5, 1.0]}
    grid = from_arrays(random_pixels(24, 8, 8), GRID_FACTORS / 7)
    assert grid.gridded
    assert torch.equal(grid.factor_values([3, 1]), grid.factors([3, 1]).double())


def test_large_grid_of_fractions_stays_a_grid_and_is_announced() -> None:
    factors = np.indices((60, 2)).reshape(2, -1).T / [7, 1]
    with pytest.warns(UserWarning, match=r"angle: 60 distinct values on a full grid, treated as classes"):
        assert from_arrays(random_pixels(120, 8, 8), factors, names=["angle", "side"]).gridded
    data = from_arrays(random_pixels(120, 8, 8), factors, names=["angle", "side"], continuous="angle")
    assert (data.sizes, data.gridded) == ((10, 2), False)


def test_numbers_and_words_that_identify_examples_are_noticed(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="If they only number the examples, remove them from the labels"):
        assert from_arrays(random_pixels(N, 8, 8), np.arange(N)).continuous == ("label",)
    files = [f"{i:02}.png" for i in range(N)]
    save_images(tmp_path, *files)
    write_csv(tmp_path, "\n".join(["file,code,v", *(f"{file},c{file},{i % 2}" for i, file in enumerate(files))]))
    with pytest.warns(UserWarning, match="code: a different word in each of 60 rows, left out of the factors"):
        assert from_folder(tmp_path, size=8).names == ("v",)
    assert from_folder(tmp_path, size=8, discrete="code").names == ("code", "v")


def test_cells_that_are_missing() -> None:
    assert parse_values(["1", "", "NaN", "N/A", "2"]) == [1, None, None, None, 2]
    assert parse_values(["none", "red", "", "nan"]) == ["none", "red", None, None]
    assert parse_values(["", "nan"]) == [None, None]


def test_factor_without_labels_is_left_out() -> None:
    factors = [[0, np.nan, 1], [1, np.nan, 1], [1, np.nan, np.nan]]
    assert from_arrays(random_pixels(3, 8, 8), factors, names=["a", "b", "c"]).names == ("a",)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"continuous": "angel"}, "Unknown factor in the option 'continuous' 'angel'. Did you mean 'angle'?"),
    "both": ({"continuous": "angle", "discrete": "angle"}, "either continuous or discrete. Got angle as both"),
    "few bins": ({"continuous": "angle", "bins": 1}, "'bins' must be an integer and at least 2. Got 1"),
    "no use of bins": ({"discrete": "angle", "bins": 4}, "'bins' needs a continuous factor"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_kinds_are_rejected(case: str) -> None:
    options, message = WRONG[case]
    with pytest.raises(UserError) as error:
        from_arrays(random_pixels(N, 8, 8), np.stack([ANGLES, SHAPES], 1), names=["angle", "shape"], **options)
    assert message in str(error.value)


def test_words_cannot_be_continuous(tmp_path: Path) -> None:
    save_images(tmp_path, "hue=red.png", "hue=blue.png")
    with pytest.raises(UserError, match=r"must have numbers\. Got 'blue' in hue\. Use discrete=hue"):
        from_folder(tmp_path, size=8, continuous="hue")
    with pytest.raises(UserError, match="needs data with factors"):
        from_folder(tmp_path, size=8, labels="none", continuous="hue")


def test_options_of_images_keep_the_kinds(folder: Path) -> None:
    data = load(f"{folder}?size=8&continuous=angle&noise=0.1")
    assert data.continuous == ("angle",)
    assert data.missing_labels == {"angle": 1, "shape": 1}
    assert data.factor_values([5])[0].isnan().tolist() == [True, False]


def test_kinds_survive_a_move_and_a_selection() -> None:
    data = from_arrays(random_pixels(N, 8, 8), ANGLES, continuous="label")
    part = data.to("cpu").select_rows(slice(10, 20))  # type: ignore[attr-defined]
    np.testing.assert_array_equal(part.factor_values(slice(None))[:, 0].numpy(), ANGLES[10:20])
    assert part.continuous == ("label",)


def test_told_kinds_are_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_arrays(random_pixels(N, 8, 8), ANGLES, continuous="label")


def test_fingerprints_of_discrete_data_do_not_change() -> None:
    """Runs that were trained by release 0.1 on the same arrays keep their scores."""
    images, named = random_pixels(24, 8, 8), ["a", "b", "c"]
    assert from_arrays(images, GRID_FACTORS).fingerprint == "465181c865f15eb2"
    assert from_arrays(images[:23], GRID_FACTORS[:23]).fingerprint == "c9953ef97578b382"
    assert from_arrays(images[:23], GRID_FACTORS[:23] * 1.0, names=named).fingerprint == "08174be529f5374c"


def test_huge_numbers_are_words() -> None:
    assert parse_values(["1" * 400, "2"]) == ["1" * 400, "2"]


@pytest.mark.parametrize("constant", [[0], ["red"]])
def test_a_constant_factor_does_not_make_a_grid(constant: list[Any]) -> None:
    """One factor alone takes each of its values once, whatever the others are, so it may be continuous."""
    factors = {"angle": np.random.default_rng(0).random(80), "other": constant * 80}
    with pytest.warns(UserWarning, match=r"angle: 80 distinct values in 80 rows, treated as continuous"):
        data = from_arrays(random_pixels(80, 8, 8), factors)
    assert data.continuous == ("angle",)
    codes = np.random.default_rng(1).random((80, 2))
    with (
        pytest.warns(UserWarning, match=r"angle: 80 distinct values in 80 rows, treated as continuous"),
        pytest.raises(UserError, match="Every factor must take at least 2 values"),
    ):
        ub.score(codes=codes, factors=factors, metrics="mig", quiet=True)
