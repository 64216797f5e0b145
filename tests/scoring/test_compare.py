"""Comparison of folders of runs: settings and scores that differ, significance, and the picture."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats

import unbraid as ub
from support.training import quick_train
from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.methods import PCL, BetaVAE
from unbraid.runs.folder import RunFolder
from unbraid.runs.scores import read_scores
from unbraid.runtime.files import write_jsonl
from unbraid.scoring.comparison import compare

METRICS = ["mig", "modularity", "unsupervised"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders with four seeds each. Only the first is scored."""
    root = tmp_path_factory.mktemp("compared")
    first = quick_train(root / "gentle", BetaVAE(beta=1.0), seeds=range(4))
    quick_train(root / "strong", BetaVAE(beta=50.0), seeds=range(4), latents=4)
    ub.score(first, METRICS, quiet=True)
    return root / "gentle", root / "strong"


def write_scores(folder: Path, scores: dict[str, list[float]], **fields: Any) -> None:
    """Write headline scores for the runs of a folder. `fields` are further fields of the records."""
    from unbraid.metrics import TRAITS
    from unbraid.runs.folder import find_runs

    for i, run in enumerate(find_runs(folder)):
        key = {"codes": "mean", "data": "toy", "seed": 0, **fields}
        write_jsonl(run.path / "scores.jsonl", [{"metric": m, **key, "values": {TRAITS[m].headline: values[i]}}
                                         for m, values in scores.items()])  # fmt: skip


def copy_folders(folders: tuple[Path, Path], root: Path) -> tuple[Path, Path]:
    import shutil

    copies = [root / folder.name for folder in folders]
    for old, new in zip(folders, copies, strict=True):
        shutil.copytree(old, new)
    return copies[0], copies[1]


