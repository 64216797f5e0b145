"""Linear baselines without gradient descent: principal and independent components of examples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods.ae import AE
from unbraid.methods.ae_ica import CHUNK, SAMPLE, sample_examples
from unbraid.methods.fast_ica import fast_ica, principal_components
from unbraid.methods.sae import FeatureEncoder
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise

MAX_VALUES = 50_000_000  # maximum number of values (examples times values per example) to which components are fitted


def set_linear_maps(net: VAENet, mean: Tensor, matrix: Float[Tensor, "d m"], inverse: Float[Tensor, "m d"]) -> None:
    """Set the weights so that x is encoded as ``matrix @ (x - mean)`` and c is decoded as ``mean + inverse @ c``."""
    encoder = cast(FeatureEncoder, net.encoder).linear
    decoder = cast(nn.Linear, cast(nn.Sequential, net.decoder)[0])
    with torch.no_grad():
        encoder.weight.copy_(matrix)
        encoder.bias.copy_(-matrix @ mean)
        decoder.weight.copy_(inverse)
        decoder.bias.copy_(mean)


@dataclass(frozen=True)
class PCA(AE):
    r"""Principal component analysis of pixels or vectors, a linear baseline.

    .. math:: \min_{V, m} E_x\|x - \hat x\|^2, \quad \hat x = m + V c, \quad c = V^T (x - m), \quad V^T V = I

    m is the mean of the data, and the columns of V are the principal components. The codes c are the coordinates of an
    example along these components, in descending order of their variance. The components are fitted when training ends,
    to all examples or, if there are more than 10,000, to 10,000 random ones (fewer for large images). They replace the
    weights of a linear encoder and a linear decoder, so that scores, traversals, reports and exported models treat the
    run like any other. Before the fit, these weights are trained as a linear autoencoder. This training has no
    influence on the fit, so the default number of steps is 1. With 0 steps nothing is fitted, and the weights are
    random.

    The network and the likelihood of the run are not used. The reconstruction error is the squared error, and
    reconstructed values can lie outside [0, 1].

    Reference: Pearson (1901), "On lines and planes of closest fit to systems of points in space", Philosophical
    Magazine 2. Baldi & Hornik (1989), "Neural networks and principal component analysis", for linear autoencoders.
    """

    default_steps: ClassVar[int] = 1

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        limit = min(math.prod(data.shape), len(data) - 1)
        if latents > limit:
            raise UserError(
                f"{type(self).__name__} can have at most {limit} latents on these data: at most as many as an example "
                f"has values, and fewer than there are examples. Got {latents} instead."
            )

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        """Build a linear encoder and a linear decoder. The builder and the likelihood of the run are not used."""
        size = math.prod(shape)
        decoder = nn.Sequential(nn.Linear(latents, size), nn.Unflatten(1, shape))
        return VAENet(FeatureEncoder(size, latents), decoder, "gaussian")

    def finish(self, net: VAENet, data: FactorData, noise: Noise) -> None:
        mean, _, components = self.components(net, data, noise)
        set_linear_maps(net, mean, components.T, components)

    def components(self, net: VAENet, data: FactorData, noise: Noise) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean (m,), the centred examples (n, m) and the principal components (m, d) of n random examples.

        m is the number of values of an example, and d is the number of latents.
        """
        count = max(min(SAMPLE, MAX_VALUES // math.prod(data.shape)), 2)
        index = sample_examples(data, noise, count)
        x = torch.cat([data.batch(part).flatten(1) for part in index.split(CHUNK)])
        mean = x.mean(0)
        latents = cast(FeatureEncoder, net.encoder).linear.out_features
        return mean, x - mean, principal_components(x - mean, latents, noise)


@dataclass(frozen=True)
class ICA(PCA):
    r"""Independent component analysis of pixels or vectors, a linear baseline.

    .. math:: c = W V^T (x - m)

    The columns of V are the first principal components of the data (see `PCA`), and FastICA (`fast_ica`) fits W to the
    coordinates along them. The codes have mean 0 and variance 1. They are as independent as a linear map of these
    coordinates can make them. Reconstructions are those of `PCA`. What `PCA` says about the steps, the network and the
    likelihood of a run holds here too.

    Reference: Comon (1994), "Independent component analysis, a new concept?", Signal Processing 36. Hyvarinen (1999),
    "Fast and robust fixed-point algorithms for independent component analysis", for the algorithm.
    """

    def finish(self, net: VAENet, data: FactorData, noise: Noise) -> None:
        mean, centred, components = self.components(net, data, noise)
        codes = fast_ica(centred @ components, noise)
        matrix, inverse = (components.double() @ codes.matrix.T).T, components.double() @ codes.inverse
        set_linear_maps(net, mean, matrix.to(mean), inverse.to(mean))
