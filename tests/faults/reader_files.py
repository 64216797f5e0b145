"""Small valid files for every reader of published datasets and of manipulations, and the calls that read them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from support import formats
from support.formats import npy_bytes, random_pixels
from unbraid.data.files.catalogue import SOURCES

SPRITES = (2, 2, 2, 2, 2)
ROOM = (2, 2, 2, 2, 2, 2)
MPI3D = ((2, 2, 2, 1, 1, 1, 2),)
DIGITS = {"train": 5, "t10k": 3}
NORB = {"training": "smallnorb-5x46789x9x18x6x2x96x96", "testing": "smallnorb-5x01235x9x18x6x2x96x96"}
NORB_ROWS = {
    "training": [[4, 0, 0, 0], [9, 8, 34, 5], [6, 3, 12, 1], [7, 1, 2, 3]],
    "testing": [[0, 0, 0, 0], [5, 8, 34, 5], [1, 2, 20, 2], [3, 4, 6, 4]],
}
NVIDIA_SIZES = (2, 1, 1, 3, 1, 1, 1)
TRANSITION: list[list[formats.Measurement] | None] = [[(9.5, 20.0, 80 + t), (9.5, 52.0, 80 + t), None] for t in (0, 0)]
FACES = [f"{i:06d}.jpg" for i in range(1, 4)]


@dataclass(frozen=True)
class Reader:
    """A form in which a dataset is read.

    Attributes:
        datasets: The names of the datasets in the catalogue that are read in this form.
        write: Writes small valid files into an empty folder.
        read: Reads these files.
    """

    datasets: tuple[str, ...]
    write: Callable[[Path], None]
    read: Callable[[Path], object]


def write_all(folder: Path, contents: dict[str, bytes]) -> None:
    """Write files by name."""
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def write_sprites(folder: Path, *, hdf5: bool = False) -> None:
    arrays = formats.dsprites_arrays(SPRITES, random_pixels(32, 64, 64, high=2))
    if hdf5:
        formats.write_hdf5(folder / "d.hdf5", {key.replace("latents_", "latents/"): a for key, a in arrays.items()})
    else:
        formats.write_npz(folder / "d.npz", {key: npy_bytes(array) for key, array in arrays.items()})


def read_sprites(path: Path) -> object:
    from unbraid.data.readers.dsprites_file import read_dsprites

    return read_dsprites(path, SPRITES)


def write_rooms(folder: Path) -> None:
    formats.write_hdf5(folder / "3dshapes.h5", formats.shapes3d_arrays(ROOM, random_pixels(64, 64, 64, 3)))


def read_rooms(folder: Path) -> object:
    from unbraid.data.readers.shapes3d import read_shapes3d

    return read_shapes3d(folder / "3dshapes.h5", ROOM)


def write_mpi3d(folder: Path) -> None:
    formats.write_npz(folder / "m.npz", {"images": npy_bytes(random_pixels(16, 64, 64, 3))})


def read_robots(folder: Path) -> object:
    from unbraid.data.readers.mpi3d import read_mpi3d

    return read_mpi3d("mpi3d_toy", folder / "m.npz", MPI3D)


def write_digits(folder: Path, *, packed: bool) -> None:
    for part, rows in DIGITS.items():
        arrays = {"images-idx3": random_pixels(rows, 28, 28), "labels-idx1": random_pixels(rows, high=10)}
        for kind, array in arrays.items():
            content = formats.idx_bytes(array)
            content = formats.gzip_bytes(content) if packed else content
            write_all(folder, {f"{part}-{kind}-ubyte{'.gz' * packed}": content})


def files_of(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by name. Files that were removed keep their names."""
    return {path.name: path for path in sorted(folder.iterdir())}


def read_digits(folder: Path) -> object:
    from unbraid.data.readers.mnist import read_mnist

    suffix = ".gz" * any(path.suffix == ".gz" for path in folder.iterdir())
    names = [f"{part}-{kind}-ubyte{suffix}" for part in DIGITS for kind in ("images-idx3", "labels-idx1")]
    return read_mnist("mnist", "digit", {name: folder / name for name in names}, DIGITS)


def norb_names() -> dict[str, tuple[str, str]]:
    """Return the part and kind of each file of SmallNORB."""
    return {f"{stem}-{part}-{kind}.mat": (part, kind) for part, stem in NORB.items() for kind in ("dat", "cat", "info")}


