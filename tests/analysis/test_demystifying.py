"""Scores on modified images: tables with known answers, the list of runs of the study, and a small study."""

from __future__ import annotations

import dataclasses
import io
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pandas import DataFrame

from unbraid.analysis import ANALYSES
from unbraid.analysis.demystifying import (
    MANIPULATED,
    NO_NORMAL_POSTERIOR,
    PRIMARY,
    SCORES,
    dataset_variant,
    discard_over_pruned,
    manipulated,
)
from unbraid.cli.dispatch import main
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods import METHODS
from unbraid.metrics import METRICS
from unbraid.runs.results import load_results, write_table
from unbraid.studies import demystifying as study
from unbraid.studies.published import STUDIES
from unbraid.studies.reduction import Reduction
from unbraid.studies.study_files import find_study

DATA = {"original": "dsprites", "modified": "dsprites?modified=default", "noise": "dsprites?noise=0.1"}
MIG = "mig.discrete_mig"
MEANS = {("beta_vae", "original"): 0.3, ("beta_vae", "modified"): 0.1, ("beta_vae", "noise"): 0.25}
WIGGLE = [-0.02, -0.01, 0.0, 0.01, 0.02]  # standard deviation sqrt(.001 / 4)


def row(method: str, form: str, seed: int, level: int = 1, base: str = "dsprites", **more: Any) -> dict[str, Any]:
    """One run. The mean score of PCL is always .2; that of VAEs falls by .01 per level."""
    mean = MEANS.get((method, form), 0.2) - 0.01 * (level - 1)
    scores = dict.fromkeys(SCORES.values(), mean + WIGGLE[seed])
    counts = {} if method in NO_NORMAL_POSTERIOR else {"active.units": 5.0, "active.factors": 5.0}
    gaps = {"gaps.x": 2 * mean, "gaps.shape": 0.0}
    name = f"{method}-{form}-{seed}-{level}-{base}"
    return {"run": name, "data": DATA[form].replace("dsprites", base), "method": method, "strength": 8.0 * level,
            "level": level, "seed": seed, "status": "done", **scores, **counts, **gaps, **more}  # fmt: skip


def known_table(levels: tuple[int, ...] = (0, 1, 2), bases: tuple[str, ...] = ("dsprites",)) -> DataFrame:
    """A results table with known means for each variant."""
    groups = [(form, seed, base) for base in bases for form in DATA for seed in range(5)]
    vaes = [row("beta_vae", form, seed, level, base) for form, seed, base in groups for level in levels]
    return DataFrame([*vaes, *(row("pcl", form, seed, 1, base) for form, seed, base in groups)])


def cell(found: DataFrame, method: str, name: str = "MIG") -> Any:
    return found[(found["method"] == method) & (found["score"] == name)].iloc[0]


@pytest.mark.parametrize(
    ("name", "base", "form"),
    [
        ("dsprites", "dsprites", "original"),
        ("noisy_dsprites", "noisy_dsprites", "original"),
        ("dsprites?noise=0.1", "dsprites", "noise"),
        ("dsprites?modified=default", "dsprites", "modified"),
        ("toy?subset=50&noise=0.1&seed=3", "toy?subset=50&seed=3", "noise"),
        ("toy?subset=50", "toy?subset=50", "original"),
        ("folder/mine.npz?modified=a/b.safetensors", "folder/mine.npz", "modified"),
        ("toy?correlate=noise:x:0.2", "toy?correlate=noise:x:0.2", "original"),
    ],
)
def test_dataset_variant(name: str, base: str, form: str) -> None:
    assert dataset_variant(name) == (base, form)


