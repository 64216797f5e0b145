"""The base class of all methods. A method has hyperparameters and one pure objective, written for a single run."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
from jaxtyping import Float, Int
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
"""The scalar to minimise, and a dictionary of the terms to log."""


def setting(
    default: Any,
    help: str,
    *,
    low: int | float = -math.inf,
    high: int | float = math.inf,
    swept: bool | None = None,
    optional: bool = False,
) -> Any:
    """Return a dataclass field for a hyperparameter of a method or for a setting of a run.

    Args:
        default: The default value.
        help: A short description, which `--help` and the documentation show.
        low: The minimum valid value.
        high: The maximum valid value.
        swept: Whether this field is the strength of the method. Studies sweep the strength, and results contain it in
            the column `strength`. If no field is marked True, the strength is the first field of type `Hyper` that is
            not marked False.
        optional: Whether specs leave the field out when it has its default. A field that is added to a released method
            must be optional, so that the ids of existing runs do not change.

    Returns:
        A `dataclasses.field` with this default. The other arguments are stored in its metadata.
    """
    metadata = {"help": help, "low": low, "high": high, "swept": swept, "optional": optional}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Batch:
    """The examples of one training step.

    In a batch of pairs, the first half of `x` holds the first example of each pair. The second half holds their
    partners in the same order.

    Attributes:
        x: Examples of shape (b, ...).
        population: The number of distinct examples from which the batch is drawn.
        changed: For pairs, a boolean tensor of shape (b / 2, k) that is True for each of the k factors that were drawn
            again for the partner. Only methods that use this supervision may read it.
        steps: The total number of training steps of the run. Schedules use it.
        labels: The labels that `Method.draw` returned, for methods that learn from labels.
    """

    x: Tensor
    population: int
    changed: Tensor | None = None
    steps: int = 0
    labels: Tensor | None = None


class EncoderOutput(NamedTuple):
    """An output of an exported encoder.

    Attributes:
        meaning: A description of the output.
        compute: The function that computes the output from the posteriors q(z|x).
    """

    meaning: str
    compute: Callable[[Gaussian], Tensor]


def check_setting(owner: str, field: dataclasses.Field[Any], kind: Any, value: Any, largest: float = math.inf) -> Any:
    """Return the value converted to the type of the field, or raise a UserError if the value is not valid.

    `largest` is the maximum of a whole number whose field has no maximum of its own.
    """
    what = f"The {field.name!r} parameter of {owner}"
    value = value.item() if isinstance(value, np.generic) else value
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise UserError(f"{what} must be one of {', '.join(map(str, get_args(kind)))}. Got {value!r} instead.")
        return value
    if kind is str:
        if not isinstance(value, str | os.PathLike):
            raise UserError(f"{what} must be text. Got {value!r} instead.")
        return os.fspath(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and value != value // 1):
        raise UserError(f"{what} must be {'a whole' if kind is int else 'a'} number. Got {value!r} instead.")
    low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
    high = min(high, largest) if kind is int and high == math.inf else high
    if not (low <= value <= high and abs(value) <= sys.float_info.max):
        bound = f"finite and >= {low:g}" if high == math.inf else f"between {low:g} and {high:.10g}"
        raise UserError(f"{what} must be {bound if low > -math.inf else 'finite'}. Got {value!r} instead.")
    return int(value) if kind is int else float(value)


LARGEST_COUNT = 2**31 - 1  # maximum of whole numbers in methods, most of which are numbers of units or examples
FIELD_TYPES: dict[Any, dict[str, Any]] = {}


def field_types(cls: Any) -> dict[str, Any]:
    """Return a dictionary from the names of a class's fields to their types. It is computed once per class."""
    if cls not in FIELD_TYPES:
        FIELD_TYPES[cls] = get_type_hints(cls)
    return FIELD_TYPES[cls]


