"""Arrays come in whatever their form, in memory and from files, or are refused with what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.own import CELLS, ONE, halved, pixels, rows, vectors
from unbraid.data.own.load import from_arrays, from_file
from unbraid.errors import UserError

MAPS = Path("/proc/self/maps")

FORMS_OF_ARRAYS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "hwc": lambda x: x.transpose(0, 2, 3, 1),
    "chw": lambda x: x,
    "read only": lambda x: np.frombuffer(x.tobytes(), np.uint8).reshape(x.shape),
    "fortran": np.asfortranarray,
    "int64": lambda x: x.astype(np.int64),
    "float64": lambda x: x / 255,
    "float32 hwc": lambda x: (x / 255).astype(np.float32).transpose(0, 2, 3, 1),
    "big-endian": lambda x: (x / 255).astype(">f8"),
    "tensor": torch.tensor,
    "float tensor that learns": lambda x: (torch.tensor(x) / 255).requires_grad_(),
    "nested lists": lambda x: x.tolist(),
}


@pytest.mark.parametrize("form", FORMS_OF_ARRAYS)
def test_images_in_any_form_become_the_same_bytes(form: str) -> None:
    images = pixels(5, 3, 8, 6)
    data = from_arrays(FORMS_OF_ARRAYS[form](images))
    assert data.table.is_contiguous()
    assert data.images(slice(None)).tolist() == images.tolist()
    assert torch.equal(data.batch(torch.tensor([4])), torch.from_numpy(images[4:]).float() / 255)


def test_grey_images_need_no_channel() -> None:
    images = pixels(5, 8, 6)
    for form in (images, images[:, None], images[..., None]):
        assert from_arrays(form).images(slice(None))[:, 0].tolist() == images.tolist()


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int32])
def test_zeros_and_ones_are_black_and_white(kind: type) -> None:
    bits = pixels(5, 8, 8) > 127
    assert torch.equal(from_arrays(bits.astype(kind)).table[:, 0], torch.from_numpy(bits * np.uint8(255)))


def test_bytes_in_place_are_shared() -> None:
    images = pixels(5, 1, 8, 8)
    assert from_arrays(images).table.data_ptr() == images.ctypes.data


def test_layout_says_what_the_shape_does_not() -> None:
    images = pixels(5, 3, 8, 3)
    assert from_arrays(images, layout="chw").shape == (3, 8, 3)
    assert from_arrays(images, layout="hwc").shape == (3, 3, 8)
    assert from_arrays(pixels(5, 8, 3), layout="hw").shape == (1, 8, 3)


SHUFFLED = np.random.default_rng(0).permutation(24)


@pytest.mark.parametrize("make", [lambda n: pixels(n, 8, 8), vectors], ids=["images", "vectors"])
def test_rows_that_fill_a_grid_are_put_in_its_order(make: Callable[[int], Any]) -> None:
    examples = make(24)
    data = from_arrays(examples[SHUFFLED], CELLS[SHUFFLED], names=("a", "b", "c"))
    straight = from_arrays(examples, CELLS, names=("a", "b", "c"))
    assert data.gridded
    assert straight.gridded
    assert data.sizes == (2, 3, 4)
    assert torch.equal(data.table, straight.table)
    assert data.images(slice(None)).squeeze(1).tolist() == examples.tolist()
    assert rows(data) == CELLS.tolist()
    assert torch.equal(data.index(data.factors(slice(None))), torch.arange(24))
    assert data.values == {"a": [10, 20], "b": [-1, 0, 7], "c": [0, 1, 2, 3]}
    assert data.fingerprint == straight.fingerprint


@pytest.mark.parametrize("make", [lambda n: pixels(n, 8, 8), vectors], ids=["images", "vectors"])
@pytest.mark.parametrize("keep", [SHUFFLED[:-1], np.append(SHUFFLED, 0), np.append(SHUFFLED[:-1], SHUFFLED[0])])
def test_other_rows_stay_as_they_are(make: Callable[[int], Any], keep: np.ndarray[Any, Any]) -> None:
    examples = make(24)[keep]
    data = from_arrays(examples, CELLS[keep])
    assert not data.gridded
    assert data.names == ("factor0", "factor1", "factor2")
    assert rows(data) == CELLS[keep].tolist()
    assert data.images(slice(None)).squeeze(1).tolist() == examples.tolist()
    assert len(data) == len(keep)


def test_factors_may_be_a_column_bools_or_whole_floats() -> None:
    images = pixels(4, 8, 8)
    for factors in ([3, 1, 3, 1], [[3.0], [1.0], [3.0], [1.0]], torch.tensor([3, 1, 3, 1], dtype=torch.uint8)):
        data = from_arrays(images, factors)
        assert data.names == ("label",)
        assert rows(data) == [[3], [1], [3], [1]]
    assert from_arrays(images, np.array([True, False, True, True])).values == {"label": [0, 1]}
    assert from_arrays(images, [[5, 1], [5, 2], [5, 1], [5, 1]], names=["same", "v"]).values == {"v": [1, 2]}


BAD_ARRAYS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "none": (lambda: from_arrays(pixels(0, 8, 8)), ValueError, "at least one example. Got an array of shape (0, 8, 8)"),
    "a number": (lambda: from_arrays(np.float32(3)), ValueError, "at least one example."),
    "one axis": (lambda: from_arrays(np.ones(3)), ValueError, "Got shape (3,) instead."),
    "five axes": (lambda: from_arrays(np.ones((1, 1, 3, 8, 8))), ValueError, "Got shape (1, 1, 3, 8, 8) instead."),
    "one image": (lambda: from_arrays(pixels(8, 8, 3)), ValueError, "For one image say images[None]; for images 3"),
    "alpha": (lambda: from_arrays(pixels(2, 8, 8, 4)), ValueError, "Leave an alpha channel out with images[..., :3]."),
    "ambiguous": (lambda: from_arrays(pixels(2, 3, 8, 1)), ValueError, "say layout='chw' or layout='hwc'"),
    "wrong layout": (lambda: from_arrays(ONE, layout="chw"), ValueError, "Got 'chw' for shape (2, 8, 8) instead."),
    "unknown layout": (lambda: from_arrays(ONE, layout="wh"), ValueError, "must be one of hw, hwc, chw"),
    "channels": (lambda: from_arrays(pixels(2, 8, 8, 3), layout="chw"), ValueError, "Got 8 in layout 'chw'"),
    "normalised": (lambda: from_arrays(ONE / 127.5 - 1), ValueError, "must lie in 0..1 where they are float64. Got -"),
    "float bytes": (lambda: from_arrays(ONE * 1.0), ValueError, "divide by 255"),
    "not a number": (lambda: from_arrays(ONE * np.nan), ValueError, "Got nan to nan instead."),
    "large": (lambda: from_arrays(ONE.astype(np.uint16) * 257), ValueError, "must lie in 0..255 where they are uint16"),
    "complex": (lambda: from_arrays(ONE * 1j), TypeError, "must be real numbers. Got complex128"),
    "ragged": (lambda: from_arrays([[1.0], [2.0, 3.0]]), ValueError, "Got rows of unequal length"),
    "flat bytes": (lambda: from_arrays(pixels(2, 64)), TypeError, "Reshape flattened images to (n, h, w)"),
    "infinite": (lambda: from_arrays([[0.0], [1e300]]), ValueError, "finite in float32. Got [1.e+300] in row 1"),
    "words": (lambda: from_arrays(ONE, ["a", "b"]), TypeError, "Number words with np.unique"),
    "fractions": (lambda: from_arrays(ONE, [0.5, 1.0]), ValueError, "whole numbers. Got 0.5 instead. Cut continuous"),
    "other length": (lambda: from_arrays(ONE, [1, 2, 3]), ValueError, "must have shape (2, k), a row an example. Got"),
    "few names": (lambda: from_arrays(ONE, [[1, 2], [3, 4]], names=["a"]), ValueError, "2 different names"),
    "equal names": (lambda: from_arrays(ONE, [[1, 2], [3, 4]], names=["a", "a"]), ValueError, "2 different names"),
    "names alone": (lambda: from_arrays(ONE, names=["a"]), ValueError, "Got a without any. Pass factors=, too."),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_arrays_that_do_not_fit_are_refused(case: str) -> None:
    act, kind, message = BAD_ARRAYS[case]
    with pytest.raises(kind) as error:
        act()
    assert message in str(error.value)


@pytest.mark.parametrize("images", ["images", "x", "imgs"])
@pytest.mark.parametrize("factors", ["factors", "labels", "latents_classes", "y"])
def test_usual_names_in_an_archive_are_known(tmp_path: Path, images: str, factors: str) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **{images: pixels(24, 8, 8), factors: CELLS, "factor_names": np.array(["a", "b", "c"])})
    data = from_file(path)
    assert data.name == str(path.resolve())
    assert data.names == ("a", "b", "c")
    assert rows(data) == CELLS.tolist()
    assert data.images(slice(None))[:, 0].tolist() == pixels(24, 8, 8).tolist()
    assert from_file(path, names=("u", "v", "w")).names == ("u", "v", "w")


def test_arrays_in_an_archive_may_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, images=pixels(3, 8, 8), x_test=pixels(4, 8, 8), y_test=np.arange(4), names=np.arange(2))
    assert len(from_file(path)) == 3
    assert from_file(path).values == {}
    data = from_file(path, images="x_test", factors="y_test")
    assert data.values == {"label": [0, 1, 2, 3]}
    with pytest.raises(UserError, match=r"'x_tests'\. Did you mean 'x_test'\? Choose from: images, names, x_test"):
        from_file(path, images="x_tests")
    np.savez(path, a=ONE, b=ONE)
    with pytest.raises(
        UserError, match=r"must have an array images or x or imgs\. Got a, b\. Say which: images='NAME'"
    ):
        from_file(path)


def test_an_array_file_takes_its_factors_from_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, pixels(24, 1, 8, 8))
    assert from_file(path).values == {}
    np.save(tmp_path / "data_factors.npy", CELLS)
    np.save(tmp_path / "other.npy", np.arange(24))
    assert rows(from_file(path)) == CELLS.tolist()
    assert from_file(path, factors=tmp_path / "other.npy").sizes == (24,)
    with pytest.raises(UserError, match=r"gone\.npy must be a whole .npy file of plain numbers.*No such file"):
        from_file(path, factors=tmp_path / "gone.npy")
    with pytest.raises(UserError, match=r"chosen by name in a \.npz\. Got images='x'"):
        from_file(path, images="x")


@pytest.mark.skipif(not MAPS.exists(), reason="needs Linux to tell what is mapped")
def test_bytes_in_an_array_file_are_mapped_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, pixels(24, 8, 8))
    data = from_file(path)
    assert str(path) in MAPS.read_text()
    data.table.zero_()
    assert np.array_equal(np.load(path), pixels(24, 8, 8))


class Trap:
    """Unpickling this leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    trap = np.array([Trap(tmp_path / "sprung")], dtype=object)
    np.save(tmp_path / "a.npy", trap)
    np.savez(tmp_path / "b.npz", images=trap)
    np.savez(tmp_path / "c.npz", images=ONE, factors=trap)
    for name in ("a.npy", "b.npz", "c.npz"):
        with pytest.raises(UserError, match=r"plain numbers.*objects are never unpickled"):
            from_file(tmp_path / name)
    np.savez(tmp_path / "d.npz", images=ONE, factors=[1, 2], names=trap)
    assert from_file(tmp_path / "d.npz").names == ("label",)
    assert not (tmp_path / "sprung").exists()
    np.load(tmp_path / "a.npy", allow_pickle=True)
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_damaged_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for content in (b"", b"text", b"PK\x03\x04 and no more", b"\x93NUMPY\x01"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"{name} must be a whole {path.suffix} file of plain numbers"):
            from_file(path)
    if name == "a.npy":
        np.save(path, pixels(20, 8, 8))
        halved(path)
    else:
        np.savez_compressed(path, images=pixels(2000, 8, 8))
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    with pytest.raises(UserError, match=name):
        from_file(path)


