"""Rank runs by ModelCentrality: how well the encoder of each run finds the latents of the other runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unbraid.errors import UserError
from unbraid.metrics.centrality import model_centrality, vote_similarity
from unbraid.metrics.protocol import Array
from unbraid.noise import Noise
from unbraid.runs.prior import has_own_prior, has_prior
from unbraid.runs.run import CHUNK, Run
from unbraid.runtime.progress import ProgressCallback, ignore_progress

GROUP = 20  # number of examples in a group; all examples of a group share the value of one latent
GROUPS_PER_PART = 100  # number of groups whose examples are in memory at the same time


def rank_by_centrality(
    group: Sequence[Run],
    examples: int,
    seed: int,
    partners: int,
    report: ProgressCallback = ignore_progress,
    done: int = 0,
) -> list[float]:
    """Return the ModelCentrality of each of several runs (see `model_centrality`).

    Each run decodes many sets of 20 latent vectors. The vectors of a set are drawn from the prior and share the value
    of one latent. All other runs encode the decoded examples. If there are more than `partners` other runs, only
    `partners` randomly chosen ones do so.

    Args:
        group: The runs, at least two, of methods with a decoder and a normal prior.
        examples: Number of examples that each run decodes.
        seed: Random seed for the latents and for the choice of partners.
        partners: Maximum number of runs with which a run is compared, an even number.
        report: Called with the number of runs that are finished, starting from `done`.
        done: Number of runs that were finished before this call.

    Returns:
        One score per run.

    Raises:
        UserError: If a run has no decoder or no normal prior, or if `examples` is too small.
    """
    for run in group:
        check_decodes_prior(run)
    n = len(group)
    similarities = np.full((n, n), np.nan)
    for i, others in enumerate(choose_partners(n, partners, seed)):
        report(done + i, f"decoded with {group[i].label}")
        z, fixed = prior_groups(group[i], examples, seed)
        for j, codes in zip(others, encode_decoded(group[i], [group[j] for j in others], z), strict=True):
            similarities[i, j] = vote_similarity(codes, fixed, z.shape[-1])
    return [float(score) for score in model_centrality(similarities)]


def check_decodes_prior(run: Run) -> None:
    """Raise a UserError if the latents of a run do not have a normal prior, or if there is no decoder."""
    if has_own_prior(run) or not has_prior(run) or run.net.decoder is None:
        raise UserError(
            f"ModelCentrality needs runs with a decoder and a normal prior of the latents. {run.label} does not have "
            "both. Choose runs of a VAE, or rank by udr."
        )


def choose_partners(n: int, partners: int, seed: int) -> list[list[int]]:
    """Return, for each of n runs, the indices of the runs with which it is compared.

    These are all other runs if there are at most `partners` of them. Otherwise the runs are arranged on a circle in
    random order, and each run is compared with its `partners` nearest neighbours, half of them on each side.

    >>> choose_partners(3, 4, 0)
    [[1, 2], [0, 2], [0, 1]]
    """
    if n <= partners + 1:
        return [[j for j in range(n) if j != i] for i in range(n)]
    order = np.random.default_rng(seed).permutation(n)
    place = np.argsort(order)
    steps = [step for step in range(-(partners // 2), partners // 2 + 1) if step]
    return [[int(order[(place[i] + step) % n]) for step in steps] for i in range(n)]


def prior_groups(run: Run, examples: int, seed: int) -> tuple[Tensor, Array]:
    """Draw g groups of n latent vectors in which all vectors of a group share the value of one latent.

    All latents are standard normal. Return the vectors, (g, n, d), and the index of the shared latent of each group,
    (g,). Raise a UserError if there are fewer than two groups per latent.
    """
    d, groups = run.spec.latents, examples // GROUP
    if groups < 2 * d:
        raise UserError(
            f"ModelCentrality with {d} latents needs at least {2 * d * GROUP} examples. Got {examples} instead."
        )
    key = torch.tensor(seed, device=run.device)
    z = Noise.from_seed(key, torch.zeros_like(key)).normal(groups, GROUP, d)
    fixed = torch.arange(groups, device=z.device) % d
    shared = z[:, :1].expand_as(z)
    z = torch.where((torch.arange(d, device=z.device) == fixed[:, None])[:, None], shared, z)
    return z, fixed.cpu().numpy()


@torch.no_grad()
def encode_decoded(run: Run, others: Sequence[Run], z: Tensor) -> list[Array]:
    """Decode latents (g, n, d) with one run, and encode the decoded examples with each of the other runs.

    Return the codes of each of the other runs, (g, n, e), where e is the number of columns of its codes. Only a part of
    the examples is in memory at a time.
    """
    codes: list[list[Tensor]] = [[] for _ in others]
    for part in z.split(GROUPS_PER_PART):
        x = run.decode(part.flatten(0, 1))
        for found, other in zip(codes, others, strict=True):
            for piece in x.to(other.device).split(CHUNK):
                found.append(other.codes(other.net.encode(piece)).cpu())
    return [torch.cat(found).unflatten(0, z.shape[:2]).double().numpy() for found in codes]
