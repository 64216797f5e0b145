"""The file in which `unbraid tune` keeps the launch settings that it found for a GPU.

The file is in the folder `launch` of the cache folder. Its name contains the GPU and a digest of everything that the
settings depend on: the GPU, its compute capability, the versions of PyTorch and Triton, and the source code of the
kernels. Files with another digest are not used. The content is checked when the file is read.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import io
import json
import math
import os
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from unbraid.accel.launch_candidates import KEYS, MAX_RUNS, Key, Launch, TunedPrecision, candidates
from unbraid.errors import UserError, warn_user
from unbraid.runtime.files import cache_folder, make_folder, write_atomic
from unbraid.runtime.schema import WrongContentError, read_json

FORMAT = 1
REMEDY = "Delete it with `unbraid tune --reset`, and run `unbraid tune` if you want to search again."


@dataclass(frozen=True)
class Environment:
    """Everything that launch settings depend on.

    Attributes:
        gpu: The name of the GPU.
        capability: Its compute capability, such as "9.0".
        torch: The version of PyTorch.
        triton: The version of Triton.
        kernels: A digest of the source code of the kernels and of the settings that are tried.
    """

    gpu: str
    capability: str
    torch: str
    triton: str
    kernels: str

    @property
    def file_start(self) -> str:
        """The beginning of the names of all files of this GPU."""
        return f"{re.sub(r'[^A-Za-z0-9]+', '-', self.gpu)[:80]}-{self.capability}-"

    @property
    def file(self) -> Path:
        """The path of the file with the launch settings for this environment."""
        digest = hashlib.sha256(json.dumps(dataclasses.asdict(self)).encode()).hexdigest()
        return launch_folder() / f"{self.file_start}{digest[:12]}.json"


@dataclass(frozen=True)
class Found:
    """The result of the search for one layer and one number of runs.

    Attributes:
        kernel: The name of the kernel.
        c: For a convolution, the channels of the larger of its two images. For a dense layer, the number of inputs.
        m: For a convolution, the channels of the smaller image. For a dense layer, the number of outputs.
        runs: The number of runs.
        settings: The fastest settings, or None if they are not clearly faster than those of the package.
        microseconds: The time of one call with these settings.
        package_microseconds: The time with the settings of the package, or None if the GPU cannot run them.
    """

    kernel: str
    c: int
    m: int
    runs: int
    settings: dict[str, int | bool] | None
    microseconds: float
    package_microseconds: float | None

    @property
    def key(self) -> Key:
        return self.kernel, self.c, self.m


@dataclass(frozen=True)
class LaunchFile:
    """The content of the file: the environment, and what was found for each precision."""

    environment: Environment
    bf16: list[Found] = field(default_factory=list)
    tf32: list[Found] = field(default_factory=list)
    format: int = FORMAT

    def found(self, precision: TunedPrecision) -> list[Found]:
        """Return what was found for a precision."""
        return self.bf16 if precision == "bf16" else self.tf32

    @functools.cached_property
    def tables(self) -> dict[str, dict[Key, dict[int, Launch | None]]]:
        """The settings of each precision and layer by number of runs."""
        tables: dict[str, dict[Key, dict[int, Launch | None]]] = {"bf16": {}, "tf32": {}}
        for precision in get_args(TunedPrecision):
            for entry in self.found(precision):
                tables[precision].setdefault(entry.key, {})[entry.runs] = entry.settings
        return tables


def launch_folder() -> Path:
    """Return the folder of all files of launch settings."""
    return cache_folder() / "launch"


def is_interpreted() -> bool:
    """Return whether kernels run in the interpreter of Triton, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def current_environment(device: int | None = None) -> Environment | None:
    """Return the environment of a GPU, or of the interpreter of Triton. Return None without a GPU or without Triton.

    Args:
        device: The index of the GPU. The default is the current GPU.
    """
    import torch

    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None
    gpu, capability = "Triton interpreter", "0.0"
    if not is_interpreted():
        if not torch.cuda.is_available():
            return None
        gpu = torch.cuda.get_device_name(device)
        capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
    return Environment(gpu, capability, str(torch.__version__), triton, kernel_digest())


