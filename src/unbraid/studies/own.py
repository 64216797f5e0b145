"""Studies of one's own: a Python file with a function `study`, or a plain grid in TOML or JSON."""

from __future__ import annotations

import importlib.util
import itertools
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unbraid.errors import UserError, unknown
from unbraid.runs.spec import RunSpec, method_class
from unbraid.studies.planned import Planned, Setting, Study, crossed
from unbraid.studies.published import STUDIES

SPEC = ("steps", "batch", "learning_rate", "latents", "net", "likelihood")


def find(name: str) -> Study:
    """The study called `name`, or the one in a file of that path."""
    if name in STUDIES:
        return STUDIES[name]
    path = Path(name)
    readers = {".py": of_python, ".toml": of_grid, ".json": of_grid}
    if path.suffix not in readers:
        raise UserError(unknown("study", name, STUDIES) + " A file .py, .toml or .json of your own will do too.")
    if not path.is_file():
        raise UserError(f"There is no file {path}. Choose a study ({', '.join(STUDIES)}) or write that file.")
    return readers[path.suffix](path)


def of_python(path: Path) -> Study:
    """A file whose function `study()` gives specs, or runs with their place in a sweep."""
    module = importlib.util.spec_from_file_location(path.stem, path)
    assert module is not None
    assert module.loader is not None
    loaded = importlib.util.module_from_spec(module)
    module.loader.exec_module(loaded)
    make = getattr(loaded, "study", None)
    if not callable(make):
        raise UserError(f"{path} must have a function study() that gives runs. Add one.")

    def study() -> Iterator[Planned]:
        for i, run in enumerate(make()):
            if not isinstance(run, Planned | RunSpec):
                raise UserError(f"study() of {path} must give RunSpec or Planned. Got {type(run).__name__} instead.")
            yield run if isinstance(run, Planned) else numbered(i, run)

    return study


def numbered(index: int, spec: RunSpec) -> Planned:
    """A spec as a run of a study that says nothing of sweeps."""
    return Planned(index, spec, spec.method.strength, 0)


def of_grid(path: Path) -> Study:
    """A grid: `data` (names), `seeds` (how many), settings of runs, and `method` tables with lists of values."""
    try:
        grid = tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())
    except (ValueError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}. Mend it.") from error
    known = ("data", "seeds", "method", *SPEC)
    for key in grid:
        if key not in known:
            raise UserError(unknown(f"entry of {path}", key, known))
    if not grid.get("data") or not grid.get("method"):
        raise UserError(f"{path} must say data = [...] and have a table [[method]] with a name. Add them.")
    data = [grid["data"]] if isinstance(grid["data"], str) else grid["data"]
    methods = grid["method"] if isinstance(grid["method"], list) else [grid["method"]]
    settings = [setting for table in methods for setting in sweep(table)]
    spec = {key: grid[key] for key in SPEC if key in grid}
    return lambda: crossed(data, settings, int(grid.get("seeds", 1)), **spec)


def sweep(table: dict[str, Any]) -> list[Setting]:
    """Every combination of a method's listed values; the level counts those of the first list."""
    fields = dict(table)
    kind = method_class(str(fields.pop("name", "")))
    lists = {key: value if isinstance(value, list) else [value] for key, value in fields.items()}
    swept = next((key for key, values in lists.items() if len(values) > 1), next(iter(lists), None))
    found = []
    for values in itertools.product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        strength = chosen.get(swept or "", 0.0)
        level = lists[swept].index(strength) if swept else 0
        found.append(Setting(kind(**chosen), float(strength) if isinstance(strength, int | float) else 0.0, level))
    return found