def test_over_pruned_runs_are_discarded_and_counted() -> None:
    table = known_table()
    few = ["beta_vae-modified-0-1-dsprites", "beta_vae-modified-3-2-dsprites"]
    table.loc[table["run"].isin(few), "active.units"] = 4
    table.loc[table["run"] == "beta_vae-noise-1-1-dsprites", "status"] = "diverged"
    table.loc[table["run"] == "beta_vae-noise-2-1-dsprites", "status"] = "partial"
    before = table.copy()
    rows, counts = discard_over_pruned(table)
    assert table.equals(before)
    assert len(rows) == len(table) - 4
    assert not {"beta_vae-modified-0-1-dsprites", "beta_vae-noise-1-1-dsprites"} & set(rows["run"])
    found = counts.set_index(["data", "method"])
    assert found.loc[(DATA["modified"], "beta_vae")].to_dict() == {"runs": 15, "discarded": 2, "diverged": 0}
    assert found.loc[(DATA["noise"], "beta_vae")].to_dict() == {"runs": 13, "discarded": 0, "diverged": 1}
    assert found.loc[(DATA["noise"], "pcl")].to_dict() == {"runs": 5, "discarded": 0, "diverged": 0}


def test_methods_without_a_posterior_are_never_discarded() -> None:
    """These are the methods without information per latent. Their runs have no number of active latents."""
    q = Gaussian(torch.zeros(2, 4), torch.zeros(2, 4))
    assert {name for name, method in METHODS.items() if method().information(q) is None} == set(NO_NORMAL_POSTERIOR)
    table = known_table()
    table.loc[table["method"] == "pcl", ["active.units", "active.factors"]] = [0.0, 5.0]
    assert len(discard_over_pruned(table)[0]) == len(table)


def test_missing_number_of_active_latents_raises_an_error() -> None:
    table = known_table()
    with pytest.raises(UserError, match=r"must have active\.units.*Got run beta_vae.*add active"):
        discard_over_pruned(table.drop(columns="active.units"))
    table.loc[3, "active.factors"] = np.nan
    with pytest.raises(UserError, match=f"Got run {table.loc[3, 'run']}"):
        discard_over_pruned(table)


def test_known_losses() -> None:
    found = manipulated(known_table())
    vae, pcl = cell(found.table, "beta_vae"), cell(found.table, "pcl")
    assert (vae["original"], vae["modified"], vae["noise"]) == pytest.approx((0.3, 0.1, 0.25))
    assert (vae["modified_loss"], vae["noise_loss"]) == pytest.approx((0.2, 0.05))
    std = math.sqrt(0.001 / 4)
    assert (vae["original_std"], vae["modified_error"]) == pytest.approx((std, std * math.sqrt(2 / 5)))
    assert vae["modified_p"] == pytest.approx(2 / 252)  # the values of the two variants do not overlap
    assert (pcl["modified_loss"], pcl["modified_p"]) == pytest.approx((0.0, 1.0))
    assert set(found.table["level"]) == {1}
    assert set(found.table["score"]) == set(SCORES)
    assert "1 of 2 on modified images (median loss 0.10) and 1 of 2 on images with noise" in found.text
    assert "beta-VAE on dsprites loses most on modified images, from 0.30 to 0.10" in found.text
    assert "0 of 30 runs" in found.text


def test_discarded_runs_do_not_enter_the_means() -> None:
    """The highest and the lowest run are left out: the mean stays the same and the standard deviation shrinks."""
    table = known_table()
    out = ["beta_vae-modified-0-1-dsprites", "beta_vae-modified-4-1-dsprites"]
    table.loc[table["run"].isin(out), "active.units"] = 4
    found = cell(manipulated(table).table, "beta_vae")
    assert (found["modified_runs"], found["modified_discarded"], found["original_discarded"]) == (3, 2, 0)
    assert (found["modified"], found["modified_std"]) == pytest.approx((0.1, 0.01))


