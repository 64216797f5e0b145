"""Studies by name, or from a user's file: a Python file with a function `study`, or a TOML or JSON file with a grid."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbraid.errors import UserError, unknown_name_message
from unbraid.runs.only import text_as_typed
from unbraid.runs.spec import RunSpec, method_class
from unbraid.runtime.schema import WrongContentError, check
from unbraid.studies.planned import PlannedRun, Setting, Study, grid
from unbraid.studies.published import STUDIES

MAX_RUNS = 10_000_000  # maximum number of runs of a study
SPEC_KEYS = (
    "steps", "batch", "learning_rate", "latents", "net", "likelihood", "factorised_support", "weight_decay",
    "clip_norm", "orthogonal_jacobian", "sparse_jacobian", "hessian_penalty",
)  # fmt: skip


def find_study(name: str) -> Study:
    """Return the study in `STUDIES` called `name`, or the study in the file with this path (.py, .toml or .json)."""
    if name in STUDIES:
        return STUDIES[name]
    path = Path(name)
    readers = {".py": study_from_python, ".toml": study_from_grid, ".json": study_from_grid}
    if path.suffix not in readers:
        message = unknown_name_message("study", name, STUDIES)
        raise UserError(f"{message} Or give the path of your own .py, .toml or .json file.")
    if not path.is_file():
        raise UserError(f"There is no file {path}. Choose a study ({', '.join(STUDIES)}) or create the file.")
    return readers[path.suffix](path)


def study_from_python(path: Path) -> Study:
    """Return the study in a Python file. The function `study()` of the file must yield `RunSpec` or `PlannedRun`."""
    module = importlib.util.spec_from_file_location(path.stem, path)
    assert module is not None
    assert module.loader is not None
    loaded = importlib.util.module_from_spec(module)
    with convert_user_errors(path):
        module.loader.exec_module(loaded)
    make = getattr(loaded, "study", None)
    if not callable(make):
        raise UserError(f"{path} must have a function study() that yields runs. Add this function.")

    def study() -> Iterator[PlannedRun]:
        with convert_user_errors(path):
            runs = list(make())
        for run in runs:
            if not isinstance(run, PlannedRun | RunSpec):
                kind = type(run).__name__
                raise UserError(f"study() of {path} must yield RunSpec or PlannedRun. Got {kind} instead.")
        yield from plan_runs(runs)

    return study


@contextmanager
def convert_user_errors(path: Path) -> Iterator[None]:
    """Convert every exception that a user's file raises into a UserError, which is printed in one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} raised {type(error).__name__}: {error}. Correct the file.") from error


def plan_runs(runs: Sequence[RunSpec | PlannedRun]) -> list[PlannedRun]:
    """Return the planned runs for a list of specs. Runs that are already planned are not changed.

    The level of a run is the index of its strength in the sorted list of all strengths of its method.

    >>> from unbraid.methods import VAE, BetaVAE
    >>> specs = [RunSpec(method, "toy") for method in (BetaVAE(beta=4.0), BetaVAE(beta=1.0), VAE())]
    >>> [(run.index, run.strength, run.level) for run in plan_runs(specs)]
    [(0, 4.0, 1), (1, 1.0, 0), (2, 0.0, 0)]
    """
    strengths: dict[str, set[float]] = {}
    for run in runs:
        spec = run.spec if isinstance(run, PlannedRun) else run
        strengths.setdefault(spec.flat()["method"], set()).add(spec.method.strength)
    levels = {name: sorted(values) for name, values in strengths.items()}
    return [
        run
        if isinstance(run, PlannedRun)
        else PlannedRun(i, run, run.method.strength, levels[run.flat()["method"]].index(run.method.strength))
        for i, run in enumerate(runs)
    ]


