"""A change of the numbers of a metric needs a new revision, because stored scores stay valid without one."""

from __future__ import annotations

import pytest

from support.metric_numbers import numbers_of, read_numbers
from unbraid.metrics import METRICS, TRAITS

# Rounding may change the last digits of an iterative fit, and thereby single predictions.
ITERATIVE = ("beta_vae", "sap", "explicitness", "downstream_lr", "infomec", "unified")


def test_recorded_numbers_cover_the_registry() -> None:
    assert set(read_numbers()) == set(METRICS)


@pytest.mark.parametrize("name", METRICS)
def test_numbers_are_those_of_the_revision(name: str) -> None:
    recorded, remedy = read_numbers()[name], "See tests/support/metric_numbers.py."
    assert TRAITS[name].revision == recorded["revision"], f"Record the numbers of the new revision. {remedy}"
    got = numbers_of(name)
    for case, expected in recorded["numbers"].items():
        close = pytest.approx(expected, abs=0.005 if name in ITERATIVE else 1e-6)
        assert got[case] == close, f"The numbers of {name} have changed. Raise its revision. {remedy}"
