"""The entangled twin of a trained run: a model with the same likelihood whose codes mix all latents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.analysis.results_table import Array, reject
from unbraid.analysis.theory import check_inputs, rotation
from unbraid.distributions import Gaussian
from unbraid.noise import Noise
from unbraid.runs.run import Run


def entangled_twin(run: Run, matrix: Array | None = None, *, seed: int = 0) -> Twin:
    r"""Return a model with the same likelihood as a trained run, but with completely entangled codes.

    .. math:: q'(z|x) = N(A \mu(x), A\, \mathrm{diag}(\sigma^2(x)) A^T), \quad p'(x|z) = p(x|A^T z)

    Here :math:`\mu(x)` and :math:`\sigma^2(x)` are the posterior means and variances of the run. The orthogonal matrix
    A does not change the prior N(0, I), so the ELBO and log p(x) are the same for every x. This is theorem 1 with
    normal marginals. It holds for methods with the prior N(0, I) and normal posteriors.

    Reference: Locatello et al. (2019), arXiv:1811.12359, theorem 1.

    Args:
        run: A run with a decoder and a normal posterior.
        matrix: An orthogonal matrix A without zeros, (d, d). By default `rotation(d, seed)`.
        seed: Random seed for the default matrix.

    Returns:
        The entangled model.

    Raises:
        UserError: If the run has no decoder or no normal posterior, or if the matrix is not orthogonal, contains zeros
            or has the wrong shape.
    """
    d = run.spec.latents
    standard = Gaussian(torch.zeros(1, d, device=run.device), torch.zeros(1, d, device=run.device))
    if run.net.decoder is None or run.spec.method.information(standard) is None:
        requirement = "An entangled twin needs a decoder and a normal posterior."
        reject(requirement, f"{run.label}, which does not have both,", "Choose a run of a VAE.")
    _, mixing = check_inputs([[0.0] * d], rotation(d, seed) if matrix is None else matrix)
    return Twin(run, torch.as_tensor(mixing, dtype=torch.float32, device=run.device))


@dataclass(frozen=True)
class Twin:
    """A run whose codes are multiplied by an orthogonal matrix A.

    Attributes:
        run: The original run.
        matrix: A, (d, d).
    """

    run: Run
    matrix: Float[Tensor, "d d"]

    def encode(self, x: Any) -> Float[Tensor, "b d"]:
        """Return the posterior means A mu of examples, (b, d)."""
        return self.run.posterior(x).mean @ self.matrix.T

    def decode(self, z: Any) -> Tensor:
        """Decode codes z, (b, d), by decoding A^T z with the original run."""
        return self.run.decode(self.original(z))

    def original(self, z: Any) -> Float[Tensor, "b d"]:
        """Return the codes A^T z of the original run that correspond to codes z of the twin."""
        return torch.as_tensor(z, dtype=torch.float32, device=self.run.device) @ self.matrix

    def posterior(self, x: Any) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d d"]]:
        """Return the means, (b, d), and covariances, (b, d, d), of q'(z|x)."""
        q = self.run.posterior(x)
        return q.mean @ self.matrix.T, (self.matrix * q.logvar.exp()[:, None, :]) @ self.matrix.T

    def kl(self, x: Any) -> Float[Tensor, " b"]:
        r"""Return the KL divergence of the posterior of each example from the prior, in nats.

        .. math:: \tfrac12 (\mathrm{tr}\, \Sigma + \mu^T \mu - d - \log \det \Sigma)

        :math:`\mu` and :math:`\Sigma` are the mean and the covariance of q'(z|x).
        """
        mean, covariance = (part.double() for part in self.posterior(x))
        trace = covariance.diagonal(dim1=1, dim2=2).sum(1)
        return 0.5 * (trace + mean.square().sum(1) - mean.shape[1] - torch.logdet(covariance))

    @torch.no_grad()
    def elbo(self, x: Float[Tensor, "b ..."], seed: int = 0) -> Float[Tensor, " b"]:
        r"""Return :math:`\log p'(x|z) - KL(q' \| p)` of each example, with one sample z of q'(z|x)."""
        q, zero = self.run.posterior(x), torch.tensor(0, device=self.run.device)
        z = q.sample(Noise.from_seed(zero + seed, zero)) @ self.matrix.T
        return -self.run.net.nll(x.to(self.run.device), self.original(z)).double() - self.kl(x)
