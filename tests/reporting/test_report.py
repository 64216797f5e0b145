"""The report page as a file: its data, its size, and its errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import unbraid as ub
from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.metrics.bounds import bounds
from unbraid.reporting import content
from unbraid.reporting import page as page_module
from unbraid.reporting.images import ENCODINGS, Picture
from unbraid.reporting.page import json_for_html, report, report_json
from unbraid.reporting.runs_table import best_of_each_dataset, rank_runs, read_and_compute_scores, short_labels
from unbraid.runs.run import Run, load_runs
from unbraid.scoring.bounds_rows import factor_rows

SETTINGS: dict[str, Any] = {"data": "sprites", "latents": 4, "quiet": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("report") / "runs"
    ub.train([ub.methods.BetaVAE(beta=b) for b in (1.0, 2.0)], seeds=range(2), steps=3, out=where, **SETTINGS)
    ub.train(ub.methods.PCL(), steps=2, out=where, add=True, **SETTINGS)
    return where


def facts(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found
    content: dict[str, Any] = json.loads(found[1])
    return content


def weights(path: Path) -> list[str]:
    """The ids of the runs whose decoders are in a page."""
    return re.findall(r'<script type="text/plain" data-weights="(\w+)">', path.read_text())


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    return report(folder, metrics=["mig", "unsupervised"], best=2, quiet=True)


def test_the_table_has_every_run_with_its_scores(page: Path, folder: Path) -> None:
    found = facts(page)
    assert {run["id"] for run in found["runs"]} == {run.id for run in load_runs(folder)}
    expected = {row["run"]: row["mig.discrete_mig"] for row in ub.score(load_runs(folder), ["mig"], quiet=True)}
    assert {run["id"]: run["scores"]["mig.discrete_mig"] for run in found["runs"]} == expected
    assert [run["id"] for run in found["runs"]] == sorted(expected, key=expected.__getitem__, reverse=True)


def test_only_the_best_are_shown_in_detail(page: Path) -> None:
    runs = facts(page)["runs"]
    assert [("detail" in run) for run in runs] == [True] * 2 + [False] * 3
    assert page.read_text().count('<script type="text/plain" data-weights=') == sum(
        bool(run.get("decoder")) for run in runs
    )


def test_ceiling_and_floor_are_those_of_the_data(page: Path) -> None:
    found = facts(page)
    perfect, noise = found["bounds"]["sprites"]
    assert (perfect["kind"], perfect["label"], perfect["latents"]) == ("perfect", "a perfect code", None)
    assert (noise["kind"], noise["label"], noise["latents"]) == ("noise", "pure noise", 4)
    assert perfect["scores"]["mig.discrete_mig"] > 0.9
    assert noise["scores"]["mig.discrete_mig"] < 0.02
    assert "Metrics are fitted on 6,144 rows and tested on 3,072 rows (no row is in both sets)." in found["notes"]


def test_each_run_has_the_floor_of_its_protocol_and_its_latents(tmp_path: Path) -> None:
    """Runs of a study with reference draws and other runs, with different numbers of latents, are on one page."""
    settings: dict[str, Any] = {"data": "toy", "steps": 2, "quiet": True}
    ub.train("vae", latents=2, out=tmp_path / "own", **settings)
    ub.train("vae", latents=5, out=tmp_path / "own", add=True, **settings)
    ub.train("vae", latents=5, seeds=[1], out=tmp_path / "study", **settings)
    protocol = {"train": 500, "test": 200, "table": 65_536, "seed": 3, "draws": "reference"}
    (tmp_path / "study" / "study.json").write_text(json.dumps({"places": {}, "protocol": protocol}))
    runs = [*load_runs(tmp_path / "own"), *load_runs(tmp_path / "study")]
    found = facts(report(runs, tmp_path / "page.html", metrics=["dci"], quiet=True))
    limits = {(row["kind"], row["protocol"], row["latents"]): row for row in found["bounds"]["toy"]}
    data = ub.data.load("toy")
    for run in runs:
        own = next(row for row in found["runs"] if row["id"] == run.id)
        chosen = ub.Protocol(**protocol) if run.path.parent.name == "study" else ub.Protocol()
        expected = bounds(factor_rows(data, run.spec.latents, chosen), ["dci"], chosen.seed)
        for kind, latents in (("perfect", None), ("noise", run.spec.latents)):
            row = limits[kind, own["protocol"], latents]
            assert row["scores"]["dci.disentanglement"] == expected[kind]["dci"]["disentanglement"]
            assert chosen.draws in row["label"]
        assert own["label"].endswith(f", {chosen.draws} draws")
    assert len(limits) == 5  # two perfect codes, and noise with two latents, five latents, and in the study
    assert len([note for note in found["notes"] if note.startswith("Metrics are fitted on")]) == 2


def test_scores_with_other_samples_than_the_floor_are_not_shown(tmp_path: Path) -> None:
    (run,) = ub.train("vae", data="toy", steps=2, out=tmp_path / "runs", quiet=True)
    ub.score(run, ["mig", "mcc"], protocol=ub.Protocol(draws="reference"), quiet=True)
    found = facts(report(tmp_path / "runs", metrics=["mig"], quiet=True))
    assert list(found["runs"][0]["scores"]) == ["mig.discrete_mig"]
    expected = ub.score(run, ["mig"], quiet=True)[0]["mig.discrete_mig"]
    assert found["runs"][0]["scores"]["mig.discrete_mig"] == expected
    (note,) = [note for note in found["notes"] if "not shown" in note]
    assert note.endswith(": mcc.")


def test_information_is_a_share_and_the_named_factor_has_the_largest(page: Path) -> None:
    detail = facts(page)["runs"][0]["detail"]
    assert all(0 <= share <= 1 for row in detail["information"] for share in row)
    for row in detail["traversals"]:
        if row["factor"]:
            shares = detail["information"][int(row["name"].rpartition(" ")[2])]
            assert row["factor"]["share"] == max(shares)
            assert detail["factors"][shares.index(max(shares))] == row["factor"]["name"]


def test_the_size_of_the_page_is_limited(page: Path) -> None:
    assert page.stat().st_size <= 2e6 + 1.2e6 * len(weights(page))


@pytest.fixture(scope="module")
def large_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two runs on images of noise of 128 x 128 x 3 pixels, which PNG cannot compress."""
    path = tmp_path_factory.mktemp("noise") / "noise.npz"
    images = np.random.default_rng(0).integers(256, size=(12, 3, 128, 128), dtype=np.uint8)
    np.savez(path, images=images, factors=np.arange(12)[:, None] % 3)
    return ub.train(
        ub.methods.VAE(),
        data=str(path),
        seeds=range(2),
        steps=1,
        batch=4,
        latents=3,
        out=path.parent / "runs",
        quiet=True,
    )