def test_one_variant_alone_raises_an_error() -> None:
    table = known_table()
    with pytest.raises(UserError, match=r"on a dataset and on a modified variant of it.*only dsprites\b"):
        manipulated(table[table["data"] == "dsprites"])
    with pytest.raises(UserError, match="modified variant"):
        manipulated(table[table["data"] != "dsprites"])
    other = table[table["data"] == DATA["noise"]].assign(data="dsprites?noise=0.2")
    with pytest.raises(UserError, match=r"noise=0\.1 and dsprites\?noise=0\.2"):
        manipulated(pd.concat([table, other]))
    found = manipulated(table[table["data"] != DATA["modified"]])
    assert cell(found.table, "beta_vae")[["modified", "modified_loss", "modified_p"]].isna().all()
    assert "1 of 2 on images with noise" in found.text


def test_levels_may_have_other_strengths_on_other_data() -> None:
    """The same level has strength 8 on one dataset and 32 on the other. Datasets are compared separately."""
    table = known_table(bases=("dsprites", "shapes"))
    table.loc[table["data"].str.startswith("shapes"), "strength"] *= 4
    found = manipulated(table).table
    strengths = found[found["method"] == "beta_vae"].groupby("data")["strength"].agg(["min", "max"])
    assert strengths.to_numpy().tolist() == [[8.0, 8.0], [32.0, 32.0]]


def test_known_gaps_and_histograms() -> None:
    table = known_table()
    factors = ANALYSES["manipulated_factors"].run(table)
    found = factors.table.set_index(["method", "factor"])
    assert found.loc[("beta_vae", "x"), ["original", "modified"]].tolist() == pytest.approx([0.6, 0.2])
    assert found.loc[("beta_vae", "shape"), "modified_loss"] == 0
    assert "the factor x of dsprites loses most. Its mutual information gap falls by 0.20" in factors.text
    spread = ANALYSES["manipulated_spread"].run(table)
    assert spread.table.groupby(["method", "variant"])["runs"].sum().eq(5).all()
    assert ((spread.table["low"] >= 0) & (spread.table["high"] <= 0.32 + 1e-9)).all()
    assert "70 % of runs on modified images and 70 % of runs on images with noise" in spread.text


def test_known_strengths() -> None:
    """A strength compensates if its score on modified images is that of the primary strength on the originals."""
    table = known_table()
    found = ANALYSES["manipulated_strengths"].run(table)
    assert set(found.table["method"]) == {"beta_vae"}
    assert cell(found.table[found.table["level"] == 2], "beta_vae")["original"] == pytest.approx(0.29)
    assert "in 0 of 1 combinations for MIG; 0 of 1 combinations for DCI" in found.text
    improved = (table["data"] == DATA["modified"]) & (table["level"] == 2)
    table.loc[improved, MIG] += 0.25
    assert "in 1 of 1 combinations for MIG; 0 of 1" in ANALYSES["manipulated_strengths"].run(table).text
    with pytest.raises(UserError, match="at least 2 different values of 'level'"):
        ANALYSES["manipulated_strengths"].run(known_table(levels=(1,)))


def test_strengths_are_drawn_for_every_score() -> None:
    """Each score has a block of axes with its curves. The paper draws DCI, FactorVAE score and SAP."""
    table = known_table(bases=("dsprites", "shapes"))
    found = ANALYSES["manipulated_strengths"].run(table)
    (blocks,) = [figure.subfigs for figure in [found.figure]]
    scores = list(found.table["score"].unique())
    assert [block.get_suptitle() for block in blocks] == scores
    assert len(scores) > 1
    for block, score in zip(blocks, scores, strict=True):
        rows = found.table[(found.table["score"] == score) & (found.table["data"] == "dsprites")].sort_values("level")
        axes = next(axes for axes in block.axes if axes.get_title() == "dsprites")
        assert list(axes.lines[0].get_ydata()) == pytest.approx(rows["original"].tolist(), nan_ok=True)


