"""The prior distribution of the latents of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.methods import Method
from unbraid.noise import Noise

if TYPE_CHECKING:
    from unbraid.runs.run import Run


def has_prior(run: Run) -> bool:
    """Return whether the method of a run has a prior distribution of the latents that does not depend on labels."""
    return "sampled" in run.spec.method.code_kinds and not run.spec.method.conditional_prior


def has_own_prior(run: Run) -> bool:
    """Return whether the method of a run overrides `prior_sample`. Otherwise the prior is a standard normal."""
    return type(run.spec.method).prior_sample is not Method.prior_sample


def prior_latents(run: Run, n: int, seed: int = 0) -> Float[Tensor, "n d"]:
    """Draw latent vectors from the prior of a run.

    The prior is a standard normal, unless the method overrides `prior_sample`, for example with the uniform
    distribution on a curved latent space.

    Args:
        run: A run of a method with a prior.
        n: The number of latent vectors.
        seed: The random seed.

    Returns:
        Latent vectors, (n, d).

    Raises:
        UserError: If the method has no prior, if its prior depends on labels, or if `n` is below 1.
    """
    if n < 1:
        raise UserError(f"The number of samples must be at least 1. Got {n} instead.")
    method, key = run.spec.method, torch.tensor(seed, device=run.device)
    noise = Noise.from_seed(key, torch.zeros_like(key))
    if not has_prior(run):
        labels = " that does not depend on labels" if method.conditional_prior else ""
        raise UserError(
            f"Samples need a method with a prior distribution of the latents{labels}. {run.label} has none. Draw its "
            "reconstructions instead: unbraid reconstruct"
        )
    return method.prior_sample(n, run.spec.latents, noise)