def write_norb(folder: Path) -> None:
    for name, (part, kind) in norb_names().items():
        arrays = {
            "dat": random_pixels(4, 2, 96, 96),
            "cat": np.array([0, 4, 2, 1], np.int32),
            "info": np.array(NORB_ROWS[part], np.int32),
        }
        write_all(folder, {name: formats.norb_bytes(arrays[kind])})


def read_norb(folder: Path) -> object:
    from unbraid.data.readers.smallnorb import read_smallnorb

    return read_smallnorb({name: folder / name for name in norb_names()}, rows=4)


def write_faces(folder: Path, *, packed: bool) -> None:
    contents = {name: formats.jpeg_bytes(face(i)) for i, name in enumerate(FACES)}
    (folder / "list_attr_celeba.txt").write_text(formats.attribute_list(FACES, random_pixels(len(FACES), 40, high=2)))
    if packed:
        formats.write_zip(folder / "faces.zip", {f"img_align_celeba/{name}": c for name, c in contents.items()})
    else:
        write_all(folder, contents)


def face(seed: int) -> formats.Array:
    """Return a picture of the size of CelebA's."""
    return np.asarray(Image.fromarray(random_pixels(4, 3, 3, seed=seed)).resize((178, 218)))


def read_faces(images: Path) -> object:
    from unbraid.data.readers.celeba import read_celeba

    folder = images if images.is_dir() else images.parent
    return read_celeba(images, folder / "list_attr_celeba.txt", 16, rows=len(FACES))


def write_cars(folder: Path, form: str) -> None:
    images = {f"car_00{i}_mesh": np.asfortranarray(random_pixels(128, 128, 3, 24, 4, seed=i)) for i in (1, 2)}
    if form == "mat":
        write_all(folder, {f"{name}.mat": formats.mat5_bytes({"im": a}, name[6] == "1") for name, a in images.items()})
    elif form == "mat73":
        for name, array in images.items():
            formats.write_mat73(folder / f"{name}.mat", {"im": array})
    else:
        members = {f"data/cars/{name}.mat": formats.mat5_bytes({"im": array}) for name, array in images.items()}
        formats.write_tar(folder / "cars.tar.gz", members)


def read_cars(path: Path) -> object:
    from unbraid.data.readers.cars3d import read_cars3d

    return read_cars3d(path, objects=2)


def write_rooms_of_nvidia(folder: Path, *, packed: bool) -> None:
    pictures = random_pixels(math.prod(NVIDIA_SIZES), 128, 128, 3)
    contents = {f"{i:06d}.png": formats.png_bytes(image) for i, image in enumerate(pictures)}
    labels = formats.all_combinations([np.linspace(0, 1, size).tolist() for size in NVIDIA_SIZES])
    contents["train-rec.labels"] = formats.npy_bytes(labels)
    if packed:
        formats.write_zip(folder / "rooms.zip", contents)
    else:
        write_all(folder, contents)


def read_rooms_of_nvidia(folder: Path) -> object:
    from unbraid.data.readers.nvidia3d import FALCOR3D, read_nvidia3d

    packed = folder / "rooms.zip"
    labels = folder / FALCOR3D.labels
    files = {"rooms.zip": packed} if packed.exists() else {"a/images": folder, FALCOR3D.labels: labels}
    return read_nvidia3d(FALCOR3D, files, NVIDIA_SIZES)


def write_chairs(folder: Path) -> None:
    views = [(p, int(360 / 31 * k)) for p in (20, 30) for k in range(1, 32)]
    picture = formats.png_bytes(np.full((600, 600, 3), 200, np.uint8))
    members = {f"chairs/a/renders/image_{i:03d}_p{p:03d}_t{t:03d}_r096.png": picture for i, (p, t) in enumerate(views)}
    formats.write_tar(folder / "chairs.tar", members)


def read_chairs(folder: Path) -> object:
    from unbraid.data.readers.chairs3d import read_chairs3d

    return read_chairs3d(folder / "chairs.tar", chairs=1)


def write_meshes(folder: Path) -> None:
    """Write one mesh in each form of PLY."""
    vertices = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    for form in ("ascii", "binary_little_endian", "binary_big_endian"):
        content = formats.ply_bytes(vertices, np.arange(30).reshape(10, 3) % 20, form, normals=form == "ascii")
        write_all(folder, {f"{form}.ply": content})