def test_settings_scores_and_unscored_runs(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(*folders)
    assert found.metrics == METRICS
    assert found.settings() == {"beta": ["1", "50"], "latents": ["3", "4"], "seed": ["0, 1, 2, 3"] * 2,
                                "runs": ["4", "4"]}  # fmt: skip
    rows = {(row["side"], row["metric"]): row for row in found.rows()}
    stored = [read_scores(path.parent) for path in sorted(folders[0].glob("*/run.json"))]
    totals = [r["values"]["gaussian_total_correlation"] for lines in stored for r in lines
              if r["metric"] == "unsupervised" and r["codes"] == "mean"]  # fmt: skip
    row = rows["gentle", "unsupervised"]
    assert row["mean"] == pytest.approx(np.mean(totals))
    assert row["std"] == pytest.approx(np.std(totals, ddof=1))
    assert row["median"] == pytest.approx(np.median(totals))
    assert row["best"] == min(totals), "low is good"
    assert rows["strong", "mig"] == {"side": "strong", "folder": str(folders[1]), "metric": "mig",
                                     "score": "discrete_mig", "runs": 0, "unscored": 4}  # fmt: skip
    assert found.tests == []
    assert main(["compare", *map(str, folders)]) == 0
    printed = capsys.readouterr().out
    remedy = f"Compute them with: unbraid score {folders[1]}"
    assert f"In strong, 4 of 4 run(s) have no scores. {remedy}" in printed
    assert "A test needs scores of at least 3 seeds per side, but strong has 0" in printed


def test_missing_scores_are_computed_on_request(folders: tuple[Path, Path], tmp_path: Path) -> None:
    copies = copy_folders(folders, tmp_path)
    found = compare(*copies, metrics=["mig"], score=True, quiet=True)
    assert [test.metric for test in found.tests] == ["mig"]
    assert not any("no score" in remark for remark in found.remarks)
    again = compare(*copies)
    assert [row["unscored"] for row in again.rows() if row["metric"] == "mig"] == [0, 0]


def test_significant_differences_are_reported(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = copy_folders(folders, tmp_path)
    write_scores(a, {"mig": [0.1, 0.2, 0.11, 0.15], "sap": [0.1, 0.2, 0.3, 0.4]})
    write_scores(b, {"mig": [0.6, 0.7, 0.61, 0.65], "sap": [0.2, 0.1, 0.3, 0.4]})
    found = compare(a, b)
    mig, sap = found.tests
    assert (mig.first, mig.second) == ("gentle", "strong")
    assert mig.difference == pytest.approx(0.5)
    assert mig.p == pytest.approx(2 / 70)
    assert sap.p == 1
    sentence = found.sentences()[0]
    assert "1 of 2 metrics differs significantly (strong minus gentle): mig +0.500 (p = 0.029)." in sentence
    assert "sap" not in sentence
    assert main(["compare", str(a), str(b), "--json", "--csv", str(tmp_path / "c.csv")]) == 0
    everything = json.loads(capsys.readouterr().out)
    assert everything["tests"][0]["p"] == pytest.approx(2 / 70)
    rows = list(csv.DictReader((tmp_path / "c.csv").read_text().splitlines()))
    assert [(row["side"], row["metric"]) for row in rows] == [
        (s, m) for s in ("gentle", "strong") for m in ("mig", "sap")
    ]
    assert float(rows[0]["p.strong"]) == pytest.approx(2 / 70)
    third = tmp_path / "third"
    quick_train(third, BetaVAE(beta=9.0), seeds=range(3))
    write_scores(third, {"mig": [0.1, 0.2, 0.3], "sap": [0.1, 0.2, 0.3]})
    assert len(compare(a, b, third).tests) == 6


def test_too_few_runs_for_significance_are_reported(folders: tuple[Path, Path], tmp_path: Path) -> None:
    quick_train(tmp_path / "a", seeds=range(3))
    quick_train(tmp_path / "b", BetaVAE(beta=9.0), seeds=range(3))
    write_scores(tmp_path / "a", {"mig": [0.1, 0.2, 0.3]})
    write_scores(tmp_path / "b", {"mig": [0.7, 0.8, 0.9]})
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.tests[0].p == pytest.approx(0.1)
    assert "so no difference can be significant at the 5% level" in found.sentences()[0]


def test_scores_computed_differently_are_not_tested(folders: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = copy_folders(folders, tmp_path)
    write_scores(a, {"mig": [0.1, 0.2, 0.3, 0.4]})
    write_scores(b, {"mig": [0.6, 0.7, 0.8, 0.9]}, seed=1)
    found = compare(a, b)
    assert found.tests == []
    reason = "their scores were computed with different settings (seed)"
    remedy = "Compute the missing scores with: unbraid compare --score"
    assert found.remarks == [f"These metrics were not tested, because {reason}: mig. {remedy}"]


def test_mixed_settings_data_and_unfinished_runs_are_reported(folders: tuple[Path, Path], tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    quick_train(mixed, [BetaVAE(beta=1.0), BetaVAE(beta=2.0)])
    ub.train(BetaVAE(), data="sprites", steps=0, quiet=True, out=tmp_path / "sprites")
    RunFolder.create(mixed, ub.RunSpec(BetaVAE(beta=77.0), "toy"))
    printed = " ".join(compare(mixed, tmp_path / "sprites").sentences())
    assert "mixed has runs with different settings" in printed
    assert "Runs of mixed that are left out: 0 diverged, 1 unfinished." in printed
    assert "The datasets differ (toy, sprites)" in printed


def test_single_runs_can_be_compared(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (one, two, *_) = sorted(path.parent for path in folders[0].glob("*/run.json"))
    assert main(["compare", str(one), str(two), "--metrics", "mig"]) == 0
    printed = capsys.readouterr().out
    assert "±" in printed.splitlines()[5]
    assert compare(one, two).rows()[0]["std"] is None


def test_invalid_arguments_raise_an_error(folders: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least two folders"):
        compare(folders[0])
    with pytest.raises(ValueError, match="One of them was given twice"):
        compare(folders[0], folders[0] / ".." / folders[0].name)
    with pytest.raises(ValueError, match="Did you mean 'mig'"):
        compare(*folders, metrics=["mgi"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="No runs in"):
        compare(folders[0], tmp_path / "empty")


def test_picture_of_the_best_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, beta in (("a", 1.0), ("b", 2.0)):
        settings = {"steps": 1, "batch": 8, "latents": 3, "quiet": True}
        ub.train(BetaVAE(beta=beta), data="sprites", seeds=range(2), out=tmp_path / name, **settings)
        write_scores(tmp_path / name, {"mig": [0.1, 0.9], "sap": [0.9, 0.1]})
    out = tmp_path / "pictures" / "compare.png"
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(out)]) == 0
    assert f"best run of each folder is {out}" in capsys.readouterr().out
    with Image.open(out) as picture:
        width, height = picture.size
        assert len(np.unique(np.asarray(picture))) > 10
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.ranking_metric() == "mig"
    tall = 2 + 5 * 66  # examples, decoded and three latents
    assert height == tall + 2 * 14 + 6
    assert width > 2 * (84 + 8 * 66)
    best = [side.best("sap") for side in found.sides]
    assert [entry.settings["seed"] for entry in best if entry] == [0, 0]


def test_picture_without_decoders(tmp_path: Path) -> None:
    from unbraid.pictures.comparison import draw_comparison

    for name, method in (("vae", BetaVAE()), ("pcl", PCL()), ("other", PCL(normalise="none"))):
        ub.train(method, data="sprites", steps=0, quiet=True, latents=3, out=tmp_path / name)
    found = compare(tmp_path / "vae", tmp_path / "pcl")
    assert found.ranking_metric() is None
    assert draw_comparison(found, tmp_path / "c.png").stat().st_size > 1000
    with pytest.raises(UserError, match="A picture needs a decoder"):
        draw_comparison(compare(tmp_path / "pcl", tmp_path / "other"), tmp_path / "d.png")
    with pytest.raises(UserError, match="has a score of sap"):
        draw_comparison(found, tmp_path / "d.png", by="sap")


@pytest.fixture
def seven(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with the seeds 0 to 6 and 0 to 7. A seed with a high score in one has a high score in the other."""
    weak, strong = tmp_path / "weak", tmp_path / "strong"
    quick_train(weak, BetaVAE(beta=1.0), seeds=range(7), steps=0)
    quick_train(strong, BetaVAE(beta=8.0), seeds=range(8), steps=0)
    write_scores(weak, {"mig": [0.1 * i for i in range(7)]})
    write_scores(strong, {"mig": [0.1 * i + 0.01 + 0.001 * i for i in range(8)]})
    return weak, strong


def test_runs_with_the_same_seeds_are_paired(seven: tuple[Path, Path]) -> None:
    found = compare(*seven)
    (test,) = found.tests
    assert (test.pairs, test.p) == (7, pytest.approx(2 / 2**7))
    assert test.difference == pytest.approx(0.013)
    assert (
        "a paired test of 7 pairs of runs with the same seed, with 128 permutations. 1 run(s)" in found.sentences()[0]
    )
    spread = stats.t.interval(0.95, 6, 0.013, 0.001 * np.std(range(7), ddof=1) / np.sqrt(7))
    assert (test.low, test.high) == pytest.approx(spread)
    (unpaired,) = compare(*seven, paired=False).tests
    assert unpaired.pairs == 0
    assert unpaired.p > 0.5
    assert main(["compare", *map(str, seven), "--no-paired"]) == 0


def test_few_shared_seeds_are_not_paired_unless_asked(seven: tuple[Path, Path]) -> None:
    few = compare(*seven, only={"seed": range(5)})
    assert few.tests[0].pairs == 0, "five pairs cannot be significant"
    asked = compare(*seven, only={"seed": range(5)}, paired=True)
    assert asked.tests[0].pairs == 5
    assert "have only 5 pairs, so no difference can be significant" in asked.sentences()[0]
    sides = [[run for run in ub.load_runs(folder) if run.spec.seed % 2 == i] for i, folder in enumerate(seven)]
    with pytest.raises(UserError, match=r"have 0 pair\(s\) of such runs"):
        compare(*sides, paired=True)


def test_runs_of_a_sweep_are_paired_by_their_settings(tmp_path: Path) -> None:
    methods = [BetaVAE(beta=beta) for beta in (1.0, 4.0)]
    for latents in (3, 4):
        quick_train(tmp_path / str(latents), methods, seeds=range(3), steps=0, latents=latents)
        write_scores(tmp_path / str(latents), {"mig": [0.1 * i + 0.01 * latents for i in range(6)]})
    (test,) = compare(tmp_path / "3", tmp_path / "4").tests
    assert test.pairs == 6
    assert (test.low, test.high) == pytest.approx((0.01, 0.01)), "every pair has the same difference"


def test_tables_have_intervals_and_p_values(seven: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *map(str, seven)]) == 0
    printed = capsys.readouterr().out
    row = compare(*seven).rows()[0]
    assert f"{row['ci_low']:.3f} to {row['ci_high']:.3f}" in printed
    assert "strong - weak  mig     +0.013" in printed
    assert "0.016  0.016           paired, 7 pairs" in printed
    assert "CI: 95% confidence intervals by Student's t distribution" in printed


def test_runs_that_are_on_both_sides_are_reported(seven: tuple[Path, Path]) -> None:
    found = compare(seven[0], seven[0].parent)
    assert "7 run(s) are in both" in " ".join(found.remarks)


def test_one_sweep_is_divided_by_a_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick_train(tmp_path / "sweep", [BetaVAE(beta=10.0), BetaVAE(beta=2.0)], seeds=range(4))
    quick_train(tmp_path / "sweep", ["vae"], seeds=range(4), add=True)
    write_scores(tmp_path / "sweep", {"mig": [0.1 * i for i in range(12)]})
    found = compare(tmp_path / "sweep", between="beta")
    assert [side.name for side in found.sides] == ["beta=2", "beta=10"]
    assert found.settings()["beta"] == ["2", "10"]
    assert "4 run(s) have no setting beta and are left out." in found.remarks
    for side in found.sides:
        means = [entry.value("mig") for entry in side.runs]
        assert [row["mean"] for row in found.rows() if row["side"] == side.name] == [pytest.approx(np.mean(means))]
    assert [(test.first, test.second) for test in found.tests] == [("beta=2", "beta=10")]
    assert main(["compare", str(tmp_path / "sweep"), "--between", "method,beta", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert {row["side"] for row in scores} == {"beta_vae beta=2", "beta_vae beta=10"}
    two = compare(tmp_path, between="method")
    assert {side.name: len(side.runs) for side in two.sides} == {"beta_vae": 8, "vae": 4}


def test_a_sweep_that_cannot_be_divided(folders: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match=r"All 4 runs are of beta=1\. They differ in their seeds only"):
        compare(folders[0], between="beta")
    advice = r"The settings in which they differ are beta, latents\."
    with pytest.raises(UserError, match=rf"All 8 runs are of beta_vae\. {advice}"):
        compare(*folders, between="method")
    with pytest.raises(UserError, match="Did you mean 'beta'"):
        compare(folders[0].parent, between="betta")
    with pytest.raises(UserError, match=r"pass --between SETTING \(between=\). Here they differ in beta, latents"):
        compare(folders[0].parent)


def test_scores_that_all_runs_share_are_compared(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """A side that was also scored in another way can still be compared, and `score` compares what it computes."""
    first, second = copy_folders(folders, tmp_path)
    other = ub.Protocol(train=100, test=50)
    ub.score([first, second], "mig", quiet=True)
    before = compare(first, second, metrics="mig")
    ub.score(first, "mig", protocol=other, quiet=True)
    shared = compare(first, second, metrics="mig")
    assert [vars(test) for test in shared.tests] == [vars(test) for test in before.tests]
    assert "Some runs have later scores of mig with other settings" in shared.sentences()[-1]
    ub.score(second, "mig", protocol=other, quiet=True)
    latest, default = compare(first, second, metrics="mig"), compare(first, second, metrics="mig", score=True)
    assert latest.tests[0].difference != before.tests[0].difference
    assert [vars(test) for test in default.tests] == [vars(test) for test in before.tests]
    assert not default.remarks


def test_datasets_of_the_same_name_with_different_content_are_reported(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = copy_folders(folders, tmp_path)
    write_scores(first, {"mig": [0.1, 0.2, 0.3, 0.4]}, source="a")
    write_scores(second, {"mig": [0.1, 0.2, 0.3, 0.4]}, source="a")
    assert not compare(first, second).remarks
    write_scores(second, {"mig": [0.1, 0.2, 0.3, 0.4]}, source="b")
    (remark,) = compare(first, second).remarks
    assert "from 2 datasets of this name with different examples or labels" in remark
