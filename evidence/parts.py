"""Show which parts of the evidence are finished, and run the next one.

A part is a selection from a published study at the length of its paper. The parts are listed in plan.toml. Their
results are collected in results.csv, which has one row per run. A run belongs to a part if its id is among those that
the part plans, so the state of a part follows from the two files. stopped.csv has runs that were stopped before the
number of steps that their part plans. They do not count as finished, and docs/papers shows them with their steps.

Usage:
    python evidence/parts.py                        show all parts
    python evidence/parts.py --run                  run the first part that is not finished (needs a GPU)
    python evidence/parts.py --run NAME             run the part with this name
    python evidence/parts.py --run NAME --device cpu
                                                    run a part that hardly needs training, such as those of PCA and ICA
    python evidence/parts.py --collect NAME FOLDER  add the finished runs in the folder of a study to results.csv

Several parts may run at the same time in separate processes.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pandas as pd
import torch

from unbraid.data.files.locate import data_folder
from unbraid.errors import UserError, unknown_name_message
from unbraid.reproduction import TARGETS
from unbraid.runs.folder import contains_runs
from unbraid.runs.results import load_results, write_results
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.locks import lock
from unbraid.runtime.provenance import git_commit
from unbraid.runtime.tables import table
from unbraid.studies.planned import PlannedRun
from unbraid.studies.runner import planned_runs, select_runs, study

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.csv"
PRECISION: Final = "bf16"  # the precision of all runs on a GPU; it is part of a run's id


@dataclass(frozen=True)
class Part:
    """A selection from a published study. The fields are those of plan.toml."""

    name: str
    paper: str
    study: str
    only: Mapping[str, Sequence[str]]
    metrics: Sequence[str]
    seeds: Sequence[int] | None = None
    steps: int | None = None
    learning_rate: float | None = None
    net: str | None = None
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    compare: bool = True
    speeds: Mapping[str, float] = field(default_factory=lambda: {"default": 18_000})

    @functools.cached_property
    def runs(self) -> list[PlannedRun]:
        """All runs of the part, with the precision of the study."""
        originals = {stand_in: name for name, stand_in in self.stand_ins.items()}
        wanted = {originals.get(name, name) for name in self.only.get("data", ())}
        runs = [run for run in all_runs(self.study) if not wanted or run.spec.data in wanted]
        data = [self.stand_ins.get(name, name) for name in dict.fromkeys(run.spec.data for run in runs)]
        selected = select_runs(runs, self.only, self.seeds, self.steps, self.learning_rate, 1.0, data, None)
        return [replace(run, spec=replace(run.spec, net=self.net or run.spec.net)) for run in selected]

    @functools.cached_property
    def run_ids(self) -> list[str]:
        """The ids of all runs of the part."""
        return [replace(run.spec, precision=PRECISION).id for run in self.runs]

    @property
    def steps_to_train(self) -> int:
        """The number of training steps of all runs together."""
        return sum(run.spec.steps for run in self.runs)

    @property
    def seconds(self) -> float:
        """An estimate of the training time on one H200, in seconds. Metrics take additional time."""
        return sum(
            run.spec.steps * run.spec.batch / 64 / self.speeds.get(run.facts()["method"], self.speeds["default"])
            for run in self.runs
        )

    def run(self, collected: Set[str] = frozenset(), device: str = "cuda") -> Path:
        """Train and score the runs of the part, or resume them. Return the folder of the runs.

        Runs whose ids are in `collected` are left out, because another machine has finished them.
        """
        out = FOLDER / "runs" / self.name
        missing = [run for run, name in zip(self.runs, self.run_ids, strict=True) if name not in collected]
        provide_manipulations(missing)
        if missing:
            study(missing, out, metrics=self.metrics, precision=PRECISION, draws="reference", device=device)
        if (target := TARGETS.get(self.study)) and target.finish:
            target.finish(out, device, False)
        return out


def provide_manipulations(runs: Sequence[PlannedRun]) -> None:
    """Copy the manipulations of this folder that the runs need to the data folder, unless it has one of that name.

    A manipulation that is learned again on another GPU is not the same to the bit.
    """
    for name in {run.spec.data.partition("?")[0] for run in runs if run.spec.data.endswith("?modified=default")}:
        source, target = FOLDER / "modified" / f"{name}.safetensors", data_folder() / "modified" / f"{name}.safetensors"
        if source.exists() and not target.exists():
            make_folder(target.parent)
            write_atomic(target, source.read_bytes())


@functools.cache
def all_runs(study: str) -> list[PlannedRun]:
    """Return all runs of a published study. They are planned once, because there can be thousands."""
    return planned_runs(study)


def read_plan(path: Path = FOLDER / "plan.toml") -> dict[str, Part]:
    """Return the parts of a plan by name."""
    plan = tomllib.loads(path.read_text())
    listed = [fields for entry in plan["part"] for fields in expand(entry)]
    parts = [Part(**{"metrics": plan["metrics"], "speeds": plan["speeds"], **fields}) for fields in listed]
    return {part.name: part for part in parts}


def expand(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields of one part for each combination of the values of `vary`, or the entry itself if it has none.

    The values are added to `only`. In `name` and `paper`, they replace their names in braces.

    >>> [part["name"] for part in expand({"name": "a-{data}", "paper": "A", "vary": {"data": ["x", "y"]}})]
    ['a-x', 'a-y']
    """
    fields = dict(entry)
    vary = fields.pop("vary", {})
    for values in itertools.product(*vary.values()):
        chosen = dict(zip(vary, values, strict=True))
        only = {**fields.get("only", {}), **{name: [value] for name, value in chosen.items()}}
        words = {name: value.replace("_", "-") for name, value in chosen.items()}
        name, paper = fields["name"].format(**words), fields["paper"].format(**chosen)
        yield {**fields, "name": name, "paper": paper, "only": only}


