"""AnnealedVAE while it trains: what of each factor its codes tell, and what it rebuilds, as the capacity grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor

from unbraid.analysis import plots
from unbraid.analysis.results_table import Result, refuse
from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.methods import AnnealedVAE
from unbraid.nets.vae import PairBuilder
from unbraid.runs.network import build_net
from unbraid.runs.run import Run, load_weights
from unbraid.runs.spec import RunSpec
from unbraid.runtime.progress import progress
from unbraid.scoring.encoding import encode_table
from unbraid.scoring.selection import drawn
from unbraid.studies.group_scores import nats_told
from unbraid.training.schedule import LANES
from unbraid.training.stack import Stack
from unbraid.training.train import Choice, check_specs

EXAMPLES = 10_000  # drawn to count information
GAP = 2  # pixels between pictures
LEGEND: dict[str, Any] = {"fontsize": plots.SMALL, "frameon": False, "labelspacing": 0.2}


class Moment(NamedTuple):
    """Runs of several seeds after so many steps."""

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
    r"""What the codes of AnnealedVAE tell of each factor, and what it rebuilds, while its capacity grows.

    .. math:: C(t) = C_{max} \min(t / T, 1), \quad \max_i I(c_i; v_j)

    At `moments` evenly spaced steps: the capacity, the KL that was reached, the nats that the best single latent tells
    of each factor (`nats_told`), and the reconstructions of `shown` fixed examples by the first seed. `spec` is what
    else a run is told: `learning_rate`, `latents`, `batch`. Runs are those of `train`, step by step; nothing is kept.

    Table: a row a seed, step and quantity (`capacity`, `kl`, `information.<factor>`): `value` in nats.
    Reference: Burgess et al. (2018), arXiv:1804.03599, section 5.2 and figure 3.
    """
    if not 1 <= moments <= steps:
        refuse("There must be from one moment to one a step.", f"{moments} of {steps} steps", "Choose fewer moments.")
    source = load_data(data, quiet=quiet)
    if len(source.shape) != 3 or not source.names:
        refuse("What is rebuilt must be images with known factors.", source.name, "Choose other data.")
    choice = Choice.of(source, net)
    specs = [choice.spec(method, seed=seed, steps=steps, **spec) for seed in seeds]
    check_specs(specs[:1], source, choice.builder)
    at = np.linspace(0, steps, moments + 1).round().astype(int)[1:].tolist()
    index, few = drawn(source, EXAMPLES, 0), drawn(source, shown, 1)
    lines: list[dict[str, Any]] = []
    rebuilt = [source.batch(few)]
    for moment in followed(specs, source, choice.builder, at, quiet):
        lines += [line for run in moment.runs for line in measured(run, moment.step, source, index)]
        rebuilt.append(moment.runs[0].decode(moment.runs[0].posterior(rebuilt[0]).mean))
    found = DataFrame(lines)
    return Result(found, draw(found, rebuilt), say(found))


def followed(
    specs: Sequence[RunSpec], data: FactorData, builder: PairBuilder, at: Sequence[int], quiet: bool = False
) -> Iterator[Moment]:
    """Runs as they are at some steps of their training, the later ones trained on from the earlier."""
    lanes = min(LANES, torch.get_num_threads(), len(specs)) if data.device.type == "cpu" else 1
    stack = Stack(specs, data, builder, threads=lanes)
    with progress("training", at[-1]) as report:
        for step in at:
            while stack.step < step:
                stack.advance()
                if not quiet:
                    report(stack.step, f"{len(specs)} runs together")
            for gone in stack.divergences():
                came = f"a {gone.term} of seed {specs[gone.member].seed} at step {gone.step} that is not"
                refuse("Training must stay finite.", came, "Lower the learning rate.")
            yield Moment(step, [as_run(stack, i, data, builder) for i in range(len(specs))])


def as_run(stack: Stack, i: int, data: FactorData, builder: PairBuilder) -> Run:
    """A run of a stack as it is now, apart from it."""
    spec = stack.specs[i]
    net = load_weights(build_net(spec, data.shape, builder), stack.weights(i), spec.id)
    return Run(spec, net.to(data.device))


def measured(run: Run, step: int, data: FactorData, index: Tensor) -> Iterator[dict[str, Any]]:
    """Capacity, KL and nats of each factor of a run at a step, a line each."""
    method = run.spec.method
    assert isinstance(method, AnnealedVAE)
    q = encode_table(run, data, index)
    values = {"capacity": float(method.c_max) * min(1.0, step / float(method.iteration_threshold))}
    values["kl"] = float(q.kl().sum(1).mean())
    told = nats_told(q.mean.cpu().numpy(), data.factors(index).cpu().numpy(), data.names)
    values |= {f"information.{name}": nats for name, nats in told.items()}
    yield from ({"seed": run.spec.seed, "step": step, "quantity": key, "value": value} for key, value in values.items())


def wide(found: DataFrame) -> DataFrame:
    """A row a seed and step, a column a quantity."""
    return found.pivot(index=["seed", "step"], columns="quantity", values="value").reset_index()


def factors_of(found: DataFrame) -> list[str]:
    """The factors of the table, in the order of the data."""
    names = [name for name in found["quantity"].unique() if name.startswith("information.")]
    return [name.removeprefix("information.") for name in names]


def say(found: DataFrame) -> str:
    """In which order factors come in, and what the codes tell of them at the end."""
    table = wide(found)
    middle = table.groupby("capacity").median(numeric_only=True)
    names = factors_of(found)
    last = middle.iloc[-1]
    half = {name: middle.index[(middle[f"information.{name}"] >= last[f"information.{name}"] / 2)][0] for name in names}
    order = sorted(names, key=lambda name: (half[name], -last[f"information.{name}"]))
    told = ", ".join(f"{name} ({half[name]:.3g}; {last[f'information.{name}']:.2f})" for name in order)
    return (
        "Factors in the order in which half of what is told of them in the end was told (capacity then; nats in the "
        f"end): {told}. The KL ends {abs(last['kl'] - middle.index[-1]):.2g} nats from its target."
    )


def draw(found: DataFrame, rebuilt: Sequence[Tensor]) -> Figure:
    """Reconstructions at the left, a row a moment; nats of each factor and the KL against capacity at the right."""
    table = wide(found)
    moments = table[["step", "capacity"]].drop_duplicates().sort_values("step").to_numpy().tolist()
    height = 0.42 * len(rebuilt) + 0.5
    figure = Figure(figsize=(0.42 * len(rebuilt[0]) + 5.4, max(height, 3.6)), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=[0.42 * len(rebuilt[0]) + 1.2, 4.2])
    pictures(parts[0].subplots(), rebuilt, ["example", *(f"{capacity:.1f}" for _, capacity in moments)])
    upper, lower = parts[1].subplots(2, 1, sharex=True, height_ratios=[3, 2])
    styles = plots.looks(factors_of(found))
    for name, look in styles.items():
        curves(upper, table, f"information.{name}", look, name)
    curves(lower, table, "kl", {"color": "#333333", "marker": "o"}, "KL")
    lower.axline((0, 0), slope=1, color="grey", linewidth=0.8, linestyle="--", label="target")
    plots.label(upper, y="best latent tells [nats]")
    plots.label(lower, x="capacity [nats]", y="KL [nats]")
    for axes in (upper, lower):
        axes.tick_params(labelsize=plots.SMALL)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(xlim=(0, None), ylim=(0, None))
    upper.legend(**LEGEND, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=-(-len(styles) // 2))
    lower.legend(**LEGEND)
    return figure


def curves(axes: Axes, table: DataFrame, column: str, look: plots.Look, name: str) -> None:
    """Every seed as a thin line, their median as a thick one."""
    for _, part in table.groupby("seed"):
        axes.plot(part["capacity"], part[column], color=look["color"], linewidth=0.6, alpha=0.5)
    middle = table.groupby("capacity")[column].median()
    axes.plot(middle.index, middle, linewidth=1.6, markersize=3.5, label=name, **look)


def pictures(axes: Axes, rows: Sequence[Tensor], names: Sequence[str]) -> None:
    """Images in rows, a name beside each."""
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
    plots.label(axes, "Examples, rebuilt as capacity grows", y="capacity [nats]")
