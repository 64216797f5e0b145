"""An autoencoder whose latents are replaced by their independent components after training."""

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
    """Return the indices of the examples to which a map is fitted.

    If there are at most `count` examples, and the data have no sampler of their own, these are all examples. Otherwise
    `count` examples are drawn.
    """
    if len(data) <= count and data.sampler is None:
        return torch.arange(len(data), device=data.device)
    return data.draw(noise, count)


def outer_layer(module: nn.Module | None, position: int) -> nn.Module | None:
    """Return the first layer (position 0) or the last layer (position -1) of nested `nn.Sequential` modules."""
    while isinstance(module, nn.Sequential) and len(module):
        module = module[position]
    return module


def transform_latents(net: VAENet, codes: AffineCodes) -> None:
    """Replace the latents of a network by their affine codes.

    The affine map becomes part of the last layer of the encoder, and its inverse becomes part of the first layer of the
    decoder. The reconstructions stay the same.
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

    Training is the same as for `AE`. Afterwards FastICA (`fast_ica`) fits the matrix W and the mean m to the latents
    f(x) of all examples, or of 10,000 random examples if there are more. The components c have mean 0 and variance 1
    over these examples, and are as independent as an affine map can make them.

    The affine map becomes part of the stored weights: it is combined with the last layer of the encoder, and its
    inverse with the first layer of the decoder. The components are therefore the latents of the run. Scores,
    traversals, reports and exported models use them without further steps, and reconstructions are those of the
    autoencoder. For this, the encoder must end with a linear layer and the decoder must start with one. To regularise
    the autoencoder, use weight decay (``--weight-decay``).

    Deviations: The encoder has the outputs of a VAE, including log variances that are not used. The reconstruction
    error is that of the likelihood of the run, such as Bernoulli.
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
