"""List how the runs in a results table deviate from a published study: missing runs, other settings, other data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pandas import DataFrame, Series

from unbraid.reproduction.agreement import Target
from unbraid.reproduction.rows import PUBLISHED_DATA

if TYPE_CHECKING:
    from unbraid.runs.spec import RunSpec

IDENTITY = ("method", "data", "seed", "precision")  # fields of specs that are not compared with the study
SETTING = "setting."  # prefix of the columns with the fields of a method
REGENERATED = {
    "dsprites": "dsprites is regenerated and is not the published file",
    "color_dsprites": "color_dsprites is created from regenerated sprites",
    "noisy_dsprites": "noisy_dsprites is created from regenerated sprites",
    "scream_dsprites": "scream_dsprites is created from regenerated sprites and not with the picture of the paper",
    "shapes3d_rendered": "shapes3d_rendered is rendered by unbraid and is not the published file",
    "body_images": "body_images has freely available bodies instead of those of the paper",
}
MODIFIED = "modified images are from our own manipulation and are not the published ones"
PUBLISHED_EXAMPLES = 10_000  # number of examples to which metrics are fitted in the papers


def list_deviations(name: str, target: Target, table: DataFrame, folder: Path | None = None) -> tuple[str, ...]:
    """Return phrases that say how our runs deviate from the part of a study that the comparison needs.

    They cover missing runs and seeds, different settings, different data, and metrics with different sample sizes. The
    sample sizes are checked only if the `folder` of the runs is given.
    """
    plan, runs = planned_runs(name, target), target.select(table)
    data = [*replaced_data(plan, runs), *regenerated_data(runs["data"].unique())]
    sample_sizes = differing_sample_sizes(folder) if folder is not None else ()
    return (*missing_runs(plan, runs), *differing_settings(plan, runs), *data, *sample_sizes)


def planned_runs(name: str, target: Target) -> DataFrame:
    """Return the runs of the study that the comparison needs, one row per run, with the columns of a results table."""
    from unbraid.studies import STUDIES
    from unbraid.studies.reduction import Reduction

    study_runs = STUDIES[name]()
    planned = Reduction(target.only).apply(study_runs) if target.only else study_runs
    plan = DataFrame([spec_columns(run.spec) for run in planned])
    published = {data: target.published_data(data) for data in plan["data"].unique()}
    return plan.assign(**{PUBLISHED_DATA: plan["data"].map(published)}).dropna(subset=[PUBLISHED_DATA])


def spec_columns(spec: RunSpec) -> dict[str, Any]:
    """Return all fields of a spec and of its method, under the names of their columns in a results table."""
    values = spec.to_dict(complete=True)
    settings = values.pop("method")
    return {"method": settings.pop("name"), **values, **{SETTING + key: value for key, value in settings.items()}}


def missing_runs(plan: DataFrame, runs: DataFrame) -> Iterator[str]:
    """Yield phrases about missing runs, datasets and seeds, and about runs that are not finished."""
    done = runs[runs["status"] == "done"] if "status" in runs else runs
    if len(done) < len(plan):
        yield f"only {len(done):,} of {len(plan):,} runs"
    absent = [name for name in plan[PUBLISHED_DATA].unique() if name not in set(done[PUBLISHED_DATA])]
    if absent:
        yield f"no runs on {', '.join(absent)}"
    seeds, wanted = done["seed"].nunique(), plan["seed"].nunique()
    if seeds < wanted:
        yield f"only {seeds} of {wanted} seeds"
    if len(done) < len(runs):
        yield f"{len(runs) - len(done)} runs diverged or are not finished"


def differing_settings(plan: DataFrame, runs: DataFrame) -> Iterator[str]:
    """Yield phrases about settings with values that the study does not use for the same method on the same data.

    Methods that the study does not train on these data are not compared.
    """
    places: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    parts = dict(list(plan.groupby([PUBLISHED_DATA, "method"])))
    for (data, method), part in runs.groupby([PUBLISHED_DATA, "method"], sort=False):
        for key, got, planned in unplanned_values(parts[data, method], part) if (data, method) in parts else ():
            places.setdefault((key, got, planned), []).append((str(data), str(method)))
    for (key, got, planned), pairs in places.items():
        named = key.removeprefix(SETTING).replace("_", " ")
        yield f"{named} {got} instead of {planned}{where_text(runs, pairs)}"


def unplanned_values(plan: DataFrame, runs: DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield the settings with values that the study does not use, given runs of one method on one dataset.

    Each item has the name of a setting and two texts: our values, and the planned values.
    """
    from unbraid.methods import METHODS
    from unbraid.runs.spec import RunSpec

    for key in plan.columns.difference([*IDENTITY, PUBLISHED_DATA], sort=False):
        planned = comparable_values(plan[key].dropna())
        owner = METHODS[plan["method"].iloc[0]] if key.startswith(SETTING) else RunSpec
        ours = runs[key] if key in runs else Series(None, runs.index, dtype=object)
        ours = ours.where(ours.notna(), default_if_optional(owner, key.removeprefix(SETTING)))
        unplanned = comparable_values(ours.dropna()) - planned
        if planned and unplanned:
            yield key, format_values(unplanned), format_values(planned)


