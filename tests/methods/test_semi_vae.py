"""Semi-supervised VAEs: the supervised term by hand, the fixed set of labels, and what the labels achieve."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
import torch

import unbraid as ub
from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import SemiVAE
from unbraid.methods.semi_vae import label_loss
from unbraid.noise import Noise


def test_supervised_term_by_hand() -> None:
    """Two examples, two factors, a missing label and a latent without a factor."""
    mean = torch.tensor([[0.0, 2.0, 9.0], [-1.0, 0.5, 9.0]])
    labels = torch.tensor([[1.0, 0.25], [-0.2, 0.0]])
    p = [[1 / (1 + math.exp(-float(m))) for m in row] for row in mean]
    entropy = -math.log(p[0][0]) - 0.25 * math.log(p[0][1]) - 0.75 * math.log(1 - p[0][1]) - math.log(1 - p[1][1])
    squares = (p[0][0] - 1) ** 2 + (p[0][1] - 0.25) ** 2 + p[1][1] ** 2
    assert float(label_loss(mean, labels, "xent")) == pytest.approx(entropy / 2, rel=1e-5)
    assert float(label_loss(mean, labels, "l2")) == pytest.approx(squares / 2, rel=1e-5)
    assert float(label_loss(mean[:, :1], labels, "xent")) == pytest.approx(-math.log(p[0][0]) / 2, rel=1e-5)


def test_labelled_examples_are_a_fixed_set(toy: FactorData) -> None:
    """Draws of different steps and seeds use the same labelled examples. Another label seed chooses others."""
    method = SemiVAE(labels=10)
    allowed = set(method.labelled_examples(toy).tolist())
    found: set[int] = set()
    for key in range(5):
        drawn = method.draw(toy, Noise(torch.tensor(key)), 20)
        labelled = drawn.examples[20:]
        found |= set(labelled.tolist())
        sizes = torch.tensor(toy.sizes)
        assert drawn.labels is not None
        torch.testing.assert_close(drawn.labels, toy.factors(labelled) / (sizes - 1))
        assert torch.equal(drawn.examples[:20], toy.draw(Noise(torch.tensor(key)), 20))
    assert found == allowed
    assert set(SemiVAE(labels=10, label_seed=1).labelled_examples(toy).tolist()) != allowed


def test_labels_tie_latents_to_factors(toy: FactorData) -> None:
    """With 100 labels, latent j is correlated with factor j, on all examples. Without their term it is not."""
    factors = toy.factors(slice(None)).numpy()
    found = []
    for gamma in (0.0, 30.0):
        method = SemiVAE(regularisation=0.1, gamma=gamma)
        (run,) = quick_train(None, method, steps=400, learning_rate=3e-3, batch=32, latents=5)
        codes = run.encode(toy.images(slice(None))).numpy()
        found.append(min(abs(np.corrcoef(codes[:, j], factors[:, j])[0, 1]) for j in range(4)))
    assert found[1] > 0.9 > found[0]


@pytest.mark.parametrize("family", ["annealed_vae", "factor_vae"])
def test_families_train_their_own_networks(family: str) -> None:
    with pytest.warns(RuntimeWarning, match="schedule") if family == "annealed_vae" else contextlib.nullcontext():
        (run,) = quick_train(None, SemiVAE(family=family))  # type: ignore[arg-type]
    assert ("critic" in run.log[-1]) == (family == "factor_vae")
    assert ("capacity" in run.log[-1]) == (family == "annealed_vae")
    assert "supervised" in run.log[-1]


def test_data_without_labels_raise() -> None:
    with pytest.raises(UserError, match="learns from labels"):
        quick_train(None, SemiVAE(), data=ub.data.from_arrays(np.zeros((9, 4), dtype=np.float32)))
