"""Adversarial training of a manipulation.

Pairs of an encoder and a decoder learn to reconstruct changed images. The manipulation, which produces the changes,
learns to make reconstruction easier for the entangling pairs and harder for the disentangling pairs.
"""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Int, Int8, Int16
from torch import Tensor

from unbraid.accel.capture import step_runner
from unbraid.data.dataset import FactorData
from unbraid.data.manipulated import PATTERN_LEVELS, reflect
from unbraid.manipulation.networks import Manipulation, PairFamilies, make_adam
from unbraid.manipulation.settings import FactorStandardiser, ManipulationSettings
from unbraid.noise import Noise

PATTERNS = 1024
PATTERNS_AT_ONCE = 256  # patterns decoded in one batch
EXAMPLES_AT_ONCE = 65_536  # examples whose scalar is computed in one batch
MIN_ERROR = 1e-3  # nats per image; smaller errors are raised to this before their logarithm is taken
TERMS = ("disentangling", "entangling", "gap", "change")


class AdversarialTraining:
    """Two families of pairs and one manipulation, with their optimisers. Every number depends only on the seed."""

    def __init__(self, data: FactorData, settings: ManipulationSettings) -> None:
        self.data, self.settings, self.standard = data, settings, FactorStandardiser(data)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.manipulation = Manipulation(initial_axis(self.standard, settings), data.shape).to(data.device)
            self.families = build_families(data, self.standard, settings)
        self.seed = torch.tensor(settings.seed, device=data.device)
        self.clock, self.terms = torch.tensor(0, device=data.device), torch.zeros(len(TERMS), device=data.device)
        self.runners = {learns: step_runner(data.device) for learns in (False, True)}
        rate = settings.learning_rate
        optimiser = make_adam(self.manipulation.parameters(), rate * settings.pace)
        self.optimisers = {"pairs": self.families.adam(rate), "m": optimiser}

    def draw_batch(self, number: Int[Tensor, ""]) -> tuple[Tensor, Tensor, Noise]:
        """Return the standardised factors (b, k) and images (b, c, h, w) of a batch, and noise for further draws."""
        noise = Noise.from_seed(self.seed, number)
        index = self.data.draw(noise, self.settings.batch)
        return self.standard(self.data.factors_at(index)), self.data.batch(index, noise), noise

    def step(self, step: int) -> Float[Tensor, " 4"]:
        """Train the pairs on a few batches and the manipulation on one.

        Returns the values of `TERMS` for the manipulation's batch. The tensor is overwritten by the next step.
        """
        learns = step >= self.settings.warm * self.settings.steps
        self.clock.fill_(step)
        self.runners[learns](partial(self._run_step, learns))
        return self.terms

    def _run_step(self, learns: bool) -> None:
        """Run the step whose number is in `clock`, in place and without waiting for the device."""
        first = self.clock * (self.settings.rounds + 1)
        for number in range(self.settings.rounds):
            self.train_pairs(first + number)
        self.terms.copy_(self.train_manipulation(first + self.settings.rounds, learns))

    def train_pairs(self, number: Int[Tensor, ""]) -> None:
        """Train the pairs on one batch, with the manipulation fixed."""
        w, x, noise = self.draw_batch(number)
        with torch.no_grad():
            changed = reflect(x + self.settings.eps * self.manipulation(w))
        train_on_batch(self.families, self.optimisers["pairs"], w, changed, noise)

    def train_manipulation(self, number: Int[Tensor, ""], learns: bool) -> Float[Tensor, " 4"]:
        """Train the manipulation on one batch: less error for entangling pairs, more for disentangling pairs.

        The loss is the difference of the logarithms of the errors. Their plain difference also falls when the whole
        image fades, which favours no axes, and training would remain there.
        """
        w, x, noise = self.draw_batch(number)
        pattern = self.manipulation(w)
        with torch.no_grad():
            decoded = self.families.decode(w, noise)
        disentangling, entangling = self.families.errors(reflect(x + self.settings.eps * pattern), decoded)
        optimiser = self.optimisers["m"]
        optimiser.zero_grad(set_to_none=True)
        (entangling.clamp(min=MIN_ERROR).log() - disentangling.clamp(min=MIN_ERROR).log()).backward()
        if learns:
            optimiser.step()
        terms = [disentangling, entangling, entangling - disentangling, pattern.abs().mean()]
        return torch.stack(terms).detach()

    def state(self) -> dict[str, Tensor]:
        """Return all tensors of a checkpoint: the networks and the moments of Adam."""
        parts = {"m": self.manipulation.state_dict(), "pairs": self.families.state_dict()}
        state = {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
        for part, optimiser in self.optimisers.items():
            for row, moments in optimiser.state_dict()["state"].items():
                state |= {f"adam/{part}/{row}/{name}": tensor for name, tensor in moments.items()}
        return {name: tensor.contiguous() for name, tensor in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Load what `state` returned. The given tensors are copied."""
        for part, net in (("m", self.manipulation), ("pairs", self.families)):
            net.load_state_dict({name: state[f"{part}/{name}"] for name in net.state_dict()})
        for part, optimiser in self.optimisers.items():
            content = optimiser.state_dict()
            for name, tensor in state.items():
                if name.startswith(f"adam/{part}/"):
                    row, moment = name.split("/")[2:]
                    # load_state_dict does not copy the tensors that it is given.
                    content["state"].setdefault(int(row), {})[moment] = tensor.clone()
            optimiser.load_state_dict(content)

    @torch.no_grad()
    def pattern_table(self) -> tuple[Int8[Tensor, "p c h w"], Int16[Tensor, " n"]]:
        """Return the patterns at equally spaced values of the scalar, and the number of the pattern of each example."""
        self.manipulation.eval()
        parts = torch.arange(len(self.data), device=self.data.device).split(EXAMPLES_AT_ONCE)
        scalars = [self.manipulation.scalar(self.standard(self.data.factors_at(part)))[:, 0] for part in parts]
        scalar = torch.cat(scalars).double()
        low, high = scalar.min(), scalar.max()
        places = torch.linspace(0, 1, PATTERNS, dtype=torch.float64, device=scalar.device)
        batches = (low + (high - low) * places).float()[:, None].split(PATTERNS_AT_ONCE)
        levels = [(PATTERN_LEVELS * self.manipulation.pattern(values)).round().to(torch.int8) for values in batches]
        share = (scalar - low) / (high - low).clamp(min=1e-12)
        return torch.cat(levels).cpu(), (share * (PATTERNS - 1)).round().to(torch.int16).cpu()


def initial_axis(standard: FactorStandardiser, settings: ManipulationSettings) -> Float[Tensor, " k"]:
    """Return the unit vector along which the scalar starts: the first rotated axis of every plane, in equal parts."""
    axis = torch.zeros(len(standard.names))
    for name in {name for planes in settings.rotations for plane in planes for name in plane}:
        axis[standard.names.index(name)] = 1.0
    return torch.nn.functional.normalize(axis, dim=0)


def build_families(data: FactorData, standard: FactorStandardiser, settings: ManipulationSettings) -> PairFamilies:
    """Build the pairs that the settings describe, on the device of the data."""
    column = standard.names.index
    planes = [[(column(a), column(b)) for a, b in member] for member in settings.rotations]
    options = (settings.capacity, settings.likelihood, settings.samples)
    return PairFamilies(data.shape, len(standard.names), planes, *options).to(data.device)


def train_on_batch(
    families: PairFamilies, optimiser: torch.optim.Adam, w: Tensor, x: Tensor, noise: Noise
) -> Float[Tensor, " 2"]:
    """Train all pairs on one batch, and return the errors of both families before the update."""
    errors = families.errors(x, families.decode(w, noise))
    optimiser.zero_grad(set_to_none=True)
    errors.sum().backward()
    optimiser.step()
    return errors.detach()