def read_meshes(folder: Path) -> object:
    """Read the meshes, and then all of FAUST, which is incomplete and must be refused."""
    from unbraid.data.readers.faust import read_faust
    from unbraid.data.readers.ply import read_mesh

    plain = [path for path in files_of(folder).values() if path.is_file()]  # `read_faust` refuses pipes and devices
    for path in plain:
        with path.open("rb") as file:
            read_mesh(path, file)
    return read_faust(files_of(folder))


def write_masks(folder: Path) -> None:
    write_all(folder, {"masks.pickle": formats.pickle_bytes(formats.mask_sequences((2, 3)))})


def read_masks(folder: Path) -> object:
    from unbraid.data.readers.kitti_masks import read_kitti_masks

    return read_kitti_masks(folder / "masks.pickle", pairs=3)


def write_transitions(folder: Path) -> None:
    (folder / "transitions.csv").write_text(formats.transitions_csv([TRANSITION]))


def read_transitions(folder: Path) -> object:
    from unbraid.data.readers.natural_sprites import read_natural_sprites

    return read_natural_sprites(folder / "transitions.csv", pairs=2)


def write_pattern(folder: Path) -> None:
    import torch

    from unbraid.data import load
    from unbraid.data.manipulation_files import describe_data, write_manipulation

    data = load("sprites")
    patterns, which = torch.zeros(2, *data.shape, dtype=torch.int8), torch.zeros(len(data), dtype=torch.int16)
    write_manipulation(folder / "pattern.safetensors", patterns, which, {"eps": 0.1, **describe_data(data)})


def read_pattern(folder: Path) -> object:
    from unbraid.data import load

    return load(f"sprites?modified={folder / 'pattern.safetensors'}").images(range(4))


READERS: dict[str, Reader] = {
    "dsprites.npz": Reader(("dsprites_file",), write_sprites, lambda folder: read_sprites(folder / "d.npz")),
    "dsprites.hdf5": Reader(
        ("dsprites_file",),
        lambda folder: write_sprites(folder, hdf5=True),
        lambda folder: read_sprites(folder / "d.hdf5"),
    ),
    "shapes3d.h5": Reader(("shapes3d",), write_rooms, read_rooms),
    "mpi3d.npz": Reader(("mpi3d_toy", "mpi3d_realistic", "mpi3d_real", "mpi3d_complex"), write_mpi3d, read_robots),
    "mnist": Reader(("mnist", "fashion_mnist"), lambda folder: write_digits(folder, packed=False), read_digits),
    "mnist.gz": Reader(("mnist", "fashion_mnist"), lambda folder: write_digits(folder, packed=True), read_digits),
    "smallnorb": Reader(("smallnorb",), write_norb, read_norb),
    "celeba": Reader(("celeba",), lambda folder: write_faces(folder, packed=False), read_faces),
    "celeba.zip": Reader(
        ("celeba",), lambda folder: write_faces(folder, packed=True), lambda folder: read_faces(folder / "faces.zip")
    ),
    "cars3d.tar.gz": Reader(
        ("cars3d",), lambda folder: write_cars(folder, "tar"), lambda folder: read_cars(folder / "cars.tar.gz")
    ),
    "cars3d.mat": Reader(("cars3d",), lambda folder: write_cars(folder, "mat"), read_cars),
    "cars3d.mat73": Reader(("cars3d",), lambda folder: write_cars(folder, "mat73"), read_cars),
    "nvidia3d": Reader(
        ("isaac3d", "falcor3d"), lambda folder: write_rooms_of_nvidia(folder, packed=False), read_rooms_of_nvidia
    ),
    "nvidia3d.zip": Reader(
        ("isaac3d", "falcor3d"), lambda folder: write_rooms_of_nvidia(folder, packed=True), read_rooms_of_nvidia
    ),
    "chairs3d.tar": Reader(("chairs3d",), write_chairs, read_chairs),
    "faust.ply": Reader(("faust",), write_meshes, read_meshes),
    "kitti_masks": Reader(("kitti_masks",), write_masks, read_masks),
    "natural_sprites": Reader(("natural_sprites",), write_transitions, read_transitions),
    "manipulation": Reader((), write_pattern, read_pattern),
}


def check_readers() -> None:
    """Raise an error if a dataset that is read from files has no reader here."""
    published = {name for name, source in SOURCES.items() if not source.built_in}
    missing = published - {name for reader in READERS.values() for name in reader.datasets}
    assert not missing, f"tests/faults/reader_files.py has no files for {missing}"