def test_the_size_of_the_page_is_limited_for_large_images(large_runs: list[Run], tmp_path: Path) -> None:
    page = report(large_runs, tmp_path / "large.html", scoring=False, quiet=True)
    assert len(weights(page)) == 2
    assert page.stat().st_size <= 2e6 + 1.2e6 * 2
    assert "image/webp" in page.read_text()
    run = facts(page)["runs"][0]
    assert len(run["detail"]["traversals"]) == run["latents"]


def test_pictures_that_do_not_fit_are_left_out() -> None:
    noise = np.random.default_rng(0).integers(256, size=(64, 256, 3), dtype=np.uint8)
    picture = {"src": Picture(Image.fromarray(noise))}
    details = [{"detail": {"traversals": [picture], "reconstructions": [picture]}} for _ in range(2)]
    assert "traversals" not in report_json({"runs": details[:1]}, 0)
    one = 2 * len(ENCODINGS[-1].url(picture["src"])) + 600
    first, second = json.loads(report_json({"runs": details}, one))["runs"]
    assert first["detail"]["traversals"][0]["src"].startswith("data:image/webp")
    assert "why" not in first
    assert second == {"detail": {}, "why": page_module.LEFT_OUT}
    assert "traversals" in details[1]["detail"], "the given facts are unchanged"


def test_a_run_without_a_decoder_gives_the_reason(folder: Path, tmp_path: Path) -> None:
    encoder = [run for run in load_runs(folder) if run.net.decoder is None]
    found = facts(report(encoder, tmp_path / "pcl.html", metrics=["mig"], quiet=True))["runs"][0]
    assert found["decoder"] is None
    assert "encoder only" in found["why"]
    assert found["detail"]["information"]