@functools.cache
def kernel_digest() -> str:
    """Return a digest of the source code of the kernels and of the settings that are tried. Comments do not count."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for file in (*sorted((folder / "kernels").glob("*.py")), folder / "launch_candidates.py"):
        digest.update("\0".join([file.name, *code_tokens(file.read_text(encoding="utf-8"))]).encode() + b"\0")
    return digest.hexdigest()[:16]


def code_tokens(source: str) -> Iterator[str]:
    """Yield the tokens of Python code, without comments and blank lines.

    >>> list(code_tokens("x = 1  # one"))
    ['x', '=', '1']
    """
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER):
            yield token.string


def read_launch_file(environment: Environment) -> LaunchFile | None:
    """Read the file of an environment, or return None if it does not exist.

    If it does not exist but the GPU has a file for other versions, there is a warning.

    Raises:
        UserError: If the file is damaged.
    """
    file = environment.file
    if file.exists():
        return _read_checked(file, environment)
    if stale := stale_files(environment):
        warn_user(
            f"The launch settings in {stale[0]} were found with other versions of PyTorch, Triton or unbraid, and are "
            "not used. Run `unbraid tune` to search again, or `unbraid tune --reset` to delete them."
        )
    return None


def stale_files(environment: Environment) -> list[Path]:
    """Return the files of the same GPU that are not used, because they belong to other versions."""
    return [file for file in files_of_gpu(environment) if file != environment.file]


def files_of_gpu(environment: Environment) -> list[Path]:
    """Return the files of a GPU for all versions of PyTorch, Triton and the kernels."""
    return sorted(launch_folder().glob(f"{environment.file_start}*.json"))


def write_launch_file(content: LaunchFile) -> None:
    """Write launch settings to the file of the environment in which they were found. An existing file is replaced."""
    make_folder(launch_folder())
    write_atomic(content.environment.file, (json.dumps(dataclasses.asdict(content), indent=1) + "\n").encode())
    user_table.cache_clear()


def delete_launch_files(environment: Environment) -> list[Path]:
    """Delete all files of a GPU, including damaged files and files for other versions, and return their paths."""
    files = files_of_gpu(environment)
    for file in files:
        file.unlink(missing_ok=True)
    user_table.cache_clear()
    return files


@functools.cache
def user_table(device: int | None = None) -> LaunchFile | None:
    """Return the settings that were found for a GPU, or None. The file is read once per process.

    Raises:
        UserError: If the file is damaged.
    """
    environment = current_environment(device)
    return None if environment is None else read_launch_file(environment)


def launch_provenance(device: int | None = None) -> dict[str, str]:
    """Return the name of a GPU and where its launch settings come from, for the provenance of a run."""
    environment = current_environment(device)
    if environment is None:
        return {}
    used = user_table(device) is not None
    source = f"{environment.file.name}, sha256 {_file_digest(environment.file)}" if used else "unbraid"
    return {"gpu": environment.gpu, "launch_settings": source}


def _file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _read_checked(file: Path, environment: Environment) -> LaunchFile:
    """Read a file and check its keys, its environment and every setting."""
    content = read_json(file, LaunchFile, REMEDY)
    raw = json.loads(file.read_bytes())
    try:
        _check_keys(LaunchFile, raw, "")
        _check_keys(Environment, raw["environment"], "environment")
        if content.format != FORMAT or content.environment != environment:
            raise WrongContentError("Its format must be known, and its GPU and versions must match its name.")
        for precision in get_args(TunedPrecision):
            for i, entry in enumerate(content.found(precision)):
                _check_keys(Found, raw[precision][i], f"{precision}[{i}]")
                _check_found(entry, precision, f"{precision}[{i}]")
            _check_duplicates(content.found(precision), precision)
    except WrongContentError as error:
        raise UserError(f"{file} is damaged. {error} {REMEDY}") from error
    return content


def _check_keys(kind: Any, value: dict[str, Any], where: str) -> None:
    """Raise an error if an object has keys that are not fields of a dataclass."""
    unknown = sorted(set(value) - {entry.name for entry in dataclasses.fields(kind)})
    if unknown:
        raise WrongContentError(f"The unknown key {unknown[0]!r}{f' in {where!r}' if where else ''} must not be there.")


def _check_found(entry: Found, precision: TunedPrecision, where: str) -> None:
    """Raise an error if an entry is not a possible result of the search."""
    if entry.key not in KEYS:
        raise WrongContentError(f"The field {where!r} must be a layer that is tuned. Got {entry.key} instead.")
    if not 1 <= entry.runs <= MAX_RUNS:
        raise WrongContentError(f"The field '{where}.runs' must be from 1 to {MAX_RUNS}. Got {entry.runs} instead.")
    for time in (entry.microseconds, entry.package_microseconds):
        if time is not None and not (math.isfinite(time) and time > 0):
            raise WrongContentError(f"The times of {where!r} must be positive. Got {time} instead.")
    allowed = [_as_text(launch) for launch in candidates(entry.key, precision)]
    if entry.settings is not None and _as_text(entry.settings) not in allowed:
        raise WrongContentError(
            f"The field '{where}.settings' must be settings that unbraid tune tries for this layer. Got "
            f"{_as_text(entry.settings)} instead."
        )


def _as_text(launch: Launch) -> str:
    """Return settings as text. In Python, 1 and True are equal, but their texts are not."""
    return json.dumps(launch, sort_keys=True)


def _check_duplicates(found: list[Found], precision: str) -> None:
    """Raise an error if a layer has two results for the same number of runs."""
    seen = set()
    for entry in found:
        if (entry.key, entry.runs) in seen:
            raise WrongContentError(f"{precision!r} has {entry.key} with {entry.runs} runs twice.")
        seen.add((entry.key, entry.runs))
