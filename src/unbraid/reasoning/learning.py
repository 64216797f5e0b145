"""Train relation networks on the codes of several runs together, and measure their accuracy during training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from unbraid.errors import UserError, unknown_name_message
from unbraid.noise import Noise
from unbraid.reasoning.panels import Panels
from unbraid.reasoning.puzzles import ALTERNATIVES, Puzzles, draw_puzzles
from unbraid.reasoning.relation_network import RelationNetwork
from unbraid.runtime.progress import ProgressCallback, ignore_progress

WEIGHTS, TRAINING, TEST, DROPOUT = range(4)  # streams of random numbers
PUZZLES_PER_DRAW = 3_200  # number of training puzzles that are drawn at once, for several steps
EVALUATED = 256  # number of test puzzles per forward pass


@dataclass(frozen=True)
class ReasoningSettings:
    """Settings of an abstract reasoning task and of the network that solves it.

    By default, the layers are the smallest of those that the paper tries. The paper also tries up to four edge layers,
    edge layers of 512 units, up to two graph layers, graph layers of 256 units, learning rates of 1e-4 and 1e-2, and
    dropout of up to 0.75. Its networks are trained for 100,000 steps.

    Args:
        alternatives: How similar the wrong answers are to the correct one: "easy" or "hard" (see `draw_puzzles`).
        relations: Possible numbers of factors that are constant in each row. Each number is equally likely.
        values: The number of values of a factor that appear in puzzles, by the name of the factor. All other factors
            have the defaults of `choose_panels`.
        steps: Number of training steps.
        batch: Number of puzzles per step.
        learning_rate: Learning rate of Adam.
        edge: Widths of the layers that compute the relation of each pair of panels.
        graph: Widths of the layers that compute the score of an answer from all relations.
        dropout: Fraction of the units of the last graph layer that is set to zero in each training step.
        seed: Random seed of the puzzles and the weights. All runs see the same puzzles and start with the same weights.
        points: Number of times that the accuracy is measured, at equal intervals.
        test: Number of puzzles with which the accuracy is measured.

    Raises:
        UserError: If a setting is out of range.
    """

    alternatives: str = "easy"
    relations: tuple[int, ...] = (1, 2, 3)
    values: Mapping[str, int] = field(default_factory=dict)
    steps: int = 5_000
    batch: int = 32
    learning_rate: float = 1e-3
    edge: tuple[int, ...] = (256, 256)
    graph: tuple[int, ...] = (128,)
    dropout: float = 0.0
    seed: int = 0
    points: int = 20
    test: int = 2_000

    def __post_init__(self) -> None:
        if self.alternatives not in ALTERNATIVES:
            raise UserError(unknown_name_message("kind of alternatives", self.alternatives, ALTERNATIVES))
        for name in ("steps", "batch", "points", "test"):
            if getattr(self, name) < 1:
                raise UserError(f"`{name}` must be at least 1. Got {getattr(self, name)} instead.")
        for name in ("relations", "edge", "graph"):
            given = getattr(self, name)
            if not given or min(given) < 1:
                raise UserError(f"`{name}` must have one or more numbers of at least 1. Got {given} instead.")
        if not 0 <= self.dropout < 1 or not 0 < self.learning_rate < float("inf"):
            got = f"{self.dropout:g} and {self.learning_rate:g}"
            raise UserError(f"`dropout` must be in [0, 1) and `learning_rate` above 0. Got {got} instead.")

    def measured_steps(self) -> list[int]:
        """Return the numbers of steps after which the accuracy is measured. The last one is `steps`."""
        points = min(self.points, self.steps)
        return [self.steps * (i + 1) // points for i in range(points)]


def learning_curves(
    codes: Float[Tensor, "r p d"],
    panels: Panels,
    settings: ReasoningSettings,
    report: ProgressCallback = ignore_progress,
) -> Float[Tensor, "r m"]:
    """Train one relation network per run, all together, and return their test accuracies.

    The loss is the cross-entropy of the correct answer. Each training step has new puzzles. All measurements use the
    same test puzzles. All runs see the same puzzles.

    Args:
        codes: The codes of all p panels for each of r runs.
        panels: The panels of the puzzles.
        settings: The settings of the task and the network.
        report: Called with the number of completed steps.

    Returns:
        The accuracy of each run after each of the m numbers of steps in `settings.measured_steps()`. It is NaN after
        the training of a run has diverged.
    """
    network = RelationNetwork(
        len(codes), codes.shape[2], settings.edge, settings.graph, _noise(settings, 0, WEIGHTS, codes.device)
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    test = evaluation_puzzles(panels, settings, settings.test)
    measured, accuracies = set(settings.measured_steps()), []
    for step, puzzles in enumerate(training_puzzles(panels, settings), start=1):
        scores = _scores(network, codes, panels, puzzles, _dropout_mask(settings, step, codes.device))
        optimiser.zero_grad()
        _loss(scores, puzzles.position).backward()
        optimiser.step()
        report(step)
        if step in measured:
            accuracies.append(_accuracy(network, codes, panels, test))
    return torch.stack(accuracies, 1)


def training_puzzles(panels: Panels, settings: ReasoningSettings) -> Iterator[Puzzles]:
    """Yield the puzzles of each training step."""
    steps = max(1, PUZZLES_PER_DRAW // settings.batch)
    for start in range(0, settings.steps, steps):
        count = min(steps, settings.steps - start)
        drawn = _draw(panels, settings, start, TRAINING, count * settings.batch)
        parts = zip(*(part.split(settings.batch) for part in drawn), strict=True)
        yield from (Puzzles(*part) for part in parts)


def evaluation_puzzles(panels: Panels, settings: ReasoningSettings, n: int) -> Puzzles:
    """Draw the puzzles with which the accuracy is measured."""
    return _draw(panels, settings, 0, TEST, n)


def _draw(panels: Panels, settings: ReasoningSettings, step: int, stream: int, n: int) -> Puzzles:
    noise = _noise(settings, step, stream, torch.device("cpu"))
    return draw_puzzles(panels.sizes, noise, n, settings.relations, settings.alternatives)


def _noise(settings: ReasoningSettings, step: int, stream: int, device: torch.device) -> Noise:
    seed, at = (torch.tensor(number, device=device) for number in (settings.seed, step))
    return Noise.from_seed(seed, at, stream)


def _dropout_mask(settings: ReasoningSettings, step: int, device: torch.device) -> Float[Tensor, " h"] | None:
    """Return the numbers by which the units of the last graph layer are multiplied, or None without dropout.

    As in the authors' code, all puzzles of a batch share one mask.
    """
    if settings.dropout == 0:
        return None
    kept = _noise(settings, step, DROPOUT, device).uniform(settings.graph[-1]) >= settings.dropout
    return kept / (1 - settings.dropout)


def _scores(
    network: RelationNetwork, codes: Tensor, panels: Panels, puzzles: Puzzles, mask: Tensor | None = None
) -> Float[Tensor, "r b 6"]:
    """Look up the codes of the panels of puzzles, and score the answers."""
    context, answers = (codes[:, panels.at(part).to(codes.device)] for part in (puzzles.context, puzzles.answers))
    scores: Tensor = network(context, answers, mask)
    return scores


def _loss(scores: Float[Tensor, "r b 6"], position: Int[Tensor, " b"]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy over the puzzles, summed over the runs.

    Because of the sum, the gradient of each network is that of its own mean loss.
    """
    correct = position.to(scores.device).expand(len(scores), -1)
    return cross_entropy(scores.flatten(0, 1), correct.flatten(), reduction="sum") / scores.shape[1]


@torch.no_grad()
def _accuracy(network: RelationNetwork, codes: Tensor, panels: Panels, puzzles: Puzzles) -> Float[Tensor, " r"]:
    """Return the fraction of puzzles that each run solves. It is NaN if a score of the run is not finite."""
    parts = (Puzzles(*part) for part in zip(*(part.split(EVALUATED) for part in puzzles), strict=True))
    scores = torch.cat([_scores(network, codes, panels, part).cpu() for part in parts], 1)
    solved = (scores.argmax(2) == puzzles.position).double().mean(1)
    return solved.where(scores.isfinite().flatten(1).all(1), torch.nan)
