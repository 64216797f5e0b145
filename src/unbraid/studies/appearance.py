"""The table of VITAE's studies: bounds of the likelihood, and how far appearance and perspective lie apart.

They are kept among the scores of each run, so that they are columns of the study's results table too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.data.moving import MOVES, Moved
from unbraid.errors import UserError, unknown
from unbraid.metrics.protocol import Array, Values
from unbraid.runs.folder import RunDir
from unbraid.runs.results import index, read_places
from unbraid.runs.run import Run, load_runs
from unbraid.runs.scores import add_scores, find_score, read_scores
from unbraid.runs.spec import method_name
from unbraid.runtime.progress import progress, silent
from unbraid.runtime.provenance import versions
from unbraid.scoring.appearance import appearance_accuracy, separation, split_of, tells
from unbraid.scoring.likelihood import bounds

PERSPECTIVE = (*MOVES, "pose", "scale", "orientation", "x", "y")  # factors that place an image, of data made here
LEAST = 100  # examples from which separation can be told
NEIGHBOURS = 10_000  # training examples whose upright images name the class of others
TITLES = {"bounds.elbo": "ELBO", "bounds.iwae": "IWAE", "separation.score": "separation", "upright.accuracy": "upright"}
Factors = dict[str, Array]


@dataclass(frozen=True)
class Judging:
    """How many examples are seen, how many samples of each, and which factors count as perspective."""

    examples: int = 3_000
    samples: int = 50
    perspective: tuple[str, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in {"examples": LEAST, "samples": 1}.items():
            if getattr(self, name) < low:
                raise UserError(f"The {name} must be at least {low}. Got {getattr(self, name)} instead. Ask for more.")

    def rows(self, data: FactorData) -> Int[Tensor, " n"]:
        """A fixed random choice of examples: every so manyeth of a grid would leave factors out."""
        order = np.random.default_rng(self.seed).permutation(len(data))
        return torch.from_numpy(np.sort(order[: self.examples]))

    def factors(self, data: FactorData, rows: Int[Tensor, " n"]) -> tuple[Factors, Factors]:
        """Those of appearance and those of perspective; movements are the numbers themselves, not their bins."""
        for name in self.perspective or ():
            if name not in data.names:
                raise UserError(unknown(f"factor of {data.name}", name, data.names))
        known = PERSPECTIVE if self.perspective is None else self.perspective
        values: Factors = dict(zip(data.names, data.factors(rows).cpu().numpy().T, strict=True))
        if isinstance(data, Moved):
            values |= dict(zip(MOVES, data.moves[rows].cpu().numpy().T, strict=True))
        placed = {name: values.pop(name) for name in data.names if name in known}
        return values, placed


def held_out(name: str) -> str:
    """The dataset that runs trained on `name` are judged by: the test part of one in parts, else the same.

    >>> held_out("mnist?pad=0&part=train"), held_out("sprites")
    ('mnist?pad=0&part=test', 'sprites')
    """
    return name.replace("part=train", "part=test")


def judged(run: Run, learn: FactorData, test: FactorData, how: Judging) -> dict[str, Values]:
    """Scores by name: `bounds`; `separation` with what each part of the code tells; `upright`, the class from images.

    `separation` needs factors of both kinds, `upright` a held-out part.
    """
    rows = how.rows(test)
    found: dict[str, Values] = {"bounds": bounds(run, test, index=rows, samples=how.samples, seed=how.seed, quiet=True)}
    found["bounds"]["parameters"] = sum(p.numel() for p in run.net.parameters())
    appearance, perspective = how.factors(test, rows)
    if appearance and perspective:
        found["separation"] = separated(run.encode(test.images(rows)).cpu().numpy(), appearance, perspective, run)
    if appearance and held_out(learn.name) != learn.name:
        seen, kind = Judging(NEIGHBOURS).rows(learn), next(iter(appearance))
        named = how.factors(learn, seen)[0][kind]
        examples = (learn.images(seen), named), (test.images(rows), appearance[kind])
        found["upright"] = {"accuracy": appearance_accuracy(run, *examples)}
    return found


def separated(codes: Array, appearance: Factors, perspective: Factors, run: Run) -> Values:
    """The separation, and what appearance, perspective and the whole code tell of each factor."""
    found = separation(codes, appearance, perspective, split_of(run))
    values = {"score": found.score}
    for name, factor in {**appearance, **perspective}.items():
        seen, placed = found.told[name]
        values |= {f"{name}.appearance": seen, f"{name}.perspective": placed, f"{name}.whole": tells(codes, factor)}
    return values


def kept(run: Run, learn: FactorData, test: FactorData, how: Judging) -> dict[str, Values]:
    """What `judged` gives, read from the run's folder if it was made alike, and else written there."""
    key = {
        "codes": run.spec.method.code_kinds[0], "data": test.name, "examples": how.examples, "samples": how.samples,
        "perspective": None if how.perspective is None else list(how.perspective), "seed": how.seed,
        "source": getattr(test, "fingerprint", None), "versions": versions(("unbraid", "torch", "scikit-learn")),
    }  # fmt: skip
    assert run.path is not None
    folder = RunDir(run.path, run.spec)
    old = [record for record in read_scores(folder.path) if find_score([record], key)]
    if not old:
        old = [{"metric": name, **key, "values": values} for name, values in judged(run, learn, test, how).items()]
        add_scores(folder.path, old)
    return {record["metric"]: record["values"] for record in old}


