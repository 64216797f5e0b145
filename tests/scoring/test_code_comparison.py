"""Comparison of the codes of runs in pairs: planted models, real runs, and the command."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

import unbraid as ub
from support.command_line import error_line, unbraid
from support.planted_models import linear_run, square_data, turn
from support.training import quick_train
from unbraid.errors import UserError
from unbraid.methods import PCL, BetaVAE


def test_a_rotated_copy_is_similar_and_can_be_stitched() -> None:
    data = square_data()
    aligned, rotated = linear_run(data, torch.eye(2), 0), linear_run(data, 3 * turn(30), 1)
    [row] = ub.compare_codes(aligned, rotated, quiet=True)
    assert (row["first"], row["second"]) == (aligned.id, rotated.id)
    for key in ("cka", "debiased_cka", "r2_forward", "r2_backward"):
        assert row[key] == pytest.approx(1, abs=1e-6), key
    for key in ("procrustes", "error_forward", "error_second", "error_backward", "error_first"):
        assert row[key] == pytest.approx(0, abs=1e-3 if key == "procrustes" else 1e-6), key


def test_a_model_that_loses_a_source_cannot_be_stitched() -> None:
    """One source of variance 1 is lost. Each example has 6 entries, so the mean squared error is about 1 / 6."""
    data = square_data()
    whole, partial = linear_run(data, torch.eye(2), 0), linear_run(data, torch.eye(2), 1)
    partial.net.encoder.weights[:, 1] = 0  # type: ignore[index, operator, union-attr]
    [row] = ub.compare_codes(whole, partial, quiet=True)
    assert row["cka"] == pytest.approx(1 / math.sqrt(2), abs=0.01)
    assert row["r2_forward"] == pytest.approx(1, abs=1e-6)
    assert row["r2_backward"] == pytest.approx(0.5, abs=0.03)
    assert row["error_first"] == pytest.approx(0, abs=1e-6)
    assert row["error_forward"] == pytest.approx(row["error_second"], abs=1e-6)
    assert row["error_second"] == pytest.approx(1 / 6, abs=0.01)
    assert row["error_backward"] == pytest.approx(1 / 6, abs=0.01)


def test_a_collapsed_model_has_no_similarity() -> None:
    data = square_data(200)
    whole, collapsed = linear_run(data, torch.eye(2), 0), linear_run(data, torch.eye(2), 1)
    collapsed.net.encoder.weights[:] = 0  # type: ignore[index, operator]
    [row] = ub.compare_codes([whole], [collapsed], quiet=True)
    assert row["cka"] is row["debiased_cka"] is row["procrustes"] is row["r2_forward"] is None
    assert row["r2_backward"] == pytest.approx(0, abs=0.1)
    assert row["error_backward"] == pytest.approx(row["error_second"], abs=0.02)


def test_all_pairs_of_one_list_or_of_two() -> None:
    runs = quick_train(method=BetaVAE(), seeds=range(3))
    others = quick_train(method=BetaVAE(beta=2.0), seeds=range(2))
    within = ub.compare_codes(runs, examples=100, quiet=True)
    assert {(row["first"], row["second"]) for row in within} == {
        (runs[i].id, runs[j].id) for i, j in ((0, 1), (0, 2), (1, 2))
    }
    between = ub.compare_codes(runs, [*others, runs[0]], examples=100, quiet=True)
    assert len(between) == 3 * 3 - 1  # a run is not compared with itself
    back = ub.compare_codes(others, runs, examples=100, quiet=True)
    one = next(row for row in between if row["second"] == others[1].id and row["first"] == runs[2].id)
    two = next(row for row in back if row["first"] == others[1].id and row["second"] == runs[2].id)
    assert (one["cka"], one["r2_forward"], one["error_first"]) == pytest.approx(
        (two["cka"], two["r2_backward"], two["error_second"])
    )


def test_runs_without_a_decoder_have_no_errors() -> None:
    pcl, vae = quick_train(method=PCL())[0], quick_train()[0]
    [row] = ub.compare_codes(vae, pcl, examples=100, quiet=True)
    assert row["error_forward"] is row["error_second"] is None
    assert row["error_backward"] > 0
    assert "-" in str(ub.compare_codes(vae, pcl, examples=100, quiet=True))


def test_wrong_runs_and_data() -> None:
    runs = quick_train(seeds=range(2))
    with pytest.raises(UserError, match="at least two different runs"):
        ub.compare_codes(runs[0], dataclasses.replace(runs[0]))
    with pytest.raises(UserError, match=r"at least 8 examples\. Got 7"):
        ub.compare_codes(runs, examples=7, quiet=True)
    with pytest.raises(UserError, match=r"must encode the same data\. Got runs on toy, toy\?subset=50"):
        ub.compare_codes(runs[0], quick_train(data="toy?subset=50"), quiet=True)
    assert len(ub.compare_codes(runs[0], quick_train(data="toy?subset=50"), data="toy", examples=50, quiet=True)) == 1
    with pytest.raises(UserError, match=r"examples of the shape \(16,\).*Got the shape \(1, 32, 32\)"):
        ub.compare_codes(runs, data="sprites", quiet=True)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick_train(tmp_path / "a", seeds=range(2))
    quick_train(tmp_path / "b", BetaVAE(beta=9.0), seeds=range(2))
    places = [tmp_path / "a", tmp_path / "b"]
    capsys.readouterr()
    assert unbraid("compare", "--codes", *places, "--examples", "200", "--quiet", "--csv", tmp_path / "c.csv") == 0
    shown = capsys.readouterr().out
    assert "Means over 4 pairs of runs: CKA" in shown
    assert "beta_vae beta=9 seed=1" in shown
    with (tmp_path / "c.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    assert unbraid("compare", "--codes", places[0], "--json", "--quiet") == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row == ub.compare_codes(places[0], quiet=True)[0]
    assert "--metrics cannot be used with --codes" in error_line(
        capsys, "compare", "--codes", *places, "--metrics", "mig"
    )
    assert "--paired cannot" in error_line(capsys, "compare", "--codes", *places, "--no-paired")
    assert "--seed must be used with --codes" in error_line(capsys, "compare", *places, "--seed", "0")
    assert "one or two folders" in error_line(capsys, "compare", "--codes", *places, tmp_path)