def find_part(name: str, parts: Mapping[str, Part]) -> Part:
    """Return the part with a name, or raise an error that suggests the most similar name."""
    if name not in parts:
        raise UserError(unknown_name_message("part", name, list(parts)))
    return parts[name]


def collected_runs(path: Path | None = None) -> set[str]:
    """Return the ids of the runs in a table of results, which is `RESULTS` by default."""
    path = path or RESULTS
    return set(pd.read_csv(path, usecols=["run"])["run"]) if path.exists() else set()


def collect(part: Part, folder: Path, path: Path | None = None, running: bool = False, device: str = "unknown") -> int:
    """Add the finished runs in the folder of a study to the table of results, and return how many are new.

    The table is `RESULTS` by default. Rows of the same run are replaced. Runs that do not belong to the part are left
    out. While the part is still `running`, runs that lack scores are left out, and nothing is added if the study ends
    with further computations. On a machine without a GPU, `device` says where the runs were trained. A folder without
    runs adds nothing.
    """
    if not contains_runs(folder) or (running and (target := TARGETS.get(part.study)) and target.finish):
        return 0
    write_results(folder)
    new = load_results(folder)
    new = new[new["run"].isin(part.run_ids) & (new["status"] == "done")]
    if running:
        new = new[has_scores(new, part.metrics)]
    if new.empty:
        return 0
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else device
    new = new.dropna(axis=1, how="all").assign(part=part.name, commit=git_commit(), device=name)
    return add_rows(path or RESULTS, new)


def has_scores(table: pd.DataFrame, metrics: Sequence[str]) -> pd.Series:
    """Return for each row whether it has a score of every metric."""
    found = pd.Series(True, index=table.index)
    for metric in metrics:
        found &= table[[name for name in table if name.startswith(f"{metric}.")]].notna().any(axis=1)
    return found


def add_rows(path: Path, new: pd.DataFrame) -> int:
    """Replace the rows of the same runs in a table of results, append the others, and return how many are new.

    A lock makes other processes wait that add rows to the same table. Rows are merged as text, because some versions of
    pandas change the last digit of a number that is read and written again.
    """
    added = read_text(StringIO(new.to_csv(index=False)))
    with lock(path.with_suffix(".lock")):
        old = read_text(path) if path.exists() else added.iloc[:0]
        merged = pd.concat([old[~old["run"].isin(new["run"])], added], ignore_index=True)
        write_atomic(path, merged.to_csv(index=False).encode())
    return len(set(new["run"]) - set(old["run"]))


def read_text(table: Path | StringIO) -> pd.DataFrame:
    """Read the values of a table in CSV format as text."""
    return pd.read_csv(table, dtype=str, keep_default_na=False)


def state_table(parts: Mapping[str, Part], collected: set[str]) -> str:
    """Return a table with the planned and finished runs of each part, its steps and its estimated training time."""
    rows: list[list[Any]] = []
    for part in parts.values():
        ids = part.run_ids
        done = sum(run in collected for run in ids)
        rows.append([part.name, part.paper, len(ids), done, f"{part.steps_to_train:,}", f"{part.seconds:.0f}"])
    return table(["part", "paper", "runs", "finished", "steps", "GPU seconds"], rows)


def next_part(parts: Mapping[str, Part], collected: set[str]) -> Part | None:
    """Return the first part that is not finished, or None."""
    return next((part for part in parts.values() if not set(part.run_ids) <= collected), None)


def run_part(part: Part, device: str = "cuda") -> None:
    """Run a part and collect what is finished, even if it is interrupted."""
    try:
        part.run(collected_runs(), device)
    finally:
        new = collect(part, FOLDER / "runs" / part.name, device=device)
        print(f"{part.name}: {new} new runs in {RESULTS}")
    if not set(part.run_ids) <= collected_runs():
        raise UserError(
            f"All {len(part.run_ids)} runs of {part.name} must be trained and scored, but some are missing. The "
            "warnings above say why, for example that a dataset must be downloaded. Repeat the command afterwards."
        )


def main() -> None:
    """Parse the command line, and show, run or collect parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs="?", const="", metavar="NAME", help="run this part, or the next one")
    parser.add_argument("--device", default="cuda", help="device to train on; cpu is enough for parts without training")
    parser.add_argument("--collect", nargs=2, metavar=("NAME", "FOLDER"), help="add finished runs to results.csv")
    options = parser.parse_args()
    parts = read_plan()
    try:
        if options.collect:
            name, folder = options.collect
            print(f"{collect(find_part(name, parts), Path(folder))} new runs in {RESULTS}")
        upcoming = next_part(parts, collected_runs())
        if options.run is not None and (part := find_part(options.run, parts) if options.run else upcoming):
            run_part(part, options.device)
    except UserError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    print(state_table(parts, collected_runs()))
    if upcoming := next_part(parts, collected_runs()):
        print(f"Next: {upcoming.name}. Run it on a machine with a GPU: python evidence/parts.py --run")


if __name__ == "__main__":
    main()
