"""Data with continuous and missing labels can be trained on, scored, ranked, drawn and reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import unbraid as ub
from unbraid.cli.dispatch import main
from unbraid.data import from_arrays
from unbraid.data.own.arrays import OwnData
from unbraid.errors import UserError
from unbraid.manipulation.settings import FactorStandardiser
from unbraid.metrics.protocol import Protocol
from unbraid.pictures.dataset import draw_dataset
from unbraid.reporting.bounds_table import ceilings_and_floors, number_protocols
from unbraid.reporting.content import describe_data
from unbraid.reporting.detail import Examples, run_detail
from unbraid.reporting.images import replace_pictures
from unbraid.runs.run import Run
from unbraid.runs.scores import read_scores
from unbraid.scoring.appearance import predictability
from unbraid.scoring.bounds_rows import BoundsSample, factor_rows
from unbraid.scoring.code_statistics import factor_gaps, information_per_factor, information_shares
from unbraid.scoring.factor_table import FactorTable
from unbraid.studies.appearance import AppearanceSettings

N = 300
RNG = np.random.default_rng(0)
SHAPE, X, Y = RNG.integers(3, size=N), RNG.random(N), RNG.random(N)


def blobs(missing: int = 0) -> OwnData:
    """Squares of three grey levels at continuous positions. The first `missing` labels of x are missing."""
    images = np.zeros((N, 16, 16), np.uint8)
    for image, shape, x, y in zip(images, SHAPE, X, Y, strict=True):
        row, column = int(12 * y), int(12 * x)
        image[row : row + 4, column : column + 4] = 85 * (shape + 1)
    factors = np.stack([SHAPE, X, Y], 1)
    factors[:missing, 1] = np.nan
    return from_arrays(images, factors, names=["shape", "x", "y"], name="blobs", continuous="x,y")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    out = tmp_path_factory.mktemp("runs")
    return ub.train(
        ub.methods.VAE(), data=blobs(), seeds=range(2), steps=3, latents=3, net="mlp", batch=16, out=out, quiet=True
    )


def test_factors_of_discrete_data_are_integers_and_others_exact() -> None:
    assert FactorTable.of(ub.data.load("toy"), [0, 5]).values.dtype == np.int64
    assert FactorTable.of(ub.data.load("toy"), [0, 5]).continuous is None
    table = FactorTable.of(blobs(missing=2), slice(None))
    assert table.continuous == (False, True, True)
    assert table.missing
    np.testing.assert_array_equal(table.values[2:, 1], X[2:])
    assert table.select([0]).missing is False


def test_scores_record_continuous_and_missing_labels(runs: list[Run]) -> None:
    folder = runs[0].path
    assert folder is not None
    for data in (blobs(), blobs(missing=20)):
        (row,) = ub.score(runs[0], ["mig", "dci", "unsupervised"], codes=["mean"], data=data, quiet=True)
        assert 0 <= row["mig.discrete_mig"] <= 1
    records = read_scores(folder)
    assert [record.get("missing") for record in records if record["metric"] == "mig"] == [None, True]
    for record in records:
        assert record.get("continuous") == (None if record["metric"] == "unsupervised" else [False, True, True])
    ub.score(runs[0], ["mig", "dci", "unsupervised"], codes=["mean"], data=blobs(), quiet=True)
    again = read_scores(folder)  # in another order, because scores that are used again become the latest
    assert sorted(map(json.dumps, again)) == sorted(map(json.dumps, records)), "stored scores are used again"


def test_perfect_codes_score_high_and_noise_scores_low() -> None:
    protocol, names = Protocol(), ["mig", "dci", "sap", "mcc"]
    sample = BoundsSample("", None, factor_rows(blobs(missing=20), 3, protocol), ("shape", "x", "y"))
    both = ub.metrics.bounds.bounds(sample.rows, names)
    for name in names:
        perfect, noise = (next(iter(both[kind][name].values())) for kind in ("perfect", "noise"))
        assert perfect > 0.7, name
        assert noise < 0.25, name
    assert sample.label_notes() == [
        "Continuous factors: x, y.",
        "Missing labels (of 300 rows): x 20. A factor is scored on the rows that have its label.",
    ]


def test_report_shows_the_floor_of_information(runs: list[Run]) -> None:
    data = blobs(missing=20)
    about = describe_data(data)
    assert about["continuous"] == ["x", "y"]
    assert about["missing"] == {"x": 20}
    json.dumps(replace_pictures(about, lambda picture: ""), allow_nan=False)
    detail = run_detail(runs[0], data, Examples.choose(data, 2))
    assert detail["factors"] == ["shape", "x", "y"]
    assert all(0 < floor < 0.5 for floor in detail["floor"])
    assert detail["traversals"][0]["factor"]["floor"] in detail["floor"]
    limits = ceilings_and_floors(data, runs, ["mig"], number_protocols(runs))
    assert [row["kind"] for row in limits] == ["perfect", "noise"]


def test_floor_is_the_value_of_noise() -> None:
    noise = np.random.default_rng(1).normal(size=(N, 20))
    shares, floor = information_shares(noise, np.stack([SHAPE, X], 1), [False, True])
    np.testing.assert_allclose(shares.mean(0), floor, rtol=0.1)


def test_statistics_of_continuous_and_missing_factors() -> None:
    factors = np.stack([SHAPE, X], 1)
    factors[:30, 0] = np.nan
    codes, names, kinds = np.stack([SHAPE, X], 1), ["shape", "x"], [False, True]
    nats = information_per_factor(codes, factors, names, kinds)
    assert nats["shape"] == pytest.approx(np.log(3), abs=0.01)
    assert nats["x"] == pytest.approx(np.log(20), abs=0.1)
    assert all(gap > 0.6 for gap in factor_gaps(codes, factors, names, kinds).values())
    assert predictability(codes[:, 1:], np.where(np.arange(N) < 9, np.nan, X)) > 0.95
    assert predictability(codes[:, :1], np.where(np.arange(N) < 9, -1, SHAPE)) == 1


def test_appearance_uses_the_exact_numbers() -> None:
    appearance, perspective = AppearanceSettings(perspective=("x", "y")).split_factors(blobs(), torch.arange(N))
    assert appearance["shape"].dtype.kind == "i"
    np.testing.assert_array_equal(perspective["x"], X)


def test_ranking_and_picture(runs: list[Run], tmp_path: Path) -> None:
    assert len(ub.select(runs, data=blobs(missing=20), examples=100, quiet=True)) == 2
    with Image.open(draw_dataset(blobs(missing=20), tmp_path / "a.png")) as picture:
        assert picture.height > 4 * 16


REFUSALS: dict[str, Any] = {
    "is not a full grid": lambda: ub.train(ub.methods.AdaGVAE(), data=blobs(), steps=1, net="mlp", quiet=True),
    "needs all labels of all examples": lambda: FactorStandardiser(blobs(missing=1)),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_what_needs_a_grid_or_all_labels_says_so(message: str) -> None:
    with pytest.raises(UserError, match=message):
        REFUSALS[message]()


@pytest.mark.filterwarnings("always")
def test_kinds_of_labels_are_announced_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "points.npz"
    np.savez(path, x=RNG.normal(size=(100, 5)), factors=RNG.random((100, 2)))
    out = str(tmp_path / "runs")
    announced = "factor0: 100 distinct values in 100 rows, treated as continuous"
    assert main(["train", "vae", "--data", str(path), "--steps", "2", "--out", out, "--quiet"]) == 0
    assert capsys.readouterr().err.count(announced) == 1
    for command in ("score", "report"):
        assert main([command, out, "--metrics", "mig", "--quiet"]) == 0
        assert announced not in capsys.readouterr().err
