"""The form in which what is known of a method is written down."""

from __future__ import annotations

from dataclasses import dataclass, field

from unbraid.methods import Method


@dataclass(frozen=True)
class Known:
    """A method regularised so gently that learning shows, the term in which it shows, and where it reduces to others.

    `images`: it takes nothing else. `limits` are pairs of methods with the same loss (but for a critic's own) and the
    same update of the other networks.
    """

    gentle: Method
    falls: str = "rec"
    images: bool = False
    limits: list[tuple[Method, Method]] = field(default_factory=list)
