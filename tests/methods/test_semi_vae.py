"""Semi-supervised VAEs: the supervised term by hand, the fixed set of labels, and what the labels achieve."""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import unbraid as ub
from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import SemiVAE
from unbraid.methods.imprecise_labels import coarse_labels, noisy_labels, partial_labels, permuted_labels
from unbraid.methods.semi_vae import label_loss
from unbraid.noise import Noise
from unbraid.runs.spec import RunSpec


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


IMPRECISE: dict[str, dict[str, Any]] = {
    "coarse": {"bins": 3},
    "noisy": {"label_noise": 0.3},
    "partial": {"observed": 2},
    "permuted": {"order": "permuted"},
    "all": {"bins": 3, "label_noise": 0.3, "observed": 2, "order": "permuted"},
}


@pytest.mark.parametrize("kind", IMPRECISE)
def test_imprecise_labels_are_fixed_and_drawn_by_the_label_seed(kind: str, toy: FactorData) -> None:
    """An example keeps its wrong label in all steps. The set of labelled examples does not depend on the errors."""
    precise, method = SemiVAE(labels=300), SemiVAE(labels=300, **IMPRECISE[kind])
    examples = method.labelled_examples(toy)
    assert torch.equal(examples, precise.labelled_examples(toy))
    table = method.label_table(toy, examples)
    assert table.max() <= 1
    assert not torch.equal(table, precise.label_table(toy, examples))
    again = [method.draw(toy, Noise(torch.tensor(key)), 50).labels for key in (0, 0, 1)]
    assert again[0] is not None
    assert torch.equal(again[0], again[1])  # type: ignore[arg-type]
    rows = {tuple(row) for row in table.tolist()}
    assert all(tuple(row) in rows for labels in again for row in labels.tolist())  # type: ignore[union-attr]
    other = SemiVAE(labels=300, label_seed=1, **IMPRECISE[kind])
    assert kind == "coarse" or not torch.equal(other.label_table(toy, examples), table)


def test_coarse_labels_by_hand(toy: FactorData) -> None:
    """Toy has factors of 8, 6, 5 and 4 values. With 4 bins, the last one is unchanged."""
    values = torch.arange(8).clamp(max=torch.tensor(toy.sizes)[:, None] - 1).T
    found = coarse_labels(values, torch.tensor(toy.sizes), 4).T.tolist()
    assert found[:2] == [[0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 1, 2, 2, 3, 3, 3]]
    assert found[2:] == [[0, 0, 1, 2, 3, 3, 3, 3], [0, 1, 2, 3, 3, 3, 3, 3]]
    scaled = SemiVAE(labels=500, bins=4).label_table(toy, toy.index(values))
    torch.testing.assert_close(scaled[:, 0], torch.tensor(found[0]) / 3)


def test_noisy_labels_have_their_probability() -> None:
    """Of 4 values, a replaced label equals the old one in a quarter of the cases. Missing labels stay missing."""
    labels = torch.cat([torch.full((40_000, 1), 2), torch.full((40_000, 1), -1)], 1)
    found = noisy_labels(labels, torch.tensor([4, 4]), 0.4, Noise(torch.tensor(0)))
    assert (found[:, 1] == -1).all()
    counts = np.bincount(found[:, 0], minlength=4)
    assert stats.chisquare(counts, np.array([0.1, 0.1, 0.7, 0.1]) * 40_000).pvalue > 1e-5


def test_permuted_labels_are_a_renaming(toy: FactorData) -> None:
    labels = toy.factors(slice(None))
    found = permuted_labels(labels, toy.sizes, Noise(torch.tensor(0)))
    for j, size in enumerate(toy.sizes):
        assert len(torch.stack([labels[:, j], found[:, j]], 1).unique(dim=0)) == len(found[:, j].unique()) == size
    assert not torch.equal(found, labels)


def test_partial_labels_choose_every_factor_equally_often() -> None:
    labels = torch.zeros(1, 5, dtype=torch.int64)
    known = torch.stack([partial_labels(labels, 2, Noise(torch.tensor(key)))[0] >= 0 for key in range(2000)])
    assert (known.sum(1) == 2).all()
    assert stats.chisquare(known.sum(0).numpy()).pvalue > 1e-5


def test_cross_covariance_equals_its_loops() -> None:
    """Missing labels are left out of the covariances with their factor. A factor without labels has none."""
    g = torch.Generator().manual_seed(1)
    mean, labels = torch.randn(7, 3, generator=g).double(), torch.rand(7, 4, generator=g).double()
    labels[2, 1], labels[5, 1], labels[:, 3] = -0.2, -0.2, -0.2
    total = 0.0
    for i, j in itertools.product(range(3), range(3)):
        known = labels[:, j] >= 0
        if i != j:
            total += float(np.cov(mean[known, i], labels[known, j], bias=True)[0, 1]) ** 2
    assert float(label_loss(mean, labels, "cov")) == pytest.approx(total, rel=1e-9)


def test_partial_labels_tie_only_the_observed_factors(toy: FactorData) -> None:
    method = SemiVAE(regularisation=0.1, gamma=30.0, observed=2, bins=4)
    (run,) = quick_train(None, method, steps=200, learning_rate=3e-3, batch=32, latents=5)
    codes, factors = run.encode(toy.images(slice(None))).numpy(), toy.factors(slice(None)).numpy()
    known = (method.label_table(toy, method.labelled_examples(toy))[0] >= 0).tolist()
    tied = [abs(np.corrcoef(codes[:, j], factors[:, j])[0, 1]) for j in range(4)]
    assert sum(known) == 2
    assert min(value for value, seen in zip(tied, known, strict=True) if seen) > 0.85
    assert min(value for value, seen in zip(tied, known, strict=True) if not seen) < 0.85


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"observed": 5}, "cannot observe more factors"),
        ({"bins": 1}, "at least 2 bins"),
        ({"label_noise": 1.5}, "must be at most 1. Got 1.5 instead"),
    ],
)
def test_impossible_labels_raise(settings: dict[str, Any], message: str, toy: FactorData) -> None:
    with pytest.raises(UserError, match=message):
        SemiVAE(**settings).check(toy, 4, 3)


def test_precise_labels_do_not_change_the_spec() -> None:
    spec = RunSpec(SemiVAE(), "toy").to_dict()["method"]
    assert not {"bins", "label_noise", "observed", "order"} & set(spec)
    assert RunSpec(SemiVAE(order="permuted"), "toy").to_dict()["method"]["order"] == "permuted"


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
