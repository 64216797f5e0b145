"""Write small files in the formats of published datasets; binary formats are written byte by byte."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

Array = np.ndarray[Any, Any]


def random_pixels(*shape: int, seed: int = 0, high: int = 256) -> Array:
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.uint8)


def npy_bytes(array: Array, descr: str | None = None, fortran: bool = False) -> bytes:
    """Return a .npy file: magic, version 1.0, length of the header, a dictionary padded to 64 bytes, the numbers."""
    shape = "(" + "".join(f"{size}, " for size in array.shape) + ")"
    text = f"{{'descr': '{descr or array.dtype.str}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + array.tobytes()


def write_npz(path: Path, members: Mapping[str, bytes], deflated: bool = True) -> Path:
    kind = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)
    return path


def idx_bytes(array: Array) -> bytes:
    """Return an idx file: two zeros, 8 for uint8, number of dimensions, big-endian dimensions, the data."""
    return struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def norb_bytes(array: Array) -> bytes:
    """Return a small NORB matrix: magic number, number of dimensions, at least three dimensions, little-endian data."""
    magic = {"uint8": 0x1E3D4C55, "int32": 0x1E3D4C54}[str(array.dtype)]
    dims = [*array.shape, 1, 1][: max(3, array.ndim)]
    head = struct.pack("<II", magic, array.ndim) + struct.pack(f"<{len(dims)}I", *dims)
    return head + array.astype(array.dtype.newbyteorder("<")).tobytes()


def mat5_bytes(arrays: Mapping[str, Array], compressed: bool = False) -> bytes:
    """Return a MATLAB 5 file with uint8 arrays: a header of 128 bytes, then one matrix element per array."""
    head = b"MATLAB 5.0 MAT-file".ljust(116) + bytes(8) + struct.pack("<H2s", 0x0100, b"IM")
    return head + b"".join(_matrix(name, array, compressed) for name, array in arrays.items())


def _element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def _matrix(name: str, array: Array, compressed: bool) -> bytes:
    int8, uint8, int32, uint32, matrix, deflated, class_uint8 = 1, 2, 5, 6, 14, 15, 9
    parts = (
        _element(uint32, struct.pack("<II", class_uint8, 0)),
        _element(int32, struct.pack(f"<{array.ndim}i", *array.shape)),
        _element(int8, name.encode()),
        _element(uint8, array.tobytes("F")),
    )
    element = _element(matrix, b"".join(parts))
    packed = zlib.compress(element, 1)
    return struct.pack("<II", deflated, len(packed)) + packed if compressed else element


def write_mat73(path: Path, arrays: Mapping[str, Array]) -> Path:
    """Write a MATLAB 7.3 file: HDF5 after a header of 512 bytes, with the axes in reverse order."""
    import h5py

    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array.T)
    content = bytearray(path.read_bytes())
    content[:128] = b"MATLAB 7.3 MAT-file".ljust(124) + struct.pack("<H2s", 0x0200, b"IM")
    path.write_bytes(content)
    return path


def ply_bytes(vertices: Array, faces: Array, form: str = "binary_little_endian", normals: bool = False) -> bytes:
    """Return a PLY file of a triangle mesh; `normals` adds three columns after the coordinates."""
    columns = ["x", "y", "z", *(("nx", "ny", "nz") if normals else ())]
    head = ["ply", f"format {form} 1.0", "comment made for a test", f"element vertex {len(vertices)}"]
    head += [f"property float {name}" for name in columns]
    head += [f"element face {len(faces)}", "property list uchar int vertex_indices", "end_header\n"]
    rows = np.concatenate([vertices, vertices[:, : len(columns) - 3] * 0], 1)
    if form == "ascii":
        lines = [" ".join(f"{number:.9g}" for number in row) for row in rows]
        lines += [" ".join(map(str, (len(face), *face))) for face in faces.tolist()]
        return ("\n".join(head) + "\n".join(lines) + "\n").encode()
    order = "<" if form == "binary_little_endian" else ">"
    corners = np.zeros(len(faces), [("count", "u1"), ("corners", f"{order}i4", faces.shape[1])])
    corners["count"], corners["corners"] = faces.shape[1], faces
    return "\n".join(head).encode() + rows.astype(f"{order}f4").tobytes() + corners.tobytes()


def pickle_bytes(value: object, protocol: int = 3, published: bool = True) -> bytes:
    """Return a pickle. `published` replaces the names of modules of NumPy 2 by those of NumPy 1 (protocols 2 and 3)."""
    content = pickle.dumps(value, protocol)
    return content.replace(b"cnumpy._core.", b"cnumpy.core.") if published else content


def rectangles(lengths: Sequence[int]) -> list[Array]:
    """Return, for each sequence, the limits (first row, end row, first column, end column) of a box in each frame."""
    rng = np.random.default_rng(0)
    starts = [rng.integers(0, 40, (length, 2)) for length in lengths]
    sides = [rng.integers(6, 24, (length, 2)) for length in lengths]
    return [np.stack([s[:, 0], (s + d)[:, 0], s[:, 1], (s + d)[:, 1]], 1) for s, d in zip(starts, sides, strict=True)]


def mask_sequences(lengths: Sequence[int]) -> dict[str, list[Array]]:
    """Return the content of a file of KITTI Masks in which the masks are the boxes of `rectangles`."""
    masks, labels = [], []
    for boxes in rectangles(lengths):
        sequence = np.zeros((len(boxes), 64, 64), bool)
        for frame, (top, bottom, left, right) in zip(sequence, boxes, strict=True):
            frame[top:bottom, left:right] = True
        top, bottom, left, right = boxes.T
        numbers = [(top + bottom - 1) / 2, (left + right - 1) / 2, (bottom - top) * (right - left)]
        masks.append(sequence)
        labels.append(np.stack(numbers, 1).astype(np.float32))
    return {"pedestrians": masks, "pedestrians_latents": labels}


Measurement: TypeAlias = tuple[float, float, int] | None


def transitions_csv(objects: Sequence[Sequence[Sequence[Measurement] | None]]) -> str:
    """Return a file of Natural Sprites.

    Each object is a list of frames. A frame is None, or has an entry None or (y, x, area) for each of three windows.
    """
    width = max(map(len, objects))
    file = io.StringIO()
    rows = csv.writer(file)
    rows.writerow(["id", "cat_id", *(f"t_{i}" for i in range(width))])
    for i, frames in enumerate(objects):
        rows.writerow([i + 1, 26, *frames, *[None] * (width - len(frames))])
    return file.getvalue()


def moving_objects(count: int, frames: int = 4) -> list[list[list[Measurement] | None]]:
    """Return measurements of small objects that move slowly near the centre. Some windows and frames have none."""
    rng = np.random.default_rng(1)
    objects: list[list[list[Measurement] | None]] = []
    for i in range(count):
        y, x, area = rng.uniform(20, 40), rng.uniform(20, 40), int(rng.integers(60, 400))
        row: list[list[Measurement] | None] = []
        for t in range(frames):
            moved: Measurement = (float(y + t), float(x + 0.5 * t), area + 10 * t)
            row.append(None if (i + t) % 7 == 3 else [moved if (i + w) % 3 else None for w in range(3)])
        objects.append(row)
    return objects


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def write_zip(path: Path, members: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def gzip_bytes(content: bytes) -> bytes:
    return gzip.compress(content, 1)


def jpeg_bytes(image: Array) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "jpeg", quality=95)
    return file.getvalue()


def png_bytes(image: Array) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png", compress_level=1)
    return file.getvalue()


def attribute_list(files: Sequence[str], labels: Array) -> str:
    """Return the attribute list of CelebA: number of pictures, names, and one row per picture with 1 or -1."""
    names = " ".join(f"Attribute_{j}" for j in range(labels.shape[1]))
    rows = [
        f"{name} {' '.join(f'{2 * v - 1:2d}' for v in row)}" for name, row in zip(files, labels.tolist(), strict=True)
    ]
    return "\n".join([str(len(files)), f"{names} ", *rows, ""])


def all_combinations(values: Sequence[Sequence[float]]) -> Array:
    """Return all combinations of values; the last column varies fastest."""
    return np.array(list(itertools.product(*values)))


def dsprites_arrays(sizes: tuple[int, ...], images: Array) -> dict[str, Array]:
    """Return the arrays of dSprites for a smaller grid: images, and latents as classes and as values."""
    shapes, scales, angles, columns, rows = sizes
    spread = [
        [1.0],
        [1.0 + i for i in range(shapes)],
        [0.5 + 0.5 * i / (scales - 1) for i in range(scales)],
        [2 * math.pi * i / (angles - 1) for i in range(angles)],
        [i / (columns - 1) for i in range(columns)],
        [i / (rows - 1) for i in range(rows)],
    ]
    classes = all_combinations([range(len(values)) for values in spread]).astype(np.int64)
    return {"imgs": images, "latents_classes": classes, "latents_values": all_combinations(spread)}


def shapes3d_arrays(sizes: tuple[int, ...], images: Array) -> dict[str, Array]:
    """Return the arrays of Shapes3D for a smaller grid."""
    *hues, scales, shapes, angles = sizes
    spread = [[i / 10 for i in range(size)] for size in hues]
    spread.append([0.75 + 0.5 * i / (scales - 1) for i in range(scales)])
    spread.append([float(i) for i in range(shapes)])
    spread.append([-30 + 60 * i / (angles - 1) for i in range(angles)])
    return {"images": images, "labels": all_combinations(spread)}


def write_hdf5(path: Path, arrays: Mapping[str, Array], rows: int = 7) -> Path:
    """Write an HDF5 file with compressed chunks of a few rows, like the published files."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            chunks = (min(rows, len(array)), *array.shape[1:])
            file.create_dataset(name, data=array, chunks=chunks, compression="gzip")
    return path
