"""The DFC-VAE, whose reconstruction error is measured in the features of a fixed network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

CHANNELS = (16, 32, 64)  # number of output channels of each layer of the random network


def random_features(x: Float[Tensor, "b ..."], seed: int) -> list[Tensor]:
    """Return the outputs of the three layers of a network with fixed random weights.

    The layers are 3x3 convolutions with stride 2 for images, and dense layers for vectors, each followed by a ReLU.
    The weights are drawn from normal distributions whose variance keeps the scale of the activations about constant
    over the layers (He et al. 2015). There are no biases.

    Args:
        x: Images (b, c, h, w) or vectors (b, d).
        seed: The random seed of the weights.

    Returns:
        One tensor (b, ...) per layer.

    >>> [tuple(h.shape) for h in random_features(torch.rand(2, 3, 32, 32), seed=0)]
    [(2, 16, 16, 16), (2, 32, 8, 8), (2, 64, 4, 4)]
    """
    key = torch.full((), seed, device=x.device)
    noise = Noise.from_seed(key, torch.zeros_like(key))
    found = [x]
    for channels in CHANNELS:
        h, inputs = found[-1], found[-1].shape[1]
        if h.ndim == 4:
            weight = math.sqrt(2 / (9 * inputs)) * noise.normal(channels, inputs, 3, 3)
            found.append(F.conv2d(h, weight, stride=2, padding=1).relu())
        else:
            found.append(F.linear(h, math.sqrt(2 / inputs) * noise.normal(channels, inputs)).relu())
    return found[1:]


@dataclass(frozen=True)
class DFCVAE(Method):
    r"""A VAE whose reconstructions are compared with the examples in the features of a fixed network.

    .. math:: \lambda \sum_l \frac{D}{2 n_l} \| \Phi_l(x) - \Phi_l(\hat x) \|^2 - \alpha\, E_q[\log p(x|z)]
        + \beta\, KL(q(z|x) \| p(z))

    :math:`\hat x` is the mean of p(x|z) for one sample z of the posterior. :math:`\Phi_l` are the :math:`n_l` outputs
    of layer l of the fixed network, and D is the number of values of an example. The weights :math:`\lambda` and
    :math:`\alpha` are `features` and `pixels`. With `features` = 0 and `pixels` = 1 the method is a beta-VAE.

    By default, the fixed network has random weights with the seed `feature_seed` (see `random_features`). To use a
    network of your own, such as one with pretrained weights or the encoder of a trained run, override
    `compute_features` in a subclass in your own file, and train this subclass with ``unbraid train ./file.py:MyDFC``:

    .. code-block:: python

        class MyDFC(ub.methods.DFCVAE):
            def compute_features(self, x):
                return [network.to(x.device)(x)]  # `network` is a module without gradients

    Deviations: the paper uses three layers of a VGG network that was trained on ImageNet. The weights of that network
    are not part of unbraid. The paper divides squared differences by :math:`2 n_l` only. The factor D gives the term
    the scale of a reconstruction error that is summed over pixels.
    Reference: Hou et al. (2017), "Deep Feature Consistent Variational Autoencoder", arXiv:1610.00291, section 3.3.
    """

    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    features: Hyper = setting(1.0, "weight of the reconstruction error in features", low=0, swept=False)
    pixels: Hyper = setting(0.0, "weight of the reconstruction error in pixels", low=0, swept=False)
    feature_seed: int = setting(0, "seed of the weights of the fixed network", low=0)

    def compute_features(self, x: Float[Tensor, "b ..."]) -> list[Tensor]:
        """Return the outputs of the layers of the fixed network, one tensor (b, ...) per layer."""
        return random_features(x, self.feature_seed)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, z = elbo(net, batch, noise)
        pairs = zip(self.compute_features(batch.x), self.compute_features(net.decode(z)), strict=True)
        values = batch.x[0].numel()
        distance = sum(
            (0.5 * values * (own - other).square().flatten(1).mean(1).mean() for own, other in pairs),
            torch.zeros_like(rec),
        )
        loss = self.features * distance + self.pixels * rec + self.beta * kl
        return loss, {"rec": rec, "features": distance, "kl": kl}