def study_from_grid(path: Path) -> Study:
    """Return the study in a TOML or JSON file.

    The file has the entries `data` (names of datasets), `seeds` (number of seeds), fields of `RunSpec`, and one table
    `method` per method.
    """
    content = read_grid(path)
    tables = content.method if isinstance(content.method, list) else [content.method]
    with name_file_in_errors(path):
        settings = [setting for table in tables for setting in table_settings(table)]
    data = [content.data] if isinstance(content.data, str) else content.data
    count = len(data) * len(settings) * content.seeds
    if not 1 <= count <= MAX_RUNS:
        raise UserError(f"{path} must define between 1 and {MAX_RUNS:,} runs. Got {count:,} instead. Change 'seeds'.")
    given = {name: value for name in SPEC_KEYS if (value := getattr(content, name)) is not None}

    def study() -> Iterator[PlannedRun]:
        with name_file_in_errors(path):
            yield from grid(data, settings, content.seeds, **given)

    return study


@dataclass(frozen=True)
class GridFile:
    """The content of a TOML or JSON file with a grid of runs. Fields that are None have the default of `RunSpec`."""

    data: str | list[str]
    method: dict[str, Any] | list[dict[str, Any]]
    seeds: int = 1
    steps: int | None = None
    batch: int | None = None
    learning_rate: float | None = None
    latents: int | None = None
    net: str | None = None
    likelihood: str | None = None
    factorised_support: float | None = None
    weight_decay: float | None = None
    clip_norm: float | None = None
    orthogonal_jacobian: float | None = None
    sparse_jacobian: float | None = None
    hessian_penalty: float | None = None


def read_grid(path: Path) -> GridFile:
    """Read a TOML or JSON file with a grid of runs. If an entry is wrong, raise a UserError that names it."""
    try:
        text = path.read_text()
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError includes bytes that are not text
        raise UserError(f"{path} cannot be read: {error}. Correct the file.") from error
    if not isinstance(content, dict):
        found = json.dumps(content)
        shown = found if len(found) <= 60 else f"{found[:60]}..."
        raise UserError(f"{path} must contain a table with data and method. Got {shown} instead.")
    known = [field.name for field in dataclasses.fields(GridFile)]
    for key in content:
        if key not in known:
            raise UserError(unknown_name_message(f"entry of {path}", key, known))
    if not content.get("data") or not content.get("method"):
        raise UserError(f"{path} must have an entry data = [...] and a table [[method]] with a name. Add them.")
    try:
        grid_file: GridFile = check(GridFile, content)
    except WrongContentError as error:
        raise UserError(f"{path} has a wrong entry. {error} Correct the file.") from error
    return grid_file


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Add the name of a study file to the message of a UserError."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path} has a wrong entry. {error}") from error


def table_settings(table: dict[str, Any]) -> list[Setting]:
    """Return one setting for each combination of the values in a table `method` of a study file.

    The first list with several values defines the levels. The name of the variant begins with the entry `variant` of
    the table, if there is one, and continues with the values from all other lists with several values.
    """
    fields = dict(table)
    name, variant = fields.pop("name", None), fields.pop("variant", "")
    for key, value in {"name": name, "variant": variant}.items():
        if not isinstance(value, str):
            raise UserError(f'A table [[method]] must have a {key} = "...". Got {value!r} instead.')
    method = method_class(name)
    known = [field.name for field in dataclasses.fields(method)]
    for key in fields:
        if key not in known:
            raise UserError(unknown_name_message(f"field of the method {name}", key, known))
    lists = {key: value if isinstance(value, list) else [value] for key, value in fields.items()}
    if (count := math.prod(map(len, lists.values()))) > MAX_RUNS:
        raise UserError(f"The method {name} must have at most {MAX_RUNS:,} combinations. Got {count:,} instead.")
    swept = next((key for key, values in lists.items() if len(values) > 1), next(iter(lists), None))
    settings = []
    for values in itertools.product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        value = chosen.get(swept or "", 0.0)
        level = lists[swept].index(value) if swept else 0
        made = method(**chosen)
        strength = float(value) if isinstance(value, int | float) else 0.0
        further = [f"{key} = {text_as_typed(chosen[key])}" for key in lists if key != swept and len(lists[key]) > 1]
        settings.append(Setting(made, strength, level, variant=", ".join([variant, *further] if variant else further)))
    return settings
