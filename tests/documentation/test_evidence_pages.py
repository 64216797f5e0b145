"""The pages from evidence/results.csv: without runs they say what to do, and with planted runs they have tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from unbraid.methods import METHODS
from unbraid.studies.beyond import DATASETS, supervision
from unbraid.studies.published import STUDIES

ROOT = Path(__file__).parents[2]
OFFSETS = (-0.02, -0.01, 0.0, 0.01, 0.02)  # of the scores of five seeds


@pytest.fixture(autouse=True)
def _generators_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("docs", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))


def planted(study: str) -> pd.DataFrame:
    """Return one row per run of a study without scores, as in the table of results."""
    rows: list[dict[str, Any]] = []
    for run in STUDIES[study]():
        spec = replace(run.spec, precision="bf16")
        facts = {"method": run.facts()["method"], "data": spec.data, "seed": spec.seed, "steps": spec.steps}
        settings = {"setting.family": run.facts().get("family"), "strength": run.strength, "level": run.level}
        rows.append({"run": spec.id, "status": "done", **facts, **settings, "part": "planted"})
    return pd.DataFrame(rows)


def with_scores(runs: pd.DataFrame, columns: list[str], level: Any) -> pd.DataFrame:
    """Give each run the score `level(row)` plus the offset of its seed, in all columns."""
    scores = [level(row) + OFFSETS[int(row["seed"])] for _, row in runs.iterrows()]
    return runs.assign(**dict.fromkeys(columns, scores))


@pytest.fixture
def nothing() -> pd.DataFrame:
    return planted("hsu2024").iloc[:0]


def test_without_runs_every_block_says_so_and_names_the_command(nothing: pd.DataFrame) -> None:
    from generate.claims import correlated_block, labels_block, quantised_block
    from generate.which_method import agreement_block, answer_block, ranking_block

    parts = {
        quantised_block: "hsu-shapes3d-tripod-0",
        labels_block: "labels-dsprites-dip",
        correlated_block: "roth-dsprites-hfs",
        answer_block: "beyond-cars3d-pairs",
    }
    for block, part in parts.items():
        text = block(nothing)
        assert "Not run yet" in text
        assert f"python evidence/parts.py --run {part}\n" in text
        assert "|" not in text
    for block in (ranking_block, agreement_block):
        assert "Not run yet" in block(nothing)


def test_the_table_of_quantised_autoencoders_has_the_published_numbers_and_the_order() -> None:
    from generate.claims import quantised_block

    from unbraid.reproduction.quantised import COLUMNS, PUBLISHED

    runs = planted("hsu2024")
    for number, column in enumerate(COLUMNS.values()):
        runs = with_scores(runs, [column], lambda row, number=number: PUBLISHED[row["method"]][number])
    text = quantised_block(runs)
    assert "Finished runs: 30 of 30." in text
    assert "| AE + ICA | 5 | 0.790 ± 0.016 / 0.79 | 0.990 ± 0.016 / 0.99 | 0.520 ± 0.016 / 0.52 |" in text
    assert "By InfoM, 15 of 15 pairs of methods have the published order." in text
    assert "By InfoE, 11 of 11 pairs" in text  # Tripod and QLAE differ by 0.01, which may be due to rounding
    worse = runs.assign(**{"infomec.InfoM": runs["infomec.InfoM"].where(runs["method"] != "tripod", 0.8)})
    text = quantised_block(worse)
    assert "By InfoM, 14 of 15 pairs" in text
    assert "In the paper, but not in our runs, Tripod is higher than QLAE. The reason is not known." in text


def test_unfinished_parts_are_counted_and_named() -> None:
    from generate.claims import quantised_block

    runs = with_scores(planted("hsu2024"), ["infomec.InfoM", "infomec.InfoE", "infomec.InfoC"], lambda row: 0.5)
    text = quantised_block(runs[runs["method"] != "tripod"])
    assert "Finished runs: 25 of 30." in text
    assert "--run hsu-shapes3d-tripod-0\n" in text
    assert "There are 4 more such parts, whose names end in other seeds." in text
    assert "hsu-shapes3d-vaes" not in text
    assert "| Tripod | 0 | - / 0.91 |" in text
    assert "of 10 pairs" in text


def test_the_table_of_labels_compares_each_family_with_and_without_labels() -> None:
    from generate.claims import SCORES, labels_block

    runs = with_scores(
        planted("locatello2020_labels"), list(SCORES.values()), lambda row: 0.2 + 0.3 * (row["method"] == "semi_vae")
    )
    text = labels_block(runs)
    assert "Finished runs: 60 of 60." in text
    assert "| beta-TCVAE | 5 / 5 | 0.200 ± 0.016 / 0.500 ± 0.016 |" in text
    assert "higher in **36 of 36** combinations" in text
    assert "significant (p < 0.05, permutation test) in 36 of them: 36 times the score is higher with labels" in text
    only = labels_block(runs[runs["method"] == "semi_vae"])
    assert "Finished runs: 30 of 60." in only
    assert "nothing to compare" in only
    assert "--run locatello-dsprites-factor-vae" in only


def test_the_table_of_correlated_factors_has_the_gain_of_hfs() -> None:
    from generate.claims import SCORES, correlated_block

    levels = {"beta_vae": 0.2, "beta_tcvae": 0.4, "hfs": 0.5}
    runs = with_scores(
        planted("roth2023"), list(SCORES.values()), lambda row: levels[row["method"]] + 0.1 * (row["level"] == 2)
    )
    text = correlated_block(runs)
    assert "Finished runs: 45 of 45." in text
    assert "| HFS | gamma 1000, beta 4 | 5 | 0.600 ± 0.016 |" in text
    assert "| MIG | 0.600 ± 0.016 | +0.300 (0.008) | +0.100 (0.008) | +0.400 (0.008) |" in text


def planted_ranking() -> pd.DataFrame:
    """Return the whole study of all methods. The score of a method is its position in the registry."""
    from generate.which_method import METRICS

    from unbraid.metrics import headline

    order = {name: place / 100 for place, name in enumerate(METHODS)}
    runs = planted("beyond2026").assign(part="beyond-planted")
    runs = with_scores(runs, [headline(name) for name in METRICS], lambda row: order[row["method"]])
    reversed_scores = -runs[headline("sap")]
    return runs.assign(**{headline("sap"): reversed_scores})


def test_methods_are_ranked_within_their_class() -> None:
    from generate.which_method import CLASSES, answer, ranking_block

    runs = planted_ranking()
    names = {kind: [name for name in METHODS if supervision(name) == kind] for kind in CLASSES}
    assert {kind: len(found) > 2 for kind, found in names.items()} == dict.fromkeys(CLASSES, True)
    for kind, found in names.items():
        sentence = answer(runs, kind)
        assert f"the best mean ranks of {len(found)} methods" in sentence
        assert "Provisional" not in sentence
    text = ranking_block(runs)
    assert [re.findall(rf"^\| {data}: mean score", text, re.MULTILINE) != [] for data in DATASETS] == [True] * 3
    heads = re.findall(r"^### .*$", text, re.MULTILINE)
    assert len(heads) == 3
    rows = text.split(heads[1])[1].split(heads[2])[0].split("\n\n")[1].splitlines()[2:]
    assert len(rows) == len(names["pairs"])
    assert rows[0].startswith(
        "| PMP | "
    )  # the last method with pairs in the registry is the best by six of seven metrics
    assert "Provisional: 600 of" not in answer(runs[runs["data"] != "cars3d"], "images")
    assert "Provisional" in answer(runs[runs["data"] != "cars3d"], "images")


def test_pages_of_methods_show_runs_of_the_length_of_their_study_only() -> None:
    """PCA has runs in a part that is shorter than its study, and the SlowVAE in a part of full length."""
    from generate.evidence import collected_runs
    from generate.full_length import full_length_section

    assert "pca" in set(collected_runs()["method"])
    assert full_length_section("pca") == ""
    assert "| 300,000 |" in full_length_section("slow_vae")


def test_no_method_is_named_as_the_best_of_a_few() -> None:
    from generate.which_method import answer

    runs = planted_ranking()
    sentence = answer(runs[runs["method"].isin(["pca", "ica"])], "images")
    total = sum(supervision(name) == "images" for name in METHODS)
    assert sentence.endswith(f"there is no answer yet: only 2 of {total} methods have finished runs.")


def test_the_agreement_of_metrics_is_that_of_the_planted_scores() -> None:
    from generate.which_method import agreement_block

    text = agreement_block(planted_ranking())
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()[2:9]}
    assert len(rows) == 7
    assert rows["SAP"].count("-1.00") == 6
    assert rows["MIG"].count(" 1.00") == 6
    assert "least (-1.00)" in text


def test_the_figure_has_a_row_per_dataset_and_a_column_per_metric() -> None:
    from figures.which_method import ranking_figure

    figure = ranking_figure(planted_ranking())
    assert len(figure.axes) == len(DATASETS) * 7
