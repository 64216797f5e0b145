"""The results table: its columns have their types, and a damaged table is an error in one line."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

import unbraid as ub
from unbraid.errors import UserError
from unbraid.runs.results import RESULTS_FILE, load_results, write_results, write_table

ROW = {"run": "a", "status": "done", "method": "vae", "data": "toy", "seed": 0, "mig.discrete_mig": 0.5}


def write(folder: Path, kind: str, **changes: object) -> Path:
    """Write a table with one row as SQLite or CSV."""
    row = {**ROW, **changes}
    if kind == "sqlite":
        write_table(folder / RESULTS_FILE, [row])
        return folder / RESULTS_FILE
    (folder / "table.csv").write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
    return folder / "table.csv"


@pytest.mark.parametrize("kind", ["sqlite", "csv"])
def test_a_table_is_read_with_the_types_of_its_columns(kind: str, tmp_path: Path) -> None:
    table = load_results(write(tmp_path, kind, run="12"))
    assert table["run"].tolist() == ["12"]
    assert table["mig.discrete_mig"].tolist() == [0.5]
    assert table["seed"].dtype.kind == "i"


@pytest.mark.parametrize("kind", ["sqlite", "csv"])
def test_text_among_scores_is_an_error_that_names_the_column(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"The column 'mig.discrete_mig' .* must contain numbers. Got 'high'"):
        load_results(write(tmp_path, kind, **{"mig.discrete_mig": "high"}))


@pytest.mark.parametrize("digits", [30, 400, 5000])
@pytest.mark.parametrize("name", ["seed", "mig.discrete_mig"])
def test_a_number_that_is_too_large_raises_only_a_user_error(name: str, digits: int, tmp_path: Path) -> None:
    """Such a number is read by pandas as text, as a Python integer or as infinity."""
    try:
        load_results(write(tmp_path, "csv", **{name: "9" * digits}))
    except UserError as error:
        assert name in str(error)


def test_a_number_with_400_digits_is_an_error_that_names_the_column(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"The column 'seed' .* too large"):
        load_results(write(tmp_path, "csv", seed="9" * 400))


def test_every_row_needs_a_name_for_its_data(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must have a data in every row\. Row 1 has none"):
        load_results(write(tmp_path, "csv", data=""))


def test_a_missing_column_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("run,score\na,1\n")
    with pytest.raises(UserError, match=r"the columns data, method, seed\. Got run, score instead"):
        load_results(tmp_path / "table.csv")


def test_a_folder_in_place_of_the_table_is_an_error(tmp_path: Path) -> None:
    (tmp_path / RESULTS_FILE).mkdir()
    with pytest.raises(UserError, match="is not a results table"):
        load_results(tmp_path)


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%20b"])
def test_the_path_may_contain_any_character(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    write(tmp_path / name, "sqlite")
    assert len(load_results(tmp_path / name)) == 1


def test_a_value_that_no_table_can_hold_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must contain numbers and text only"):
        write_table(tmp_path / RESULTS_FILE, [{"run": "a", "mig.x": [1]}])
    assert not list(tmp_path.iterdir())


def test_another_database_is_an_error(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / RESULTS_FILE).close()
    with pytest.raises(UserError, match="is not a results table"):
        load_results(tmp_path)


def test_the_table_of_a_study_has_only_scores_with_its_protocol(tmp_path: Path) -> None:
    """A run of the study was scored again with other draws. The table must not mix them."""
    runs = ub.train("vae", data="toy", seeds=range(2), steps=2, out=tmp_path, quiet=True)
    expected = ub.score(runs, "mig", protocol=ub.Protocol(draws="reference"), quiet=True)
    ub.score(runs[0], "mig,mcc", protocol=ub.Protocol(), quiet=True)
    (tmp_path / "study.json").write_text(json.dumps({"places": {}, "protocol": {"draws": "reference"}}))
    write_results(tmp_path)
    table = load_results(tmp_path).set_index("run")
    assert table["mig.discrete_mig"].to_dict() == {row["run"]: row["mig.discrete_mig"] for row in expected}
    assert not any(column.startswith("mcc.") for column in table.columns)
    (tmp_path / "study.json").unlink()  # without a study, the latest scores are used
    write_results(tmp_path)
    assert (
        load_results(tmp_path).set_index("run").loc[runs[0].id, "mig.discrete_mig"] != expected[0]["mig.discrete_mig"]
    )


@pytest.mark.parametrize("text", ["run,a\n1,2\n1,2,3\n", "run,a\nb,1,2\n", "", '"', "run,a\n\udcff,1\n"])
def test_malformed_csv_is_explained_without_the_words_of_a_library(text: str, tmp_path: Path) -> None:
    file = tmp_path / "results.csv"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"must be a results table in CSV format.*Correct the file") as caught:
        load_results(file)
    assert "Expected" not in str(caught.value)


def test_a_table_with_other_runs_than_the_folder_gives_a_warning(tmp_path: Path) -> None:
    runs = ub.train("vae", data="toy", seeds=range(3), steps=1, out=tmp_path, quiet=True)
    write_results(tmp_path)
    assert len(load_results(tmp_path)) == 3
    shutil.rmtree(str(runs[0].path))
    with pytest.warns(RuntimeWarning, match=r"lacks 0 run\(s\) of the folder, and has 1 run\(s\) .* unbraid index"):
        load_results(tmp_path)
    write_results(tmp_path)
    assert len(load_results(tmp_path)) == 2
    ub.train("vae", data="toy", seeds=[5], steps=1, out=tmp_path, add=True, quiet=True)
    with pytest.warns(RuntimeWarning, match=r"lacks 1 run\(s\) of the folder, and has 0"):
        load_results(tmp_path)
