"""Train a decoder whose input is the factors, and measure how the factors share a growing capacity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor, nn

from unbraid.analysis import plots
from unbraid.analysis.annealing import LEGEND, draw_images, load_labelled_images, recorded_steps
from unbraid.analysis.results_table import Result
from unbraid.data.dataset import FactorData
from unbraid.distributions import LIKELIHOODS, Gaussian
from unbraid.manipulation.settings import FactorStandardiser
from unbraid.nets.vae import PairBuilder
from unbraid.noise import Noise
from unbraid.runtime.progress import progress
from unbraid.scoring.selection import draw_examples
from unbraid.training.train import RunDefaults

INITIAL_SCALE = 0.1  # initial scale of each factor, at which its latent transmits almost nothing
# Learning rate of the encoder divided by that of the decoder. It is large, because the parameters of the encoder must
# change by about 2 for each nat of capacity.
ENCODER_RATE_FACTOR = 20
TAIL = 50  # number of steps over which the reconstruction error is averaged


class FactorEncoder(nn.Module):
    r"""The encoder q(z|f) of factors f. A latent is one factor with a learned scale, plus noise of a learned strength.

    .. math:: z_j = a_j f_j + \sigma_j \epsilon_j

    The scale :math:`a_j` and the strength :math:`\sigma_j` are learned. The noise :math:`\epsilon_j` is standard
    normal.
    """

    def __init__(self, factors: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((factors,), INITIAL_SCALE))
        self.logvar = nn.Parameter(torch.zeros(factors))

    def forward(self, factors: Float[Tensor, "b k"]) -> Gaussian:
        """Return the posterior q(z|f) for standardised factors f."""
        return Gaussian(self.scale * factors, self.logvar.expand_as(factors))


def utilisation(
    data: str | FactorData = "sprites",
    *,
    c_max: float = 25.0,
    gamma: float = 100.0,
    steps: int = 3_000,
    seeds: Sequence[int] = (0,),
    moments: int = 9,
    shown: int = 8,
    batch: int = 64,
    learning_rate: float = 1e-3,
    net: str | PairBuilder | None = None,
    likelihood: str | None = None,
    quiet: bool = False,
) -> Result:
    r"""Show which factors a decoder uses first when the capacity of their encoding grows.

    .. math:: E_{q(z|f)}[-\log p(x|z)] + \gamma\, |KL(q(z|f) \| p(z)) - C(t)|, \quad C(t) = C_{max}\, t / T

    The input of the encoder q(z|f) is the factors f of an image x. Each latent is one factor, multiplied by a learned
    scale, plus Gaussian noise of a learned strength. The network can therefore choose only how much of the capacity C
    each factor gets. This amount is the KL of the latent of the factor. The function `growth` trains an AnnealedVAE
    instead. The input of its encoder is images.

    Reference: Burgess et al. (2018), arXiv:1804.03599, section 4.3 and figure 3.

    Args:
        data: A dataset of images with factors, or its name.
        c_max: The capacity at the last step, in nats.
        gamma: Weight of the distance between the KL and the capacity.
        steps: Number of training steps T.
        seeds: Random seeds. There is one training per seed.
        moments: Number of evenly spaced steps at which the quantities are recorded.
        shown: Number of examples whose reconstructions with the first seed are shown.
        batch: Number of images per step.
        learning_rate: Learning rate of Adam for the decoder. That of the encoder is 20 times as large.
        net: Network whose decoder is trained. By default the preset for the data.
        likelihood: Likelihood of pixels. By default that of the data.
        quiet: Whether to hide the progress bar.

    Returns:
        A result whose table has one row per seed, step and quantity, with `value` in nats: `capacity`, `kl`,
        `kl.<factor>`, and `accuracy`, the mean log likelihood of an image given its latents.

    Raises:
        UserError: If `moments` is out of range, or if the data are not images with factors.
    """
    at = recorded_steps(steps, moments)
    source = load_labelled_images(data, quiet)
    choice = RunDefaults.choose(source, net, likelihood)
    examples = draw_examples(source, shown, 1)
    lines: list[dict[str, Any]] = []
    images = [source.batch(examples)]
    for seed in seeds:
        training = FactorTraining(choice, seed, batch, learning_rate, gamma, c_max / steps)
        for step, values in training.run(at, quiet):
            lines += [{"seed": seed, "step": step, "quantity": key, "value": value} for key, value in values.items()]
            if seed == seeds[0]:
                images.append(training.reconstruct(examples))
    summary = DataFrame(lines)
    return Result(summary, draw_utilisation(summary, images), summary_text(summary))


class FactorTraining:
    """The training of one factor encoder and one decoder. All random numbers depend only on the seed."""

    def __init__(
        self, choice: RunDefaults, seed: int, batch: int, learning_rate: float, gamma: float, slope: float
    ) -> None:
        self.data, self.seed, self.batch, self.gamma, self.slope = choice.data, seed, batch, gamma, slope
        self.standardise, self.likelihood = FactorStandardiser(choice.data), LIKELIHOODS[choice.likelihood]
        latents = len(self.standardise.names)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            decoder = choice.builder(choice.data.shape, latents)[1]
        self.encoder, self.decoder = FactorEncoder(latents).to(self.data.device), decoder.to(self.data.device)
        groups: list[dict[str, Any]] = [
            {"params": [*self.encoder.parameters()], "lr": ENCODER_RATE_FACTOR * learning_rate},
            {"params": [*self.decoder.parameters()]},
        ]
        self.optimiser = torch.optim.Adam(groups, learning_rate)

    def run(self, at: Sequence[int], quiet: bool) -> Iterator[tuple[int, dict[str, float]]]:
        """Train, and yield the step and its quantities at each step of `at`."""
        errors: list[Tensor] = []
        with progress(f"training seed {self.seed}", at[-1], quiet) as report:
            for step in range(1, at[-1] + 1):
                errors = [*errors[1 - TAIL :], self.step(step)]
                report(step)
                if step in at:
                    kl = self.encoder(torch.ones(1, len(self.standardise.names), device=self.data.device)).kl()[0]
                    yield step, self._quantities(step, kl.tolist(), float(torch.stack(errors).mean()))

    def _quantities(self, step: int, kl: list[float], error: float) -> dict[str, float]:
        """Return the quantities to record. `kl` contains the KL of each latent, in nats, for a factor value f = 1.

        This KL equals the mean KL over the data, because E f^2 = 1 for standardised factors.
        """
        named = {f"kl.{name}": value for name, value in zip(self.standardise.names, kl, strict=True)}
        return {"capacity": self.slope * step, "kl": sum(kl), **named, "accuracy": -error}

    def step(self, step: int) -> Tensor:
        """Take one training step and return its reconstruction error."""
        noise = Noise.from_seed(torch.tensor(self.seed, device=self.data.device), torch.tensor(step))
        index = self.data.draw(noise, self.batch)
        x, q = self.data.batch(index, noise), self.encoder(self.standardise(self.data.factors_at(index)))
        error = self.likelihood.nll(x, self.decoder(q.sample(noise))).mean()
        loss = error + self.gamma * (q.kl().sum(1).mean() - self.slope * step).abs()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return error.detach()

    @torch.no_grad()
    def reconstruct(self, index: Tensor) -> Tensor:
        """Return images decoded from the posterior means of examples."""
        q = self.encoder(self.standardise(self.data.factors_at(index)))
        return self.likelihood.mean(self.decoder(q.mean))


def pivot_quantities(summary: DataFrame) -> DataFrame:
    """Return the table with one row per seed and step, and one column per quantity."""
    return summary.pivot(index=["seed", "step"], columns="quantity", values="value").reset_index()


def factor_names(summary: DataFrame) -> list[str]:
    """Return the names of the factors in the table, in the order of the data."""
    return [name.removeprefix("kl.") for name in summary["quantity"].unique() if name.startswith("kl.")]


def summary_text(summary: DataFrame) -> str:
    """Say at which capacity each factor first gets one nat, and how many nats it has at the end."""
    median = pivot_quantities(summary).groupby("capacity").median(numeric_only=True)
    first = {name: median.index[median[f"kl.{name}"] >= 1] for name in factor_names(summary)}
    used = sorted((name for name in first if len(first[name])), key=lambda name: first[name][0])
    last = median.iloc[-1]
    parts = [f"{name} at a capacity of {first[name][0]:.3g} nats (finally {last[f'kl.{name}']:.1f})" for name in used]
    unused = [name for name in first if name not in used]
    order = f"Factors get their first nat in this order: {', '.join(parts)}." if used else "No factor gets one nat."
    rest = f" Less than one nat: {', '.join(unused)}." if unused else ""
    return f"{order}{rest} The final KL is {last['kl']:.1f} of {median.index[-1]:.1f} nats."


def draw_utilisation(summary: DataFrame, images: Sequence[Tensor]) -> Figure:
    """Draw the KL of each factor against the capacity and against the accuracy, and reconstructions below."""
    table = pivot_quantities(summary)
    capacities = table[["step", "capacity"]].drop_duplicates().sort_values("step")["capacity"]
    figure = Figure(figsize=(8.4, 3.4 + 0.42 * len(images)), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[3.4, 0.42 * len(images)])
    left, right = parts[0].subplots(1, 2, sharey=True)
    styles = plots.line_styles(factor_names(summary))
    for axes, x, label in (
        (left, "capacity", "capacity [nats]"),
        (right, "accuracy", "reconstruction accuracy, E log p(x|z) [nats]"),
    ):
        for name, style in styles.items():
            draw_curves(axes, table, x, f"kl.{name}", style, name)
        plots.set_labels(axes, x=label, y="KL of a factor [nats]" if axes is left else "")
        axes.tick_params(labelsize=plots.SMALL)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(**LEGEND)
    draw_images(parts[1].subplots(), images, ["example", *(f"{capacity:.1f}" for capacity in capacities)])
    return figure


def draw_curves(axes: Axes, table: DataFrame, x: str, column: str, style: plots.Style, name: str) -> None:
    """Draw each seed as a thin line and the medians over seeds at each step as a thick line."""
    for _, part in table.groupby("seed"):
        axes.plot(part[x], part[column], color=style["color"], linewidth=0.6, alpha=0.5)
    median = table.groupby("step")[[x, column]].median()
    axes.plot(median[x], median[column], linewidth=1.6, markersize=3.5, label=name, **style)
