"""AnnealedVAE during training."""

from __future__ import annotations

import io

import pytest
import torch
from pandas import DataFrame

import unbraid as ub
from unbraid.analysis import growth
from unbraid.analysis.annealing import measure_run, pivot_quantities, summary_text, train_with_snapshots
from unbraid.errors import UserError
from unbraid.methods import AnnealedVAE
from unbraid.scoring.selection import draw_examples
from unbraid.training.train import RunDefaults

METHOD = AnnealedVAE(gamma=10.0, c_max=6.0, iteration_threshold=8.0)
SETTINGS = {"latents": 3, "batch": 8}


def test_snapshots_equal_training() -> None:
    """The snapshot after the last of 8 steps equals the trained run; the one after 4 steps does not."""
    data = ub.data.load("toy")
    choice = RunDefaults.choose(data)
    specs = [choice.spec(METHOD, seed=seed, steps=8, **SETTINGS) for seed in (0, 1)]
    half, end = train_with_snapshots(specs, data, choice.builder, [4, 8], quiet=True)
    assert (half.step, end.step) == (4, 8)
    trained = ub.train(METHOD, data, seeds=(0, 1), steps=8, quiet=True, **SETTINGS)  # type: ignore[arg-type]
    for run, whole, early in zip(end.runs, trained, half.runs, strict=True):
        pairs = zip(run.net.parameters(), whole.net.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        assert not torch.equal(next(early.net.parameters()), next(run.net.parameters()))


def test_capacity_and_kl_are_those_of_the_run() -> None:
    data = ub.data.load("toy")
    (run,) = ub.train(METHOD, data, steps=4, quiet=True, **SETTINGS)  # type: ignore[arg-type]
    index = draw_examples(data, 300, 0)
    found = {line["quantity"]: line["value"] for line in measure_run(run, 4, data, index)}
    assert found["capacity"] == 3.0
    assert {line["value"] for line in measure_run(run, 20, data, index) if line["quantity"] == "capacity"} == {6.0}
    q = run.posterior(data.batch(index))
    kl = 0.5 * (q.mean**2 + q.logvar.exp() - q.logvar - 1).sum(1).mean()
    assert found["kl"] == pytest.approx(float(kl), rel=1e-5)
    assert set(found) == {"capacity", "kl", *(f"information.{name}" for name in "abcd")}


def test_growth_returns_table_figure_and_text() -> None:
    found = growth(METHOD, "sprites", steps=6, seeds=(0, 1), moments=3, shown=2, net="mlp", quiet=True, **SETTINGS)
    table = pivot_quantities(found.table)
    assert table["capacity"].tolist() == [1.5, 3.0, 4.5] * 2
    assert table["step"].tolist() == [2, 4, 6] * 2
    assert "orientation" in found.text
    assert "nan" not in found.text
    rows = [text.get_text() for text in found.figure.subfigs[0].axes[0].get_yticklabels()]
    assert rows == ["example", "1.5", "3.0", "4.5"]
    file = io.BytesIO()
    found.figure.savefig(file, format="png", dpi=50)
    assert len(file.getvalue()) > 5_000


def test_the_end_is_the_last_step_even_if_the_capacity_was_reached_before() -> None:
    """The capacity is 5 nats at steps 2 and 3, where the information about x differs."""
    values = {
        1: {"capacity": 2.5, "kl": 2.0, "information.x": 0.1, "information.y": 0.5},
        2: {"capacity": 5.0, "kl": 4.0, "information.x": 0.2, "information.y": 0.6},
        3: {"capacity": 5.0, "kl": 4.75, "information.x": 1.0, "information.y": 0.6},
    }
    rows = [(0, step, name, value) for step, line in values.items() for name, value in line.items()]
    text = summary_text(DataFrame(rows, columns=["seed", "step", "quantity", "value"]))
    assert "y at a capacity of 2.5 nats (final information 0.60 nats), x at a capacity of 5 nats (final" in text
    assert "(final information 1.00 nats)" in text
    assert "differs from its target by 0.25 nats" in text


def test_growth_rejects_invalid_arguments() -> None:
    with pytest.raises(UserError, match=r"images with labelled factors\. Got toy"):
        growth(METHOD, "toy", steps=5, moments=2, quiet=True)
    with pytest.raises(UserError, match="Got 9 for 5 steps"):
        growth(METHOD, "sprites", steps=5, moments=9, quiet=True)
