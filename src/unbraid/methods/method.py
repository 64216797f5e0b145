"""What a method is: hyperparameters and one pure objective, written for a single run."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

from torch import Tensor

from unbraid.accel.adam import Adam as Adam
from unbraid.accel.adam import Hyper as Hyper
from unbraid.data.dataset import FactorData
from unbraid.data.sampling import Drawn
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.controls import Controls, straight
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise

Loss = tuple[Tensor, dict[str, Tensor]]
"""The scalar to minimise and the terms to log."""


def setting(
    default: Any,
    help: str,
    *,
    low: int | float = -math.inf,
    high: int | float = math.inf,
    swept: bool | None = None,
) -> Any:
    """A dataclass field of a method or a spec.

    Args:
        default: The default value.
        help: The sentence that `--help` shows.
        low: The smallest valid value.
        high: The largest valid value.
        swept: Whether this field is the strength of the method, which studies sweep and analyses call `strength`. If no
            field of a method says True, it is the first `Hyper` field that does not say False.
    """
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high, "swept": swept})


@dataclass(frozen=True)
class Batch:
    """Examples of one step: `x` is (b, ...); `population` is the number of distinct examples they are drawn from.

    Of pairs the first half of `x` are the first examples, the second half their partners, and `changed` (b / 2, k) says
    which factors were let go between them; only methods that are told so may look at it. `steps` is the length of the
    whole training, for schedules.
    """

    x: Tensor
    population: int
    changed: Tensor | None = None
    steps: int = 0


class Walk(NamedTuple):
    """Latents of a traversal (rows, positions, d), the example's own (1, d), and labels of the rows, a line or two."""

    z: Tensor
    start: Tensor
    labels: list[str]


def check_setting(owner: str, field: dataclasses.Field[Any], kind: Any, value: Any) -> Any:
    """The value in the field's own type, or an error that says what must hold."""
    what = f"The {field.name!r} parameter of {owner}"
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise UserError(f"{what} must be one of {', '.join(map(str, get_args(kind)))}. Got {value!r} instead.")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and value != value // 1):
        raise UserError(f"{what} must be {'a whole' if kind is int else 'a'} number. Got {value!r} instead.")
    low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
    if not (low <= value <= high and math.isfinite(value)):
        bound = f"finite and >= {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise UserError(f"{what} must be {bound if low > -math.inf else 'finite'}. Got {value!r} instead.")
    return int(value) if kind is int else float(value)


HINTS: dict[Any, dict[str, Any]] = {}


def hints(cls: Any) -> dict[str, Any]:
    """The types of a class's fields, worked out once."""
    if cls not in HINTS:
        HINTS[cls] = get_type_hints(cls)
    return HINTS[cls]


def check_settings(owner: str, instance: Any) -> None:
    """Check every field of a frozen dataclass and store it in its own type, so that 4 and 4.0 are the same spec."""
    types = hints(type(instance))
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if "help" in field.metadata and not isinstance(value, Tensor):
            object.__setattr__(instance, field.name, check_setting(owner, field, types[field.name], value))


@dataclass(frozen=True)
class Method:
    """A frozen dataclass of hyperparameters with one `objective`.

    Pixels and latents are summed, the batch is averaged, in the objective, in sight: a paper's hyperparameters can be
    typed in unchanged.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean", "sampled")  # what metrics may see; the first is the default

    def __post_init__(self) -> None:
        check_settings(type(self).__name__, self)

    def draw(self, data: FactorData, noise: Noise, batch: int) -> Drawn:
        """The examples of one step: independent ones, unless a method needs pairs."""
        return Drawn(data.draw(noise, batch))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        """Refuse data and settings that the method cannot work with, before anything is trained."""

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        """What metrics see of examples with posteriors q, (n, any): posterior means, or samples."""
        return q.mean if kind == "mean" else q.sample(noise)

    def information(self, q: Gaussian) -> Tensor | None:
        """The nats that each column of the default code carries, (d,), or None where the method cannot tell."""
        return q.kl().mean(0)

    def walk(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Walk:
        """Latents to decode for a traversal from one example with posterior q, in a row a direction.

        By default each latent in turn takes the positions, those that tell the population's examples apart best first.
        """
        kl = population.kl().mean(0)
        order = kl.argsort(descending=True).tolist()
        z = q.mean.repeat(len(order), len(positions), 1)
        for row, latent in enumerate(order):
            z[row, :, latent] = positions.to(z.device)
        return Walk(z, q.mean, [f"latent {i}\n{float(kl[i]):.2f} nats" for i in order])

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """The knobs of an explorer that starts from examples with posteriors q; by default the latents themselves."""
        return straight("latents", [f"latent {i}" for i in range(q.mean.shape[1])], q.mean)

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        """The network of a run: one pair of the builder's, unless a method is made of several."""
        return self.extend(VAENet(*builder(shape, latents), likelihood), latents)

    def extend(self, net: VAENet, latents: int) -> VAENet:
        """Add what the method trains besides an encoder and a decoder."""
        return net

    def posterior_sample(self, net: VAENet, x: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """A sample z of the posterior of each example, and log q(z|x) - log p(z) of it."""
        q = net.encode(x)
        z = q.sample(noise)
        return z, q.log_ratio(z).sum(1)

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        """The optimiser constants of one named parameter."""
        return Adam(learning_rate)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        """The loss of one step and its terms."""
        raise UserError(f"{type(self).__name__} must define objective(net, batch, noise, step).")

    @classmethod
    def swept_field(cls) -> str | None:
        """The field that studies sweep (see `setting`), or None if the method has no such field."""
        marks = {field.name: field.metadata.get("swept") for field in dataclasses.fields(cls)}
        marked = [name for name, mark in marks.items() if mark]
        return next(iter([*marked, *(name for name in cls.hypers() if marks[name] is not False)]), None)

    @property
    def strength(self) -> float:
        """The value of the swept field, 0 for a method without one."""
        name = self.swept_field()
        return 0.0 if name is None else float(getattr(self, name))

    @classmethod
    def hypers(cls) -> list[str]:
        """The fields that may vary inside a stack."""
        return [name for name, kind in hints(cls).items() if kind == Hyper]
