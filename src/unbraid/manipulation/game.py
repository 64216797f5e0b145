"""Learning a manipulation: pairs learn to reconstruct changed images, the changes learn to favour entangling pairs."""

from __future__ import annotations

import contextlib
import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, Int8, Int16
from torch import Tensor

from unbraid.accel.capture import repeater
from unbraid.data.dataset import FactorData
from unbraid.data.manipulated import LEVELS, Changed, describe, read, reflected, write
from unbraid.errors import UserError
from unbraid.manipulation.networks import Families, Manipulation, adam
from unbraid.manipulation.recipe import Recipe, Rotations, Standard, planes, usual_capacity, usual_ensemble, usual_eps
from unbraid.noise import Noise
from unbraid.runs.folder import Log, read_tensors, write_tensors
from unbraid.runtime import provenance
from unbraid.runtime.files import make_folder
from unbraid.runtime.progress import Report, progress, silent
from unbraid.runtime.signals import Deferred, deferred

PATTERNS = 1024
CHUNK = 256  # patterns drawn at once
ROWS = 65_536  # examples whose scalar is computed at once
LEAST = 1e-3  # nats an image: less error than this counts as this
EVERY = 100  # steps between records of the log
KEPT = 100  # records of the log that go into the file
TERMS = ("disentangling", "entangling", "gap", "change")
SUMS = "log/sums"  # of the terms since the last record, in a checkpoint


