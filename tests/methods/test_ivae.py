"""iVAE: the KL between normals, and the priors of the values of the auxiliary variable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

import unbraid as ub
from support.posteriors import gaussian, random_pairs
from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import IVAE
from unbraid.methods.ivae import kl_between
from unbraid.noise import Noise
from unbraid.runs.prior import has_prior
from unbraid.scoring.centrality import check_decodes_prior


def test_kl_equals_torch() -> None:
    q, p = map(gaussian, random_pairs(6, 3))
    expected = kl_divergence(*(Normal(one.mean, (0.5 * one.logvar).exp()) for one in (q, p)))
    torch.testing.assert_close(kl_between(q, p), expected)
    assert not kl_between(q, q).any()


def test_labels_are_those_of_the_drawn_examples(toy: FactorData) -> None:
    drawn = IVAE(factor=2).draw(toy, Noise(torch.tensor(0)), 50)
    assert drawn.labels is not None
    assert torch.equal(drawn.labels, toy.factors(drawn.examples)[:, 2])


def test_the_prior_of_each_value_learns_its_examples() -> None:
    """Examples of different classes have different means. The priors separate them, unlike a standard normal."""
    g = np.random.default_rng(0)
    labels = g.integers(0, 3, size=600)
    x = (4.0 * np.eye(3)[labels] @ g.normal(size=(3, 8)) + 0.1 * g.normal(size=(600, 8))).astype(np.float32)
    data = ub.data.from_arrays(x, labels[:, None])
    (run,) = quick_train(None, IVAE(values=4), data=data, steps=400, learning_rate=1e-2, batch=32)
    prior: Any = run.net.prior
    codes = run.encode(torch.as_tensor(x))
    for value in range(3):
        mean = codes[labels == value].mean(0)
        distances = (prior.mean.detach() - mean).square().sum(1)
        assert int(distances[:3].argmin()) == value
    assert not prior.mean[3].any()


def test_unknown_factors_and_too_many_values_raise(toy: FactorData) -> None:
    with pytest.raises(UserError, match=r"one of the 4 factors of toy.*Got 4 instead"):
        IVAE(factor=4).check(toy, 8, 3)
    with pytest.raises(UserError, match=r"has 8 values.*Use values=8"):
        IVAE(values=7).check(toy, 8, 3)
    IVAE(values=8).check(toy, 8, 3)
    labels = np.array([[0], [1], [0], [1]]).astype(object)
    missing = ub.data.from_arrays(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32), labels)
    missing.labels[0, 0] = -1
    with pytest.raises(UserError, match=r"of every example. Some are missing"):
        IVAE().check(missing, 2, 2)


def test_without_labels_there_are_no_samples_and_no_bounds(toy: FactorData) -> None:
    """The learned prior depends on u. A standard normal instead would give wrong samples and wrong bounds."""
    (run,) = quick_train(None, IVAE(values=8), data=toy, steps=1)
    assert not has_prior(run)
    with pytest.raises(UserError, match=r"prior distribution of the latents, which must not depend on labels. ivae"):
        run.sample(2)
    with pytest.raises(UserError, match=r"prior of the latents that does not depend on labels. Got ivae"):
        ub.likelihood_bounds(run, toy, index=range(2), samples=2, quiet=True)
    with pytest.raises(UserError, match=r"ModelCentrality needs.* normal prior"):
        check_decodes_prior(run)
