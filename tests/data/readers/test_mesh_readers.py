"""FAUST and its PLY files are read correctly; damaged or wrong files are rejected."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import formats
from support.damage import count_user_errors, damaged_copies
from unbraid.data.readers import faust, ply
from unbraid.data.readers.faust import FILES, TRIANGLES, VERTICES
from unbraid.errors import UserError

Array = np.ndarray[Any, Any]


def body(number: int) -> Array:
    return np.random.default_rng(number).normal(size=(VERTICES, 3)).astype(np.float32)


SKIN = np.random.default_rng(0).integers(0, VERTICES, (TRIANGLES, 3))
PLY_FORMS = ["ascii", "binary_little_endian", "binary_big_endian"]


def registrations(changes: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """Return the files: one as text, the others binary in both byte orders, half of them with normals."""
    forms = [PLY_FORMS[0 if i == 7 else 1 + i % 2] for i in range(len(FILES))]
    contents = {name: formats.ply_bytes(body(i), SKIN, forms[i], i % 4 < 2) for i, name in enumerate(FILES)}
    return contents | (changes or {})


def write_files(folder: Path, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("archive", [False, True])
def test_faust_is_read_by_subject_and_pose(tmp_path: Path, archive: bool) -> None:
    folder = tmp_path / "faust"
    folder.mkdir()
    if archive:
        members = {f"MPI-FAUST/training/registrations/{name}": c for name, c in registrations().items()}
        members |= {"MPI-FAUST/training/scans/tr_scan_000.ply": b"scan", "MPI-FAUST/test/x/tr_reg_000.ply": b"other"}
        formats.write_zip(folder / "MPI-FAUST.zip", members)
    else:
        write_files(folder, registrations())
    reported: list[float] = []
    data = faust(root=tmp_path, progress=reported.append)
    assert (len(data), data.names, data.sizes, data.shape) == (100, ("subject", "pose"), (10, 10), (20670,))
    for subject, pose in [(0, 0), (0, 7), (9, 9), (4, 2)]:
        found = data.batch(data.index([[subject, pose]]))
        assert np.array_equal(found.view(VERTICES, 3), body(10 * subject + pose))
    assert np.array_equal(data.to("cpu").faces, SKIN)
    assert reported[-1] == 1.0


def test_faust_rejects_other_meshes(tmp_path: Path) -> None:
    (tmp_path / "faust").mkdir()
    other = {FILES[50]: formats.ply_bytes(body(0), SKIN[::-1])}
    write_files(tmp_path / "faust", registrations(other))
    with pytest.raises(UserError, match=r"tr_reg_050.ply must be 0\. Got 13,7"):
        faust(root=tmp_path)
    (tmp_path / "faust" / FILES[50]).write_bytes(formats.ply_bytes(body(0)[:-1], SKIN % (VERTICES - 1)))
    with pytest.raises(UserError, match=r"vertices of .*tr_reg_050.ply must be 6,890\. Got 6,889"):
        faust(root=tmp_path)
    (tmp_path / "faust" / FILES[50]).unlink()
    with pytest.raises(UserError, match=r"tr_reg_050\.ply"):
        faust(root=tmp_path)


POINTS, CORNERS = body(0)[:9], SKIN[:7] % 9


def read_mesh(content: bytes) -> tuple[Array, Array]:
    return ply.read_mesh(Path("small.ply"), io.BytesIO(content))


@pytest.mark.parametrize("form", PLY_FORMS)
@pytest.mark.parametrize("normals", [False, True])
def test_meshes_are_read_in_every_format(form: str, normals: bool) -> None:
    vertices, triangles = read_mesh(formats.ply_bytes(POINTS, CORNERS, form, normals))
    assert np.array_equal(vertices, POINTS)
    assert np.array_equal(triangles, CORNERS)


WRONG_MESHES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda c: b"", "the header is incomplete"),
    "not a mesh": (lambda c: b"solid\n" + c, r"first line .* must be \['ply'\]. Got \['solid'\]"),
    "header cut": (lambda c: c[:60], "the header is incomplete"),
    "cut": (lambda c: c[:-3], "Reading it failed"),
    "longer": (lambda c: c + b"7", "more bytes after the end"),
    "unknown format": (lambda c: c.replace(b"1.0", b"2.0"), "begins with 'format'"),
    "unknown type": (lambda c: c.replace(b"float x", b"quark x"), "unknown type 'quark' of a property"),
    "unknown line": (lambda c: c.replace(b"comment", b"remark"), "begins with 'remark'"),
    "property first": (lambda c: c.replace(b"element vertex 9\n", b""), "a property before the first element"),
    "no x": (lambda c: c.replace(b"float x", b"float u"), "'vertex' .* must have x, y, z. Got u, y, z"),
    "more rows": (lambda c: c.replace(b"vertex 9", b"vertex 99"), "Reading it failed|must be"),
    "absurd rows": (lambda c: c.replace(b"vertex 9", b"vertex 99999999999"), "rows of 'vertex' .* Got 99999999999"),
    "rows that are no number": (lambda c: c.replace(b"vertex 9", b"vertex 1C"), "'1C', which is not a whole number"),
    "negative rows": (lambda c: c.replace(b"vertex 9", b"vertex -9"), "Got -9"),
}


@pytest.mark.parametrize("form", PLY_FORMS)
@pytest.mark.parametrize("case", WRONG_MESHES)
def test_damaged_meshes_are_rejected(form: str, case: str) -> None:
    change, message = WRONG_MESHES[case]
    with pytest.raises(UserError, match=message):
        read_mesh(change(formats.ply_bytes(POINTS, CORNERS, form)))


@pytest.mark.parametrize("form", PLY_FORMS)
def test_meshes_without_valid_triangles_are_rejected(form: str) -> None:
    with pytest.raises(UserError, match=r"corners of triangles .* 0..8. Got 9"):
        read_mesh(formats.ply_bytes(POINTS, CORNERS * 0 + 9, form))
    with pytest.raises(UserError, match=r"not finite .* 0. Got 1"):
        read_mesh(formats.ply_bytes(np.where(np.arange(9)[:, None] == 4, np.nan, POINTS), CORNERS, form))
    with pytest.raises(UserError, match=r"Reading it failed|corners of a face"):
        read_mesh(formats.ply_bytes(POINTS, np.concatenate([CORNERS, CORNERS[:, :1]], 1), form))


@pytest.mark.parametrize("form", PLY_FORMS)
def test_damaged_meshes_raise_only_user_errors(form: str) -> None:
    assert count_user_errors(read_mesh, damaged_copies(formats.ply_bytes(POINTS, CORNERS, form), 999)) > 600
