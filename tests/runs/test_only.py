"""The choice of runs by their properties, as text or as a mapping."""

from __future__ import annotations

from typing import Any

import pytest

from unbraid.errors import UserError
from unbraid.runs.only import choose, parse_only

ITEMS = [
    {"method": method, "beta": beta, "seed": seed} for method in ("a", "b") for beta in (1.0, 8.0) for seed in (0, 1)
]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (None, {}),
        ([], {}),
        ("beta=8", {"beta": ["8"]}),
        ("method=a,beta=8.0", {"method": ["a"], "beta": ["8"]}),
        ("method=a,b,beta=1,8", {"method": ["a", "b"], "beta": ["1", "8"]}),
        (["method=a", "method=b,seed=0"], {"method": ["a", "b"], "seed": ["0"]}),
        ({"beta": 8, "method": ("a", "b")}, {"beta": ["8"], "method": ["a", "b"]}),
        ("data=mnist?part=train,cars3d?size=32", {"data": ["mnist?part=train", "cars3d?size=32"]}),
        ("variant=", {"variant": [""]}),
        ("variant=,without sparsity", {"variant": ["", "without sparsity"]}),
        ("method=./mine.py:MyVAE", {"method": ["./mine.py:MyVAE"]}),
    ],
)
def test_texts_and_mappings(only: Any, expected: dict[str, list[str]]) -> None:
    assert parse_only(only) == expected


@pytest.mark.parametrize("only", ["beta", "", "8,beta=4", "=8"])
def test_a_text_without_a_property_is_an_error(only: Any) -> None:
    with pytest.raises(UserError, match=r"must be PROPERTY=VALUE, such as .*Got"):
        parse_only(only)


def test_items_with_all_wanted_values_are_chosen() -> None:
    chosen = choose(ITEMS, lambda item: item, "method=a,beta=8,seed=0,1")
    assert chosen == [{"method": "a", "beta": 8.0, "seed": seed} for seed in (0, 1)]
    assert choose(ITEMS, lambda item: item, None) == ITEMS
    with pytest.raises(UserError, match=r"Unknown property of a run 'bata'\. Did you mean 'beta'"):
        choose(ITEMS, lambda item: item, "bata=8")
    with pytest.raises(UserError, match=r"None of the 8 runs has method=c, beta=8\. They have method=a,b; beta=1,8"):
        choose(ITEMS, lambda item: item, "method=c,beta=8")
