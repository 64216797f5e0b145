"""Divide the runs of a sweep into the sides of a comparison, one side for each value of chosen settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unbraid.errors import UserError
from unbraid.runs.folder import RunFolder
from unbraid.runs.labels import differing
from unbraid.runs.only import Only, check_properties, text_as_typed
from unbraid.runs.search import properties_of_runs, search_runs
from unbraid.scoring.sides import Side

NOT_SETTINGS = ("seed", "model")  # properties that may differ between the runs of one side


def split_runs(folders: Sequence[Path], between: str | Sequence[str], only: Only) -> tuple[list[Side], list[str]]:
    """Return one side for each combination of values of the settings in `between`, and remarks about omitted runs.

    Args:
        folders: The folders of the runs.
        between: The name of a setting or several names, as a list or separated by commas.
        only: Which runs to choose (see `unbraid.runs.load_runs`).

    Returns:
        The sides, sorted by the values, and a remark if runs without these settings were left out.

    Raises:
        UserError: If a name is unknown, if no run has the settings, or if the settings have the same values in all
            runs.
    """
    names = between.split(",") if isinstance(between, str) else list(between)
    found = search_runs(folders, only)
    read = properties_of_runs()
    properties = [read(run) for run in found]
    check_properties(names, dict.fromkeys(name for own in properties for name in own))
    groups: dict[str, list[RunFolder]] = {}
    for run, own in sorted(zip(found, properties, strict=True), key=lambda pair: _order(pair[1], names)):
        if all(own.get(name) is not None for name in names):
            groups.setdefault(_side_name(own, names), []).append(run)
    if len(groups) < 2:
        raise UserError(_one_side(names, len(found), list(groups), properties))
    where = " ".join(map(str, folders))
    missing = len(found) - sum(map(len, groups.values()))
    remarks = [f"{missing} run(s) have no setting {' and '.join(names)} and are left out."] if missing else []
    return [Side.of_runs(name, where, runs) for name, runs in groups.items()], remarks


def settings_that_differ(folders: Sequence[Path], only: Only) -> list[str]:
    """Return the settings in which the runs of folders differ, apart from the seed."""
    read = properties_of_runs()
    return _differing([read(run) for run in search_runs(folders, only)])


def _differing(properties: Sequence[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for own in properties for name in own)
    return [name for name in differing(properties, names) if name not in NOT_SETTINGS]


def _order(own: Mapping[str, Any], names: Sequence[str]) -> list[tuple[bool, float, str]]:
    """Return a key that sorts numbers by size, and texts after numbers."""
    values = [own.get(name) for name in names]
    numbers = [float(v) if isinstance(v, int | float) else None for v in values]
    return [(n is None, n or 0.0, "" if n is not None else str(v)) for n, v in zip(numbers, values, strict=True)]


def _side_name(own: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the name of a side, such as "beta_vae" or "beta_vae beta=4"."""
    return " ".join(str(own[n]) if n == "method" else f"{n}={text_as_typed(own[n])}" for n in names)


def _one_side(names: Sequence[str], count: int, sides: Sequence[str], properties: Sequence[dict[str, Any]]) -> str:
    """Return the error message for runs that form fewer than two sides, with the settings that would divide them."""
    others = ", ".join(_differing(properties))
    advice = f"The settings in which they differ are {others}." if others else "They differ in their seeds only."
    has = f"All {count} runs are of {sides[0]}." if sides else f"None of the {count} runs has a value."
    return f"A comparison between values of {' and '.join(names)} needs at least two values. {has} {advice}"