@pytest.mark.parametrize("name", ["manipulated", "manipulated_strengths"])
def test_metrics_of_modified_images_can_be_chosen(name: str) -> None:
    """Figures 4 to 6 of the supplement have one score each. A metric without a score of its own has its headline."""
    table = known_table().assign(**{"modularity.modularity_score": 0.5})
    for metric, scores in {"sap": ["SAP"], "dci": ["DCI", "DCI, per tree"], "modularity": ["Modularity"]}.items():
        assert list(ANALYSES[name].answer(table, [metric]).table["score"].unique()) == scores
    with pytest.raises(UserError, match=r"must have values: beta_vae.eval_accuracy. Got none"):
        ANALYSES[name].answer(table, ["mig", "beta_vae"])


def test_losses_of_metrics_whose_low_scores_are_good_are_rejected() -> None:
    for name in ("manipulated", "manipulated_strengths"):
        with pytest.raises(UserError, match=r"high scores are good. Got fairness instead"):
            ANALYSES[name].run(known_table(), ["mig", "fairness"])


@pytest.mark.parametrize("name", MANIPULATED)
def test_the_legend_names_only_what_is_drawn(name: str) -> None:
    table = known_table()
    without = table[table["data"] != DATA["modified"]]
    for rows, wanted in ((table, ["original", "modified", "noise"]), (without, ["original", "noise"])):
        (legend,) = ANALYSES[name].run(rows).figure.legends
        assert [text.get_text() for text in legend.get_texts()] == wanted


@pytest.mark.parametrize("name", MANIPULATED)
def test_laws_of_analyses_of_modified_images(name: str) -> None:
    """The table is not changed, row order does not matter, missing values are left out, missing columns are errors."""
    table = known_table(bases=("dsprites", "shapes"))
    before = table.copy()
    first = ANALYSES[name].run(table)
    assert table.equals(before)
    assert 20 < len(first.text) < 500
    assert "nan" not in first.text
    file = io.BytesIO()
    first.figure.savefig(file, format="png", dpi=50)
    assert len(file.getvalue()) > 5_000
    assert {axes.get_title() for axes in first.figure.axes} >= {"dsprites", "shapes"}
    keys = [column for column in first.table if first.table[column].dtype.kind not in "f"] + ["level"]
    keys = [key for key in dict.fromkeys(keys) if key in first.table]
    again = ANALYSES[name].run(table.iloc[::-1])
    one, two = (found.table.sort_values(keys, ignore_index=True) for found in (first, again))
    pd.testing.assert_frame_equal(one, two, atol=1e-12)
    rng = np.random.default_rng(0)
    for column in [*SCORES.values(), "gaps.x", "gaps.shape"]:
        table.loc[rng.random(len(table)) < 0.2, column] = np.nan
    table.loc[0, MIG] = np.inf
    assert len(ANALYSES[name].run(table).table)
    with pytest.raises(UserError, match="no level"):
        ANALYSES[name].run(before.drop(columns="level"))
    with pytest.raises(UserError, match=r"must h.*Got no"):
        ANALYSES[name].run(before[list(before.columns[:7])])
    with pytest.raises(UserError, match="seed"):
        ANALYSES[name].run(before[before["seed"] == 0])


def test_columns_are_keys_of_metrics() -> None:
    factors = np.indices((3, 4, 5)).reshape(3, -1).T
    for column in SCORES.values():
        metric, key = column.split(".")
        test = (factors, factors) if metric in ("dci", "sap") else ()
        assert key in METRICS[metric](factors, factors, *test)


def test_runs_of_the_study() -> None:
    runs = list(STUDIES["demystifying2021"]())
    assert len(runs) == 6 * 33 * 10 == len({run.spec.id for run in runs})
    assert Counter(dataset_variant(run.spec.data) for run in runs) == {
        (base, form): 330 for base in ("dsprites", "shapes3d_rendered") for form in DATA
    }
    assert {run.spec.data for run in runs} >= {"dsprites?noise=0.1", "shapes3d_rendered?noise=0.175"}
    latents = {dataset_variant(run.spec.data)[0]: run.spec.latents for run in runs}
    assert latents == {"dsprites": 5, "shapes3d_rendered": 6}
    assert {(run.spec.steps, run.spec.batch) for run in runs} == {(300_000, 64)}
    assert {run.spec.learning_rate for run in runs if run.facts()["method"] != "pmp"} == {1e-4}
    assert study.PRIMARY == PRIMARY


