"""`analyse`: several analyses of a table, a file or a folder in one call."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import unbraid as ub
from unbraid.analysis import ANALYSES, example_results
from unbraid.errors import UserError
from unbraid.runs.results import RESULTS_FILE, write_table


def test_named_analyses_of_a_folder_are_returned_and_written(tmp_path: Path) -> None:
    table = example_results(seeds=3, data=["dsprites"])
    write_table(tmp_path / RESULTS_FILE, table.to_dict("records"))
    results = ub.analyse(tmp_path, ["variance", "agreement"], out=tmp_path / "out")
    assert list(results) == ["variance", "agreement"]
    assert results["variance"].table.equals(ub.analysis.variance(table).table)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        f"{name}.{ending}" for name in results for ending in ("csv", "png")
    }


def test_analyses_that_cannot_be_answered_are_skipped_unless_named() -> None:
    table = example_results(seeds=3, data=["dsprites"])
    skipped: dict[str, str] = {}
    results = ub.analyse(table, on_skip=skipped.__setitem__)
    assert {*results, *skipped} == set(ANALYSES)
    assert "at least 2 different values of 'data'" in skipped["transfer"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert list(ub.analyse(table)) == list(results)
    messages = [str(warning.message) for warning in caught]
    assert any(text.startswith("left out: transfer: Runs must have at least 2") for text in messages)
    with pytest.raises(UserError, match="at least 2 different values of 'data'"):
        ub.analyse(table, ["variance", "transfer"])


def test_unknown_names_raise_an_error() -> None:
    with pytest.raises(UserError, match="Did you mean 'variance'"):
        ub.analyse(example_results(seeds=2, data=["dsprites"]), ["varience"])
