"""How the examples of a step are drawn: a function of the data and of one run's noise."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from unbraid.data.base import FactorData
from unbraid.noise import Noise


def single(data: FactorData, noise: Noise, n: int) -> Tensor:
    """Independent examples, uniform over the factor grid, as in the large study: no epochs, no held-out part."""
    return data.draw(noise, n)


SAMPLERS: dict[str, Callable[[FactorData, Noise, int], Tensor]] = {"single": single}