def test_the_study_with_other_seeds() -> None:
    """Every run again, with a new seed and a new index."""
    path = Path(__file__).parents[2] / "benchmarks" / "study_demystifying_again.py"
    runs, others = list(STUDIES["demystifying2021"]()), list(find_study(str(path))())
    assert {run.spec.seed for run in others} == set(range(10, 20))
    assert not {run.index for run in runs} & {run.index for run in others}
    original = [dataclasses.replace(run.spec, seed=run.spec.seed - 10) for run in others]
    assert original == [run.spec for run in runs]


def test_primary_strengths_and_the_line_search() -> None:
    """Level 1 has the strengths of table 1; other levels are multiples. Methods without a strength have one level."""
    runs = list(STUDIES["demystifying2021"]())
    cut = Reduction({"level": ["1"]}).apply(runs)
    assert len(cut) == 6 * 8 * 10
    found = {(run.facts()["method"], run.spec.data.partition("?")[0]): run.strength for run in cut}
    table = {"beta_vae": (8, 32), "beta_tcvae": (6, 32), "factor_vae": (35, 7), "slow_vae": (1, 1), "ada_gvae": (1, 1)}
    for method in ("pcl", "ae", "pmp"):
        table[method] = (0, 0)
    bases = ("dsprites", "shapes3d_rendered")
    assert found == {(method, base): own[i] for method, own in table.items() for i, base in enumerate(bases)}
    for run in runs:
        facts, primary = run.facts(), found[run.facts()["method"], run.spec.data.partition("?")[0]]
        assert run.strength == pytest.approx(primary * study.SEARCH[run.level])
        if primary:
            assert facts["gamma" if facts["method"] == "factor_vae" else "beta"] == run.strength
        else:
            assert run.level == PRIMARY


def test_shorter_runs_have_shorter_schedules() -> None:
    (run, *_) = Reduction({"method": ["pmp"]}, seeds=[0], steps=300).apply(STUDIES["demystifying2021"]())
    assert run.facts()["horizon"] == 300


def test_a_small_study_from_training_to_analysis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four methods on sprites, with and without noise: training, scores, results table and analyses."""
    out = tmp_path / "study"
    forms = ["--data", "sprites", "--data", "sprites?noise=0.1"]
    some = ["--only", "level=1", "--only", "method=beta_vae,pcl,ae,pmp"]
    small = [*some, "--seeds", "0-1", "--steps", "3", "--samples", "300", "--jobs", "1", "--quiet"]
    metrics = ["--metrics", "mig,factor_vae,gaps,active"]
    assert main(["study", "demystifying2021", *forms, *small, *metrics, "--out", str(out)]) == 0
    table = load_results(out)
    assert len(table) == 2 * 4 * 2
    points = table["method"].isin(NO_NORMAL_POSTERIOR)
    assert table.loc[points, "active.units"].isna().all()
    assert table.loc[~points, "active.units"].between(0, 5).all()
    assert (table.loc[~points, "active.factors"] == 5).all()
    assert table["gaps.shape"].notna().all()
    table.loc[~points, "active.units"] = 5.0  # after 3 steps nothing is active yet
    (out / "results.sqlite").unlink()
    write_table(out / "results.sqlite", table.to_dict("records"))
    capsys.readouterr()
    names = [name for name in MANIPULATED if name != "manipulated_strengths"]
    assert main(["analyse", str(out), *names]) == 0
    printed = capsys.readouterr().out
    assert "on images with noise" in printed
    assert "0 of 16 runs were over-pruned" in printed
    assert {path.stem for path in (out / "analyses").glob("*.png")} == set(names)
