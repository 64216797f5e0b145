"""The published order of quantised autoencoders, and how our runs are compared with it."""

from __future__ import annotations

import pandas as pd
import pytest

from unbraid.reproduction import reproduce
from unbraid.reproduction.quantised import COLUMNS, PUBLISHED, published_order


def planted_table(change: dict[str, float] | None = None) -> pd.DataFrame:
    """Return two runs per method with the published scores. `change` is added to all scores of a method."""
    rows = []
    for method, values in PUBLISHED.items():
        for seed, offset in enumerate((-0.001, 0.001)):
            row = {"run": f"{method}-{seed}", "status": "done", "method": method, "data": "shapes3d_rendered"}
            shift = offset + (change or {}).get(method, 0.0)
            scores = {column: value + shift for column, value in zip(COLUMNS.values(), values, strict=True)}
            rows.append({**row, "seed": seed, "steps": 200_000, **scores})
    return pd.DataFrame(rows)


def test_equal_numbers_have_no_order_and_a_difference_by_rounding_is_open() -> None:
    signs = list(published_order())
    assert len(signs) == 15 + 12 + 14
    assert [(sign.row, sign.column) for sign in signs if sign.open] == [("tripod minus qlae, shapes3d", "InfoE")]
    assert all("second-hand (V2)" in sign.source for sign in signs)


def test_the_published_order_agrees_and_another_one_differs() -> None:
    same = reproduce("hsu2024", planted_table())
    assert (len(same.cells_with("agree")), same.status) == (40, 0)
    assert any("shapes3d_rendered is rendered by unbraid" in phrase for phrase in same.deviations)
    other = reproduce("hsu2024", planted_table({"qlae": 0.1})).table().set_index(["row", "column"])
    found = other.loc[("tripod minus qlae, shapes3d", "InfoM")]
    assert (found["verdict"], found["runs"]) == ("differ", 2)
    assert found["ours"] == pytest.approx(0.91 - 0.94)


def test_a_method_without_runs_is_missing() -> None:
    table = planted_table()
    cells = reproduce("hsu2024", table[table["method"] != "tripod"]).table()
    missing = cells[cells["verdict"] == "missing"]
    assert len(missing) == 14  # five pairs by each of three scores, without the open sign
    assert missing["row"].str.contains("tripod").all()
    assert set(missing["note"]) == {"no such runs"}
