"""Edge cases: the behaviour of every metric for degenerate codes and factors."""

from __future__ import annotations

import pytest
from test_metrics import check_range

from laws import LAWS
from support.edges import EDGES, EXPECTED_ERRORS, edge_arrays
from support.known_codes import array_parameters
from unbraid.metrics import METRICS


def test_tables_name_existing_cases_and_metrics() -> None:
    assert set(EXPECTED_ERRORS) <= set(EDGES)
    assert all(set(names) <= set(METRICS) for names in EXPECTED_ERRORS.values())


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", METRICS)
def test_edge_case(name: str, edge: str) -> None:
    """A metric returns finite scores in range, or raises an error that says what must hold and what was given."""
    arrays = {key: value for key, value in edge_arrays(edge).items() if key in array_parameters(name)}
    options = dict(LAWS[name].options)
    options.update({"sizes": (10, 100)} if "sizes" in options else {})
    message = EXPECTED_ERRORS.get(edge, {}).get(name)
    if message is None:
        check_range(name, METRICS[name](**arrays, **options))
        return
    with pytest.raises(ValueError, match=message) as error:
        METRICS[name](**arrays, **options)
    assert "Got" in str(error.value)
