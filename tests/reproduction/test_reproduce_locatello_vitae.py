"""Comparison with the published numbers of the large study and of VITAE."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from pandas import DataFrame

from unbraid import analysis
from unbraid.analysis.variance import explained_fraction
from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.metrics import headline
from unbraid.reproduction import (
    TARGETS,
    OurResult,
    Published,
    PublishedSign,
    Reproduction,
    compare_with_published,
    reproduce,
)
from unbraid.reproduction import locatello as paper
from unbraid.runs.results import RESULTS_FILE, write_table

NAMES = {
    "Cars3D": "cars3d", "Color-dSprites": "color_dsprites", "Noisy-dSprites": "noisy_dsprites",
    "Scream-dSprites": "scream_dsprites", "Shapes3D": "shapes3d", "SmallNORB": "smallnorb", "dSprites": "dsprites",
}  # fmt: skip


def test_numbers_equal_the_tables_of_explained_variance(shared: Path) -> None:
    (seed,) = (shared / "seeds").glob("003_*.txt")
    text = seed.read_text()
    _, *rest = re.split(r"\([ab]\) Percentage of variance explained", text)
    assert len(rest) == 2
    for share, part in zip(paper.EXPLAINED, rest, strict=True):
        rows = [line.split("\t") for line in part.splitlines() if line.count("%\t") == 5][:7]
        wanted = {NAMES[name]: [int(cell[:-1]) for cell in cells] for name, *cells in rows}
        lines = [line.split() for line in paper.EXPLAINED[share].strip().splitlines()]
        assert {data: [int(cell) for cell in cells] for data, *cells in lines} == wanted
    (titles,) = {
        line.strip() for part in rest for line in part.splitlines() if line.strip().startswith("BetaVAE Score")
    }
    words = ["BetaVAE", "DCI", "FactorVAE", "MIG", "Modularity", "SAP"]
    assert [title.split()[0] for title in titles.split("\t")] == words == [paper.TITLES[m] for m in paper.METRICS]
    for rate in paper.WINS.values():
        assert f"{rate}%" in text


def test_the_supplement_of_vitae_makes_the_statements(shared: Path) -> None:
    (seed,) = (shared / "seeds").glob("002_*.txt")
    text = " ".join(seed.read_text().split())
    assert "additional weight on the KL term" in text
    assert "makes the reconstructions worse" in text
    assert "C-VITAE model we have shown this" in text
    assert "the only model where we quantitatively observe disentanglement" in text


def compare(name: str, table: DataFrame) -> Reproduction:
    """Compare without listing deviations, which is slow for a study of 12,600 runs."""
    return compare_with_published(name, TARGETS[name], table)


def runs_with_published_shares(data: str, seeds: int, settings: int = 6) -> DataFrame:
    """Runs whose scores have exactly the published shares: sums of orthogonal effects of method, strength and seed."""
    methods = list(analysis.example_results(seeds=1, data=[data])["method"].unique())
    rows = [
        {"data": data, "method": m, "level": level, "strength": float(level), "seed": seed}
        for m in methods for level in range(settings) for seed in range(seeds)
    ]  # fmt: skip
    table = DataFrame(rows)
    table["run"] = [str(i) for i in table.index]
    method = table["method"].map({name: i for i, name in enumerate(methods)})
    parts = [unit(method), unit(table["level"]), unit(table["seed"])]
    shares = {(c.row, c.column): c.value for c in paper.published_numbers()}
    for metric, column in {**{m: headline(m) for m in paper.METRICS}, "dci": paper.PER_TREE}.items():
        one = shares[paper.variance_row(data, "objective"), paper.TITLES[metric]]
        both = shares[paper.variance_row(data, "setting"), paper.TITLES[metric]]
        weights = np.sqrt([one, both - one, 1 - both])
        table[column] = 0.5 + 0.1 * sum(w * part for w, part in zip(weights, parts, strict=True))
    return table


def unit(values: DataFrame) -> DataFrame:
    """Values with mean 0 and variance 1."""
    centred = values - values.mean()
    return centred / centred.std(ddof=0)


def test_published_shares_agree_and_others_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = runs_with_published_shares("dsprites", 50)
    write_table(tmp_path / RESULTS_FILE, table.to_dict("records"))
    assert main(["reproduce", "locatello2019", "--runs", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "12 of 12 numbers agree" in printed
    assert "85 cells are missing" in printed
    assert "no such runs" in printed
    found = compare("locatello2019", table)
    for cell in found.cells_with("agree"):
        assert cell.ours is not None
        assert cell.ours.mean == pytest.approx(cell.published.value, abs=1e-9)
    rng = np.random.default_rng(0)
    table["mig.discrete_mig"] = rng.permutation(table["mig.discrete_mig"])
    wrong = compare("locatello2019", table).cells_with("differ")
    assert {cell.published.column for cell in wrong} == {"MIG"}
    assert {cell.published.row for cell in wrong} == {"dsprites, objective", "dsprites, objective and strength"}


def test_shares_need_every_setting_and_two_seeds() -> None:
    table = runs_with_published_shares("dsprites", 3)
    assert len(compare("locatello2019", table).cells_with("agree", "differ")) == 12
    cars = runs_with_published_shares("cars3d", 3)
    few = DataFrame([*table[table["level"] < 5].to_dict("records"), *cars.to_dict("records")])
    found = {cell.published.row: cell for cell in compare("locatello2019", few).cells}
    assert found["dsprites, objective"].why == "needs all 36 settings"
    assert found["same metric, same data"].why == "needs all 36 settings of every dataset"
    assert found["cars3d, objective"].ours is not None
    with pytest.raises(UserError, match="needs 2 seeds"):
        compare("locatello2019", table[table["seed"] == 0])


def test_runs_of_other_methods_are_left_out() -> None:
    table = runs_with_published_shares("dsprites", 3)
    other = table[table["level"] == 0].assign(method="info_vae")
    other[[name for name in table if "." in name]] += 10.0
    cells = compare("locatello2019", DataFrame([*table.to_dict("records"), *other.to_dict("records")])).cells
    assert [cell.ours for cell in cells] == [cell.ours for cell in compare("locatello2019", table).cells]


def test_win_rates_of_one_metric_are_compared_where_possible() -> None:
    table = analysis.example_results(seeds=2, data=["dsprites", "cars3d"])
    keep = [name for name in table if "." not in name] + ["mig.discrete_mig"]
    found = {cell.published.row: cell for cell in compare("locatello2019", table[keep]).cells}
    assert found["same metric, other data"].ours is not None
    assert found["other metric, other data"].why == "needs at least 2 metrics"


def test_shares_of_few_seeds_are_corrected() -> None:
    """Without correction, shares of five seeds are several percentage points too high."""
    table = analysis.example_results(seeds=50, data=["dsprites"])
    column = "mig.discrete_mig"
    rng = np.random.default_rng(0)
    parts = [table[table["seed"].isin(rng.choice(50, 5, replace=False))] for _ in range(60)]
    whole = explained_fraction(table, column, ["method", "level"])[0]
    raw = np.mean([explained_fraction(part, column, ["method", "level"])[0] for part in parts])
    corrected = [paper.fractions_of_score(part, column)["setting"] for part in parts]
    assert raw - whole > 0.04
    assert np.mean([one.mean for one in corrected if isinstance(one, OurResult)]) == pytest.approx(whole, abs=0.015)


def test_win_rates_are_those_chosen_by_one_seed() -> None:
    table = analysis.example_results(seeds=3, data=["dsprites", "cars3d"])
    table[paper.PER_TREE] = table["dci.disentanglement"]
    rates = analysis.win_rates(analysis.transfer(table).table)
    found = {c.published.row: c.ours for c in compare("locatello2019", table).cells if c.published.column == "win rate"}
    assert {case: ours.mean for case, ours in found.items() if ours} == {
        case: rates["by_seed"][case] for case in paper.WINS
    }


def test_signs_of_the_total_correlation() -> None:
    table = analysis.example_results(seeds=3, data=["color_dsprites"])
    signs = [cell for cell in compare("locatello2019", table).cells if isinstance(cell.published, PublishedSign)]
    assert [cell.verdict for cell in signs] == ["agree"] * 10
    opposite = table.assign(level=5 - table["level"], strength=-table["strength"])
    signs = [cell for cell in compare("locatello2019", opposite).cells if isinstance(cell.published, PublishedSign)]
    assert [cell.verdict for cell in signs] == ["differ"] * 10


def vitae(data: str, separation: dict[str, float]) -> DataFrame:
    """A results table with given separation scores of each method."""
    error = {
        "vae": 100.0,
        "beta_vae": 120.0,
        "beta_tcvae": 118.0,
        "dip_vae_ii": 105.0,
        "u_vitae": 99.0,
        "c_vitae": 98.0,
    }
    return DataFrame([
        {"run": f"{m}-{seed}", "data": data, "method": m, "seed": seed, "train.rec": error[m] + seed,
         "separation.score": separation[m] + 0.01 * seed}
        for m in separation for seed in range(3)
    ])  # fmt: skip


ORDER = {"vae": 0.2, "beta_vae": 0.17, "beta_tcvae": 0.21, "dip_vae_ii": 0.18, "u_vitae": 0.32, "c_vitae": 0.37}


def test_signs_of_vitae() -> None:
    digits = vitae("mnist?turn=20&shift=10&pad=0&part=train", ORDER)
    found = reproduce("vitae_mnist", digits)
    assert (len(found.cells_with("agree")), found.status) == (8, 0)
    assert found.cells[0].ours == OurResult(pytest.approx(20.0), pytest.approx(np.sqrt(2 / 3)), 3)  # type: ignore[arg-type]
    (wrong,) = reproduce("vitae_mnist", vitae("mnist", {**ORDER, "u_vitae": 0.205})).cells_with("differ")
    assert wrong.published.row == "u_vitae above beta_tcvae"
    missing = reproduce("vitae_mnist", digits.drop(columns="separation.score")).cells_with("missing")
    assert {cell.why for cell in missing} == {"no score separation.score, run unbraid appearance"}
    bodies = reproduce("vitae_bodies", vitae("body_images", {**ORDER, "c_vitae": -0.3}))
    assert (len(bodies.cells_with("differ")), bodies.status) == (5, 1)
    assert "body_images has freely available bodies instead of those of the paper" in bodies.deviations
    part = reproduce("vitae_bodies", vitae("body_images", {m: ORDER[m] for m in ("vae", "c_vitae")}))
    assert len(part.cells_with("missing")) == 4
    assert not any(isinstance(cell.published, Published) for cell in part.cells)
