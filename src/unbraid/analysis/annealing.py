"""Train AnnealedVAE and measure the information about each factor while the capacity grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor

from unbraid.analysis import plots
from unbraid.analysis.results_table import Result, reject
from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.methods import AnnealedVAE
from unbraid.nets.vae import PairBuilder
from unbraid.runs.network import build_net
from unbraid.runs.run import Run, load_weights
from unbraid.runs.spec import RunSpec
from unbraid.runtime.progress import progress
from unbraid.scoring.code_statistics import information_per_factor
from unbraid.scoring.encoding import encode_table
from unbraid.scoring.factor_table import FactorTable
from unbraid.scoring.selection import draw_examples
from unbraid.training.schedule import thread_count
from unbraid.training.stack import Stack
from unbraid.training.train import RunDefaults, check_specs

EXAMPLES = 10_000  # number of random examples from which information is estimated
GAP = 2  # pixels between images
LEGEND: dict[str, Any] = {"fontsize": plots.SMALL, "frameon": False, "labelspacing": 0.2}


class Snapshot(NamedTuple):
    """Copies of runs with several seeds after `step` training steps."""

    step: int
    runs: list[Run]


def growth(
    method: AnnealedVAE,
    data: str | FactorData = "sprites",
    *,
    steps: int = 3_000,
    seeds: Sequence[int] = (0,),
    moments: int = 9,
    shown: int = 8,
    net: str | None = None,
    quiet: bool = False,
    **spec: Any,
) -> Result:
    r"""Train AnnealedVAE and record reconstructions and the information about each factor as its capacity grows.

    .. math:: C(t) = C_{max} \min(t / T, 1), \quad \max_i I(c_i; v_j)

    Three quantities are recorded: the capacity C after t steps, the KL, and the mutual information I of each factor
    :math:`v_j` with its most informative latent :math:`c_i` (see
    `unbraid.scoring.code_statistics.information_per_factor`). :math:`C_{max}` and T are the settings `c_max` and
    `iteration_threshold` of the method. Runs are trained exactly as `train` would train them. Nothing is written to
    disk.

    The input of the encoder is images, as in AnnealedVAE. `utilisation` makes figure 3 of the paper, in which the input
    of the encoder is the factors.

    Reference: Burgess et al. (2018), arXiv:1804.03599, section 5.

    Args:
        method: The method with its capacity schedule.
        data: A dataset of images with labelled factors, or its name.
        steps: Number of training steps.
        seeds: Random seeds. There is one run per seed.
        moments: Number of evenly spaced steps at which the quantities are recorded.
        shown: Number of examples whose reconstructions by the first run are shown.
        net: Name of a network preset. By default the preset for the data.
        quiet: Whether to hide the progress bar.
        **spec: Other fields of `RunSpec`, such as `learning_rate`, `latents` or `batch`.

    Returns:
        A result whose table has one row per seed, step and quantity (`capacity`, `kl`, `information.<factor>`), with
        `value` in nats.

    Raises:
        UserError: If `moments` is out of range, the data are not images with labelled factors, or training diverges.
    """
    at = recorded_steps(steps, moments)
    source = load_labelled_images(data, quiet)
    choice = RunDefaults.choose(source, net)
    specs = [choice.spec(method, seed=seed, steps=steps, **spec) for seed in seeds]
    check_specs(specs[:1], source, choice.builder)
    index, few = draw_examples(source, EXAMPLES, 0), draw_examples(source, shown, 1)
    lines: list[dict[str, Any]] = []
    images = [source.batch(few)]
    for snapshot in train_with_snapshots(specs, source, choice.builder, at, quiet):
        lines += [line for run in snapshot.runs for line in measure_run(run, snapshot.step, source, index)]
        images.append(snapshot.runs[0].decode(snapshot.runs[0].posterior(images[0]).mean))
    summary = DataFrame(lines)
    return Result(summary, draw_growth(summary, images), summary_text(summary))


def recorded_steps(steps: int, moments: int) -> list[int]:
    """Return the evenly spaced steps at which quantities are recorded. They end with the last training step."""
    if not 1 <= moments <= steps:
        requirement = "The 'moments' parameter must be between 1 and the number of steps."
        reject(requirement, f"{moments} for {steps} steps", "Use another number.")
    return [int(step) for step in np.linspace(0, steps, moments + 1).round()[1:]]


def load_labelled_images(data: str | FactorData, quiet: bool) -> FactorData:
    """Load a dataset. Raise a UserError if it does not consist of images with labelled factors."""
    source = load_data(data, quiet=quiet)
    if len(source.shape) != 3 or not source.names:
        reject("The data must be images with labelled factors.", source.name, "Choose other data.")
    return source


def train_with_snapshots(
    specs: Sequence[RunSpec], data: FactorData, builder: PairBuilder, at: Sequence[int], quiet: bool = False
) -> Iterator[Snapshot]:
    """Train runs together and yield copies of them at the steps in `at`."""
    stack = Stack(specs, data, builder, threads=thread_count(len(specs), data.device))
    with progress("training", at[-1], quiet) as report:
        for step in at:
            while stack.step < step:
                stack.advance()
                report(stack.step, f"{len(specs)} runs together")
            for divergence in stack.divergences():
                seed = specs[divergence.member].seed
                got = f"{divergence.term} that is not finite at step {divergence.step} with seed {seed}"
                reject("All training terms must stay finite.", got, "Lower the learning rate.")
            yield Snapshot(step, [copy_run(stack, i, data, builder) for i in range(len(specs))])


def copy_run(stack: Stack, i: int, data: FactorData, builder: PairBuilder) -> Run:
    """Return a copy of run i of a stack with its current weights."""
    spec = stack.specs[i]
    net = load_weights(build_net(spec, data.shape, builder), stack.weights(i), spec.id)
    return Run(spec, net.to(data.device))


def measure_run(run: Run, step: int, data: FactorData, index: Tensor) -> Iterator[dict[str, Any]]:
    """Yield one table row for each quantity at a step: the capacity, the KL and the information about each factor."""
    method = run.spec.method
    assert isinstance(method, AnnealedVAE)
    q = encode_table(run, data, index)
    values = {"capacity": float(method.c_max) * min(1.0, step / float(method.iteration_threshold))}
    values["kl"] = float(q.kl().sum(1).mean())
    factors = FactorTable.of(data, index)
    information = information_per_factor(q.mean.cpu().numpy(), factors.values, data.names, factors.continuous)
    values |= {f"information.{name}": nats for name, nats in information.items()}
    yield from ({"seed": run.spec.seed, "step": step, "quantity": key, "value": value} for key, value in values.items())


def pivot_quantities(summary: DataFrame) -> DataFrame:
    """Return the table with one row per seed and step, and one column per quantity."""
    return summary.pivot(index=["seed", "step"], columns="quantity", values="value").reset_index()


def factor_names(summary: DataFrame) -> list[str]:
    """Return the names of the factors in the table, in the order of the data."""
    names = [name for name in summary["quantity"].unique() if name.startswith("information.")]
    return [name.removeprefix("information.") for name in names]


def summary_text(summary: DataFrame) -> str:
    """Say in which order factors are learned, and how much information there is about them at the end."""
    table = pivot_quantities(summary)
    median = table.groupby("step").median(numeric_only=True)  # the capacity may be the same at several steps
    names = factor_names(summary)
    last = median.iloc[-1]
    reached = {name: median[f"information.{name}"] >= last[f"information.{name}"] / 2 for name in names}
    half = {name: float(median.loc[reached[name], "capacity"].iloc[0]) for name in names}
    order = sorted(names, key=lambda name: (half[name], -last[f"information.{name}"]))
    listed = ", ".join(
        f"{name} at a capacity of {half[name]:.3g} nats (final information {last[f'information.{name}']:.2f} nats)"
        for name in order
    )
    return (
        f"As the capacity grows, the factors reach half of their final information in this order: {listed}. The final "
        f"KL differs from its target by {abs(last['kl'] - last['capacity']):.2g} nats."
    )


def draw_growth(summary: DataFrame, images: Sequence[Tensor]) -> Figure:
    """Draw reconstructions on the left, with one row per snapshot. Plot information and KL by capacity on the right."""
    table = pivot_quantities(summary)
    moments = table[["step", "capacity"]].drop_duplicates().sort_values("step").to_numpy().tolist()
    height = 0.42 * len(images) + 0.5
    figure = Figure(figsize=(0.42 * len(images[0]) + 5.4, max(height, 3.6)), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=[0.42 * len(images[0]) + 1.2, 4.2])
    draw_images(parts[0].subplots(), images, ["example", *(f"{capacity:.1f}" for _, capacity in moments)])
    upper, lower = parts[1].subplots(2, 1, sharex=True, height_ratios=[3, 2])
    styles = plots.line_styles(factor_names(summary))
    for name, style in styles.items():
        draw_curves(upper, table, f"information.{name}", style, name)
    draw_curves(lower, table, "kl", {"color": "#333333", "marker": "o"}, "KL")
    lower.axline((0, 0), slope=1, color="grey", linewidth=0.8, linestyle="--", label="target")
    plots.set_labels(upper, y="information [nats]")
    plots.set_labels(lower, x="capacity [nats]", y="KL [nats]")
    for axes in (upper, lower):
        axes.tick_params(labelsize=plots.SMALL)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(xlim=(0, None), ylim=(0, None))
    upper.legend(**LEGEND, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=-(-len(styles) // 2))
    lower.legend(**LEGEND)
    return figure


def draw_curves(axes: Axes, table: DataFrame, column: str, style: plots.Style, name: str) -> None:
    """Draw each seed as a thin line and the medians over seeds at each step as a thick line."""
    for _, part in table.groupby("seed"):
        axes.plot(part["capacity"], part[column], color=style["color"], linewidth=0.6, alpha=0.5)
    median = table.groupby("step")[["capacity", column]].median()
    axes.plot(median["capacity"], median[column], linewidth=1.6, markersize=3.5, label=name, **style)


def draw_images(axes: Axes, rows: Sequence[Tensor], names: Sequence[str]) -> None:
    """Draw rows of images with a name beside each row."""
    tall, across = rows[0].shape[-2] + GAP, rows[0].shape[-1] + GAP
    page = np.ones((tall * len(rows) - GAP, across * len(rows[0]) - GAP, 3))
    for i, row in enumerate(rows):
        for j, image in enumerate(row.detach().cpu().clamp(0, 1).permute(0, 2, 3, 1).numpy()):
            page[i * tall : (i + 1) * tall - GAP, j * across : (j + 1) * across - GAP] = image
    axes.imshow(page, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([i * tall + tall / 2 for i in range(len(rows))], list(names))
    axes.tick_params(length=0, labelsize=plots.SMALL)
    axes.spines[:].set_visible(False)
    plots.set_labels(axes, "Reconstructions as capacity grows", y="capacity [nats]")