def test_files_that_are_not_what_they_say_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=ONE)
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(UserError, match=r"must be a whole \.npy file"):
        from_file(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", ONE)
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    with pytest.raises(UserError, match=r"must be a whole \.npz file"):
        from_file(tmp_path / "b.npz")
    np.save(tmp_path / "b.npy", ONE / 127.5 - 1)
    with pytest.raises(UserError, match=r"The arrays in .*b\.npy cannot be used\. Pixels must lie in 0\.\.1"):
        from_file(tmp_path / "b.npy")
    with pytest.raises(UserError, match=r"Got a folder instead\. For images use from_folder"):
        from_file(tmp_path)


def test_fingerprints_of_files_tell_their_state_and_options(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, images=ONE, x=ONE, y=[1, 2], v=[2, 1])
    seen = [from_file(path).fingerprint, from_file(path, images="x").fingerprint]
    seen += [from_file(path, factors="v").fingerprint, from_file(path, names=["a"]).fingerprint]
    assert from_file(path).fingerprint == seen[0]
    os.utime(path, ns=(0, 12345))
    seen.append(from_file(path).fingerprint)
    assert len(set(seen)) == len(seen)


def test_fingerprints_of_arrays_tell_their_content() -> None:
    seen = {from_arrays(ONE).fingerprint, from_arrays(ONE, [1, 2]).fingerprint, from_arrays(ONE, [2, 1]).fingerprint}
    seen |= {from_arrays(ONE, [1, 3]).fingerprint, from_arrays(255 - ONE).fingerprint}
    assert len(seen) == 5
    assert from_arrays(ONE, name="other").fingerprint == from_arrays(ONE.copy()).fingerprint in seen


def test_real_dsprites_file_is_the_grid_it_says(shared: Path) -> None:
    path = shared / "data" / "dsprites_real" / "neuromatch_dsprites_downsampled.npz"
    data = from_file(path, names=("shape", "scale", "orientation", "x", "y"))
    assert data.gridded
    assert data.sizes == (3, 6, 10, 16, 16)
    with np.load(path) as real:
        assert torch.equal(data.table[:, 0], torch.from_numpy(real["imgs"] * np.uint8(255)))
        assert rows(data) == real["latents_classes"].tolist()
