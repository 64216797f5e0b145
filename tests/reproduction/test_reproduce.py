"""Comparison with published numbers: the transcribed numbers, the rule of agreement, the selection of runs, files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pandas import DataFrame, read_csv
from scipy.stats import ttest_ind

from unbraid.errors import UserError
from unbraid.reproduction import (
    STUDIES_WITHOUT_NUMBERS,
    TARGETS,
    Cell,
    OurResult,
    Published,
    PublishedSign,
    draw_reproduction,
    example_results,
    reproduce,
    save_reproduction,
)
from unbraid.reproduction import demystifying as paper
from unbraid.studies import STUDIES

ROWS = {
    "ae": "AE", "beta_vae": "beta-VAE", "factor_vae": "FactorVAE", "beta_tcvae": "beta-TCVAE", "slow_vae": "SlowVAE",
    "pcl": "PCL",
}  # fmt: skip
SUPPLEMENT = {
    "β -VAE": "beta_vae", "Fac. VAE": "factor_vae", "TC- β -VAE": "beta_tcvae", "Slow-VAE": "slow_vae", "PCL": "pcl"
}  # fmt: skip


def printed(column: str, method: str) -> list[float]:
    """A row of a transcribed table: means and standard deviations in turn."""
    cells = [cell for cell in paper.published_numbers() if cell.column == column and cell.row.startswith(f"{method}, ")]
    assert len(cells) == 6
    return [number for cell in cells for number in (cell.value, cell.spread or 0.0)]


@pytest.mark.parametrize(("column", "number"), [("DCI", 2), ("FactorVAE", 3), ("SAP", 4)])
def test_numbers_equal_the_tables_of_the_supplement(shared: Path, column: str, number: int) -> None:
    (seed,) = (shared / "seeds").glob("004_*.txt")
    table = seed.read_text().split(f"\nTable {number}:")[1].split("\nTable ")[0]
    rows = [line.split("\t") for line in table.splitlines() if r"\pm" in line]
    assert [SUPPLEMENT[row[0]] for row in rows] == [*paper.VARIATIONAL, "pcl"]
    for name, *cells in rows:
        assert printed(column, SUPPLEMENT[name]) == [float(n) for cell in cells for n in cell.split(r"\pm")]


def test_mig_equals_the_table_of_the_main_paper(shared: Path) -> None:
    text = (shared / "methods.md").read_text().split("**MIG table")[1].split("Seed tables")[0]
    lines = [line for line in text.splitlines() if line.startswith("|") and "+-" in line]
    rows = {line.split("|")[1].strip(): re.findall(r"\.\d\d", line) for line in lines}
    assert {name: printed("MIG", name) for name in ROWS} == {
        name: [float(n) for n in rows[ROWS[name]]] for name in ROWS
    }


def test_primary_strengths_equal_those_of_the_supplement(shared: Path) -> None:
    (seed,) = (shared / "seeds").glob("004_*.txt")
    lines = seed.read_text().split("Architecture\tdSprites\tShapes3D\n")[1].splitlines()[:4]
    values = [tuple(map(float, line.split("\t")[1:])) for line in lines]
    assert values == [paper.PRIMARY[m][1] for m in ("beta_vae", "beta_tcvae", "factor_vae", "slow_vae")]


def test_equal_means_agree_in_every_cell() -> None:
    found = reproduce("demystifying2021", example_results())
    assert (len(found.cells_with("agree")), len(found.cells_with("open")), found.status) == (126 + 58, 58, 0)
    assert not found.cells_with("missing", "differ")


@pytest.mark.parametrize("shift", [0.03, -0.2])
def test_a_shift_makes_cells_beyond_two_deviations_differ(shift: float) -> None:
    found = reproduce("demystifying2021", example_results(shift=shift))
    wanted = {(c.row, c.column) for c in paper.published_numbers() if abs(shift) > 2 * (c.spread or 0) + 0.005 + 1e-9}
    assert wanted
    assert {(cell.published.row, cell.published.column) for cell in found.cells_with("differ")} == wanted
    assert found.status == 1


def test_only_the_wrong_cell_differs() -> None:
    table = example_results()
    here = (table["method"] == "slow_vae") & (table["data"] == "shapes3d?noise=0.175")
    table.loc[here, paper.COLUMNS["FactorVAE"]] += 0.17
    (cell,) = reproduce("demystifying2021", table).cells_with("differ")
    assert (cell.published.row, cell.published.column) == ("slow_vae, shapes3d noise", "FactorVAE")


def test_a_score_that_was_not_computed_is_missing() -> None:
    found = reproduce("demystifying2021", example_results().drop(columns=paper.COLUMNS["SAP"]))
    lines = {cell.published.column for cell in found.cells_with("missing")}
    assert lines == {"SAP"}
    assert any("sap.SAP_score" in cell.why for cell in found.cells_with("missing"))


def test_over_pruned_runs_are_left_out_and_counted() -> None:
    table = example_results()
    column = paper.COLUMNS["DCI"]
    here = (table["method"] == "beta_vae") & (table["data"] == "dsprites")
    bad = table[here].iloc[:2].assign(seed=[10, 11], **{column: 0.9, "active.units": 4})
    pcl = table[(table["method"] == "pcl") & (table["data"] == "dsprites")].assign(**{"active.units": np.nan})
    rest = table.drop(index=pcl.index)
    found = reproduce(
        "demystifying2021", DataFrame([*rest.to_dict("records"), *bad.to_dict("records"), *pcl.to_dict("records")])
    )
    assert found.status == 0
    cells = {(c.published.row, c.published.column): c.ours for c in found.cells}
    vae, other = cells["beta_vae, dsprites original", "DCI"], cells["pcl, dsprites original", "DCI"]
    assert vae == OurResult(pytest.approx(0.11), pytest.approx(0.03), 10, "2 over-pruned")  # type: ignore[arg-type]
    assert other is not None
    assert (other.count, other.note) == (10, "")
    every = table.assign(**{"active.units": table["active.units"].where(~here, 0)})
    (cell,) = [c for c in reproduce("demystifying2021", every).cells if c.published.row == "beta_vae, dsprites original"
               and c.published.column == "DCI"]  # fmt: skip
    assert (cell.verdict, cell.why) == ("missing", "all 10 runs are over-pruned")


def test_dci_uses_current_importances_and_notes_the_older_ones() -> None:
    table = example_results().assign(**{"dci.disentanglement_per_tree": 0.0625})
    cells = reproduce("demystifying2021", table).cells
    notes = {
        cell.ours.note
        for cell in cells
        if cell.ours and cell.published.column == "DCI" and "loss" not in cell.published.row
    }
    assert paper.COLUMNS["DCI"] == "dci.disentanglement_mean"
    assert notes == {"per-tree importances 0.062"}


def test_the_line_search_and_diverged_runs_do_not_count() -> None:
    table = example_results()
    searched = table.assign(
        **{"setting.beta": table["setting.beta"] * 1.5, "setting.gamma": table["setting.gamma"] * 1.5}
    )
    searched = searched[searched["method"].isin(paper.PRIMARY)].assign(**{paper.COLUMNS["MIG"]: 0.99})
    lost = table[table["method"] == "pcl"].assign(status="diverged", seed=99, **{paper.COLUMNS["MIG"]: 0.99})
    rows = [
        row
        for part in (table, searched, lost)
        for row in part.drop_duplicates(["data", "method", "seed"]).to_dict("records")
    ]
    found = reproduce("demystifying2021", DataFrame(rows))
    assert found.status == 0
    assert "6 runs diverged or are not finished" in found.deviations


def test_signs_change_when_modified_and_noise_are_exchanged() -> None:
    table = example_results()
    form = {"shapes3d?modified=default": "shapes3d?noise=0.175", "shapes3d?noise=0.175": "shapes3d?modified=default"}
    slow = table["method"] == "slow_vae"
    table.loc[slow, "data"] = table.loc[slow, "data"].replace(form)
    wrong = [cell.published for cell in reproduce("demystifying2021", table).cells_with("differ")]
    changed = {(sign.row, sign.column) for sign in wrong if isinstance(sign, PublishedSign)}
    row = "slow_vae, shapes3d: loss by modification minus loss by noise"
    assert {(row, column) for column in paper.TABLES} <= changed
    assert {name.partition(",")[0] for name, _ in changed} == {"slow_vae"}


def test_signs_are_open_if_the_paper_does_not_determine_them() -> None:
    signs = {(sign.row, sign.column): sign for sign in paper.published_signs()}
    clear = signs["beta_vae, shapes3d: loss by modification minus loss by noise", "DCI"]  # .56 +- .06 minus .43 +- .06
    assert (clear.value, clear.sign, clear.open) == (0.13, 1, False)
    assert clear.spread == pytest.approx(np.sqrt((0.06**2 + 0.06**2) / 10))
    opposite = signs["factor_vae, dsprites: loss by modification minus loss by noise", "MIG"]  # .16 minus .20
    assert (opposite.value, opposite.sign, opposite.open) == (-0.04, -1, True)
    rounded = signs["slow_vae, dsprites: loss by modification", "SAP"]  # .08 +- .01 minus .07 +- .01: within rounding
    assert rounded.open
    difference = signs["beta_tcvae, dsprites: loss minus that of pcl", "DCI"]  # (.34 - .19) - (.28 - .30)
    assert (difference.value, difference.open) == (0.17, False)


def test_allowed_distance_of_a_cell() -> None:
    cell = Published("a", "b", 0.11, 0.03, 10)
    assert [cell.agrees(OurResult(mean)) for mean in (0.045, 0.0449, 0.175, 0.1751)] == [True, False, True, False]
    plain = Published("a", "b", 0.26, tolerance=0.05)
    assert [plain.agrees(OurResult(mean)) for mean in (0.204, 0.206, 0.314, 0.316)] == [False, True, True, False]
    up, down = PublishedSign("a", "b", 1), PublishedSign("a", "b", -1)
    assert [(up.agrees(OurResult(m)), down.agrees(OurResult(m))) for m in (0.1, 0.0, -0.1)] == [
        (True, False), (False, False), (False, True)
    ]  # fmt: skip
    assert Cell(Published("a", "b", 1.0), None, "why").verdict == "missing"


def test_p_value_equals_welchs_test_of_the_samples() -> None:
    rng = np.random.default_rng(0)
    mine, theirs = rng.normal(0.3, 0.1, 6), rng.normal(0.2, 0.05, 10)
    cell = Published("a", "b", float(theirs.mean()), float(theirs.std(ddof=1)), 10)
    ours = OurResult.of(mine)
    assert ours is not None
    assert cell.p_value(ours) == pytest.approx(ttest_ind(mine, theirs, equal_var=False).pvalue)
    assert cell.p_value(OurResult(0.3)) is None
    assert Published("a", "b", 0.3, 0.0, 10).p_value(OurResult(0.3, 0.0, 5)) == 1.0
    assert Published("a", "b", 0.3, 0.0, 10).p_value(OurResult(0.2, 0.0, 5)) == 0.0
    assert OurResult.of([float("nan")]) is None


def test_the_longest_run_is_used_and_duplicates_raise_an_error() -> None:
    table = example_results().assign(steps=300_000, latents=5)
    short = table.assign(steps=100, **dict.fromkeys(paper.COLUMNS.values(), 0.9))
    both = DataFrame([*short.to_dict("records"), *table.to_dict("records")])
    assert reproduce("demystifying2021", both).status == 0
    with pytest.raises(UserError, match="one run per dataset, setting and seed"):
        reproduce("demystifying2021", DataFrame([*both.to_dict("records"), table.iloc[0].to_dict()]))
    file = table[table["data"] == "shapes3d"].assign(data="shapes3d_rendered")
    with pytest.raises(UserError, match="shapes3d and shapes3d_rendered"):
        reproduce("demystifying2021", DataFrame([*table.to_dict("records"), *file.to_dict("records")]))
    with pytest.raises(UserError, match="It has no seed"):
        reproduce("demystifying2021", table.drop(columns="seed"))


def test_a_longer_run_that_is_still_in_training_does_not_replace_a_finished_one() -> None:
    table = example_results().assign(steps=300_000)
    started = table.assign(steps=600_000, status="partial", **dict.fromkeys(paper.COLUMNS.values(), float("nan")))
    both = DataFrame([*started.to_dict("records"), *table.to_dict("records")])
    assert reproduce("demystifying2021", both).cells == reproduce("demystifying2021", table).cells


def test_deviations_from_the_study_are_listed() -> None:
    table = example_results(seeds=3).assign(steps=2_000, latents=10, net="locatello", batch=64)
    text = "; ".join(reproduce("demystifying2021", table[table["method"] != "ae"]).deviations)
    for part in (
        "90 of 360 runs", "3 of 10 seeds", "steps 2,000 instead of 300,000", "dsprites is regenerated",
        "latents 10 instead of 5 on dsprites original", "latents 10 instead of 6 on shapes3d",
        "from our own manipulation",
    ):  # fmt: skip
        assert part in text
    loud = table.assign(data=table["data"].replace("dsprites?noise=0.1", "dsprites?noise=0.3"))
    assert "dsprites?noise=0.3 instead of dsprites?noise=0.1" in reproduce("demystifying2021", loud).deviations
    assert "noise=0.3" not in text
    assert "batch" not in text
    assert "net" not in text


def test_files_contain_every_cell(tmp_path: Path) -> None:
    found = reproduce("demystifying2021", example_results(seeds=4, shift=0.03)[:100])
    csv, summary, png = save_reproduction(found, tmp_path / "new")
    table, values = read_csv(csv), json.loads(summary.read_text())
    assert len(table) == len(values["cells"]) == len(found.cells) == 242
    assert table["verdict"].value_counts().to_dict() == {k: n for k, n in values["counts"].items() if n}
    assert list(values["cut"]) == list(found.deviations)
    assert png.read_bytes()[:4] == b"\x89PNG"
    figure = draw_reproduction(found)
    dots = sum(len(axes.containers) for axes in figure.axes)
    assert dots == 2 * sum(isinstance(cell.published, Published) for cell in found.cells_with("agree", "differ"))


def test_every_study_has_published_numbers_or_a_reason() -> None:
    assert set(TARGETS) | set(STUDIES_WITHOUT_NUMBERS) == set(STUDIES)
    assert not set(TARGETS) & set(STUDIES_WITHOUT_NUMBERS)
    for name in STUDIES_WITHOUT_NUMBERS:
        with pytest.raises(UserError, match=f"no published numbers to compare {name}.*demystifying2021"):
            reproduce(name, example_results())
    with pytest.raises(UserError, match="Did you mean 'demystifying2021'"):
        reproduce("demystifying", example_results())


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_says_where_its_numbers_are_from(name: str) -> None:
    target = TARGETS[name]
    places = [(cell.row, cell.column) for cell in target.published]
    assert len(set(places)) == len(places)
    assert all(cell.source for cell in target.published)
    names = {target.published_data(run.spec.data) for run in STUDIES[name]()}
    assert None not in names
