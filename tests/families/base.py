"""The facts about a method that the shared tests of methods use."""

from __future__ import annotations

from dataclasses import dataclass, field

from unbraid.methods import Method


@dataclass(frozen=True)
class MethodFacts:
    """Facts about one method.

    Attributes:
        lightly_regularised: The method with weak regularisation, for which the loss falls in a short training.
        falling_term: The logged term that falls during this training.
        images: Whether the method accepts only images.
        vmap_tolerance: The largest relative difference of terms after five steps with and without `vmap`.
        all_learn_at: A step at which all parameters have a gradient.
        cyclic: Whether the method accepts only data with a cyclic factor.
        limits: Pairs of methods that must have the same loss and the same parameter updates. The loss and the updates
            of a critic are not compared.
    """

    lightly_regularised: Method
    falling_term: str = "rec"
    images: bool = False
    vmap_tolerance: float = 2e-4
    all_learn_at: int = 1
    cyclic: bool = False
    limits: list[tuple[Method, Method]] = field(default_factory=list)
