"""What of a published study a results table has: a study that was cut down is no reproduction, and says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pandas import DataFrame

from unbraid.reproduction.agreement import Target
from unbraid.reproduction.rows import HOME

SETTINGS = ("steps", "batch", "learning_rate", "latents", "net", "likelihood")
REGENERATED = {
    "dsprites": "dsprites is regenerated, not the published file",
    "color_dsprites": "color_dsprites is made from regenerated sprites",
    "noisy_dsprites": "noisy_dsprites is made from regenerated sprites",
    "scream_dsprites": "scream_dsprites is made from regenerated sprites and a picture that is not the paper's",
    "shapes3d_rendered": "shapes3d_rendered is ray-cast anew, not the published file",
    "body_images": "body_images has open bodies in place of the paper's",
}
MODIFIED = "modified images are of our own manipulation, not the published ones"
POINTS = 10_000  # from which the papers' metrics learn


def list_deviations(name: str, target: Target, table: DataFrame, folder: Path | None = None) -> tuple[str, ...]:
    """In words, what differs from the part of the study that cells need: runs, data, seeds, settings, scores."""
    plan, runs = planned_runs(name, target), target.select(table)
    said = [*missing_runs(plan, runs), *differing_settings(plan, runs), *replaced_data(plan, runs), *regenerated_data(runs["data"].unique())]
    return (*said, *(differing_sample_sizes(folder) if folder is not None else ()))


def planned_runs(name: str, target: Target) -> DataFrame:
    """What is compared of the runs that cells need, a row a run."""
    from unbraid.studies import STUDIES
    from unbraid.studies.cut import Cut

    every = STUDIES[name]()
    specs = [run.spec for run in (Cut(target.only).of(every) if target.only else every)]
    plan = DataFrame([{"data": s.data, "seed": s.seed, **{key: getattr(s, key) for key in SETTINGS}} for s in specs])
    homes = {data: target.home(data) for data in plan["data"].unique()}
    return plan.assign(**{HOME: plan["data"].map(homes)}).dropna(subset=[HOME])


def missing_runs(plan: DataFrame, runs: DataFrame) -> Iterator[str]:
    """Runs, datasets and seeds that are not there, and runs that failed."""
    done = runs[runs["status"] == "done"] if "status" in runs else runs
    if len(done) < len(plan):
        yield f"{len(done):,} of {len(plan):,} runs"
    absent = [home for home in plan[HOME].unique() if home not in set(done[HOME])]
    if absent:
        yield f"no runs on {', '.join(absent)}"
    seeds, wanted = done["seed"].nunique(), plan["seed"].nunique()
    if seeds < wanted:
        yield f"{seeds} of {wanted} seeds"
    if len(done) < len(runs):
        yield f"{len(runs) - len(done)} runs diverged or were not trained to their end"


def differing_settings(plan: DataFrame, runs: DataFrame) -> Iterator[str]:
    """Settings with values that the study does not have on that data."""
    for key in SETTINGS:
        if key not in runs:
            continue
        for (came, must), homes in unplanned_values(plan, runs, key).items():
            where = "" if len(homes) == runs[HOME].nunique() else f" on {', '.join(homes)}"
            yield f"{key.replace('_', ' ')} {came} instead of {must}{where}"


def unplanned_values(plan: DataFrame, runs: DataFrame, key: str) -> dict[tuple[str, str], list[str]]:
    """Values of a setting that the study does not have, with those it has: the datasets of each such pair."""
    found: dict[tuple[str, str], list[str]] = {}
    for home, part in runs.groupby(HOME, sort=False):
        known = set(plan[plan[HOME] == home][key])
        other = set(part[key].dropna()) - known
        if other:
            found.setdefault((format_values(other), format_values(known)), []).append(str(home))
    return found


def format_values(values: Iterable[Any]) -> str:
    """Values parted by commas.

    >>> listed({300_000, 200}), listed({1e-4})
    ('200, 300,000', '0.0001')
    """
    return ", ".join(format_value(value) for value in sorted(values))


def format_value(value: Any) -> str:
    """A number with its thousands parted, anything else as it is."""
    if isinstance(value, str):
        return value
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def replaced_data(plan: DataFrame, runs: DataFrame) -> Iterator[str]:
    """Data with other options than the study's: noise of another strength, say; modified images are told apart."""
    known = dict(zip(plan[HOME], plan["data"], strict=True))
    for data, home in dict(zip(runs["data"], runs[HOME], strict=True)).items():
        if "modified=" not in data and data.partition("?")[2] != known[home].partition("?")[2]:
            yield f"{data} in place of {known[home]}"


def regenerated_data(names: Iterable[str]) -> Iterator[str]:
    """Which data are not the published files."""
    seen = list(names)
    bare = dict.fromkeys(name.partition("?")[0] for name in seen)
    yield from (REGENERATED[name] for name in bare if name in REGENERATED)
    if any("modified=" in name for name in seen):
        yield MODIFIED


def differing_sample_sizes(folder: Path) -> Iterator[str]:
    """Whether metrics saw another number of points than the papers' do, as one run a method and dataset says."""
    from unbraid.runs.folder import find_runs
    from unbraid.runs.scores import read_scores

    seen = {(run.spec.data, type(run.spec.method)): run for run in find_runs(folder)}
    latest = [{one["metric"]: one for one in read_scores(run.path)} for run in seen.values()]
    rows = [record.get("rows") or {} for records in latest for record in records.values()]
    counts = {one["train"] for one in rows if "train" in one} - {POINTS}
    if counts:
        yield f"metrics learn from {format_values(counts)} points instead of {POINTS:,}"
