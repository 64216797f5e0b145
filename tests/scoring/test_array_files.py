"""Codes and factors in files: headers are recognised, and what was read is printed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unbraid as ub
from support.command_line import unbraid
from unbraid.errors import UserError
from unbraid.scoring.array_files import read_arrays
from unbraid.scoring.arrays import prepare_factors, score_arrays

CODES = np.random.default_rng(0).normal(size=(6, 3)).round(3)
FACTORS = np.array([[0, 1], [1, 0], [0, 0], [1, 1], [0, 2], [1, 2]])

READERS = [lambda path: read_arrays(path, path, None), ub.data.load]
# The offset of a byte in the description of each member of a zip archive, and a damaged value.
ZIP_FIELDS = {
    "version": (6, 255),
    "encrypted": (8, 1),
    "patched": (8, 32),
    "strong encryption": (8, 65),
    "method": (10, 7),
}


def write(path: Path, table: Any, first: str | None = None, index: bool = False) -> Path:
    rows = [",".join([str(i)] * index + list(map(str, row))) for i, row in enumerate(table.tolist())]
    path.write_text("\n".join([first, *rows] if first is not None else rows) + "\n")
    return path


HEADERS: dict[str, tuple[str | None, str | None, bool]] = {
    "none": (None, None, False),
    "words": ("a,b,c", "shape,x", False),
    "numbers": ("0,1,2", "0,1", False),
    "numbers from 1": ("1,2,3", "1,2", False),
    "words over an index": (",a,b,c", ",shape,x", True),
    "numbers over an index": (",0,1,2", ",0,1", True),
    "codes only": ("0,1,2", None, False),
    "factors only": (None, "0,1", False),
}


@pytest.mark.parametrize("case", HEADERS)
def test_header_and_index_are_recognised(tmp_path: Path, case: str) -> None:
    first, second, index = HEADERS[case]
    codes, factors = read_arrays(
        write(tmp_path / "z.csv", CODES, first, index), write(tmp_path / "v.csv", FACTORS, second, index)
    )
    np.testing.assert_array_equal(codes.array, CODES)
    np.testing.assert_array_equal(factors.array, FACTORS)
    assert factors.names == (None if second is None else tuple(second.strip(",").split(",")))
    assert codes.describe().startswith(f"read 6 rows and 3 columns from {tmp_path / 'z.csv'} (")
    assert ("no header" in codes.describe()) == (first is None)


def test_header_can_be_told_and_doubt_is_an_error(tmp_path: Path) -> None:
    whole = np.array([[0, 1], [1, 0], [2, 2]])
    a, b = write(tmp_path / "z.csv", whole), write(tmp_path / "v.csv", whole)
    with pytest.raises(UserError, match=r"count the columns\. Pass --header or --no-header"):
        read_arrays(a, b)
    assert len(read_arrays(a, b, header=False)[0].array) == 3
    assert len(read_arrays(a, b, header=True)[1].array) == 2
    np.save(tmp_path / "z.npy", whole)
    assert len(read_arrays(tmp_path / "z.npy", b)[1].array) == 3
    np.save(tmp_path / "z.npy", whole[1:])
    assert len(read_arrays(tmp_path / "z.npy", b)[1].array) == 2


def test_unequal_lengths_are_explained(tmp_path: Path) -> None:
    a, b = write(tmp_path / "z.csv", CODES, "a,b,c"), write(tmp_path / "v.csv", FACTORS[1:])
    with pytest.raises(
        UserError, match=r"Got 6 and 5 instead \(read 6 rows .* first row is a header\); read 5 .*no head"
    ):
        read_arrays(a, b)


def test_separators_missing_cells_and_ragged_rows(tmp_path: Path) -> None:
    a = write(tmp_path / "z.csv", CODES)
    (tmp_path / "v.csv").write_text("shape;x\n0;1\n;0\n1;nan\n1;1\n0;NA\n1;2\n")
    np.testing.assert_array_equal(
        read_arrays(a, tmp_path / "v.csv")[1].array, [[0, 1], [np.nan, 0], [1, np.nan], [1, 1], [0, np.nan], [1, 2]]
    )
    (tmp_path / "v.csv").write_text("0,1\n1\n")
    with pytest.raises(UserError, match="all rows must have 2 columns, but row 2 has 1"):
        read_arrays(a, tmp_path / "v.csv")


def test_factors_are_classes_or_continuous() -> None:
    rng = np.random.default_rng(0)
    table = np.stack([rng.normal(size=200), rng.integers(3, size=200), rng.choice([0.5, 0.7, 2.5], 200)], 1)
    with pytest.warns(UserWarning, match=r"angle: 200 distinct values in 200 rows, treated as continuous"):
        values, flags = prepare_factors(table, ["angle", "shape", "size"])
    assert flags == (True, False, False)
    np.testing.assert_array_equal(values[:, 0], table[:, 0])
    np.testing.assert_array_equal(values[:, 2], np.unique(table[:, 2], return_inverse=True)[1])
    assert prepare_factors(table, continuous="factor0")[1] == flags
    assert prepare_factors(table[:, 1:], discrete=["factor0"])[0].dtype == np.int64
    with pytest.raises(UserError, match="Unknown factor in the option 'continuous'"):
        prepare_factors(table, continuous="shape")


def test_numeric_header_does_not_change_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    factors = rng.integers(4, size=(300, 2))
    codes = (factors + rng.normal(size=(300, 2))).round(4)
    files = write(tmp_path / "z.csv", codes, "0,1"), write(tmp_path / "v.csv", factors, "0,1")
    assert unbraid("score", "--codes", files[0], "--factors", files[1], "--metrics", "mig", "--json") == 0
    out, err = capsys.readouterr()
    expected = score_arrays(codes, factors, ["mig"], quiet=True)[0]["mig.discrete_mig"]
    assert f'"mig.discrete_mig": {expected}' in out
    assert '"rows": 300' in out
    assert err.count("read 300 rows and 2 columns") == 2


@pytest.mark.parametrize("flag", [["--header"], ["--no-header"], ["--continuous", "a"], ["--discrete", "a"]])
def test_flags_for_arrays_are_rejected_with_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: list[str]
) -> None:
    assert unbraid("score", tmp_path, *flag) == 2
    assert "must be used with --codes and --factors" in capsys.readouterr().err


def test_kinds_and_missing_labels_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    angle, shape = rng.random(300), rng.integers(3, size=300)
    codes = write(tmp_path / "z.csv", np.stack([angle, shape + rng.random(300)], 1), "a,b")
    rows = [f"{'' if i < 4 else a},{s}" for i, (a, s) in enumerate(zip(angle, shape, strict=True))]
    (tmp_path / "v.csv").write_text("\n".join(["angle,shape", *rows]))
    flags = ["--factors", tmp_path / "v.csv", "--metrics", "mig", "--continuous", "angle", "--no-bounds"]
    assert unbraid("score", "--codes", codes, *flags) == 0
    out = capsys.readouterr().out
    assert "Continuous factors: angle." in out
    assert "Missing labels (of 300 rows): angle 4." in out


def test_a_cell_that_is_not_a_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "z.csv").write_text("a,b\n1,2\n3,x y\n")
    with pytest.raises(UserError, match=r"z.csv cannot .* every cell must be a number or empty, but row 3 has 'x y'"):
        read_arrays(tmp_path / "z.csv", write(tmp_path / "v.csv", FACTORS[:2]))


@pytest.mark.parametrize("read", READERS)
def test_a_header_that_is_not_closed_is_an_error_of_the_file(tmp_path: Path, read: Callable[[Path], object]) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content.replace(b"(4, 2)", b"(-1, 2", 1))
    with pytest.raises(UserError, match=r"x\.npy"):
        read(tmp_path / "x.npy")


@pytest.mark.parametrize("field", ZIP_FIELDS)
@pytest.mark.parametrize("read", READERS)
def test_a_damaged_field_of_an_archive_is_an_error_of_the_file(
    tmp_path: Path, read: Callable[[Path], object], field: str
) -> None:
    """For these fields, zipfile raises errors that are neither an OSError nor a ValueError."""
    np.savez_compressed(tmp_path / "x.npz", codes=CODES, images=CODES, factors=FACTORS)
    content = bytearray((tmp_path / "x.npz").read_bytes())
    offset, value = ZIP_FIELDS[field]
    position = content.index(b"PK\x01\x02")
    while position >= 0:
        content[position + offset] = value
        position = content.find(b"PK\x01\x02", position + 1)
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.npz (cannot be read|must be a complete)"):
        read(tmp_path / "x.npz")


@pytest.mark.parametrize("read", READERS)
def test_damaged_lzma_data_are_an_error_of_the_file(tmp_path: Path, read: Callable[[Path], object]) -> None:
    np.save(tmp_path / "x.npy", FACTORS)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.write(tmp_path / "x.npy", "images.npy")
    content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(content[:55] + b"\xff" * 20 + content[75:])
    with pytest.raises(UserError, match=r"x\.npz .*: Corrupt input data\."):
        read(tmp_path / "x.npz")


@pytest.mark.parametrize("read", READERS)
def test_a_member_that_is_not_an_array_is_an_error_of_the_file(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("images.npy", b"no array")
    with pytest.raises(UserError, match=r"x\.npz .*member"):
        read(tmp_path / "x.npz")


@pytest.mark.parametrize("shape", [(), (4, 2, 1)])
def test_arrays_must_have_one_or_two_dimensions(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(shape))
    with pytest.raises(UserError, match=r"x\.npy cannot be read as numbers: its array must have one or two dimensions"):
        read_arrays(tmp_path / "x.npy", tmp_path / "x.npy")


def test_factors_without_columns_are_refused() -> None:
    with pytest.raises(UserError, match="at least 2 rows and 1 column"):
        prepare_factors(np.zeros((4, 0)))


HEADER_DAMAGES = {"keys of several types": (b"'descr'", b"b'descr'"), "a name": (b"(6,", b"(a,")}


@pytest.mark.parametrize("damage", HEADER_DAMAGES)
@pytest.mark.parametrize("read", READERS)
def test_a_damaged_header_is_described_without_words_for_programmers(
    tmp_path: Path, read: Callable[[Path], object], damage: str
) -> None:
    np.save(tmp_path / "x.npy", FACTORS)
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content.replace(*HEADER_DAMAGES[damage], 1))
    with pytest.raises(UserError, match=r"x\.npy") as caught:
        read(tmp_path / "x.npy")
    assert "object at" not in str(caught.value)
    assert "not supported" not in str(caught.value)


def test_an_archive_with_the_name_of_an_array_is_an_error_of_the_file(tmp_path: Path) -> None:
    """`numpy.load` would return the archive. An empty archive is shorter than the header of an array."""
    np.savez(tmp_path / "x.npz", a=np.zeros((4, 2)))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    (tmp_path / "y.npy").write_bytes(b"PK\x05\x06" + bytes(18))
    for name in ("x.npy", "y.npy"):
        with pytest.raises(UserError, match=f"{name} cannot be read as numbers"):
            read_arrays(tmp_path / name, tmp_path / name, None)


def test_objects_masks_and_none_are_numbers_and_missing_labels() -> None:
    rng = np.random.default_rng(1)
    factors = rng.integers(3, size=(60, 2))
    codes = factors + 0.1 * rng.normal(size=(60, 2))

    def score(labels: Any) -> float:
        return float(score_arrays(codes, labels, "mig", quiet=True)[0]["mig.discrete_mig"])

    missing = np.where(np.arange(60)[:, None] < 5, np.nan, factors)
    assert score(factors.astype(object)) == score(factors)
    objects = factors.astype(object)
    objects[np.isnan(missing)] = None
    assert score(objects) == score(objects.tolist()) == score(missing) != score(factors)
    assert score(np.ma.array(factors, mask=np.isnan(missing))) == score(missing)


@pytest.mark.parametrize(
    ("codes", "factors", "message"),
    [
        (np.ma.masked_less(CODES, 0), FACTORS, "Codes must be finite. Got"),
        (object(), FACTORS, "Codes must be real numbers"),
        (CODES, 3, "Factors must be a 2-d array"),
        (CODES, {"a": [0, 1, 0, 1, 0, 1], "b": [0, 1]}, "equally many labels. Got a: 6, b: 2"),
    ],
)
def test_arrays_of_a_wrong_kind_are_explained(codes: Any, factors: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ub.score(codes=codes, factors=factors, metrics="mig", quiet=True)