def default_if_optional(owner: type[Any], name: str) -> Any:
    """Return the default of a field that specs leave out when it has its default, and None for other fields."""
    found = {field.name: field.default for field in fields(owner) if field.metadata.get("optional")}
    return found.get(name)


def comparable_values(values: Iterable[Any]) -> set[Any]:
    """Return the different numbers and texts among some values. Numbers that differ only in rounding are equal."""
    numbers = (float(f"{value:g}") if isinstance(value, int | float) else value for value in values)
    return {value for value in numbers if isinstance(value, float | str)}


def where_text(runs: DataFrame, pairs: list[tuple[str, str]]) -> str:
    """Return the datasets and methods to which a deviation applies as text. It is empty if it applies to all runs."""
    if len(pairs) == len(runs[[PUBLISHED_DATA, "method"]].drop_duplicates()):
        return ""
    datasets, methods = (list(dict.fromkeys(names)) for names in zip(*pairs, strict=True))
    on = "" if len(datasets) == runs[PUBLISHED_DATA].nunique() else f" on {', '.join(datasets)}"
    of = "" if len(methods) == runs["method"].nunique() else f" for {', '.join(methods)}"
    return on + of


def format_values(values: Iterable[Any]) -> str:
    """Return sorted values as text, separated by commas.

    >>> format_values({300_000, 200}), format_values({1e-4})
    ('200, 300,000', '0.0001')
    """
    return ", ".join(format_value(value) for value in sorted(values))


def format_value(value: Any) -> str:
    """Return a number as text with thousands separators, or a string unchanged."""
    if isinstance(value, str):
        return value
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def replaced_data(plan: DataFrame, runs: DataFrame) -> Iterator[str]:
    """Yield phrases about data whose options differ from those in the study, such as the strength of noise.

    Modified images are covered by `regenerated_data`.
    """
    planned = dict(zip(plan[PUBLISHED_DATA], plan["data"], strict=True))
    for data, name in dict(zip(runs["data"], runs[PUBLISHED_DATA], strict=True)).items():
        if "modified=" not in data and data.partition("?")[2] != planned[name].partition("?")[2]:
            yield f"{data} instead of {planned[name]}"


def regenerated_data(names: Iterable[str]) -> Iterator[str]:
    """Yield phrases about data that are not the published files."""
    used = list(names)
    plain = dict.fromkeys(name.partition("?")[0] for name in used)
    yield from (REGENERATED[name] for name in plain if name in REGENERATED)
    if any("modified=" in name for name in used):
        yield MODIFIED


def differing_sample_sizes(folder: Path) -> Iterator[str]:
    """Yield a phrase if metrics were fitted to a different number of examples than in the papers.

    Only one run per method and dataset is checked.
    """
    from unbraid.runs.folder import find_runs
    from unbraid.runs.scores import read_scores

    checked = {(run.spec.data, type(run.spec.method)): run for run in find_runs(folder)}
    latest = [{one["metric"]: one for one in read_scores(run.path)} for run in checked.values()]
    rows = [record.get("rows") or {} for records in latest for record in records.values()]
    counts = {one["train"] for one in rows if "train" in one} - {PUBLISHED_EXAMPLES}
    if counts:
        yield f"metrics are fitted to {format_values(counts)} examples instead of {PUBLISHED_EXAMPLES:,}"
