"""Files of the weights of published networks, which settings name by a digest of their content.

A setting with such a file contains a name like ``vgg19-dcbb9e9d0a1b2c3d``: the kind of the network, and the first 16
digits of the SHA-256 of the file. The id of a run therefore depends on the content of the file, and not on its path. A
moved file gives the same runs, and a changed file gives other runs. Where the file is must be known only for training.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from unbraid.data.files.locate import data_folder
from unbraid.errors import UserError
from unbraid.runtime.files import cache_folder, make_folder, refuse_special_file, resolve_path, write_atomic

SUFFIXES = (".pth", ".pt", ".safetensors")
FOLDER = "networks"  # the name of the folder of files, in the data folder, and of records, in the cache folder
DIGITS = 16
_PATHS: dict[str, Path] = {}  # the paths that were given in this process, by the names of the files


def name_network_file(kind: str, given: str | Path) -> str:
    """Return the name of a file of weights.

    Args:
        kind: The kind of the network, such as "vgg19".
        given: The path of the file, or its name, which is returned unchanged.

    Raises:
        UserError: If there is no such file, if it cannot be read, or if its name has another suffix than .pth, .pt or
            .safetensors.
    """
    if re.fullmatch(rf"{kind}-[0-9a-f]{{{DIGITS}}}", str(given)):
        return str(given)
    path = _existing_file(given)
    name = f"{kind}-{_digest(path)}"
    if _PATHS.get(name) != path:
        _PATHS[name] = path
        _record_path(name, path)
    return name


def _existing_file(given: str | Path) -> Path:
    """Return the absolute path of a file of weights, or raise a UserError if there is no such file."""
    try:
        path = resolve_path(given)
        refuse_special_file(path)
        usable = path.is_file() and path.suffix.lower() in SUFFIXES
    except UserError:
        raise
    except (OSError, ValueError):  # for example, the path is too long or contains a null character
        usable = False
    if not usable:
        raise UserError(
            f"The file of a network must be an existing file that ends in {', '.join(SUFFIXES)}. Got "
            f"{str(given)[:200]!r} instead. Pass the path of the file."
        )
    return path


def find_network_file(name: str) -> Path:
    """Return the path of the file with a name that `name_network_file` returned.

    These places are searched: the paths that were given in this process, the last path that was given on this machine,
    which the cache folder records, and the folder ``networks`` of the data folder.

    Raises:
        UserError: If no file with this content is found.
    """
    for path in _candidates(name):
        with suppress(OSError, ValueError):
            if path.is_file() and _digest(path) == name.rpartition("-")[2]:
                return path
    kind, _, digest = name.rpartition("-")
    recorded = _PATHS.get(name) or _recorded_path(name)
    last = f"{recorded} is not, or no longer, this file. " if recorded else ""
    raise UserError(
        f"The file of the network {name} must be available for training. Got no file whose SHA-256 begins with "
        f"{digest}. {last}Pass the path of the file again, or save it as {data_folder() / FOLDER / name}.pth or "
        f".safetensors. A file with another content is another {kind}, and its runs have other ids."
    )


def _candidates(name: str) -> Iterator[Path]:
    """Yield the paths at which the file may be."""
    known = (_PATHS.get(name), _recorded_path(name))
    yield from (path for path in known if path is not None)
    yield from (data_folder() / FOLDER / f"{name}{suffix}" for suffix in SUFFIXES)


def _digest(path: Path) -> str:
    """Return the first digits of the SHA-256 of a file. It is computed again only if the file has changed."""
    try:
        state = path.stat()
        return _digest_of_state(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise UserError(f"{path} could not be read: {error.strerror}. Check its permissions.") from error


@functools.lru_cache(maxsize=16)
def _digest_of_state(path: Path, size: int, modified: int) -> str:
    """Return the digest of a file with this size and time of modification."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:DIGITS]


def _record_path(name: str, path: Path) -> None:
    """Record in the cache folder where a file is, for other processes on this machine. Failures are ignored."""
    with suppress(OSError, ValueError):
        target = cache_folder() / FOLDER / f"{name}.txt"
        make_folder(target.parent)
        write_atomic(target, str(path).encode())


def _recorded_path(name: str) -> Path | None:
    """Return the path that the cache folder records for a file, or None."""
    try:
        return Path((cache_folder() / FOLDER / f"{name}.txt").read_text())
    except (OSError, ValueError):
        return None
