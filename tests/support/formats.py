"""Writers of small files in the formats in which datasets are published, byte by byte where they are binary."""

from __future__ import annotations

import gzip
import io
import itertools
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Array = np.ndarray[Any, Any]


def pixels(*shape: int, seed: int = 0, high: int = 256) -> Array:
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.uint8)


def npy(array: Array, descr: str | None = None, fortran: bool = False) -> bytes:
    """Magic, version 1.0, the header's length, a dictionary padded to 64 bytes, the numbers."""
    shape = "(" + "".join(f"{size}, " for size in array.shape) + ")"
    text = f"{{'descr': '{descr or array.dtype.str}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + array.tobytes()


def npz(path: Path, members: Mapping[str, bytes], deflated: bool = True) -> Path:
    kind = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)
    return path


def idx(array: Array) -> bytes:
    """Zero, zero, 8 for bytes, the number of dimensions, the dimensions big-endian, the bytes."""
    return struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def norb(array: Array) -> bytes:
    """The magic number, the number of dimensions, three dimensions or more, the data, all little-endian."""
    magic = {"uint8": 0x1E3D4C55, "int32": 0x1E3D4C54}[str(array.dtype)]
    dims = [*array.shape, 1, 1][: max(3, array.ndim)]
    head = struct.pack("<II", magic, array.ndim) + struct.pack(f"<{len(dims)}I", *dims)
    return head + array.astype(array.dtype.newbyteorder("<")).tobytes()


def mat5(arrays: Mapping[str, Array], compressed: bool = False) -> bytes:
    """A MATLAB file of version 5 with arrays of bytes: 128 bytes of header, then a matrix element for each."""
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


def mat73(path: Path, arrays: Mapping[str, Array]) -> Path:
    """A MATLAB file of version 7.3: HDF5 behind 512 bytes of header, the axes the other way round."""
    import h5py

    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array.T)
    content = bytearray(path.read_bytes())
    content[:128] = b"MATLAB 7.3 MAT-file".ljust(124) + struct.pack("<H2s", 0x0200, b"IM")
    path.write_bytes(content)
    return path


def ply(vertices: Array, faces: Array, form: str = "binary_little_endian", normals: bool = False) -> bytes:
    """A triangle mesh; `normals` puts three more columns behind the coordinates."""
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


def tar(path: Path, members: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path: Path, members: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def packed(content: bytes) -> bytes:
    return gzip.compress(content, 1)


def jpeg(image: Array) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "jpeg", quality=95)
    return file.getvalue()


def attributes(files: Sequence[str], labels: Array) -> str:
    """The list of CelebA: the number of pictures, the names, and a row for each with -1 for no."""
    names = " ".join(f"Attribute_{j}" for j in range(labels.shape[1]))
    rows = [
        f"{name} {' '.join(f'{2 * v - 1:2d}' for v in row)}" for name, row in zip(files, labels.tolist(), strict=True)
    ]
    return "\n".join([str(len(files)), f"{names} ", *rows, ""])


def grid(values: Sequence[Sequence[float]]) -> Array:
    """All combinations, the last fastest."""
    return np.array(list(itertools.product(*values)))


def dsprites(sizes: tuple[int, ...], images: Array) -> dict[str, Array]:
    """The arrays of dSprites for a smaller grid: images and latents as whole numbers and as values."""
    shapes, scales, angles, columns, rows = sizes
    spread = [
        [1.0],
        [1.0 + i for i in range(shapes)],
        [0.5 + 0.5 * i / (scales - 1) for i in range(scales)],
        [2 * math.pi * i / (angles - 1) for i in range(angles)],
        [i / (columns - 1) for i in range(columns)],
        [i / (rows - 1) for i in range(rows)],
    ]
    classes = grid([range(len(values)) for values in spread]).astype(np.int64)
    return {"imgs": images, "latents_classes": classes, "latents_values": grid(spread)}


def shapes3d(sizes: tuple[int, ...], images: Array) -> dict[str, Array]:
    """The arrays of Shapes3D for a smaller grid."""
    *hues, scales, shapes, angles = sizes
    spread = [[i / 10 for i in range(size)] for size in hues]
    spread.append([0.75 + 0.5 * i / (scales - 1) for i in range(scales)])
    spread.append([float(i) for i in range(shapes)])
    spread.append([-30 + 60 * i / (angles - 1) for i in range(angles)])
    return {"images": images, "labels": grid(spread)}


def hdf5(path: Path, arrays: Mapping[str, Array], rows: int = 7) -> Path:
    """Deflated chunks of a few rows, as the published files have them."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            chunks = (min(rows, len(array)), *array.shape[1:])
            file.create_dataset(name, data=array, chunks=chunks, compression="gzip")
    return path
