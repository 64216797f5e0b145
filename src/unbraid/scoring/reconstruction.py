"""The mean squared error between examples and what a run decodes from their latents."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.runs.run import CHUNK, Run


@torch.no_grad()
def decoding_error(run: Run, data: FactorData, index: Int[Tensor, " n"], latents: Float[Tensor, "n d"]) -> float:
    r"""Return the mean squared error between examples and what a run decodes from their latents.

    .. math:: \frac{1}{n p} \sum_{t=1}^n \|x_t - g(z_t)\|^2

    where :math:`z_t` are the latents of example :math:`x_t`, p is the number of pixels or entries of an example, and
    g(z) is the mean of p(x|z).

    Args:
        run: A run with a decoder.
        data: The dataset.
        index: The indices of n examples.
        latents: The latents, (n, d), from which these examples are decoded.

    Returns:
        The error.
    """
    rows, total = index.to(data.device), 0.0
    for part, z in zip(rows.split(CHUNK), latents.to(run.device).split(CHUNK), strict=True):
        difference = run.net.decode(z) - data.batch(part).to(run.device)
        total += float(difference.double().pow(2).flatten(1).mean(1).sum())
    return total / len(rows)
