"""Adversarial training of a manipulation.

The manipulation is a network that computes a scalar from the factors of an image, and a pattern from the scalar. The
pattern, multiplied by `eps`, is added to the image. Pairs of an encoder and a decoder learn to reconstruct the changed
images. The encoders are not networks: the latents of disentangling pairs are the factors plus noise, and the latents of
entangling pairs are rotated factors plus noise (see `FixedEncoderPair`). The manipulation learns to make reconstruction
easier for the entangling pairs and harder for the disentangling pairs.
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

N_PATTERNS = 1024  # number of patterns in the table that is stored with the manipulation
PATTERNS_PER_BATCH = 256  # number of patterns that are computed at the same time
EXAMPLES_PER_BATCH = 65_536  # number of examples whose scalar is computed at the same time
MIN_ERROR = 1e-3  # in nats per image; smaller errors are replaced by this value before the logarithm is taken
TERMS = ("disentangling", "entangling", "gap", "change")
"""The logged terms.

These are the reconstruction errors of the disentangling and of the entangling pairs, the gap (entangling error minus
disentangling error), and the mean absolute value of a pattern.
"""


class AdversarialTraining:
    """Two families of pairs and one manipulation, with their optimisers. All random numbers depend only on the seed."""

    def __init__(self, data: FactorData, settings: ManipulationSettings) -> None:
        self.data, self.settings, self.standardise = data, settings, FactorStandardiser(data)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            axis = initial_axis(self.standardise, settings)
            self.manipulation = Manipulation(axis, data.shape, settings.normalise).to(data.device)
            self.families = build_families(data, self.standardise, settings)
        self.seed = torch.tensor(settings.seed, device=data.device)
        self.step_number, self.terms = torch.tensor(0, device=data.device), torch.zeros(len(TERMS), device=data.device)
        self.runners = {update: step_runner(data.device) for update in (False, True)}
        rate = settings.learning_rate
        optimiser = make_adam(self.manipulation.parameters(), rate * settings.pace)
        # These keys must not change, because checkpoints contain them.
        self.optimisers = {"pairs": self.families.make_optimiser(rate), "m": optimiser}

    def draw_batch(self, batch_number: Int[Tensor, ""]) -> tuple[Tensor, Tensor, Noise]:
        """Return the standardised factors (b, k) and images (b, c, h, w) of a batch, and its random numbers."""
        noise = Noise.from_seed(self.seed, batch_number)
        index = self.data.draw(noise, self.settings.batch)
        return self.standardise(self.data.factors_at(index)), self.data.batch(index, noise), noise

    def step(self, step: int) -> Float[Tensor, " 4"]:
        """Train the pairs on several batches and the manipulation on one batch.

        In the first steps (see `ManipulationSettings.warm`), the manipulation is not updated. Returns the values of
        `TERMS` on the batch of the manipulation. The next step overwrites this tensor.
        """
        update_manipulation = step >= self.settings.warm * self.settings.steps
        self.step_number.fill_(step)
        self.runners[update_manipulation](partial(self._run_step, update_manipulation))
        return self.terms

    def _run_step(self, update_manipulation: bool) -> None:
        """Run the step given by `step_number`, and write its terms to `terms`, without waiting for the device."""
        first_batch = self.step_number * (self.settings.rounds + 1)
        for i in range(self.settings.rounds):
            self.train_pairs(first_batch + i)
        self.terms.copy_(self.train_manipulation(first_batch + self.settings.rounds, update_manipulation))

    def train_pairs(self, batch_number: Int[Tensor, ""]) -> None:
        """Train the pairs on one batch, with a fixed manipulation."""
        w, x, noise = self.draw_batch(batch_number)
        with torch.no_grad():
            changed = reflect(x + self.settings.eps * self.manipulation(w))
        train_on_batch(self.families, self.optimisers["pairs"], w, changed, noise)

    def train_manipulation(self, batch_number: Int[Tensor, ""], update: bool) -> Float[Tensor, " 4"]:
        """Compute the gradient of the manipulation on one batch, and update the manipulation if `update` is true.

        By default, the loss is the log error of the entangling pairs minus the log error of the disentangling pairs.
        The difference of the errors themselves, which Zietlow et al. (2021) use, also falls if all images lose their
        contrast. A loss of contrast does not favour the entangling pairs, but training can get stuck at images without
        contrast. The function returns the values of `TERMS` before the update.
        """
        w, x, noise = self.draw_batch(batch_number)
        pattern = self.manipulation(w)
        with torch.no_grad():
            decoded = self.families.decode(w, noise)
        disentangling, entangling = self.families.errors(reflect(x + self.settings.eps * pattern), decoded)
        optimiser = self.optimisers["m"]
        optimiser.zero_grad(set_to_none=True)
        if self.settings.objective == "difference":
            loss = entangling - disentangling
        else:
            loss = entangling.clamp(min=MIN_ERROR).log() - disentangling.clamp(min=MIN_ERROR).log()
        loss.backward()
        if update:
            optimiser.step()
        terms = [disentangling, entangling, entangling - disentangling, pattern.abs().mean()]
        return torch.stack(terms).detach()

    def state(self) -> dict[str, Tensor]:
        """Return all tensors of a checkpoint, which are the weights of the networks and the moments of Adam."""
        parts = {"m": self.manipulation.state_dict(), "pairs": self.families.state_dict()}
        state = {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
        for part, optimiser in self.optimisers.items():
            for row, moments in optimiser.state_dict()["state"].items():
                state |= {f"adam/{part}/{row}/{name}": tensor for name, tensor in moments.items()}
        return {name: tensor.contiguous() for name, tensor in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore networks and optimisers from copies of the tensors that `state` returned."""
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
        """Return patterns for equally spaced values of the scalar, and the index of the pattern of each example.

        The patterns are rounded to integers from -`PATTERN_LEVELS` to `PATTERN_LEVELS`.
        """
        self.manipulation.eval()
        parts = torch.arange(len(self.data), device=self.data.device).split(EXAMPLES_PER_BATCH)
        scalars = [self.manipulation.scalar(self.standardise(self.data.factors_at(part)))[:, 0] for part in parts]
        scalar = torch.cat(scalars).double()
        low, high = scalar.min(), scalar.max()
        fractions = torch.linspace(0, 1, N_PATTERNS, dtype=torch.float64, device=scalar.device)
        batches = (low + (high - low) * fractions).float()[:, None].split(PATTERNS_PER_BATCH)
        levels = [(PATTERN_LEVELS * self.manipulation.pattern(values)).round().to(torch.int8) for values in batches]
        fraction = (scalar - low) / (high - low).clamp(min=1e-12)
        return torch.cat(levels).cpu(), (fraction * (N_PATTERNS - 1)).round().to(torch.int16).cpu()


