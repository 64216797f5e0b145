"""How likely a trained VAE finds examples: the evidence lower bound and the importance-weighted one."""

from __future__ import annotations

import contextlib
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
from unbraid.runtime.progress import progress, silent

AT_ONCE = 8_192  # samples decoded together


@torch.no_grad()
def log_weights(run: Run, x: Tensor, samples: int, noise: Noise) -> Float[Tensor, "b s"]:
    r""":math:`\log p(x|z) p(z) / q(z|x)` of samples z of q."""
    repeated = x.repeat_interleave(samples, 0)
    z, ratio = run.spec.method.posterior_sample(run.net, repeated, noise)
    found: Tensor = (-run.net.nll(repeated, z) - ratio).unflatten(0, (len(x), samples))
    return found


def bounds(
    run: Run,
    data: FactorData,
    *,
    index: Sequence[int] | Tensor | None = None,
    samples: int = 100,
    seed: int = 0,
    quiet: bool = False,
) -> dict[str, float]:
    r"""Nats an example: `elbo`, the mean log weight, and `iwae`, a tighter bound of log p(x), with standard errors.

    .. math:: ELBO = E_q \log w, \quad IWAE = E \log \frac1S \sum_s w_s, \quad w = \frac{p(x|z)\,p(z)}{q(z|x)}

    Averaged over the examples at `index`, all by default. Bernoulli pixels between 0 and 1 count as in training,
    and the likelihood "gaussian" leaves its constant out, so that only runs of one likelihood compare.
    Reference: Burda et al. (2016), arXiv:1509.00519, eq. 8.

    >>> import unbraid as ub
    >>> data = ub.data.load("sprites")
    >>> (run,) = ub.train(ub.methods.VAE(), data, steps=5, latents=4, quiet=True)
    >>> found = ub.bounds(run, data, index=range(10), samples=5, quiet=True)
    >>> found["elbo"] <= found["iwae"]
    True
    """
    if samples < 1:
        raise UserError(f"Bounds need at least one sample an example. Got {samples} instead.")
    rows = torch.arange(len(data)) if index is None else torch.as_tensor(index)
    if not len(rows):
        raise UserError("Bounds need at least one example. Got none.")
    refuse_others(run, data)
    weights = []
    chunk = max(1, AT_ONCE // samples)
    zero = torch.tensor(0, device=run.device)
    with contextlib.nullcontext(silent) if quiet else progress("bounding", len(rows)) as report:
        for step, part in enumerate(rows.to(data.device).split(chunk)):
            report(step * chunk)
            noise = Noise.of(zero + seed, zero + step)
            weights.append(log_weights(run, data.batch(part).to(run.device), samples, noise).cpu())
    every = torch.cat(weights).double()
    found = {"elbo": every.mean(1), "iwae": every.logsumexp(1) - math.log(samples)}
    return {**{name: float(value.mean()) for name, value in found.items()}, **errors(found), "samples": samples}


def errors(found: dict[str, Any]) -> dict[str, float]:
    """Standard errors of means over examples."""
    return {f"{name}_error": float(v.std() / math.sqrt(len(v))) if len(v) > 1 else 0.0 for name, v in found.items()}


def refuse_others(run: Run, data: FactorData) -> None:
    """Refuse runs that have no density to bound."""
    first = torch.zeros(1, dtype=torch.int64, device=data.device)
    q = run.posterior(data.batch(first))
    if run.net.decoder is None or run.spec.method.information(q) is None:
        raise UserError(
            f"Bounds of the likelihood need a decoder and a normal posterior. Got {run.label}, which has not both. "
            "Choose runs of a VAE."
        )
