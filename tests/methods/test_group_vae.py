"""Group-VAE and ML-VAE: the product of posteriors by hand, and the latents that are shared."""

from __future__ import annotations

import pytest
import torch

from support.posteriors import gaussian, random_pairs
from unbraid.methods import MLVAE, AdaGVAE, GroupVAE
from unbraid.methods.ada_vae import precision_weighted_mean
from unbraid.methods.group_vae import product


def test_product_by_hand() -> None:
    """The log density of the product is the sum of the two log densities, up to a constant."""
    q1, q2 = map(gaussian, random_pairs(5, 3))
    both = product(q1, q2)
    z = torch.linspace(-3, 3, 9, dtype=torch.float64)[:, None, None].expand(9, 5, 3)
    difference = q1.log_prob(z) + q2.log_prob(z) - both.log_prob(z)
    torch.testing.assert_close(difference, difference[:1].expand_as(difference))
    torch.testing.assert_close(both.mean, precision_weighted_mean(q1, q2).mean)
    torch.testing.assert_close(2 * both.logvar.exp(), precision_weighted_mean(q1, q2).logvar.exp())


@pytest.mark.parametrize("cls", [GroupVAE, MLVAE])
def test_as_many_latents_as_factors_changed_are_kept_apart(cls: type[GroupVAE]) -> None:
    q1, q2 = map(gaussian, random_pairs(4, 5))
    changed = torch.tensor([[True, False, False], [True, True, False], [False, True, True], [True, True, True]])
    marked = cls().unshared_latents(q1, q2, changed)
    assert marked.sum(1).tolist() == [1, 2, 2, 3]
    named = cls(apart="factors").unshared_latents(q1, q2, changed)
    assert torch.equal(named[:, :3], changed)
    assert not named[:, 3:].any()


def test_the_number_of_changes_is_used_unlike_in_ada_gvae() -> None:
    q1, q2 = map(gaussian, random_pairs(50, 5))
    changed = torch.ones(50, 3, dtype=torch.bool)
    assert not torch.equal(AdaGVAE().unshared_latents(q1, q2, None), GroupVAE().unshared_latents(q1, q2, changed))
