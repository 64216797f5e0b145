"""The base class of all methods: hyperparameters and one pure objective, written for a single run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

from jaxtyping import Float
from torch import Tensor

from unbraid.accel.adam import Adam as Adam
from unbraid.accel.adam import Hyper as Hyper
from unbraid.data.dataset import FactorData
from unbraid.data.sampling import DrawnExamples
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.controls import Controls, unbounded_controls
from unbraid.methods.traversal import RowLabel, Traversal
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise

Loss = tuple[Tensor, dict[str, Tensor]]
"""The scalar to minimise, and the terms to log by name."""


def setting(
    default: Any,
    help: str,
    *,
    low: int | float = -math.inf,
    high: int | float = math.inf,
    swept: bool | None = None,
) -> Any:
    """Return a dataclass field for a hyperparameter of a method or a field of a spec.

    Args:
        default: The default value.
        help: The sentence that `--help` and the documentation show.
        low: The smallest valid value.
        high: The largest valid value.
        swept: Whether this field is the strength of the method, which studies sweep and analyses call `strength`. If
            no field of a method says True, it is the first `Hyper` field that does not say False.

    Returns:
        A `dataclasses.field` with the default and, as metadata, the other arguments.
    """
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high, "swept": swept})


@dataclass(frozen=True)
class Batch:
    """The examples of one training step.

    In batches of pairs the first half of `x` holds the first examples and the second half their partners, in the same
    order.

    Attributes:
        x: Examples of shape (b, ...).
        population: The number of distinct examples that the batch is drawn from.
        changed: For pairs, a boolean tensor (b / 2, k): which of the k factors were drawn anew for the partner. Only
            methods that are supervised by it may use it.
        steps: The total number of training steps, for schedules.
    """

    x: Tensor
    population: int
    changed: Tensor | None = None
    steps: int = 0


class EncoderOutput(NamedTuple):
    """A named output of an exported encoder: what it means, and how it is computed from the posteriors q(z|x)."""

    meaning: str
    compute: Callable[[Gaussian], Tensor]


def check_setting(owner: str, field: dataclasses.Field[Any], kind: Any, value: Any) -> Any:
    """Return the value converted to the field's type, or raise a UserError that says which values are valid."""
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


FIELD_TYPES: dict[Any, dict[str, Any]] = {}


def field_types(cls: Any) -> dict[str, Any]:
    """Return the types of a class's fields by name. They are computed once per class."""
    if cls not in FIELD_TYPES:
        FIELD_TYPES[cls] = get_type_hints(cls)
    return FIELD_TYPES[cls]


def check_settings(owner: str, instance: Any) -> None:
    """Check every field of a frozen dataclass and convert it to its type, so that 4 and 4.0 give the same spec."""
    types = field_types(type(instance))
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if "help" in field.metadata and not isinstance(value, Tensor):
            object.__setattr__(instance, field.name, check_setting(owner, field, types[field.name], value))


