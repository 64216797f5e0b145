"""Examples with the label of one known factor, the auxiliary variable of methods such as iVAE and ICE-BeeM."""

from __future__ import annotations

import torch

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import DrawnExamples
from unbraid.errors import UserError
from unbraid.methods.method import Method
from unbraid.noise import Noise


def draw_with_labels(method: Method, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
    """Draw independent examples with the labels that the method needs for them."""
    examples = data.draw(noise, batch)
    return DrawnExamples(examples, labels=method.labels_at(data, examples))


def check_auxiliary(method: str, data: FactorData, factor: int, values: int, table: str) -> None:
    """Raise a UserError unless a factor can be the auxiliary variable of a method.

    Args:
        method: Name of the method, for error messages.
        data: The dataset.
        factor: Index of the factor, counted from 0.
        values: Maximum number of values of the factor.
        table: What the method has for each value, for error messages, such as "a prior".
    """
    if factor >= len(data.sizes):
        raise UserError(
            f"The auxiliary factor of {method} must be one of the {len(data.sizes)} factors of {data.name}, which are "
            f"counted from 0. Got {factor} instead."
        )
    name, size = data.names[factor], data.sizes[factor]
    if size > values:
        raise UserError(
            f"The factor {name} has {size} values, and {method} has {table} for {values}. Use values={size}."
        )
    if bool((data.factors_at(torch.arange(len(data), device=data.device))[:, factor] < 0).any()):
        raise UserError(f"{method} needs the label {name} of every example. Some are missing. Choose another factor.")
