"""Ranking and comparing many runs: time and memory grow in proportion to the number of runs."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unbraid as ub
from support.command_line import FAST_TRAINING, unbraid
from unbraid.metrics.udr import udr
from unbraid.runs import stored_network
from unbraid.scoring import selection
from unbraid.scoring.comparison import Comparison, Difference, ScoredRun, Side
from unbraid.scoring.permutation import compare_many_scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 9 trained runs."""
    folder = tmp_path_factory.mktemp("trained") / "runs"
    assert unbraid("train", "vae", *FAST_TRAINING, "--seeds", "0-8", "--out", folder) == 0
    return folder


@pytest.mark.parametrize("method", ["lasso", "spearman"])
def test_every_run_of_a_large_group_is_compared_with_its_partners(
    method: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores are medians over those pairs of the whole group that are neighbours on the circle."""
    runs, data = ub.load_runs(folder), ub.data.load("toy")
    index = selection.draw_examples(data, 50, 3)
    whole = selection.rank_group(runs, data, index, method)
    nats = [run.nats for run in selection.encode_runs(runs, data, index, selection.ignore_progress, 0)]
    pairs = udr(whole.codes, nats, method=method).pairwise
    monkeypatch.setattr(selection, "MAX_PARTNERS", 4)
    ranked = selection.rank_large_group(runs, data, index, method, seed=3)
    place = np.argsort(np.random.default_rng(3).permutation(9))
    for i in range(9):
        near = [j for j in range(9) if 0 < min((place[i] - place[j]) % 9, (place[j] - place[i]) % 9) <= 2]
        assert len(near) == 4
        np.testing.assert_allclose(ranked[i][0], np.median(pairs[near, i]), atol=1e-8)
        assert ranked[i][1] == whole.informative[i]


def test_groups_of_up_to_51_runs_are_compared_completely(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(*arguments: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(selection, "rank_large_group", reject)
    monkeypatch.setattr(selection, "MAX_PARTNERS", 8)
    assert len(ub.select(ub.load_runs(folder), examples=50, quiet=True)) == 9


def test_few_codes_are_in_memory_while_a_large_group_is_ranked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, data = 6 * ub.load_runs(folder), ub.data.load("toy")
    monkeypatch.setattr(selection, "MAX_PARTNERS", 4)
    largest = 0
    ranking = selection.udr

    def count(codes: Sequence[Any], *arguments: Any, **options: Any) -> Any:
        nonlocal largest
        largest = max(largest, len(codes))
        return ranking(codes, *arguments, **options)

    monkeypatch.setattr(selection, "udr", count)
    assert len(selection.rank_large_group(runs, data, selection.draw_examples(data, 50, 0), "lasso", 0)) == 54
    assert largest == 4


def networks_in_memory(runs: Sequence[Any]) -> int:
    """The number of runs whose network is in memory."""
    references = [run._network.reference for run in runs]
    return sum(reference is not None and reference() is not None for reference in references)


def test_networks_are_read_when_used_and_released(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_network, "_recent", deque(maxlen=2))
    runs, images = ub.load_runs(folder), ub.data.load("toy").images([0, 1])
    assert networks_in_memory(runs) == 0
    assert runs[0].net is runs[0].net
    codes = [run.encode(images) for run in runs]
    assert networks_in_memory(runs) <= 2
    assert all((run.encode(images) == code).all() for run, code in zip(runs, codes, strict=True))


def test_a_repeated_score_reads_no_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = ub.load_runs(folder)
    rows = ub.score(runs, ["mig"], quiet=True)
    again = ub.load_runs(folder)
    monkeypatch.setattr(stored_network.StoredNetwork, "get", lambda self: pytest.fail("a network was read"))
    assert ub.score(again, ["mig"], quiet=True) == rows


def test_thousands_of_runs_can_be_compared_in_little_memory() -> None:
    generator = np.random.default_rng(0)
    tracemalloc.start()
    difference, alone, among = compare_many_scores(
        generator.normal(size=(2000, 1)), generator.normal(size=(250, 1)) + 1
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    assert difference[0] == pytest.approx(1, abs=0.3)
    assert alone[0] < 0.001
    assert among[0] < 0.001


class FakeRun:
    """A run that is known by its name only."""

    path = Path("run")


def test_a_comparison_of_thousands_of_runs_has_sentences() -> None:
    sides = [
        Side(name, Path(name), [ScoredRun(FakeRun(), {"seed": i}, {"mig": {}}) for i in range(count)])  # type: ignore[arg-type]
        for name, count in (("a", 2000), ("b", 250))
    ]
    comparison = Comparison(sides, ["mig"], [Difference("mig", "a", "b", 0.5, 0.001, 0.001)], [])
    (sentence,) = comparison.sentences()
    assert "b (250 runs) was compared with a (2000 runs)" in sentence
    assert "20,000 permutations" in sentence
