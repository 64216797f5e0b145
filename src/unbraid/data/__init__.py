"""Datasets with ground-truth factors: the registry, and functions that load data by name or from a user's own files."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable
from pathlib import Path

import torch

from unbraid.data import readers
from unbraid.data.dataset import BinaryImages, FactorData, Progress
from unbraid.data.in_memory import ByteImages, Labelled
from unbraid.data.options import apply_options, check_options, check_repeated_options, split_name, split_own_name
from unbraid.data.own.arrays import OwnData, from_arrays
from unbraid.data.own.load import from_file, from_folder, load_own
from unbraid.data.own.torch_dataset import from_dataset
from unbraid.data.rendered.bodies import bodies
from unbraid.data.rendered.body_images import body_images
from unbraid.data.rendered.dsprites import dsprites
from unbraid.data.rendered.painted import color_dsprites, noisy_dsprites, scream_dsprites
from unbraid.data.rendered.shapes3d_rendered import shapes3d_rendered
from unbraid.data.rendered.sprites import sprites
from unbraid.data.rendered.square_torus import square_torus
from unbraid.data.rendered.toy import Toy, toy
from unbraid.errors import UserError, unknown_name_message
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.files import expand_user
from unbraid.runtime.plugins import Registry

# Datasets that are generated and need no files.
BUILT_IN: dict[str, Callable[..., FactorData]] = {
    "dsprites": dsprites,
    "color_dsprites": color_dsprites,
    "noisy_dsprites": noisy_dsprites,
    "scream_dsprites": scream_dsprites,
    "shapes3d_rendered": shapes3d_rendered,
    "sprites": sprites,
    "square_torus": square_torus,
    "toy": toy,
}

# Datasets that are generated with packages of the optional dependency group `bodies`.
BODIES: dict[str, Callable[..., FactorData]] = {"bodies": bodies, "body_images": body_images}

# Datasets that are read from the files that their authors publish.
FILES: dict[str, Callable[..., FactorData]] = {
    "dsprites_file": readers.dsprites_file,
    "shapes3d": readers.shapes3d,
    "cars3d": readers.cars3d,
    "smallnorb": readers.smallnorb,
    "mpi3d_toy": readers.mpi3d_toy,
    "mpi3d_realistic": readers.mpi3d_realistic,
    "mpi3d_real": readers.mpi3d_real,
    "mpi3d_complex": readers.mpi3d_complex,
    "isaac3d": readers.isaac3d,
    "falcor3d": readers.falcor3d,
    "chairs3d": readers.chairs3d,
    "mnist": readers.mnist,
    "fashion_mnist": readers.fashion_mnist,
    "celeba": readers.celeba,
    "faust": readers.faust,
    "kitti_masks": readers.kitti_masks,
    "natural_sprites": readers.natural_sprites,
}

DATASETS: Registry[Callable[..., FactorData]] = Registry("data", {**BUILT_IN, **BODIES, **FILES})


@explain_unknown_arguments("Options of a dataset are part of its name, as in sprites?subset=1000.")
def load(
    name: str | os.PathLike[str],
    *,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    root: str | Path | None = None,
) -> FactorData:
    """Load a dataset by name, or from a path to your own data.

    Args:
        name: A key of `DATASETS`, or the path of a folder of images or of a .npy, .npz, .parquet or .h5ad file. Options
            may follow after a question mark, as in ``dsprites?correlate=x:y:0.2`` or ``dsprites?modified=FILE``.
        device: Device on which to store the examples.
        progress: Called with the finished fraction, from 0 to 1, while the dataset is generated or converted.
        root: Folder in which the files of published datasets are stored. The default is the environment variable
            UNBRAID_DATA. If it is not set, the default is $XDG_DATA_HOME/unbraid, or else ~/.local/share/unbraid.

    Returns:
        The dataset.

    Raises:
        UserError: If the name or an option is unknown, if files are missing or damaged, or if there are no data at the
            path.

    >>> load("toy?subset=50")
    toy?subset=50: 960 examples of shape (16,), factors a 8, b 6, c 5, d 4
    """
    if not isinstance(name, str | os.PathLike):
        raise UserError(
            f"A dataset is loaded by its name or path. Got {type(name).__name__} instead. For arrays in memory, use "
            "ub.data.from_arrays, and for a torch dataset, use ub.data.from_dataset."
        )
    name = os.fspath(name)
    plain_name, given = split_name(name)
    if plain_name not in DATASETS:
        if is_path(plain_name):
            return _load_path(name, device, progress, root)
        raise UserError(
            unknown_name_message("dataset", plain_name, DATASETS)
            + f" Or pass the path of your own folder or file.{_similar_path(plain_name)}"
        )
    check_repeated_options(name)
    function = DATASETS[plain_name]
    if not DATASETS.is_built_in(plain_name):
        return _load_added(function, name, device, progress, root)
    options = check_options(plain_name, function, given)
    if "root" in inspect.signature(function).parameters:
        options["root"] = root
    return apply_options(function(device=device, progress=progress, **options), name, given, root)


def _load_added(
    function: Callable[..., FactorData],
    name: str,
    device: str | torch.device,
    progress: Progress | None,
    root: str | Path | None,
) -> FactorData:
    """Load a dataset that another package has registered.

    The registered function may take any of the arguments `device`, `progress` and `root`, or none of them.
    """
    plain_name, given = split_name(name)
    options = check_options(plain_name, function, given)
    usual = {"device": device, "progress": progress, "root": root}
    parameters = inspect.signature(function).parameters
    data = function(**options, **{key: value for key, value in usual.items() if key in parameters})
    if not isinstance(data, FactorData):
        raise UserError(
            f"The function of the dataset {plain_name!r} must return a dataset, for example that of "
            f"ub.data.from_arrays. Got {type(data).__name__} instead."
        )
    data.name = plain_name
    if isinstance(data, OwnData) and data.in_memory:
        data.source = data.fingerprint  # a source means that the data can be loaded again by name
    return apply_options(data.to(device), name, given, root)


def _similar_path(name: str) -> str:
    """Return a sentence that names a file or folder with a similar name in the working directory, or an empty text."""
    near = difflib.get_close_matches(name, [path.name for path in Path.cwd().iterdir()], n=1, cutoff=0.75)
    return f" There is {near[0]!r} in the working directory." if near else ""


def _load_path(name: str, device: str | torch.device, progress: Progress | None, root: str | Path | None) -> FactorData:
    """Load a user's own data from a path with options."""
    path, image_options = split_own_name(name)
    data = load_own(path, device=device, progress=progress)
    suffix = "&".join(f"{key}={value}" for key, value in image_options.items())
    return apply_options(data, f"{data.name}{'&' if '?' in data.name else '?'}{suffix}", image_options, root)


def is_path(name: str) -> bool:
    """Return whether a name that is not in the registry looks like a path."""
    if any(mark in name for mark in ("/", "\\", ".")):
        return True
    try:
        return expand_user(name).exists()
    except OSError:  # a name that is too long for a file
        return False


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
