"""List how the runs in a results table deviate from a published study: missing runs, other settings, other data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pandas import DataFrame

from unbraid.reproduction.agreement import Target
from unbraid.reproduction.rows import PUBLISHED_DATA

SETTINGS = ("steps", "batch", "learning_rate", "latents", "net", "likelihood")
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
    """Return the runs of the study that the comparison needs, one row per run, with their seed, data and settings."""
    from unbraid.studies import STUDIES
    from unbraid.studies.reduction import Reduction

    study_runs = STUDIES[name]()
    specs = [run.spec for run in (Reduction(target.only).apply(study_runs) if target.only else study_runs)]
    plan = DataFrame([{"data": s.data, "seed": s.seed, **{key: getattr(s, key) for key in SETTINGS}} for s in specs])
    published = {data: target.published_data(data) for data in plan["data"].unique()}
    return plan.assign(**{PUBLISHED_DATA: plan["data"].map(published)}).dropna(subset=[PUBLISHED_DATA])


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
    """Yield phrases about settings with values that the study does not use on the same data."""
    for key in SETTINGS:
        if key not in runs:
            continue
        for (got, planned), names in unplanned_values(plan, runs, key).items():
            where = "" if len(names) == runs[PUBLISHED_DATA].nunique() else f" on {', '.join(names)}"
            yield f"{key.replace('_', ' ')} {got} instead of {planned}{where}"


def unplanned_values(plan: DataFrame, runs: DataFrame, key: str) -> dict[tuple[str, str], list[str]]:
    """Return the datasets on which a setting has values that the study does not use.

    Each key of the result is a pair of texts: our values of the setting, and the planned values.
    """
    datasets: dict[tuple[str, str], list[str]] = {}
    for name, part in runs.groupby(PUBLISHED_DATA, sort=False):
        planned = set(plan[plan[PUBLISHED_DATA] == name][key])
        unplanned = set(part[key].dropna()) - planned
        if unplanned:
            datasets.setdefault((format_values(unplanned), format_values(planned)), []).append(str(name))
    return datasets


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
