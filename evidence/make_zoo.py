"""Choose models from finished runs and write them in the form of `unbraid.zoo`.

For each dataset and method, two runs are chosen: the one with the median MIG and the one with the highest MIG. With an
even number of runs, the median run is the worse one of the two in the middle. The median models of all methods are
written first, then the best ones, as long as the folder stays within its limit. Models that do not fit are named.

`--metric loss` chooses runs by their last logged loss instead, the lower the better. It is for data without labels, and
for data that do not come with unbraid. Such models are not scored.

The models are scored on a CPU after their weights were rounded. `--no-scores` leaves this for later, for example if the
runs are on a machine that is rented by the minute. `--score` then scores all models of a folder that lack scores.

Usage:
    python evidence/make_zoo.py OUT RUNS...                  write models of the runs in these folders
    python evidence/make_zoo.py OUT RUNS... --only method=slow_vae,pcl --no-scores --tar zoo.tar.gz
    python evidence/make_zoo.py OUT --score                  score the models that lack scores
    python evidence/make_zoo.py OUT RUNS... --metric loss --data mnist      choose by the loss, and name the data mnist
"""

from __future__ import annotations

import argparse
import re
import shutil
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import unbraid as ub
from unbraid.errors import UserError
from unbraid.reporting.runs_table import REPORT_METRICS
from unbraid.runs.folder import RunFolder
from unbraid.runs.search import search_runs
from unbraid.zoo.catalogue import CHOICES, ZooFacts, ZooModel, list_models
from unbraid.zoo.compact import study_scores, write_card, write_compact

METRIC = "mig.discrete_mig"
LOSS = "loss"
METRICS = REPORT_METRICS  # a report of the models has no scores left to compute
LIMIT = 15.0  # size of all models in 10^6 bytes


class Candidate(NamedTuple):
    """A run that was chosen, the name of its model, and how it was chosen."""

    name: str
    folder: RunFolder
    facts: ZooFacts


def folder_name(data: str) -> str:
    """Return the name of a dataset as the name of a folder.

    >>> folder_name("dsprites?noise=0.1")
    'dsprites_noise_0_1'
    """
    return re.sub(r"\W+", "_", data).strip("_")


def median_and_best(values: Sequence[float]) -> list[int]:
    """Return the positions of the median and of the highest value. A single value is only the median.

    >>> median_and_best([0.3, 0.1, 0.4, 0.2])
    [3, 2]
    """
    order = sorted(range(len(values)), key=lambda place: values[place])
    return list(dict.fromkeys([order[(len(order) - 1) // 2], order[-1]]))


def scores_of(run: RunFolder) -> dict[str, float]:
    """Return the stored scores of a run and its last logged loss, or nothing if the run is not finished."""
    if run.status != "done":
        return {}
    log = run.read_log()
    return {**study_scores(run), **({LOSS: float(log[-1][LOSS])} if log else {})}


def choose(runs: Sequence[RunFolder], metric: str = METRIC, data: str | None = None) -> list[Candidate]:
    """Choose the median and the best run of each dataset and method. The median runs come first.

    Args:
        runs: The runs to choose from.
        metric: The score by which they are compared, or "loss".
        data: The name of the dataset in the names of the models. By default it is made from the dataset of the run.

    Raises:
        UserError: If no finished run has the score.
    """
    groups: dict[tuple[str, str], list[tuple[float, RunFolder]]] = defaultdict(list)
    for run in runs:
        value = scores_of(run).get(metric)
        if value is not None:
            quality = -value if metric == LOSS else value
            groups[data or folder_name(run.spec.data), run.spec.flat()["method"]].append((quality, run))
    if not groups:
        raise UserError(f"The folders must have finished runs with the score {metric}. Got none. Score them first.")
    chosen = []
    for (name, method), members in sorted(groups.items(), key=lambda item: item[0]):
        places = median_and_best([quality for quality, _ in members])
        for choice, place in zip(CHOICES, places, strict=False):
            run = members[place][1]
            exact = {LOSS: scores_of(run)[LOSS]} if metric == LOSS else study_scores(run)
            chosen.append(Candidate(f"{name}/{method}/{choice}", run, ZooFacts(choice, len(members), metric, exact)))
    return sorted(chosen, key=lambda candidate: CHOICES.index(candidate.facts.choice))


def total_size(out: Path) -> int:
    """Return the size of all models in a folder in bytes."""
    return sum(model.size for model in list_models(out))


def write_models(candidates: Sequence[Candidate], out: Path, limit: float = LIMIT) -> Iterator[str]:
    """Write models until the limit, in 10^6 bytes, is reached. Yield a line about each model.

    A model that is already in the folder is kept. A smaller model may still fit after a larger one that did not.
    """
    for name, folder, facts in candidates:
        target = out / name
        if (target / "zoo.json").exists():
            yield f"{name}: kept, because the folder already has a model of this name"
            continue
        write_compact(ub.load_run(folder.path), target, facts)
        if (size := total_size(out)) > limit * 1e6:
            shutil.rmtree(target)
            yield f"{name}: left out, because all models would have {size / 1e6:.1f} MB"
        else:
            yield f"{name}: run {folder.spec.id}, {ZooModel(name, target).size / 1e6:.2f} MB"


def score_models(out: Path, metrics: Sequence[str] = METRICS) -> Iterator[str]:
    """Score the models of a folder with the default protocol, and write their cards again. Yield a line about each.

    Models that were chosen by their loss are not scored.
    """
    for model in list_models(out):
        if model.facts.metric == LOSS:
            continue
        missing = [name for name in metrics if not any(key.startswith(f"{name}.") for key in model.scores)]
        if missing:
            ub.score(model.path, missing, quiet=True)
            (model.path / ".scores.lock").unlink(missing_ok=True)
        write_card(model.path, model.name)
        before = model.facts.exact_scores[METRIC]
        yield f"{model.name}: {METRIC} {model.scores[METRIC]:.4f}, in its study {before:.4f}"


def write_tar(out: Path, file: Path) -> None:
    """Write all models of a folder to one compressed archive. Its paths start at the folder."""
    with tarfile.open(file, "w:gz") as archive:
        for model in list_models(out):
            archive.add(model.path, model.name)


def main() -> None:
    """Parse the command line, write the models, score them and pack them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of models")
    parser.add_argument("runs", type=Path, nargs="*", help="folders of finished, scored runs")
    parser.add_argument("--only", help="choose from these runs only, such as method=slow_vae,data=dsprites")
    parser.add_argument("--metric", default=METRIC, help=f"score by which runs are chosen, or loss [{METRIC}]")
    parser.add_argument("--data", help="name of the dataset in the names of models [made from the data of the runs]")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"size of all models in 10^6 bytes [{LIMIT:g}]")
    parser.add_argument("--metrics", default=",".join(METRICS), help=f"scores to keep [{','.join(METRICS)}]")
    parser.add_argument("--score", action="store_true", help="score the models of the folder that lack scores")
    parser.add_argument("--no-scores", action="store_true", help="do not score the models")
    parser.add_argument("--tar", type=Path, help="also write all models to this .tar.gz file")
    options = parser.parse_args()
    try:
        if options.runs:
            chosen = choose(search_runs(options.runs, options.only), options.metric, options.data)
            for line in write_models(chosen, options.out, options.limit):
                print(line, flush=True)
        if options.score or not options.no_scores:
            for line in score_models(options.out, options.metrics.split(",")):
                print(line, flush=True)
    except UserError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    if options.tar:
        write_tar(options.out, options.tar)
        print(f"{options.tar}: {options.tar.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