def check_settings(owner: str, instance: Any, largest: float = math.inf) -> None:
    """Check every field of a frozen dataclass and convert it to its type. As a result, 4 and 4.0 give the same spec.

    `largest` is the maximum of whole numbers whose fields have no maximum of their own.
    """
    types = field_types(type(instance))
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if "help" in field.metadata and not isinstance(value, Tensor):
            object.__setattr__(instance, field.name, check_setting(owner, field, types[field.name], value, largest))


@dataclass(frozen=True)
class Method:
    """The base class of all methods, which are frozen dataclasses of hyperparameters with one `objective`.

    To write a new method, define a subclass with an `objective`, and define its fields with `setting`. All other
    functions of this class are hooks. Their defaults suit a VAE.

    Objectives sum over pixels and latents and average over the batch. The hyperparameters of a paper can therefore be
    used unchanged.

    Attributes:
        code_kinds: The kinds of codes that metrics can score. The first kind is the default.
        column_code_kind: The kind of codes whose columns correspond to the controls (see `Controls`) and to the rows of
            a traversal. None means the default kind.
        default_learning_rate: The learning rate of runs for which none is given.
        default_steps: The number of training steps of runs for which none is given.
        float32_networks: The names of networks, such as "decoder", that are computed in float32 even if the run uses a
            lower precision, because the objective uses small differences of their outputs.
        networks_without_kernels: The names of networks that are always computed with ordinary PyTorch operations,
            because the objective computes derivatives of their outputs, for example with `torch.func.grad`.
        training_networks: The names of networks that only the objective uses, such as a critic. Codes and decoded
            examples do not depend on them, so a compact copy of a run leaves them out (see `unbraid.zoo`).
        kl_terms: The names of logged terms whose sum is the KL between the posterior of all latents and a prior that
            does not depend on the example. If it is near 0, codes carry almost no information.
        conditional_prior: Whether the prior of the latents depends on labels, so that samples need labels.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean", "sampled")
    column_code_kind: ClassVar[str | None] = None
    default_learning_rate: ClassVar[float] = 1e-4
    default_steps: ClassVar[int] = 300_000
    float32_networks: ClassVar[tuple[str, ...]] = ()
    networks_without_kernels: ClassVar[tuple[str, ...]] = ()
    training_networks: ClassVar[tuple[str, ...]] = ()
    kl_terms: ClassVar[tuple[str, ...]] = ("kl",)
    conditional_prior: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings(type(self).__name__, self, LARGEST_COUNT)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        """Return the loss of one training step and the terms to log.

        Args:
            net: The network of one run.
            batch: The examples of the step.
            noise: The random numbers of the step. An objective must not use any other source of randomness.
            step: The index of the step, a scalar tensor that starts at 0.

        Returns:
            The scalar loss, and a dictionary of scalars to log.
        """
        raise UserError(f"{type(self).__name__} must define objective(net, batch, noise, step).")

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        """Draw the examples of one step. By default they are independent. Methods that train on pairs override this."""
        return DrawnExamples(data.draw(noise, batch))

    def labels_at(self, data: FactorData, examples: Int[Tensor, " n"]) -> Tensor | None:
        """Return the labels that the objective needs for n examples of a validation split, or None if it needs none."""
        return None

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        """Raise a UserError if the method cannot train with these data and settings. Called before training."""

    def schedule_end(self, steps: int) -> float:
        """Return the step after which all schedules of the method are constant, for a run with this number of steps.

        By default, the only schedule is the warm-up of the KL, if the method has a field `warmup`.
        """
        return steps * float(getattr(self, "warmup", 0.0))

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        """Build the network of a run. By default it is one encoder and one decoder from the builder."""
        return self.extend(VAENet(*builder(shape, latents), likelihood), latents)

    def extend(self, net: VAENet, latents: int) -> VAENet:
        """Add the networks that the method trains in addition to the encoder and the decoder, such as a critic."""
        return net

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        """Return the Adam constants for the network parameter with this name."""
        return Adam(learning_rate)

    def finish(self, net: VAENet, data: FactorData, noise: Noise) -> None:
        """Change the weights of a trained network, for example to fit a rotation of its latents.

        This is called once for each run, after its last step and without gradients. It is not called for runs that
        diverged or have no steps.

        Args:
            net: The network of the run, in evaluation mode.
            data: The training data.
            noise: Random numbers that depend on the seed of the run only.
        """

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        """Return the codes of n examples with posteriors q, of shape (n, columns). The kind is one of `code_kinds`."""
        return q.mean if kind == "mean" else q.sample(noise)

    def point_latents(self, net: VAENet, q: Gaussian) -> Tensor:
        """Return the latents, of shape (n, d), from which n examples with posteriors q are reconstructed."""
        return q.mean

    def column_names(self, columns: int) -> list[str]:
        """Return the names of the columns of codes of the kind `column_code_kind`."""
        return [f"latent {i}" for i in range(columns)]

    def appearance_columns(self, latents: int) -> tuple[int, ...] | None:
        """Return the columns of the default codes that encode the appearance (see `UVITAE`), or None if undefined."""
        return None

    def information(self, q: Gaussian) -> Tensor | None:
        """Return the nats of information in each column of the default codes, of shape (d,), or None if undefined."""
        return q.kl().mean(0)

    def posterior_sample(self, net: VAENet, x: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """Return one posterior sample z per example, and log q(z|x) - log p(z) for each sample."""
        q = net.encode(x)
        z = q.sample(noise)
        return z, q.log_ratio(z).sum(1)

    def project(self, z: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """Return the point of the latent space that is nearest to each vector. By default this is the vector itself."""
        return z

    def prior_sample(self, n: int, latents: int, noise: Noise) -> Float[Tensor, "n d"]:
        """Return n samples of the prior p(z), as input of the decoder. By default the prior is a standard normal."""
        return noise.normal(n, latents)

    def decode_appearance(self, net: VAENet, z: Float[Tensor, "n d"]) -> Tensor:
        """Decode latents without applying the perspective (see `UVITAE`). By default this is ordinary decoding."""
        return net.decode(z)

    def subspace_codes(self, net: VAENet, q: Gaussian) -> Float[Tensor, "n k d"] | None:
        """Return one vector for each of n examples and k subspaces, or None if there are no subspaces.

        The sum of the k vectors of an example is the input of the decoder.
        """
        return None

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return the latents to decode for a traversal that starts from one example.

        By default there is one row per latent. The latent of a row takes the given positions, and the other latents
        keep their values. Rows are sorted by the mean KL of the latent over the population, in descending order.

        Args:
            net: The network of the run.
            q: The posterior of the example.
            population: The posteriors of many examples.
            positions: The values that the latent takes, of shape (positions,).

        Returns:
            The latents, the latents of the example, and one label per row.
        """
        kl = population.kl().mean(0)
        order = kl.argsort(descending=True).tolist()
        z = q.mean.repeat(len(order), len(positions), 1)
        for row, latent in enumerate(order):
            z[row, :, latent] = positions.to(z.device)
        return Traversal(z, q.mean, [RowLabel(f"latent {i}", i, nats=float(kl[i])) for i in order])

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Return the controls with which a report changes latents, starting from examples with posteriors q.

        By default there is one control per latent.
        """
        names = [f"latent {i}" for i in range(q.mean.shape[1])]
        return unbounded_controls("latents", names, q.mean, columns=list(range(len(names))))

    def encoder_outputs(self, latents: int) -> dict[str, EncoderOutput]:
        """Return the outputs of an exported encoder in addition to the default codes, by name.

        By default there is one such output, the log variances, if the default codes are means of Gaussian posteriors.
        """
        if self.code_kinds[:2] != ("mean", "sampled"):
            return {}
        meaning = "log variances of the posterior q(z|x), whose means are the codes"
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
        """Return the names of the fields that may differ between runs that are trained together (a stack)."""
        return [name for name, kind in field_types(cls).items() if kind == Hyper]
