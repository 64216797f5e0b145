"""Edge cases: what every metric does with degenerate codes and factors."""

from __future__ import annotations

import pytest
from test_metrics import check_range

from laws import LAWS
from support.edges import EDGES, REFUSES, given_arrays
from support.known_codes import takes
from unbraid.metrics import METRICS


def test_tables_name_what_exists() -> None:
    assert set(REFUSES) <= set(EDGES)
    assert all(set(names) <= set(METRICS) for names in REFUSES.values())


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", METRICS)
def test_edge(name: str, edge: str) -> None:
    """Finite scores in range, or a refusal that says what must hold, what came and what to do."""
    arrays = {key: value for key, value in given_arrays(edge).items() if key in takes(name)}
    options = dict(LAWS[name].options)
    options.update({"sizes": (10, 100)} if "sizes" in options else {})
    message = REFUSES.get(edge, {}).get(name)
    if message is None:
        check_range(name, METRICS[name](**arrays, **options))
        return
    with pytest.raises(ValueError, match=message) as refusal:
        METRICS[name](**arrays, **options)
    assert "Got" in str(refusal.value)