def test_vectors_have_no_pictures_but_a_decoder(tmp_path: Path) -> None:
    runs = ub.train(ub.methods.VAE(), data="toy", steps=3, quiet=True)
    found = facts(report(runs, tmp_path / "toy.html", metrics=["mig"], quiet=True))["runs"][0]
    assert found["decoder"]["shape"] == [16]
    assert "traversals" not in found["detail"]


def test_a_decoder_too_large_for_a_page_refers_to_explore(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "MAX_WEIGHT_BYTES", 1000)
    runs = [run for run in load_runs(folder) if run.net.decoder is not None][:1]
    path = report(runs, tmp_path / "large.html", metrics=[], scoring=False, quiet=True)
    found = facts(path)["runs"][0]
    assert found["decoder"] is None
    assert "unbraid explore" in found["why"]
    assert weights(path) == []


def test_labels_contain_the_settings_that_differ(page: Path) -> None:
    labels = {run["label"] for run in facts(page)["runs"]}
    assert labels == {"pcl", *(f"beta_vae beta={b} seed={s}" for b in (1, 2) for s in range(2))}


def test_metrics_that_cannot_be_computed_are_noted(tmp_path: Path) -> None:
    """DCI needs two factors; other metrics are computed all the same."""
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "one.npz",
        images=rng.integers(256, size=(60, 1, 16, 16), dtype=np.uint8),
        factors=np.arange(60)[:, None] % 3,
    )
    name = str(tmp_path / "one.npz")
    runs = ub.train(ub.methods.VAE(), data=name, steps=1, latents=3, quiet=True)
    scores, notes = read_and_compute_scores(runs, {name: ub.data.load(name)}, ["mig", "dci"], True, True)
    assert "mig.discrete_mig" in scores[runs[0].id]
    assert "dci.disentanglement" not in scores[runs[0].id]
    (note,) = notes
    assert note.startswith(f"dci has no score on {name}:")


def test_runs_without_the_score_are_ranked_last(folder: Path) -> None:
    runs = load_runs(folder)[:3]
    scores = {runs[0].id: {}, runs[1].id: {"mig.discrete_mig": 0.1}, runs[2].id: {"mig.discrete_mig": 0.2}}
    assert rank_runs(runs, scores, "mig") == [runs[2], runs[1], runs[0]]
    total = {runs[i].id: {"unsupervised.gaussian_total_correlation": float(i)} for i in range(3)}
    assert rank_runs(runs, total, "unsupervised") == runs


def test_the_best_runs_alternate_between_datasets() -> None:
    runs = [
        run for data in ("toy", "sprites") for run in ub.train(ub.methods.VAE(), seeds=range(2), data=data, steps=0)
    ]
    assert [run.spec.data for run in best_of_each_dataset(runs)] == ["toy", "sprites", "toy", "sprites"]


def test_labels_leave_out_settings_that_follow_from_others() -> None:
    methods = [ub.methods.AnnealedVAE(c_max=w, gamma=10 * w) for w in (1.0, 2.0)]
    runs = ub.train(methods, data="toy", seeds=range(2), steps=1, quiet=True)
    assert set(short_labels(runs).values()) == {f"annealed_vae c_max={w} seed={s}" for w in (1, 2) for s in range(2)}


def test_json_cannot_end_its_html_element() -> None:
    text = json_for_html({"label": "</script><!--&"})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"label": "</script><!--&"}


def test_the_command_writes_the_page_and_prints_its_path(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--metrics", "mig", "--best", "1", "--quiet"]) == 0
    assert str(folder / "report.html") in capsys.readouterr().out
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--metrics", "migg"], "mig"), (["--rank", "dcii"], "dci"), (["--best", "0"], "whole number from 1")],
)
def test_wrong_flags_give_errors(
    folder: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "report.html").read_bytes() if (folder / "report.html").exists() else None
    assert main(["report", str(folder), "--quiet", "--no-score", *flags]) == 2
    assert message in capsys.readouterr().err
    assert before is None or (folder / "report.html").read_bytes() == before


def test_an_empty_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No runs in"):
        report(tmp_path)
