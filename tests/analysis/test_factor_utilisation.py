"""Capacity that a decoder of the factors gives to each factor."""

from __future__ import annotations

import io

import pytest
import torch

from support.manipulations import discs
from unbraid.analysis import utilisation
from unbraid.analysis.factor_utilisation import FactorEncoder, FactorTraining, pivot_quantities
from unbraid.errors import UserError
from unbraid.training.train import RunDefaults


def test_each_latent_is_one_factor_with_noise() -> None:
    """The encoder is given factors, not images. The mean of a latent is its scaled factor. Its noise is constant."""
    encoder = FactorEncoder(2)
    with torch.no_grad():
        encoder.scale.copy_(torch.tensor([2.0, 0.0]))
        encoder.logvar.copy_(torch.tensor([-1.0, 0.0]))
    q = encoder(torch.tensor([[1.0, 5.0], [-3.0, 7.0]]))
    assert q.mean.tolist() == [[2.0, 0.0], [-6.0, 0.0]]
    assert q.logvar.tolist() == [[-1.0, 0.0]] * 2


def test_recorded_kl_is_the_mean_over_all_examples() -> None:
    """It is computed in closed form, because standardised factors have mean square 1. Noise alone has no KL."""
    data = discs()
    training = FactorTraining(RunDefaults.choose(data), 0, 8, 1e-3, 10.0, 0.1)
    ((_, values),) = training.run([3], quiet=True)
    q = training.encoder(training.standardise(data.factors(slice(None))))
    mean = q.kl().mean(0)
    found = [values[f"kl.{name}"] for name in data.names]
    assert found == pytest.approx(mean.tolist(), rel=1e-4)
    assert values["kl"] == pytest.approx(sum(found))
    assert values["capacity"] == pytest.approx(0.3)


def test_the_kl_follows_the_capacity_and_accuracy_rises() -> None:
    """Both positions of a disc are used, and images are reconstructed better than at the first moment."""
    found = utilisation(discs(), c_max=4.0, steps=400, moments=4, net="mlp", batch=32, learning_rate=2e-3, quiet=True)
    table = pivot_quantities(found.table)
    assert table["capacity"].tolist() == pytest.approx([1.0, 2.0, 3.0, 4.0])
    assert table["kl"].to_numpy() == pytest.approx(table["capacity"].to_numpy(), abs=0.4)
    assert (table["kl.right"] + table["kl.down"]).to_numpy() == pytest.approx(table["kl"].to_numpy())
    assert table["accuracy"].iloc[-1] > table["accuracy"].iloc[0] + 5
    assert table[["kl.right", "kl.down"]].iloc[-1].min() > 1
    assert "The final KL is" in found.text


def test_result_depends_only_on_the_seed_and_has_a_figure() -> None:
    settings = {"steps": 6, "moments": 3, "shown": 2, "net": "mlp", "batch": 8, "quiet": True}
    first, again = (utilisation(discs(), seeds=(0, 1), **settings) for _ in range(2))
    assert first.table.equals(again.table)
    seeds = first.table[first.table["quantity"] == "accuracy"].groupby("seed")["value"].first()
    assert seeds[0] != seeds[1]
    above, below = first.figure.subfigs
    assert [axes.get_xlabel() for axes in above.axes] == [
        "capacity [nats]",
        "reconstruction accuracy, E log p(x|z) [nats]",
    ]
    assert [text.get_text() for text in below.axes[0].get_yticklabels()] == ["example", "8.3", "16.7", "25.0"]
    file = io.BytesIO()
    first.figure.savefig(file, format="png", dpi=50)
    assert len(file.getvalue()) > 5_000


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(UserError, match=r"images with labelled factors\. Got toy"):
        utilisation("toy", steps=5, moments=2, quiet=True)
    with pytest.raises(UserError, match="Got 9 for 5 steps"):
        utilisation("sprites", steps=5, moments=9, quiet=True)


@pytest.mark.slow
def test_position_comes_before_scale_and_scale_before_shape_and_orientation() -> None:
    """This is the order of the paper's figure 3."""
    found = utilisation("sprites", steps=2000, c_max=10.0, net="mlp", batch=32, quiet=True)
    names = ["x", "y", "scale", "shape", "orientation"]
    places = [found.text.index(f"{name} at a capacity") for name in names]
    assert max(places[:2]) < places[2] < min(places[3:])
