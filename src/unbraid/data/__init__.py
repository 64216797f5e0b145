"""Datasets with known factors: sizes, names, index <-> factors, and the images."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import torch

from unbraid.data import readers
from unbraid.data.dataset import BinaryImages, FactorData, Progress
from unbraid.data.in_memory import ByteImages, Labelled
from unbraid.data.options import applied, check_options, peeled, split_name
from unbraid.data.own.load import from_arrays, from_dataset, from_file, from_folder, load_own
from unbraid.data.rendered.bodies import bodies
from unbraid.data.rendered.body_images import body_images
from unbraid.data.rendered.dsprites import dsprites
from unbraid.data.rendered.painted import color_dsprites, noisy_dsprites, scream_dsprites
from unbraid.data.rendered.shapes3d_rendered import shapes3d_rendered
from unbraid.data.rendered.sprites import sprites
from unbraid.data.rendered.toy import Toy, toy
from unbraid.errors import UserError, unknown

# Made here, without any file.
BUILT_IN: dict[str, Callable[..., FactorData]] = {
    "dsprites": dsprites,
    "color_dsprites": color_dsprites,
    "noisy_dsprites": noisy_dsprites,
    "scream_dsprites": scream_dsprites,
    "shapes3d_rendered": shapes3d_rendered,
    "sprites": sprites,
    "toy": toy,
}

# Made here with the extra `bodies`.
BODIES: dict[str, Callable[..., FactorData]] = {"bodies": bodies, "body_images": body_images}

# Read from the files their authors publish.
FILES: dict[str, Callable[..., FactorData]] = {
    "dsprites_file": readers.dsprites_file,
    "shapes3d": readers.shapes3d,
    "cars3d": readers.cars3d,
    "smallnorb": readers.smallnorb,
    "mpi3d_toy": readers.mpi3d_toy,
    "mpi3d_realistic": readers.mpi3d_realistic,
    "mpi3d_real": readers.mpi3d_real,
    "mpi3d_complex": readers.mpi3d_complex,
    "mnist": readers.mnist,
    "fashion_mnist": readers.fashion_mnist,
    "celeba": readers.celeba,
    "faust": readers.faust,
}

DATASETS: dict[str, Callable[..., FactorData]] = {**BUILT_IN, **BODIES, **FILES}


def load(
    name: str,
    *,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    root: str | Path | None = None,
) -> FactorData:
    """The dataset called `name` on `device`; `progress` is told the fraction done while it is made.

    A name may carry options (``dsprites?correlate=x:y:0.2``, ``dsprites?modified=FILE``), or be the path
    of a folder of images or of a .npy or .npz file. `root` is the folder of published files
    (UNBRAID_DATA unless given).

    >>> load("toy?subset=50")
    toy?subset=50: 960 examples of shape (16,), factors a 8, b 6, c 5, d 4
    """
    bare, asked = split_name(name)
    if bare not in DATASETS:
        if is_path(bare):
            path, changes = peeled(name)
            own = load_own(path, device=device, progress=progress)
            said = "&".join(f"{key}={value}" for key, value in changes.items())
            return applied(own, f"{own.name}{'&' if '?' in own.name else '?'}{said}", changes, root)
        raise UserError(unknown("dataset", bare, DATASETS) + " A path to a folder or file of your own will do too.")
    make = DATASETS[bare]
    options = check_options(bare, make, asked)
    if "root" in inspect.signature(make).parameters:
        options["root"] = root
    return applied(make(device=device, progress=progress, **options), name, asked, root)


def is_path(name: str) -> bool:
    """Whether a name that is no dataset's looks like a path."""
    return any(mark in name for mark in ("/", "\\", ".")) or Path(name).expanduser().exists()


__all__ = [
    "BODIES",
    "BUILT_IN",
    "DATASETS",
    "FILES",
    "BinaryImages",
    "ByteImages",
    "FactorData",
    "Labelled",
    "Progress",
    "Toy",
    "dsprites",
    "from_arrays",
    "from_dataset",
    "from_file",
    "from_folder",
    "load",
    "sprites",
    "toy",
]
