"""Lower bounds on the log-likelihood of a trained VAE: the ELBO and the importance-weighted bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.runs.run import Run
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.progress import progress

SAMPLES_PER_BATCH = 8_192  # maximum number of samples that are decoded together


@torch.no_grad()
def log_weights(run: Run, x: Tensor, samples: int, noise: Noise) -> Float[Tensor, "b s"]:
    r"""Draw posterior samples z of each example x, and return their log weights, (examples, samples).

    .. math:: \log \frac{p(x|z)\,p(z)}{q(z|x)}
    """
    repeated = x.repeat_interleave(samples, 0)
    z, ratio = run.spec.method.posterior_sample(run.net, repeated, noise)
    weights: Tensor = (-run.net.nll(repeated, z) - ratio).unflatten(0, (len(x), samples))
    return weights


@explain_unknown_arguments()
def likelihood_bounds(
    run: Run,
    data: FactorData,
    *,
    index: Sequence[int] | Tensor | None = None,
    samples: int = 100,
    seed: int = 0,
    quiet: bool = False,
) -> dict[str, float]:
    r"""Compute lower bounds on the log-likelihood log p(x) under a trained VAE, in nats per example.

    .. math:: ELBO = E_q \log w, \quad IWAE = E \log \frac1S \sum_s w_s, \quad w = \frac{p(x|z)\,p(z)}{q(z|x)}

    z is a sample of the posterior q, and :math:`w_1, \dots, w_S` are the weights w of S independent samples. The IWAE
    bound is the tighter one. Compare only runs with the same likelihood, because not all likelihoods are
    normalised: "bernoulli" uses the cross-entropy for pixels between 0 and 1, as in training, and "gaussian" omits its
    constant.

    Reference: Burda et al. (2016), arXiv:1509.00519, eq. 8.

    Args:
        run: A run with a decoder and a normal posterior.
        data: The dataset.
        index: Indices of the examples. By default all examples.
        samples: Number S of posterior samples per example.
        seed: Random seed for the samples.
        quiet: Whether to hide the progress bar.

    Returns:
        A dictionary with `elbo` and `iwae` (means over the examples), `elbo_error` and `iwae_error` (their standard
        errors), and `samples`.

    Raises:
        UserError: If the run has no decoder or no normal posterior, if its prior depends on labels, or if there are no
            samples or no examples.

    >>> import unbraid as ub
    >>> data = ub.data.load("sprites")
    >>> (run,) = ub.train(ub.methods.VAE(), data, steps=5, latents=4, quiet=True)
    >>> bounds = ub.likelihood_bounds(run, data, index=range(10), samples=5, quiet=True)
    >>> bounds["elbo"] <= bounds["iwae"]
    True
    """
    if samples < 1:
        raise UserError(f"Bounds need at least one sample per example. Got {samples} instead.")
    rows = torch.arange(len(data)) if index is None else torch.as_tensor(index)
    if not len(rows):
        raise UserError("Bounds need at least one example. Got none instead. Pass the indices of some examples.")
    check_has_density(run, data)
    weights = []
    chunk = max(1, SAMPLES_PER_BATCH // samples)
    zero = torch.tensor(0, device=run.device)
    with progress("bounding", len(rows), quiet) as report:
        for step, part in enumerate(rows.to(data.device).split(chunk)):
            report(step * chunk)
            noise = Noise.from_seed(zero + seed, zero + step)
            weights.append(log_weights(run, data.batch(part).to(run.device), samples, noise).cpu())
    all_weights = torch.cat(weights).double()
    bounds = {"elbo": all_weights.mean(1), "iwae": all_weights.logsumexp(1) - math.log(samples)}
    means = {name: float(values.mean()) for name, values in bounds.items()}
    return {**means, **standard_errors(bounds), "samples": samples}


def standard_errors(bounds: dict[str, Any]) -> dict[str, float]:
    """Return the standard error of the mean of each bound over examples, as `<name>_error`."""
    return {f"{name}_error": float(v.std() / math.sqrt(len(v))) if len(v) > 1 else 0.0 for name, v in bounds.items()}


def check_has_density(run: Run, data: FactorData) -> None:
    """Raise a UserError if a run has no decoder or no normal posterior, or if its prior depends on labels."""
    first = torch.zeros(1, dtype=torch.int64, device=data.device)
    q = run.posterior(data.batch(first))
    if run.net.decoder is None or run.spec.method.information(q) is None:
        raise UserError(
            f"Bounds on the likelihood need a decoder and a normal posterior. {run.label} does not have both. "
            "Choose runs of a VAE."
        )
    if run.spec.method.conditional_prior:
        raise UserError(
            "Bounds on the likelihood need a prior that does not depend on labels. The prior of "
            f"{run.label} depends on them. Choose runs of a VAE."
        )