def initial_axis(standardise: FactorStandardiser, settings: ManipulationSettings) -> Float[Tensor, " k"]:
    """Return the direction, in the space of factors, along which the scalar varies initially.

    It is a unit vector with equal entries for all factors that are rotated, and zeros for the others. If
    `settings.scalar` is "random", the scalar starts as a random function, and a zero vector is returned.
    """
    axis = torch.zeros(len(standardise.names))
    if settings.scalar == "random":
        return axis
    for name in {name for planes in settings.rotations for plane in planes for name in plane}:
        axis[standardise.names.index(name)] = 1.0
    return torch.nn.functional.normalize(axis, dim=0)


def build_families(data: FactorData, standardise: FactorStandardiser, settings: ManipulationSettings) -> PairFamilies:
    """Build the pairs that the settings describe, on the device on which the data are stored."""
    column = standardise.names.index
    planes = [[(column(a), column(b)) for a, b in member] for member in settings.rotations]
    options = (settings.capacity, settings.likelihood, settings.samples)
    return PairFamilies(data.shape, len(standardise.names), planes, *options).to(data.device)


def train_on_batch(
    families: PairFamilies, optimiser: torch.optim.Adam, w: Tensor, x: Tensor, noise: Noise
) -> Float[Tensor, " 2"]:
    """Train all pairs on one batch. Returns the errors of the disentangling and entangling family before the update."""
    errors = families.errors(x, families.decode(w, noise))
    optimiser.zero_grad(set_to_none=True)
    errors.sum().backward()
    optimiser.step()
    return errors.detach()
