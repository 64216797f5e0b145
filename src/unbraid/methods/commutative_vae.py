"""The Commutative Lie Group VAE, whose latents are coordinates of a learned commutative group of matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.lie_group import GroupDecoder, GroupEncoder, commutator_penalty, hessian_penalty
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.nets.vae import PairBuilder, VAENet, check_plain_decoder
from unbraid.noise import Noise


@dataclass(frozen=True)
class CommutativeVAE(Method):
    r"""A VAE whose decoder gets a matrix of a learned group, and whose latents are the coordinates of this matrix.

    .. math:: E_q[-\log p(x|g(t))] + \beta\, KL(q(t|x) \| p(t)) + \lambda_g\, E_q \|h(x) - g(t)\|_F^2
        + \frac{1}{d^2} \sum_{i \ne j} \Big(\lambda_H \|A_i A_j\|_F^2 + \lambda_C \|A_i A_j - A_j A_i\|_F^2\Big)

    .. math:: g(t) = \exp\Big(\sum_{i=1}^d t_i A_i\Big)

    The encoder of the run maps an example to a matrix h(x) with m rows, and two small networks map this matrix to the
    means and log variances of the latents t. The generators :math:`A_i` are learned. They span the Lie algebra of the
    group. The decoder of the run takes the entries of the matrix g(t). The latent t = 0 always belongs to the identity
    matrix. The third term is the reconstruction error of the matrix, and pushes the two networks to use the same
    matrix. With probability `forward`, the decoder gets h(x) instead of g(t) in a step. The choice is made once for the
    whole batch. Codes, traversals and decoded examples use t and g(t).

    If the generators commute (:math:`\lambda_C`), g(t) is the product of the matrices :math:`\exp(t_i A_i)`, see
    proposition 1 of the paper. If all products of two different generators are zero (:math:`\lambda_H`), they commute,
    and the mixed second derivatives of g are zero (proposition 2). With :math:`\lambda_g`, :math:`\lambda_H`,
    :math:`\lambda_C` and `forward` set to 0, the method is a beta-VAE with these networks.

    The defaults are those of the authors' code for dSprites, where they use 70 epochs with batches of 256. For Shapes3D
    the code has :math:`\lambda_H` = 20 and m = 20.

    Deviations: in the authors' code, the term of :math:`\lambda_C` contains :math:`A_i A_j - (A_i A_j)^T` instead of a
    commutator. Their published settings have :math:`\lambda_C` = 0. The code also has groups that consist of several
    blocks of matrices, with latents of their own. Here there is one block. The matrix exponential is accurate for
    exponents with absolute row sums of up to 128 (`unbraid.spaces.matrix_exponential`).
    Reference: Zhu, Xu & Tao (2021), "Commutative Lie Group VAE for Disentanglement Learning", arXiv:2106.03375,
    propositions 1 and 2. Weights and averages are those of the authors' code,
    github.com/zhuxinqimac/CommutativeLieGroupVAE-Pytorch.
    """

    hessian: Hyper = setting(40.0, "weight lambda_H of the products of different generators", low=0, swept=True)
    commutator: Hyper = setting(0.0, "weight lambda_C of the commutators of generators", low=0)
    group: Hyper = setting(0.1, "weight lambda_g of the reconstruction error of the matrix", low=0)
    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    forward: Hyper = setting(
        0.2, "probability with which the decoder gets the encoder's matrix in a step", low=0, high=1
    )
    matrix_size: int = setting(10, "number m of rows of the matrices", low=1, high=64)
    initial_scale: float = setting(1e-3, "standard deviation of the initial entries of the generators", low=1e-9)

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        """Build an encoder and a decoder of matrices, the maps to coordinates, and the generators."""
        entries = self.matrix_size**2
        encoder, decoder = builder(shape, (entries + 1) // 2)[0], builder(shape, entries)[1]
        check_plain_decoder(decoder, "The decoder of CommutativeVAE takes matrices instead of latents")
        coordinates = GroupEncoder(encoder, self.matrix_size, latents)
        return self.extend(
            VAENet(coordinates, GroupDecoder(decoder, self.matrix_size, latents, self.initial_scale), likelihood),
            latents,
        )

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        encoder, decoder = cast(GroupEncoder, net.encoder), cast(GroupDecoder, net.decoder)
        encoded = encoder.matrices(batch.x)
        q = Gaussian(*encoder.coordinates(encoded).chunk(2, 1))
        matrices = decoder.matrices(q.sample(noise))
        chosen = torch.where(noise.uniform(1) < self.forward, encoded, matrices)
        rec, kl = net.likelihood.nll(batch.x, decoder.inner(chosen)).mean(), q.kl().sum(1).mean()
        group = (encoded - matrices).square().sum(1).mean()
        hessian, commutator = hessian_penalty(decoder.generators), commutator_penalty(decoder.generators)
        penalties = self.group * group + self.hessian * hessian + self.commutator * commutator
        terms = {"rec": rec, "kl": kl, "group": group, "hessian": hessian, "commutator": commutator}
        return rec + self.beta * kl + penalties, terms
