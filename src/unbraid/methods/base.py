"""What a method is: hyperparameters and one pure objective, written for a single run."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from torch import Tensor

from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

Hyper = float | Tensor
"""A number that may differ from run to run inside a stack; there it is a 0-d tensor."""

Loss = tuple[Tensor, dict[str, Tensor]]
"""The scalar to minimise and the terms to log."""


def setting(default: Any, help: str, *, low: int | float = -math.inf, high: int | float = math.inf) -> Any:
    """A dataclass field with the sentence `--help` shows and the closed range it must lie in."""
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high})


@dataclass(frozen=True)
class Batch:
    """Examples of one step: `x` is (b, ...); `population` is the number of distinct examples they are drawn from."""

    x: Tensor
    population: int


@dataclass(frozen=True)
class Adam:
    """Adam's constants (Kingma & Ba 2015, arXiv:1412.6980, algorithm 1)."""

    learning_rate: Hyper
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


def check_setting(owner: str, field: dataclasses.Field[Any], kind: Any, value: Any) -> Any:
    """The value in the field's own type, or an error that says what must hold."""
    what = f"The {field.name!r} parameter of {owner}"
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{what} must be one of {', '.join(map(str, get_args(kind)))}. Got {value!r} instead.")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and value != value // 1):
        raise TypeError(f"{what} must be {'a whole' if kind is int else 'a'} number. Got {value!r} instead.")
    low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
    if not (low <= value <= high and math.isfinite(value)):
        bound = f"finite and >= {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise ValueError(f"{what} must be {bound if low > -math.inf else 'finite'}. Got {value!r} instead.")
    return int(value) if kind is int else float(value)


def check_settings(owner: str, instance: Any) -> None:
    """Check every field of a frozen dataclass and store it in its own type, so that 4 and 4.0 are the same spec."""
    types = get_type_hints(type(instance))
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

    draws: ClassVar[str] = "single"  # how examples are drawn: a key of unbraid.data.sampling.SAMPLERS

    def __post_init__(self) -> None:
        check_settings(type(self).__name__, self)

    def extend(self, net: VAENet, latents: int) -> VAENet:
        """Add what the method trains besides an encoder and a decoder."""
        return net

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        """The optimiser constants of one named parameter."""
        return Adam(learning_rate)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        """The loss of one step and its terms."""
        raise TypeError(f"{type(self).__name__} must define objective(net, batch, noise, step).")

    @classmethod
    def hypers(cls) -> list[str]:
        """The fields that may vary inside a stack."""
        return [name for name, kind in get_type_hints(cls).items() if kind == Hyper]