def vitae_table(
    folder: str | Path, how: Judging = Judging(), device: str = "cpu", quiet: bool = False
) -> list[dict[str, Any]]:
    """A row for every setting of a finished study, in its order: lists of each score over the seeds.

    Scores are called `bounds.elbo`, `bounds.iwae`, `separation.score`, `separation.FACTOR.appearance` and so on. They
    are kept in the folders of the runs, and the results table is made anew with them.
    """
    runs = [run for run in load_runs(folder, device=device) if run.divergence is None]
    if not runs:
        raise UserError(f"No run in {folder} was trained to its end. Give the command of the study again.")
    found: dict[str, dict[str, Values]] = {}
    for name in dict.fromkeys(run.spec.data for run in runs):
        learn, test = (load_data(part, device, quiet) for part in (name, held_out(name)))
        members = [run for run in runs if run.spec.data == name]
        with nullcontext(silent) if quiet else progress("judging", len(members)) as report:
            for done, run in enumerate(members):
                report(done, run.label)
                found[run.id] = kept(run, learn, test, how)
    index(Path(folder))
    places = read_places(Path(folder))
    ordered = sorted(runs, key=lambda run: (places.get(run.id, {}).get("index", 0), run.spec.sort_key()))
    settings: dict[str, list[Run]] = {}
    for run in ordered:
        settings.setdefault(replace(run.spec, seed=0).id, []).append(run)
    return [together(group, found) for group in settings.values()]


def together(runs: Sequence[Run], found: Mapping[str, Mapping[str, Values]]) -> dict[str, Any]:
    """One row of the seeds of a setting."""
    row: dict[str, Any] = {"data": runs[0].spec.data, "method": method_name(type(runs[0].spec.method))}
    row |= {"label": runs[0].label.rpartition(" seed=")[0], "runs": len(runs)}
    for run in runs:
        for metric, values in found[run.id].items():
            for name, value in values.items():
                row.setdefault(f"{metric}.{name}", []).append(value)
    return row


def shown(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The table as it is printed, column by column: means over seeds, and their range where there are several."""
    names = {key: title for key, title in TITLES.items() if any(key in row for row in rows)}
    whole = [key for row in rows for key in row if key.startswith("separation.") and key.endswith(".whole")]
    factors = dict.fromkeys(key.removeprefix("separation.").removesuffix(".whole") for key in whole)
    several = len({row["method"] for row in rows}) < len(rows)
    return {
        "model": [row["label"] if several else row["method"] for row in rows],
        "runs": [str(row["runs"]) for row in rows],
        "parameters": [f"{row['bounds.parameters'][0]:,.0f}" for row in rows],
        **{title: [spread(row.get(key)) for row in rows] for key, title in names.items()},
        **{factor: [told(row, factor) for row in rows] for factor in factors},
    }


def told(row: Mapping[str, Any], factor: str) -> str:
    """What appearance, perspective and the whole code tell of a factor, means over seeds."""
    parts = [row.get(f"separation.{factor}.{part}") for part in ("appearance", "perspective", "whole")]
    return " / ".join("-" if part is None else f"{np.mean(part):.2f}" for part in parts)


def spread(values: Sequence[float] | None) -> str:
    """Mean and range.

    >>> spread([-170.0, -168.0]), spread([0.25]), spread(None)
    ('-169.0 (-170.0 to -168.0)', '0.25', '-')
    """
    if not values:
        return "-"
    digits = 1 if abs(values[0]) > 10 else 2
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"
