"""The facts about a method that the laws of methods need."""

from __future__ import annotations

from dataclasses import dataclass, field

from unbraid.methods import Method


@dataclass(frozen=True)
class MethodFacts:
    """Facts about one method.

    Attributes:
        lightly_regularised: The method with regularisation so weak that a short training shows learning.
        falling_term: The logged term that falls during this training.
        images: Whether the method takes images only.
        limits: Pairs of methods with the same loss (except that of a critic) and the same updates of the other
            networks.
    """

    lightly_regularised: Method
    falling_term: str = "rec"
    images: bool = False
    limits: list[tuple[Method, Method]] = field(default_factory=list)
