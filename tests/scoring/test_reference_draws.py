"""Reference draws are independent and uniform over all examples of a dataset, however few of them the table holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unbraid as ub
from support.known_codes import Array, noise
from unbraid.data import from_arrays
from unbraid.errors import UserError
from unbraid.metrics.protocol import Protocol, Selection
from unbraid.scoring.bounds_rows import factor_rows
from unbraid.scoring.run_scorer import ExampleTable, RunScorer

DSPRITES = (3, 6, 40, 32, 32)
GRID = (3, 4, 20, 20, 10)  # 48,000 examples
REFERENCE = Protocol(draws="reference")
SMALL = Protocol(train=1_000, test=500, table=2_000, draws="reference")


def expected_overlap(count: int, train: int) -> float:
    """Return the probability that a uniformly drawn example is also one of `train` drawn examples."""
    return 1 - (1 - 1 / count) ** train


def drawn_examples(protocol: Protocol, count: int) -> tuple[Array, Array]:
    """Return the training and test examples of reference draws from `count` examples."""
    rng = np.random.default_rng(protocol.seed)
    return rng.integers(count, size=protocol.train), rng.integers(count, size=protocol.test)


@pytest.mark.parametrize("seed", range(3))
def test_few_test_rows_of_a_large_grid_are_training_rows(seed: int) -> None:
    protocol = Protocol(draws="reference", seed=seed)
    rows = protocol.rows_with_zero_codes(DSPRITES, 2)
    share, expected = np.isin(rows.test, rows.train).mean(), expected_overlap(737_280, 10_000)
    assert 0.013 < expected < 0.014
    assert abs(share - expected) < 4 * np.sqrt(expected / len(rows.test))
    assert expected_overlap(75_714, 10_000) > 0.12  # if the samples were drawn from the table of disjoint draws


def test_samples_of_a_large_grid_are_drawn_from_all_examples() -> None:
    index, rows = REFERENCE.grid_indices(DSPRITES), REFERENCE.rows_with_zero_codes(DSPRITES, 1)
    for found, drawn in zip((rows.train, rows.test), drawn_examples(REFERENCE, 737_280), strict=True):
        np.testing.assert_array_equal(index[found], drawn)
        np.testing.assert_array_equal(rows.factors[found], np.stack(np.unravel_index(drawn, DSPRITES), axis=1))
    assert set(Protocol().grid_indices(DSPRITES)) < set(index)
    assert rows.sizes() == REFERENCE.sizes(len(index))
    assert len(index) > 75_714 + 12_000  # scores with the draws of the first release have another table size


def test_samples_of_a_long_list_are_drawn_from_all_examples() -> None:
    index = SMALL.list_indices(48_000)
    rows = SMALL.rows(np.zeros((len(index), 1)), index[:, None], selection=Selection(index, 48_000))
    for found, drawn in zip((rows.train, rows.test), drawn_examples(SMALL, 48_000), strict=True):
        np.testing.assert_array_equal(rows.factors[found, 0], drawn)


@pytest.mark.parametrize("count", [7, 9_216, 65_536])
def test_small_datasets_keep_the_draws_of_the_first_release(count: int) -> None:
    index = REFERENCE.list_indices(count)
    assert index.tolist() == REFERENCE.grid_indices((count,)).tolist() == list(range(count))
    for rows in (
        REFERENCE.rows(np.zeros((count, 1)), np.zeros((count, 1), int), selection=Selection(index, count)),
        REFERENCE.rows(np.zeros((count, 1)), np.zeros((count, 1), int)),
        REFERENCE.rows_with_zero_codes((count,), 1),
    ):
        for found, drawn in zip((rows.train, rows.test), drawn_examples(REFERENCE, count), strict=True):
            np.testing.assert_array_equal(found, drawn)
        assert rows.sizes() == {"train": 10_000, "test": 5_000, "table": count}


@pytest.mark.parametrize("missing", [slice(1, None), slice(None, -1)])
def test_a_table_without_a_drawn_example_is_rejected(missing: slice) -> None:
    index = np.unique(np.concatenate(drawn_examples(SMALL, 48_000)))[missing]
    with pytest.raises(UserError, match="must hold every example that is drawn"):
        SMALL.rows(np.zeros((len(index), 1)), index[:, None], selection=Selection(index, 48_000))


@pytest.mark.parametrize(
    ("sizes", "protocol"), [(GRID, SMALL), pytest.param(DSPRITES, REFERENCE, marks=pytest.mark.slow)]
)
def test_noise_scores_near_chance_on_a_large_grid(sizes: tuple[int, ...], protocol: Protocol) -> None:
    """Trees memorise training rows, so the accuracy exceeds chance by no more than the share of repeated rows."""
    rows = protocol.rows_with_zero_codes(sizes, 4)
    scores = rows.with_codes(noise(len(rows.codes), 4)).score(["dci"], 0).values_or_raise()["dci"]
    chance = float(np.mean([1 / size for size in sizes]))
    error = np.sqrt(chance / protocol.test / len(sizes))
    overlap = expected_overlap(int(np.prod(sizes)), protocol.train)
    assert chance - 3 * error < scores["informativeness_test"] < chance + overlap + 3 * error


@pytest.mark.parametrize("grid", [True, False])
def test_runs_are_scored_on_examples_of_the_whole_dataset(grid: bool) -> None:
    toy = ub.data.load("toy")
    everything = torch.arange(len(toy))
    data = toy if grid else from_arrays(toy.images(everything), toy.factors(everything)[:, :2], name="list")
    assert data.gridded == grid
    protocol = Protocol(train=60, test=30, table=100, draws="reference")
    (run,) = ub.train(ub.methods.VAE(), data, steps=1, quiet=True)
    scorer = RunScorer(run, ExampleTable.of(data, protocol), protocol)
    rows = scorer.rows("mean")
    for found, drawn in zip((rows.train, rows.test), drawn_examples(protocol, len(data)), strict=True):
        index = torch.as_tensor(drawn)
        np.testing.assert_array_equal(rows.factors[found], data.factors(index).numpy())
        np.testing.assert_allclose(rows.codes[found], run.encode(data.images(index)).numpy(), atol=1e-5)
    assert rows.sizes() == scorer.sizes
    blank = factor_rows(data, 2, protocol)
    np.testing.assert_array_equal(blank.factors, rows.factors)
    np.testing.assert_array_equal(blank.train, rows.train)
