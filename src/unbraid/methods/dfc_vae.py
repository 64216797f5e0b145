"""The DFC-VAE, whose reconstruction error is measured in the features of a fixed network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.network_files import name_network_file
from unbraid.methods.vae import elbo
from unbraid.methods.vgg19 import Layers, compute_vgg19, load_vgg19, smallest_size
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

CHANNELS = (16, 32, 64)  # number of output channels of each layer of the random network
NO_FILE = "none"  # the value of the setting `network` of a random network


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

    By default, the fixed network has random weights with the seed `feature_seed` (see `random_features`).

    The paper uses a VGG-19 that was trained on ImageNet. Its weights are not part of unbraid. If you have a file with
    the weights of torchvision's `vgg19`, pass its path as `network`. The file was written by `torch.save` (.pth, .pt)
    or has the safetensors format, and no code in it is run. The features are the outputs of the ReLU after the first
    convolution of three blocks of the network. They are blocks 1, 2 and 3 if `layers` is "123" (VAE-123 in the paper),
    and blocks 3, 4 and 5 if it is "345" (VAE-345). Images have three channels (red, green and blue), or one channel,
    which is repeated three times. They have at least 4 pixels in height and width for "123", and 16 for "345". Pixels
    are normalised by the mean and the standard deviation of ImageNet. In the spec of a run, `network` is a digest of
    the content of the file, so the id of the run does not depend on the path of the file. The file is needed only for
    training.

    To use another network of your own, such as the encoder of a trained run, override `compute_features` in a subclass
    in your own file, and train this subclass with ``unbraid train ./file.py:MyDFC``:

    .. code-block:: python

        class MyDFC(ub.methods.DFCVAE):
            def compute_features(self, x):
                return [network.to(x.device)(x)]  # `network` is a module without gradients

    Deviations: by default the network is random, as described above. The paper divides squared differences by
    :math:`2 n_l` only. The factor D gives the term the scale of a reconstruction error that is summed over pixels.
    Reference: Hou et al. (2017), "Deep Feature Consistent Variational Autoencoder", arXiv:1610.00291, section 3.3.
    """

    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    features: Hyper = setting(1.0, "weight of the reconstruction error in features", low=0, swept=False)
    pixels: Hyper = setting(0.0, "weight of the reconstruction error in pixels", low=0, swept=False)
    feature_seed: int = setting(0, "seed of the weights of the random network", low=0)
    network: str = setting(
        NO_FILE, "file with the weights of torchvision's vgg19, or none for a random network", optional=True
    )
    layers: Layers = setting("123", "blocks of the VGG-19 whose first layers are the features", optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network != NO_FILE:
            object.__setattr__(self, "network", name_network_file("vgg19", self.network))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if self.network == NO_FILE:
            return
        smallest = smallest_size(self.layers)
        if len(data.shape) != 3 or data.shape[0] not in (1, 3) or min(data.shape[1:]) < smallest:
            raise UserError(
                f"A VGG-19 with layers {self.layers!r} needs images with 1 or 3 channels and at least {smallest} x "
                f"{smallest} pixels. Got examples of shape {tuple(data.shape)} instead. Use other data, other "
                f"layers, or random features (network {NO_FILE!r})."
            )
        load_vgg19(self.network, self.layers, data.device)  # raises an error before training if there is no such file

    def compute_features(self, x: Float[Tensor, "b ..."]) -> list[Tensor]:
        """Return the outputs of the layers of the fixed network, one tensor (b, ...) per layer."""
        if self.network == NO_FILE:
            return random_features(x, self.feature_seed)
        return compute_vgg19(x, load_vgg19(self.network, self.layers, x.device), self.layers)

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
