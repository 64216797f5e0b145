"""An autoencoder whose latents are rotated to independent components after training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods.ae import AE
from unbraid.methods.fast_ica import AffineCodes, fast_ica
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

SAMPLE = 10_000  # examples to which the components are fitted
CHUNK = 512  # examples per forward pass


def sample_examples(data: FactorData, noise: Noise, count: int) -> Tensor:
    """Return the indices of examples for a fit: all of them, or `count` random ones if there are more."""
    if len(data) <= count and data.sampler is None:
        return torch.arange(len(data), device=data.device)
    return data.draw(noise, count)


def outer_layer(module: nn.Module | None, position: int) -> nn.Module | None:
    """Return the first layer (position 0) or the last layer (position -1) of nested `nn.Sequential` modules."""
    while isinstance(module, nn.Sequential) and len(module):
        module = module[position]
    return module


def transform_latents(net: VAENet, codes: AffineCodes) -> None:
    """Change the last layer of the encoder and the first layer of the decoder, so that the codes become the latents.

    The reconstructions stay the same.
    """
    last, first = cast(nn.Linear, outer_layer(net.encoder, -1)), cast(nn.Linear, outer_layer(net.decoder, 0))
    d = len(codes.mean)
    with torch.no_grad():
        weight, bias = last.weight[:d].double(), last.bias[:d].double()
        last.weight[:d] = (codes.matrix @ weight).to(last.weight)
        last.bias[:d] = (codes.matrix @ (bias - codes.mean)).to(last.bias)
        weight = first.weight.double()
        first.bias.add_((weight @ codes.mean).to(first.bias))
        first.weight.copy_(weight @ codes.inverse)


@dataclass(frozen=True)
class AEICA(AE):
    r"""An autoencoder whose latents are replaced by their independent components after training.

    .. math:: E_x[-\log p(x|f(x))], \quad \text{then } c = W (f(x) - m)

    Training is that of `AE`. Afterwards FastICA fits the matrix W and the mean m to the latents of all examples, or of
    10,000 random examples if there are more (`fast_ica`). The components c have mean 0 and variance 1 over these
    examples, and are as independent as an affine map can make them.

    The affine map becomes a part of the stored weights: W and m are multiplied into the last layer of the encoder, and
    their inverse into the first layer of the decoder. The components are therefore the latents of the run.
    Scores, traversals, reports and exported models use them without further steps, and reconstructions are those
    of the autoencoder. This requires that the encoder ends with a linear layer and that the decoder starts with one.
    A weight decay (``--weight-decay``) regularises the autoencoder.

    Deviations: the encoder has the outputs of a VAE, including log variances that are not used, and the likelihood of
    the run is used for pixels.
    Reference: Hyvarinen (1999), "Fast and robust fixed-point algorithms for independent component analysis", IEEE
    Transactions on Neural Networks 10. Hinton & Salakhutdinov (2006) for the autoencoder (see `AE`).
    """

    def extend(self, net: VAENet, latents: int) -> VAENet:
        last, first = outer_layer(net.encoder, -1), outer_layer(net.decoder, 0)
        fits = [isinstance(layer, nn.Linear) and layer.bias is not None for layer in (last, first)]
        if not all(fits):
            raise UserError(
                "The network of ae_ica must be an encoder that ends with nn.Linear and a decoder that starts with "
                f"nn.Linear, both with biases and in nn.Sequential. Got {type(last).__name__} and "
                f"{type(first).__name__} instead. Choose a network such as locatello or mlp."
            )
        return net

    def finish(self, net: VAENet, data: FactorData, noise: Noise) -> None:
        index = sample_examples(data, noise, SAMPLE)
        z = torch.cat([net.encode(data.batch(part)).mean for part in index.split(CHUNK)])
        transform_latents(net, fast_ica(z, noise))
