"""Arrays in memory and in files become datasets in every supported form; others raise an error with the remedy."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from support.own import GRID_FACTORS, TWO_IMAGES, label_rows, random_pixels, random_vectors, truncate_to_half
from unbraid.data import from_arrays, from_file
from unbraid.errors import UserError
from unbraid.label_kinds import LabelWarning

MAPS = Path("/proc/self/maps")

ARRAY_FORMS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "hwc": lambda x: x.transpose(0, 2, 3, 1),
    "chw": lambda x: x,
    "read only": lambda x: np.frombuffer(x.tobytes(), np.uint8).reshape(x.shape),
    "fortran": np.asfortranarray,
    "int64": lambda x: x.astype(np.int64),
    "float64": lambda x: x / 255,
    "float32 hwc": lambda x: (x / 255).astype(np.float32).transpose(0, 2, 3, 1),
    "big-endian": lambda x: (x / 255).astype(">f8"),
    "tensor": torch.tensor,
    "float tensor with gradient": lambda x: (torch.tensor(x) / 255).requires_grad_(),
    "nested lists": lambda x: x.tolist(),
}


@pytest.mark.parametrize("form", ARRAY_FORMS)
def test_images_in_any_form_become_the_same_bytes(form: str) -> None:
    images = random_pixels(5, 3, 8, 6)
    data = from_arrays(ARRAY_FORMS[form](images))
    assert data.table.is_contiguous()
    assert data.images(slice(None)).tolist() == images.tolist()
    assert torch.equal(data.batch(torch.tensor([4])), torch.from_numpy(images[4:]).float() / 255)


def test_grey_images_need_no_channel_axis() -> None:
    images = random_pixels(5, 8, 6)
    for form in (images, images[:, None], images[..., None]):
        assert from_arrays(form).images(slice(None))[:, 0].tolist() == images.tolist()


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int32])
def test_zeros_and_ones_are_black_and_white(kind: type) -> None:
    bits = random_pixels(5, 8, 8) > 127
    assert torch.equal(from_arrays(bits.astype(kind)).table[:, 0], torch.from_numpy(bits * np.uint8(255)))


def test_uint8_images_in_storage_layout_are_not_copied() -> None:
    images = random_pixels(5, 1, 8, 8)
    assert from_arrays(images).table.data_ptr() == images.ctypes.data


def test_layout_resolves_ambiguous_shapes() -> None:
    images = random_pixels(5, 3, 8, 3)
    assert from_arrays(images, layout="chw").shape == (3, 8, 3)
    assert from_arrays(images, layout="hwc").shape == (3, 3, 8)
    assert from_arrays(random_pixels(5, 8, 3), layout="hw").shape == (1, 8, 3)


SHUFFLED_ROWS = np.random.default_rng(0).permutation(24)


@pytest.mark.parametrize("make", [lambda n: random_pixels(n, 8, 8), random_vectors], ids=["images", "vectors"])
def test_rows_that_fill_a_grid_are_sorted(make: Callable[[int], Any]) -> None:
    examples = make(24)
    data = from_arrays(examples[SHUFFLED_ROWS], GRID_FACTORS[SHUFFLED_ROWS], names=("a", "b", "c"))
    in_order = from_arrays(examples, GRID_FACTORS, names=("a", "b", "c"))
    assert data.gridded
    assert in_order.gridded
    assert data.sizes == (2, 3, 4)
    assert torch.equal(data.table, in_order.table)
    assert data.images(slice(None)).squeeze(1).tolist() == examples.tolist()
    assert label_rows(data) == GRID_FACTORS.tolist()
    assert torch.equal(data.index(data.factors(slice(None))), torch.arange(24))
    assert data.values == {"a": [10, 20], "b": [-1, 0, 7], "c": [0, 1, 2, 3]}
    assert data.fingerprint == in_order.fingerprint


@pytest.mark.parametrize("make", [lambda n: random_pixels(n, 8, 8), random_vectors], ids=["images", "vectors"])
@pytest.mark.parametrize(
    "keep", [SHUFFLED_ROWS[:-1], np.append(SHUFFLED_ROWS, 0), np.append(SHUFFLED_ROWS[:-1], SHUFFLED_ROWS[0])]
)
def test_rows_that_do_not_fill_a_grid_keep_their_order(make: Callable[[int], Any], keep: np.ndarray[Any, Any]) -> None:
    examples = make(24)[keep]
    data = from_arrays(examples, GRID_FACTORS[keep])
    assert not data.gridded
    assert data.names == ("factor0", "factor1", "factor2")
    assert label_rows(data) == GRID_FACTORS[keep].tolist()
    assert data.images(slice(None)).squeeze(1).tolist() == examples.tolist()
    assert len(data) == len(keep)


def test_factors_may_be_a_column_booleans_or_integral_floats() -> None:
    images = random_pixels(4, 8, 8)
    for factors in ([3, 1, 3, 1], [[3.0], [1.0], [3.0], [1.0]], torch.tensor([3, 1, 3, 1], dtype=torch.uint8)):
        data = from_arrays(images, factors)
        assert data.names == ("label",)
        assert label_rows(data) == [[3], [1], [3], [1]]
    assert from_arrays(images, np.array([True, False, True, True])).values == {"label": [0, 1]}
    assert from_arrays(images, [[5, 1], [5, 2], [5, 1], [5, 1]], names=["same", "v"]).values == {"v": [1, 2]}


BAD_ARRAYS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "none": (
        lambda: from_arrays(random_pixels(0, 8, 8)),
        ValueError,
        "at least one example. Got an array of shape (0, 8, 8)",
    ),
    "a number": (lambda: from_arrays(np.float32(3)), ValueError, "at least one example."),
    "one axis": (lambda: from_arrays(np.ones(3)), ValueError, "Got shape (3,) instead."),
    "five axes": (lambda: from_arrays(np.ones((1, 1, 3, 8, 8))), ValueError, "Got shape (1, 1, 3, 8, 8) instead."),
    "one image": (
        lambda: from_arrays(random_pixels(8, 8, 3)),
        ValueError,
        "For a single image, pass images[None]. For images that are 3",
    ),
    "alpha": (
        lambda: from_arrays(random_pixels(2, 8, 8, 4)),
        ValueError,
        "Remove an alpha channel, for example with images[..., :3].",
    ),
    "ambiguous": (lambda: from_arrays(random_pixels(2, 3, 8, 1)), ValueError, "Pass layout='chw' or layout='hwc'"),
    "wrong layout": (
        lambda: from_arrays(TWO_IMAGES, layout="chw"),
        ValueError,
        "Got 'chw' for shape (2, 8, 8) instead.",
    ),
    "unknown layout": (lambda: from_arrays(TWO_IMAGES, layout="wh"), ValueError, "must be one of hw, hwc, chw"),
    "channels": (lambda: from_arrays(random_pixels(2, 8, 8, 3), layout="chw"), ValueError, "Got 8 in layout 'chw'"),
    "normalised": (lambda: from_arrays(TWO_IMAGES / 127.5 - 1), ValueError, "of type float64 must be in 0..1. Got -"),
    "float bytes": (lambda: from_arrays(TWO_IMAGES * 1.0), ValueError, "divide by 255"),
    "not a number": (lambda: from_arrays(TWO_IMAGES * np.nan), ValueError, "Got nan to nan instead."),
    "large": (lambda: from_arrays(TWO_IMAGES.astype(np.uint16) * 257), ValueError, "of type uint16 must be in 0..255"),
    "complex": (lambda: from_arrays(TWO_IMAGES * 1j), ValueError, "must be real numbers. Got complex128"),
    "ragged": (lambda: from_arrays([[1.0], [2.0, 3.0]]), ValueError, "Got rows of unequal length"),
    "flat bytes": (lambda: from_arrays(random_pixels(2, 64)), ValueError, "Reshape flattened images to (n, h, w)"),
    "infinite": (lambda: from_arrays([[0.0], [1e300]]), ValueError, "finite in float32. Got [1.e+300] in row 1"),
    "dates": (
        lambda: from_arrays(TWO_IMAGES, {"day": np.array(["2020-01-01", "2020-01-02"], "datetime64[ns]")}),
        ValueError,
        "numbers or words. Got datetime64 in the column 'day'",
    ),
    "columns of another length": (lambda: from_arrays(TWO_IMAGES, {"a": [0, 1, 2]}), ValueError, "one label per"),
    "wrong number of names": (lambda: from_arrays(TWO_IMAGES, {"a": [0, 1]}, names=["a", "b"]), ValueError, "1 diff"),
    "infinite label": (
        lambda: from_arrays(TWO_IMAGES, [0.5, np.inf]),
        ValueError,
        "finite, or NaN if a label is missing",
    ),
    "other length": (
        lambda: from_arrays(TWO_IMAGES, [1, 2, 3]),
        ValueError,
        "must have shape (2, k), one row per example. Got",
    ),
    "masked pixels": (lambda: from_arrays(np.ma.masked_less(TWO_IMAGES, 9)), ValueError, "must not be masked."),
    "sparse": (lambda: from_arrays(torch.eye(3).to_sparse()), ValueError, "array or a dense tensor."),
    "volumes": (lambda: from_arrays(np.ones((2, 8, 8, 8))), ValueError, "for example volumes to vectors"),
    "few names": (lambda: from_arrays(TWO_IMAGES, [[1, 2], [3, 4]], names=["a"]), ValueError, "2 different names"),
    "equal names": (
        lambda: from_arrays(TWO_IMAGES, [[1, 2], [3, 4]], names=["a", "a"]),
        ValueError,
        "2 different names",
    ),
    "names alone": (
        lambda: from_arrays(TWO_IMAGES, names=["a"]),
        ValueError,
        "Got the names a without factors. Pass `factors` too.",
    ),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_invalid_arrays_are_rejected(case: str) -> None:
    act, kind, message = BAD_ARRAYS[case]
    with pytest.raises(kind) as error:
        act()
    assert message in str(error.value)


@pytest.mark.parametrize("images", ["images", "x", "imgs"])
@pytest.mark.parametrize("factors", ["factors", "labels", "latents_classes", "y"])
def test_default_array_names_are_found_in_an_npz(tmp_path: Path, images: str, factors: str) -> None:
    path = tmp_path / "data.npz"
    np.savez(
        path, **{images: random_pixels(24, 8, 8), factors: GRID_FACTORS, "factor_names": np.array(["a", "b", "c"])}
    )
    data = from_file(path)
    assert data.name == str(path.resolve())
    assert data.names == ("a", "b", "c")
    assert label_rows(data) == GRID_FACTORS.tolist()
    assert data.images(slice(None))[:, 0].tolist() == random_pixels(24, 8, 8).tolist()
    assert from_file(path, names=("u", "v", "w")).names == ("u", "v", "w")


def test_arrays_in_an_npz_can_be_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(
        path, images=random_pixels(3, 8, 8), x_test=random_pixels(4, 8, 8), y_test=np.arange(4), names=np.arange(2)
    )
    assert len(from_file(path)) == 3
    assert from_file(path).values == {}
    data = from_file(path, images="x_test", factors="y_test")
    assert data.values == {"label": [0, 1, 2, 3]}
    with pytest.raises(UserError, match=r"'x_tests'\. Did you mean 'x_test'\? Choose from: images, names, x_test"):
        from_file(path, images="x_tests")
    np.savez(path, a=TWO_IMAGES, b=TWO_IMAGES)
    with pytest.raises(
        UserError, match=r"must have an array images or x or imgs\. Got a, b instead\. .* add \?images=NAME"
    ):
        from_file(path)


def test_npy_file_reads_factors_from_a_second_file(tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, random_pixels(24, 1, 8, 8))
    assert from_file(path).values == {}
    np.save(tmp_path / "data_factors.npy", GRID_FACTORS)
    np.save(tmp_path / "other.npy", np.arange(24))
    assert label_rows(from_file(path)) == GRID_FACTORS.tolist()
    assert from_file(path, factors=tmp_path / "other.npy").sizes == (24,)
    with pytest.raises(UserError, match=r"missing\.npy must be a complete .npy file of numbers.*No such file"):
        from_file(path, factors=tmp_path / "missing.npy")
    with pytest.raises(UserError, match=r"must not be used with a \.npy file.* Got 'x'"):
        from_file(path, images="x")


@pytest.mark.skipif(not MAPS.exists(), reason="needs Linux to see which files are mapped")
def test_npy_file_is_memory_mapped_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, random_pixels(24, 8, 8))
    data = from_file(path)
    assert str(path) in MAPS.read_text()
    data.table.zero_()
    assert np.array_equal(np.load(path), random_pixels(24, 8, 8))


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_objects_in_own_files_are_never_unpickled(tmp_path: Path) -> None:
    trap = np.array([Trap(tmp_path / "unpickled")], dtype=object)
    np.save(tmp_path / "a.npy", trap)
    np.savez(tmp_path / "b.npz", images=trap)
    np.savez(tmp_path / "c.npz", images=TWO_IMAGES, factors=trap)
    for name in ("a.npy", "b.npz", "c.npz"):
        with pytest.raises(UserError, match=r"file of numbers.*objects are never unpickled"):
            from_file(tmp_path / name)
    np.savez(tmp_path / "d.npz", images=TWO_IMAGES, factors=[1, 2], names=trap)
    assert from_file(tmp_path / "d.npz").names == ("label",)
    assert not (tmp_path / "unpickled").exists()
    np.load(tmp_path / "a.npy", allow_pickle=True)
    assert (tmp_path / "unpickled").exists()


@pytest.mark.parametrize("number", [0x110000, 2**31, 0xD800])
def test_text_with_numbers_that_are_not_characters_is_refused(number: int, tmp_path: Path) -> None:
    """Python raises a SystemError when it converts such text."""
    words = np.array(["a", "b"])
    words.view(np.uint32)[0] = number
    np.savez(tmp_path / "a.npz", images=TWO_IMAGES, factors=words)
    np.save(tmp_path / "b.npy", TWO_IMAGES)
    np.save(tmp_path / "b_factors.npy", words)
    for name, damaged in (("a.npz", "a.npz"), ("b.npy", "b_factors.npy")):
        with pytest.raises(UserError, match=f"The text in .*{damaged} must consist of characters"):
            from_file(tmp_path / name)


def test_damaged_names_of_factors_are_ignored(tmp_path: Path) -> None:
    words = np.array(["a", "b"])
    words.view(np.uint32)[0] = 2**31
    np.savez(tmp_path / "a.npz", images=TWO_IMAGES, factors=[[0, 1], [1, 0]], names=words)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("factor_names.npy", b"no array")
    assert from_file(tmp_path / "a.npz").names == from_arrays(TWO_IMAGES, [[0, 1], [1, 0]]).names


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_damaged_array_files_are_named_in_the_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for content in (b"", b"text", b"PK\x03\x04 and no more", b"\x93NUMPY\x01"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"{name} must be a complete {path.suffix} file of numbers"):
            from_file(path)
    if name == "a.npy":
        np.save(path, random_pixels(20, 8, 8))
        truncate_to_half(path)
    else:
        np.savez_compressed(path, images=random_pixels(2000, 8, 8))
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    with pytest.raises(UserError, match=name):
        from_file(path)


def test_files_with_the_wrong_suffix_are_rejected(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=TWO_IMAGES)
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(UserError, match=r"must be a complete \.npy file"):
        from_file(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", TWO_IMAGES)
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    with pytest.raises(UserError, match=r"must be a complete \.npz file"):
        from_file(tmp_path / "b.npz")
    np.save(tmp_path / "b.npy", TWO_IMAGES / 127.5 - 1)
    with pytest.raises(
        UserError, match=r"The arrays in .*b\.npy cannot be used\. Pixels of type float64 must be in 0\.\.1"
    ):
        from_file(tmp_path / "b.npy")
    with pytest.raises(UserError, match=r"Got a folder instead\. Use from_folder for images"):
        from_file(tmp_path)


def test_fingerprint_of_a_file_depends_on_its_state_and_options(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, images=TWO_IMAGES, x=TWO_IMAGES, y=[1, 2], v=[2, 1])
    fingerprints = [from_file(path).fingerprint, from_file(path, images="x").fingerprint]
    fingerprints += [from_file(path, factors="v").fingerprint, from_file(path, names=["a"]).fingerprint]
    assert from_file(path).fingerprint == fingerprints[0]
    os.utime(path, ns=(0, 12345))
    fingerprints.append(from_file(path).fingerprint)
    assert len(set(fingerprints)) == len(fingerprints)


def test_fingerprint_of_arrays_depends_on_their_content() -> None:
    fingerprints = {
        from_arrays(TWO_IMAGES).fingerprint,
        from_arrays(TWO_IMAGES, [1, 2]).fingerprint,
        from_arrays(TWO_IMAGES, [2, 1]).fingerprint,
    }
    fingerprints |= {from_arrays(TWO_IMAGES, [1, 3]).fingerprint, from_arrays(255 - TWO_IMAGES).fingerprint}
    assert len(fingerprints) == 5
    assert (
        from_arrays(TWO_IMAGES, name="other").fingerprint == from_arrays(TWO_IMAGES.copy()).fingerprint in fingerprints
    )


def test_published_dsprites_file_is_a_full_grid(shared: Path) -> None:
    path = shared / "data" / "dsprites_real" / "neuromatch_dsprites_downsampled.npz"
    data = from_file(path, names=("shape", "scale", "orientation", "x", "y"))
    assert data.gridded
    assert data.sizes == (3, 6, 10, 16, 16)
    with np.load(path) as real:
        assert torch.equal(data.table[:, 0], torch.from_numpy(real["imgs"] * np.uint8(255)))
        assert label_rows(data) == real["latents_classes"].tolist()


@pytest.mark.parametrize("form", ["frame", "dictionary", "rows"])
def test_words_and_names_of_columns_are_kept(form: str) -> None:
    shape, size = ["square", "heart", "heart", None], [0.5, 2.0, float("nan"), 0.5]
    columns = {"shape": shape, "size": size}
    tables: dict[str, Any] = {
        "frame": pd.DataFrame(columns),
        "dictionary": columns,
        "rows": np.array([shape, size], dtype=object).T,
    }
    data = from_arrays(random_pixels(4, 8, 8), tables[form], names=["shape", "size"] if form == "rows" else None)
    assert data.names == ("shape", "size")
    assert data.values == {"shape": ["heart", "square"], "size": [0.5, 2.0]}
    assert data.factors(slice(None)).tolist() == [[1, 0], [0, 1], [0, -1], [-1, 0]]
    assert data.categorical == ("shape",)


def test_a_series_of_words_is_one_factor() -> None:
    data = from_arrays(random_pixels(3, 8, 8), pd.Series(["b", "a", "b"], name="letter"))
    assert data.values == {"letter": ["a", "b"]}
    assert from_arrays(random_pixels(3, 8, 8), ["b", "a", "b"]).values == {"label": ["a", "b"]}
    mixed = from_arrays(random_pixels(3, 8, 8), np.array([["b", 0.5], ["a", 1.5], ["b", 0.5]]))
    assert mixed.values == {"factor0": ["a", "b"], "factor1": [0.5, 1.5]}


def test_labels_above_the_range_of_int64_are_kept() -> None:
    large = np.array([2**64 - 1, 2**63], np.uint64)
    assert from_arrays(TWO_IMAGES, large).values == {"label": [2**63, 2**64 - 1]}


def test_masked_labels_and_the_word_nan_are_missing() -> None:
    images, words = random_pixels(4, 8, 8), np.array(["a", "b", "c", "a"])
    masked = np.ma.masked_array(words, words == "b")
    for factors in (masked, {"label": masked}, np.array(["a", np.nan, "c", "a"]), ["a", "NaN", "c", "a"]):
        data = from_arrays(images, factors)
        assert data.values == {"label": ["a", "c"]}
        assert data.missing_labels == {"label": 1}
    numbers = np.ma.masked_array([5, 6, 7, 5], [False, True, False, False])
    assert from_arrays(images, {"n": numbers}).factors(slice(None)).tolist() == [[0], [-1], [1], [0]]


def test_the_name_of_a_single_factor_is_read(tmp_path: Path) -> None:
    for names in (["kind"], np.array(["kind"], "S")):
        np.savez(tmp_path / "a.npz", images=TWO_IMAGES, factors=[3, 4], factor_names=names)
        assert from_file(tmp_path / "a.npz").names == ("kind",)


def test_a_one_hot_code_is_announced() -> None:
    images, code = random_pixels(6, 8, 8), np.eye(3)[[0, 1, 2, 0, 1, 1]]
    for factors in (code, code.astype(bool), torch.from_numpy(code)):
        with pytest.warns(LabelWarning, match=r"treated as 3 factors.*pass factors\.argmax\(1\)"):
            assert from_arrays(images, factors).sizes == (2, 2, 2)
    assert from_arrays(images, code, names="a,b,c").sizes == (2, 2, 2)
    assert from_arrays(images, 1 - code).sizes == (2, 2, 2)
