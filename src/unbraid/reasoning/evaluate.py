"""Measure how fast a relation network learns to solve reasoning puzzles from the codes of trained runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pandas import DataFrame
from torch import Tensor, device, stack

from unbraid.analysis.registry import save_result
from unbraid.analysis.results_table import Result
from unbraid.data.dataset import FactorData
from unbraid.data.loading import DataLike
from unbraid.errors import UserError
from unbraid.reasoning.figure import describe_curves, draw_curves
from unbraid.reasoning.learning import ReasoningSettings, learning_curves
from unbraid.reasoning.panels import Panels, choose_panels
from unbraid.reasoning.stored_curves import Curve, add_curves, curve_key, read_curves
from unbraid.runs.labels import run_labels
from unbraid.runs.only import Only
from unbraid.runs.run import Run
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.progress import ProgressCallback, progress
from unbraid.scoring.encoding import encode_tables
from unbraid.scoring.score import load_datasets, scorable_runs

TRUE_FACTORS = "true factors"
STACK_SIZES = {"cpu": 8, "cuda": 64}  # maximum number of runs whose networks are trained together, by device type


@dataclass(frozen=True)
class Representation:
    """A representation whose learning curve is measured: the codes of a run, or the true factors.

    Attributes:
        name: The id of the run, or `TRUE_FACTORS`.
        label: A short name for tables and figures.
        setting: The label without the seed.
        data: The name of the dataset.
        key: The key under which the curve is stored.
        device: The device on which the network is trained.
        run: The run, or None for the true factors.
    """

    name: str
    label: str
    setting: str
    data: str
    key: str
    device: device
    run: Run | None = None


@explain_unknown_arguments()
def abstract_reasoning(
    runs: str | Path | Run | Iterable[str | Path | Run],
    settings: ReasoningSettings | None = None,
    *,
    data: DataLike | None = None,
    out: str | Path | None = None,
    reference: bool = True,
    quiet: bool = False,
    trust: bool = False,
    only: Only = None,
) -> Result:
    """Measure how fast a network learns abstract reasoning from the codes of trained runs.

    A puzzle is a 3x3 matrix of images in which one to three factors are constant in each row. The last image is
    missing and must be chosen from six answers, so the accuracy of random guessing is 1/6. A Wild Relation Network is
    trained to solve puzzles, and sees only the codes of the images. The encoders are not trained further. The paper
    asks whether the network needs fewer puzzles to reach the same accuracy if the codes are disentangled.

    The networks of several runs with equally many code dimensions are trained together. All runs see the same puzzles.

    Deviations: The correct answer cannot be inferred from the six answers alone (see
    `unbraid.reasoning.puzzles.draw_puzzles`). Puzzles on dSprites have no colours. Unlike in the paper, no networks are
    trained on images, and the size of the network is not selected among several sizes.

    Reference: van Steenkiste et al. (2019), "Are disentangled representations helpful for abstract visual reasoning?",
    arXiv:1905.12506.

    Args:
        runs: The trained runs, or one or several folders of runs. Diverged runs in folders are left out with a warning.
        settings: The settings of the task and the network. By default `ReasoningSettings()`.
        data: The dataset of the puzzles. By default each run has puzzles of its own dataset.
        out: A folder for the table, `reasoning.csv`, and the figure, `reasoning.png`. The learning curve of each run is
            also stored there. If the call is repeated, stored curves are read instead of computed again.
        reference: Whether to add a learning curve of the true factors, encoded as one-hot vectors, for comparison.
        quiet: Whether to hide the progress bar.
        trust: Whether methods and networks that are not part of unbraid may be imported and run (see `load_runs`).
        only: Which runs to use, by their settings, such as "method=beta_vae,beta=8" (see `load_runs`). By default all.

    Returns:
        A result whose table has one row per run and measured step: `data`, `run`, `label`, `setting` (the label
        without the seed), `step` and `accuracy`. The figure shows the accuracy over steps.

    Raises:
        UserError: If there are no runs, if the factors of a dataset do not form a full grid or do not suit puzzles, or
            if the training of every relation network diverged.

    >>> import unbraid as ub
    >>> run = ub.train("vae", data="toy", steps=5, quiet=True)
    >>> settings = ub.ReasoningSettings(steps=4, points=2, test=20, edge=(8,), graph=(8,))
    >>> result = ub.abstract_reasoning(run, settings, quiet=True)
    >>> list(result.table["step"])
    [2, 4, 2, 4]
    """
    settings = settings or ReasoningSettings()
    folder = None if out is None else Path(out)
    trained = scorable_runs(runs, data, trust, only)
    if not trained:
        raise UserError("There must be at least one trained run. Got none instead. Train some with ub.train.")
    datasets = load_datasets(trained, data, quiet)
    panels = {name: choose_panels(dataset, settings.values) for name, dataset in datasets.items()}
    wanted = list(_representations(trained, datasets, settings, reference))
    curves = read_curves(folder, len(settings.measured_steps()))
    missing = [one for one in wanted if one.key not in curves]
    with progress("reasoning", settings.steps * len(missing), quiet) as report:
        done = 0
        for group in _groups(missing):
            found = _group_curves(group, datasets[group[0].data], panels[group[0].data], settings, report, done)
            add_curves(folder, {one.key: one.name for one in group}, [found[one.key] for one in group])
            curves |= found
            done += settings.steps * len(group)
    result = _result(wanted, curves, settings)
    if folder is not None:
        save_result(result, folder, "reasoning")
    return result


def _representations(
    runs: Sequence[Run], datasets: Mapping[str, FactorData], settings: ReasoningSettings, reference: bool
) -> Iterator[Representation]:
    """For each dataset, yield the representations of its runs and then, if `reference` is True, the true factors."""
    for data, dataset in datasets.items():
        alike = [run for run in runs if run.spec.data == data]
        labels = run_labels(run.spec for run in alike)
        fingerprint = getattr(dataset, "fingerprint", None)
        names = {run.id: run for run in alike} | ({TRUE_FACTORS: None} if reference else {})
        for name, run in names.items():
            label = labels.get(name, name)
            key = curve_key(name, dataset.name, fingerprint, settings)
            yield Representation(name, label, re.sub(r" seed=\d+$", "", label), data, key, alike[0].device, run)


def _groups(wanted: Sequence[Representation]) -> Iterator[list[Representation]]:
    """Yield groups of representations of one dataset with equally many latents.

    The networks of a group can be trained together if their codes also have equally many dimensions.
    """

    def key(one: Representation) -> tuple[str, bool, int]:
        return one.data, one.run is None, 0 if one.run is None else one.run.spec.latents

    for _, alike in groupby(sorted(wanted, key=key), key):
        group = list(alike)
        size = STACK_SIZES.get(group[0].device.type, STACK_SIZES["cuda"])
        yield from (group[i : i + size] for i in range(0, len(group), size))


def _group_curves(
    group: Sequence[Representation],
    data: FactorData,
    panels: Panels,
    settings: ReasoningSettings,
    report: ProgressCallback,
    done: int,
) -> dict[str, Curve]:
    """Return the learning curve of each representation, by key.

    The networks of representations with equally many code dimensions are trained together.
    """
    by_width: dict[int, dict[str, Tensor]] = {}
    for one, codes in zip(group, _codes(group, data, panels, lambda text: report(done, text)), strict=True):
        by_width.setdefault(codes.shape[1], {})[one.key] = codes
    curves: dict[str, Curve] = {}
    for same in by_width.values():
        report_step = scaled_progress(report, done + settings.steps * len(curves), len(same))
        found = learning_curves(stack(list(same.values())), panels, settings, report_step)
        curves |= dict(zip(same, found.tolist(), strict=True))
    return curves


def scaled_progress(report: ProgressCallback, start: float, scale: float) -> ProgressCallback:
    """Return a callback that reports `start` plus `scale` times the work done."""

    def report_scaled(done: float, note: str = "") -> None:
        report(start + scale * done, note)

    return report_scaled


def _codes(
    group: Sequence[Representation], data: FactorData, panels: Panels, on_message: Callable[[str], None]
) -> Iterator[Tensor]:
    """Yield a tensor (p, d) for each representation: its d-dimensional codes of all p panels."""
    runs = [one.run for one in group if one.run is not None]
    if not runs:
        yield from (panels.one_hot().to(one.device) for one in group)
        return
    moved, index = data.to(runs[0].device), panels.index.to(runs[0].device)
    posteriors = encode_tables(((run, moved, index) for run in runs), on_message)
    yield from (run.codes(q).float() for run, q in zip(runs, posteriors, strict=True))


def _result(wanted: Sequence[Representation], curves: Mapping[str, Curve], settings: ReasoningSettings) -> Result:
    """Return the table, the figure and the text of all learning curves."""
    columns = ["data", "run", "label", "setting", "step", "accuracy"]
    rows = [
        (one.data, one.name, one.label, one.setting, step, accuracy)
        for one in wanted
        for step, accuracy in zip(settings.measured_steps(), curves[one.key], strict=True)
    ]
    table = DataFrame(rows, columns=columns)
    if table["accuracy"].isna().all():
        raise UserError(
            "The training of at least one relation network must stay finite. All of them diverged with the learning "
            f"rate {settings.learning_rate:g}. Use a smaller one."
        )
    return Result(table, draw_curves(table), describe_curves(table))