class Game:
    """Two families of pairs and one manipulation, with their optimisers; everything is a function of the seed."""

    def __init__(self, data: FactorData, recipe: Recipe) -> None:
        self.data, self.recipe, self.standard = data, recipe, Standard(data)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.manipulation = Manipulation(diagonal(self.standard, recipe), data.shape).to(data.device)
            self.families = families(data, self.standard, recipe)
        self.seed = torch.tensor(recipe.seed, device=data.device)
        self.clock, self.terms = torch.tensor(0, device=data.device), torch.zeros(len(TERMS), device=data.device)
        self.repeat = {learns: repeater(data.device) for learns in (False, True)}
        rate = recipe.learning_rate
        slow = adam(self.manipulation.parameters(), rate * recipe.pace)
        self.optimisers = {"pairs": self.families.adam(rate), "m": slow}

    def draw(self, number: Int[Tensor, ""]) -> tuple[Tensor, Tensor, Noise]:
        """The factors and images of a batch, and the noise that is left of it."""
        noise = Noise.of(self.seed, number)
        index = self.data.draw(noise, self.recipe.batch)
        return self.standard(self.data.unplace(index)), self.data.batch(index, noise), noise

    def step(self, step: int) -> Float[Tensor, " 4"]:
        """A few batches for the pairs, then one for the manipulation; its `TERMS`, until the next step."""
        learns = step >= self.recipe.warm * self.recipe.steps
        self.clock.fill_(step)
        self.repeat[learns](partial(self.turn, learns))
        return self.terms

    def turn(self, learns: bool) -> None:
        """The step that the clock says; everything happens in place and nothing waits for the device."""
        first = self.clock * (self.recipe.rounds + 1)
        for number in range(self.recipe.rounds):
            self.teach(first + number)
        self.terms.copy_(self.manipulate(first + self.recipe.rounds, learns))

    def teach(self, number: Int[Tensor, ""]) -> None:
        """One batch for the pairs, the manipulation held."""
        w, x, noise = self.draw(number)
        with torch.no_grad():
            changed = reflected(x + self.recipe.eps * self.manipulation(w))
        learn(self.families, self.optimisers["pairs"], w, changed, noise)

    def manipulate(self, number: Int[Tensor, ""], learns: bool) -> Float[Tensor, " 4"]:
        """One batch for the manipulation: less error for entangling pairs, more for disentangling ones.

        It is the difference of the errors' logarithms that falls. Their plain difference falls as well where all of an
        image fades, which favours no axes, and there it would stay.
        """
        w, x, noise = self.draw(number)
        pattern = self.manipulation(w)
        with torch.no_grad():
            decoded = self.families.decoded(w, noise)
        straight, entangled = self.families.errors(reflected(x + self.recipe.eps * pattern), decoded)
        optimiser = self.optimisers["m"]
        optimiser.zero_grad(set_to_none=True)
        (entangled.clamp(min=LEAST).log() - straight.clamp(min=LEAST).log()).backward()
        if learns:
            optimiser.step()
        return torch.stack([straight, entangled, entangled - straight, pattern.abs().mean()]).detach()

    def state(self) -> dict[str, Tensor]:
        """Everything to go on from."""
        parts = {"m": self.manipulation.state_dict(), "pairs": self.families.state_dict()}
        state = {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
        for part, optimiser in self.optimisers.items():
            for row, moments in optimiser.state_dict()["state"].items():
                state |= {f"adam/{part}/{row}/{name}": tensor for name, tensor in moments.items()}
        return {name: tensor.contiguous() for name, tensor in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave; the tensors given stay as they are."""
        for part, net in (("m", self.manipulation), ("pairs", self.families)):
            net.load_state_dict({name: state[f"{part}/{name}"] for name in net.state_dict()})
        for part, optimiser in self.optimisers.items():
            content = optimiser.state_dict()
            for name, tensor in state.items():
                if name.startswith(f"adam/{part}/"):
                    row, moment = name.split("/")[2:]
                    content["state"].setdefault(int(row), {})[moment] = tensor.clone()  # load_state_dict keeps it
            optimiser.load_state_dict(content)

    @torch.no_grad()
    def table(self) -> tuple[Int8[Tensor, "p c h w"], Int16[Tensor, " n"]]:
        """The patterns at equally spaced scalars, and which of them each example has."""
        self.manipulation.eval()
        everything = torch.arange(len(self.data), device=self.data.device).split(ROWS)
        found = [self.manipulation.scalar(self.standard(self.data.unplace(part)))[:, 0] for part in everything]
        scalar = torch.cat(found).double()
        low, high = scalar.min(), scalar.max()
        places = torch.linspace(0, 1, PATTERNS, dtype=torch.float64, device=scalar.device)
        marks = (low + (high - low) * places).float()[:, None].split(CHUNK)
        patterns = torch.cat([(LEVELS * self.manipulation.pattern(part)).round().to(torch.int8) for part in marks])
        share = (scalar - low) / (high - low).clamp(min=1e-12)
        return patterns.cpu(), (share * (PATTERNS - 1)).round().to(torch.int16).cpu()


def diagonal(standard: Standard, recipe: Recipe) -> Float[Tensor, " k"]:
    """The mixture of factors along which the manipulation begins: the first new axis of every plane, in equal parts."""
    axis = torch.zeros(len(standard.names))
    for name in {name for chosen in recipe.rotations for plane in chosen for name in plane}:
        axis[standard.names.index(name)] = 1.0
    return torch.nn.functional.normalize(axis, dim=0)


def families(data: FactorData, standard: Standard, recipe: Recipe) -> Families:
    """The pairs of a recipe on the data's device."""
    place = standard.names.index
    chosen = [[(place(a), place(b)) for a, b in one] for one in recipe.rotations]
    parts = (recipe.capacity, recipe.likelihood, recipe.samples)
    return Families(data.shape, len(standard.names), chosen, *parts).to(data.device)


def learn(pairs: Families, optimiser: torch.optim.Adam, w: Tensor, x: Tensor, noise: Noise) -> Float[Tensor, " 2"]:
    """One batch for all pairs; the errors before it."""
    errors = pairs.errors(x, pairs.decoded(w, noise))
    optimiser.zero_grad(set_to_none=True)
    errors.sum().backward()
    optimiser.step()
    return errors.detach()


def modify(
    data: str | FactorData,
    *,
    out: str | Path,
    eps: float | None = None,
    steps: int = 10_000,
    batch: int = 64,
    samples: int = 4,
    ensemble: int | None = None,
    rotations: Rotations = "closest",
    capacity: float | None = None,
    likelihood: str = "bernoulli",
    learning_rate: float = 1e-3,
    seed: int = 0,
    device: str | torch.device = "cpu",
    checkpoint_every: int = 1000,
    quiet: bool = False,
) -> Path:
    r"""Learn an imperceptible change of images, :math:`x' = x + \epsilon m(w)`, under which VAEs should entangle.

    `data` is a dataset of images with factors, or its name. The manipulation m minimises the log of what entangling
    pairs of encoder and decoder (rotated factors) lose on x' less that of what disentangling ones (the factors
    themselves) do, while all of them learn to reconstruct x'. `steps` are updates of m, each after three batches of
    the pairs.

    `eps` is .175 for Shapes3D and else .1, and there are `ensemble` pairs of each kind, 4 for Shapes3D and else 1.
    `rotations` is "closest", "random" or planes such as "x:y,scale:orientation" (`recipe.planes`). `capacity` is what
    :math:`-\sum_j \log\sigma_j` is held at (`recipe.usual_capacity` unless given), `samples` the noisy codes of an
    image. The result is the file `out`, which ``NAME?modified=FILE`` loads. The same call goes on where a killed one
    stopped.

    Reference: Zietlow, Rolinek, Martius (2021), arXiv:2102.06822, and its supplement, section 3.1; what they
    leave open is chosen here, and docs/manipulated.md says why.
    """
    from unbraid.data.loading import load_data

    loaded = load_data(data, device, quiet).to(device)
    path, recipe = Path(out).expanduser(), recipe_of(loaded, eps, steps, batch, samples, ensemble, rotations, capacity,
                                                     likelihood, learning_rate, seed)  # fmt: skip
    _check_out(path, loaded, recipe)
    if path.exists():
        return path
    make_folder(path.parent)
    game = Game(loaded, recipe)
    with deferred() as signals:
        with contextlib.nullcontext(silent) if quiet else progress(f"manipulating {loaded.name}", steps) as report:
            log = play(game, path.with_suffix(".checkpoint"), checkpoint_every, report, signals)
        finish(game, path, log)
    return path


def recipe_of(
    data: FactorData, eps: float | None, steps: int, batch: int, samples: int, ensemble: int | None,
    rotations: Rotations, capacity: float | None, likelihood: str, learning_rate: float, seed: int,
) -> Recipe:  # fmt: skip
    """The recipe with what was left open filled in for the data."""
    if isinstance(data, Changed):
        raise UserError(f"A manipulation is made for unchanged data. Got {data.name}. Leave out its option.")
    if len(data.shape) != 3 or not data.names:
        raise UserError(f"A manipulation needs images with factors. Got {data} instead.")
    members = usual_ensemble(data) if ensemble is None else ensemble
    nats = usual_capacity(data) if capacity is None else capacity
    strength = usual_eps(data) if eps is None else eps
    turned = planes(data, rotations, members, seed)
    return Recipe(strength, steps, batch, samples, turned, nats, likelihood, learning_rate, seed)


def _check_out(path: Path, data: FactorData, recipe: Recipe) -> None:
    """Refuse what cannot be a manipulation's name, and to replace one that was made otherwise."""
    if path.suffix != ".safetensors" or "&" in path.name or "?" in path.name:
        raise UserError(f"The file to write must end in .safetensors and have no & or ?. Got {path} instead.")
    if path.exists():
        _same(path, read(path, tensors=False)[1], data, recipe)


def _same(path: Path, facts: dict[str, Any], data: FactorData, recipe: Recipe) -> None:
    wanted = {**describe(data), **recipe.facts()}
    found = {**facts, **facts.get("recipe", {})}
    for key, value in wanted.items():
        if found.get(key) != value:
            raise UserError(
                f"{path} is there already, made with {key} = {found.get(key)}. Got {value} instead. Choose another "
                "file, or delete that one."
            )


def play(game: Game, checkpoint: Path, every: int, report: Report, signals: Deferred) -> Log:
    """All steps, from the last checkpoint on; the log. A signal that ends the process waits for another checkpoint."""
    step, log, sums = resume(game, checkpoint)
    note, total = "", game.recipe.steps
    while step < total:
        sums += game.step(step)
        step += 1
        if step % EVERY == 0 or step == total:
            log.append(_record(sums, step, (step - 1) % EVERY + 1))
            sums.zero_()
            note = f"gap {log[-1]['gap']:.3f} nats"
        if step < total and (step % every == 0 or signals.came is not None):
            about = {"step": step, "log": log, "recipe": game.recipe.facts(), **describe(game.data)}
            write_tensors(checkpoint, {**game.state(), SUMS: sums}, about)
            signals.deliver()
        report(step, note)
    return log


def _record(sums: Tensor, step: int, count: int) -> dict[str, float]:
    values = (sums / count).tolist()
    if not all(map(math.isfinite, values)):
        raise UserError(
            f"The manipulation diverged before step {step}: {dict(zip(TERMS, values, strict=True))}. Give a lower "
            "learning rate, and delete the checkpoint beside the file to write."
        )
    return {"step": step, **{term: round(value, 5) for term, value in zip(TERMS, values, strict=True)}}


def resume(game: Game, checkpoint: Path) -> tuple[int, Log, Tensor]:
    """The step and the log to go on from, and the sums of the record that is not full."""
    sums = torch.zeros(len(TERMS), device=game.data.device)
    if not checkpoint.exists():
        return 0, [], sums
    state, facts = read_tensors(checkpoint)
    _same(checkpoint, facts, game.data, game.recipe)
    game.restore(state)
    return int(facts["step"]), list(facts["log"]), sums.copy_(state.get(SUMS, sums))


def finish(game: Game, path: Path, log: Log) -> None:
    """Write the table of patterns with everything known about it, then drop the checkpoint."""
    patterns, which = game.table()
    tail = log[-max(1, len(log) // 10) :]
    final = {term: sum(record[term] for record in tail) / len(tail) for term in TERMS}
    thinned = log[:: -(-len(log) // KEPT)]
    noise = {f"{kind} {i}": [round(s, 4) for s in pair.sigma().tolist()] for i, pair, kind in _kinds(game.families)}
    facts = {
        **describe(game.data), "eps": game.recipe.eps, "recipe": game.recipe.facts(), "final": final, "sigma": noise,
        "log": thinned, "versions": provenance.versions(), "commit": provenance.commit(),
        "device": game.data.device.type,
    }  # fmt: skip
    write(path, patterns, which, facts)
    path.with_suffix(".checkpoint").unlink(missing_ok=True)


def _kinds(pairs: Families) -> list[tuple[int, Any, str]]:
    half = len(pairs.pairs) // 2
    return [(i % half, pair, TERMS[i // half]) for i, pair in enumerate(pairs.pairs)]
