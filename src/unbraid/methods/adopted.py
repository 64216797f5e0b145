"""The method of models that were trained outside unbraid. It can encode, decode and make traversals, but not train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import DrawnExamples
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.ae import point_controls, point_traversal
from unbraid.methods.controls import Controls
from unbraid.methods.method import Batch, Loss, Method
from unbraid.methods.traversal import Traversal
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

POINT_CODES = ("mean",)


@dataclass(frozen=True)
class Adopted(Method):
    """A model that was trained outside unbraid (see `unbraid.adopt`).

    Attributes:
        name: The name that the user gave the model.
        values: The settings that the user gave, as pairs (name, value).
        codes: The kinds of codes: "mean" and "sampled" if the encoder returns variances, otherwise only "mean".
    """

    name: str
    values: tuple[tuple[str, Any], ...] = ()
    codes: tuple[str, ...] = POINT_CODES

    def __post_init__(self) -> None:
        object.__setattr__(self, "code_kinds", self.codes)

    @classmethod
    def from_values(cls, name: str, values: Mapping[str, Any], codes: tuple[str, ...]) -> Adopted:
        """Create the method from its name, its settings and its kinds of codes."""
        return cls(name, tuple(values.items()), codes)

    @property
    def recorded_name(self) -> str:
        """The name in specs and tables."""
        return self.name

    @property
    def has_variances(self) -> bool:
        """Whether the encoder returns variances."""
        return self.codes != POINT_CODES

    @property
    def strength(self) -> float:
        """The first setting that is a number, or 0 if there is none."""
        return next((float(v) for _, v in self.values if isinstance(v, int | float) and not isinstance(v, bool)), 0.0)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        raise self._no_training()

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        raise self._no_training()

    def _no_training(self) -> UserError:
        return UserError(
            f"{self.name} was trained outside unbraid and cannot be trained or timed here. Train a method such as "
            "beta_vae instead."
        )

    def information(self, q: Gaussian) -> Tensor | None:
        return super().information(q) if self.has_variances else None

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        if self.has_variances:
            return super().traversal(net, q, population, positions)
        return point_traversal(q, population, positions)

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        return super().controls(net, q, population) if self.has_variances else point_controls(q, population)