@dataclass(frozen=True)
class Method:
    """The base class of all methods: a frozen dataclass of hyperparameters with one `objective`.

    A new method is a subclass that defines `objective` and its fields (with `setting`). All other methods of this
    class are hooks with defaults that suit a VAE.

    Each objective sums over pixels and latents and averages over the batch, explicitly, so that the hyperparameters
    of a paper can be used unchanged.

    Attributes:
        code_kinds: The kinds of codes that metrics can score. The first is the default.
        column_code_kind: The kind of code with one column per control and per traversal row. None means the default
            kind.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean", "sampled")
    column_code_kind: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        check_settings(type(self).__name__, self)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        """Return the loss of one training step and the terms to log.

        Args:
            net: The network of one run.
            batch: The examples of the step.
            noise: The random numbers of the step. An objective must use no other source of randomness.
            step: The number of the step, a tensor of no dimensions that starts at 0.
        """
        raise UserError(f"{type(self).__name__} must define objective(net, batch, noise, step).")

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        """Draw the examples of one step. By default they are independent; methods of pairs override this."""
        return DrawnExamples(data.draw(noise, batch))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        """Raise a UserError, before training, if the method cannot work with these data and settings."""

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        """Build the network of a run, by default one encoder and one decoder from the builder."""
        return self.extend(VAENet(*builder(shape, latents), likelihood), latents)

    def extend(self, net: VAENet, latents: int) -> VAENet:
        """Add networks that the method trains besides the encoder and the decoder, such as a critic."""
        return net

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        """Return the optimiser constants of one named parameter."""
        return Adam(learning_rate)

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        """Return the codes (n, any) of examples with posteriors q, of one of the `code_kinds`."""
        return q.mean if kind == "mean" else q.sample(noise)

    def column_names(self, columns: int) -> list[str]:
        """Return the names of the columns of codes of the kind `column_code_kind`."""
        return [f"latent {i}" for i in range(columns)]

    def appearance_columns(self, latents: int) -> tuple[int, ...] | None:
        """Return the columns of the default code that hold the appearance, or None if the method does not know."""
        return None

    def information(self, q: Gaussian) -> Tensor | None:
        """Return the nats that each column of the default code carries, (d,), or None if they are not known."""
        return q.kl().mean(0)

    def posterior_sample(self, net: VAENet, x: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """Return one posterior sample z per example and its log q(z|x) - log p(z)."""
        q = net.encode(x)
        z = q.sample(noise)
        return z, q.log_ratio(z).sum(1)

    def decode_appearance(self, net: VAENet, z: Float[Tensor, "n d"]) -> Tensor:
        """Decode latents without the perspective; methods that have none decode as usual."""
        return net.decode(z)

    def subspace_codes(self, net: VAENet, q: Gaussian) -> Float[Tensor, "n k d"] | None:
        """Return the k vectors whose sum is decoded, or None if the method has no subspaces."""
        return None

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return the latents to decode for a traversal from one example.

        By default there is one row per latent, in which this latent takes the given positions. Rows are sorted by the
        nats that the latent carries about the examples of the population, the largest first.

        Args:
            net: The network of the run.
            q: The posterior of the example.
            population: The posteriors of many examples.
            positions: The values that the latent takes, of shape (positions,).
        """
        kl = population.kl().mean(0)
        order = kl.argsort(descending=True).tolist()
        z = q.mean.repeat(len(order), len(positions), 1)
        for row, latent in enumerate(order):
            z[row, :, latent] = positions.to(z.device)
        return Traversal(z, q.mean, [RowLabel(f"latent {i}", i, nats=float(kl[i])) for i in order])

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Return the sliders with which a page explores the code, starting from examples with posteriors q.

        By default there is one slider per latent.
        """
        names = [f"latent {i}" for i in range(q.mean.shape[1])]
        return unbounded_controls("latents", names, q.mean, columns=list(range(len(names))))

    def encoder_outputs(self, latents: int) -> dict[str, EncoderOutput]:
        """Return what an exported encoder gives besides the default codes, by name.

        By default these are the log variances, if the codes are the means of Gaussian posteriors.
        """
        if self.code_kinds[:2] != ("mean", "sampled"):
            return {}
        meaning = "log variances of the posterior q(z|x); its means are the codes"
        return {"logvar": EncoderOutput(meaning, lambda q: q.logvar)}

    @classmethod
    def swept_field(cls) -> str | None:
        """Return the name of the field that studies sweep (see `setting`), or None if there is none."""
        marks = {field.name: field.metadata.get("swept") for field in dataclasses.fields(cls)}
        marked = [name for name, mark in marks.items() if mark]
        return next(iter([*marked, *(name for name in cls.hypers() if marks[name] is not False)]), None)

    @property
    def strength(self) -> float:
        """The value of the swept field, or 0 for a method without one."""
        name = self.swept_field()
        return 0.0 if name is None else float(getattr(self, name))

    @classmethod
    def hypers(cls) -> list[str]:
        """Return the names of the fields that may differ between the runs of a stack."""
        return [name for name, kind in field_types(cls).items() if kind == Hyper]
