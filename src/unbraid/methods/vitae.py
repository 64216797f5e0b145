"""U-VITAE and C-VITAE, VAEs that decode an appearance and then transform it by a perspective."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.controls import Controls
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.traversal import Traversal
from unbraid.methods.vae import kl_weight, warmup_setting
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.nets.vitae import VitaeDecoder, VitaeNet, build_vitae_net
from unbraid.noise import Noise
from unbraid.spaces.transformers import TRANSFORMERS, AffineDiffeomorphic, Cpab, Transformer


@dataclass(frozen=True)
class UVITAE(Method):
    r"""A VAE that decodes an image (the appearance) and warps it (the perspective), with independent posteriors.

    .. math:: E_q[-\log p(x | T_\gamma(g(z_A)))] + w\,[KL(q(z_A|x) \| p) + KL(q(z_P|x) \| p)], \quad \gamma = h(z_P)

    The last `perspective` latents are the perspective :math:`z_P`, and all latents before them are the appearance
    :math:`z_A`. g decodes the appearance and h decodes the perspective. :math:`T_\gamma` is a spatial transformation of
    images with bilinear interpolation. Pixels outside the image are 0, and :math:`\gamma = 0` is the identity. In the
    KL terms, p is the standard normal distribution. The weight w rises linearly from 0 to 1 over the first part of the
    training. The length of this part, as a fraction of the training, is `warmup`. With `samples` S > 1, the posterior
    is sampled S times, and the loss is the importance-weighted bound
    :math:`-\log \frac1S \sum_s p(x|z_s)\,[p(z_s) / q(z_s|x)]^w`.

    The paper uses two latents for the appearance and two for the perspective, Adam with learning rate 1e-4, and batches
    of 512 (MNIST) or 256. The paper compares the method with a VAE whose networks have about twice as many units
    (`vitae_mlp` for the VAE, `vitae_mlp_half` for this method).

    Deviations: with one sample the KL is computed in closed form. The authors' code uses the difference of the log
    densities at the sample. The parameters of `affine_diffeomorphic` are bounded, which limits stretching to a ratio of
    about 4.5 and rotations to about half a turn. With `bound` set to "none", they are not bounded, as in equation 3 of
    the supplement. By default, the decoder of the perspective has two hidden layers of 32 units, which is half as many
    units as in table 1 of the supplement. Table 3 of the supplement is for images of bodies. For half as many units as
    in this table, set `perspective_hidden1` to 64 and `perspective_hidden2` to 128. Bernoulli means are kept at least
    1e-5 away from 0 and 1, as in the authors' code. Inverse transformations are exact, whereas those of `affine` and
    `affine_decomposed` in the authors' code are not.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, section 1 of its supplement.
    """

    conditional: ClassVar[bool] = False

    transform: Literal["affine", "affine_decomposed", "affine_diffeomorphic", "cpab"] = setting(
        "affine_diffeomorphic", "family of spatial transformations"
    )
    perspective: int = setting(2, "number of latents for the perspective, which are the last ones", low=1)
    warmup: Hyper = warmup_setting(0.5, optional=False)
    samples: int = setting(1, "number of importance samples in the bound", low=1)
    nx: int = setting(4, "number of columns of the cpab tessellation", low=1)
    ny: int = setting(4, "number of rows of the cpab tessellation", low=1)
    flow_steps: int = setting(20, "number of integration steps of cpab", low=1)
    bound: Literal["tanh", "none"] = setting(
        "tanh",
        "bound of the parameters of affine_diffeomorphic; none leaves them unbounded, as in equation 3 of the paper's "
        "supplement",
        optional=True,
    )
    perspective_hidden1: int = setting(
        32, "number of units in the first hidden layer of the perspective's decoder", low=1, optional=True
    )
    perspective_hidden2: int = setting(
        32, "number of units in the second hidden layer of the perspective's decoder", low=1, optional=True
    )

    def transformer(self) -> Transformer:
        """Return the transformation that the fields of this method describe."""
        if self.transform == "cpab":
            return Cpab(self.nx, self.ny, self.flow_steps)
        if self.transform == "affine_diffeomorphic" and self.bound == "none":
            return AffineDiffeomorphic(stretch=None, turn=None)
        return TRANSFORMERS[self.transform]()

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if len(data.shape) != 3:
            raise UserError(
                f"{type(self).__name__} needs images. Got {data.name} with examples of shape {data.shape} instead."
            )
        self.check_latents(latents)

    def check_latents(self, latents: int) -> None:
        """Raise a UserError if no latent is left for the appearance."""
        if latents <= self.perspective:
            raise UserError(
                f"{type(self).__name__} needs more latents than the {self.perspective} for the perspective. "
                f"Got {latents} instead. Use {self.perspective + 2} or lower 'perspective'."
            )

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        self.check_latents(latents)
        parts = latents - self.perspective, self.perspective
        hidden = self.perspective_hidden1, self.perspective_hidden2
        return build_vitae_net(builder, shape, parts, self.transformer(), likelihood, self.conditional, hidden)

    def infer(
        self, net: VAENet, x: Tensor, noise: Noise
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, " b"], tuple[Gaussian, Gaussian]]:
        """Return one sample z per example, log q(z|x) - log p(z), and the posteriors of appearance and perspective."""
        net = cast(VitaeNet, net)
        perspective = net.encode_perspective(x)
        z_p = perspective.sample(noise)
        appearance = net.encode_appearance(x, z_p)
        z_a = appearance.sample(noise)
        ratio = appearance.log_ratio(z_a).sum(1) + perspective.log_ratio(z_p).sum(1)
        return torch.cat([z_a, z_p], 1), ratio, (appearance, perspective)

    def posterior_sample(self, net: VAENet, x: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        z, ratio, _ = self.infer(net, x, noise)
        return z, ratio

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        x = batch.x.repeat_interleave(self.samples, 0)
        z, ratio, (appearance, perspective) = self.infer(net, x, noise)
        nll, w = net.nll(x, z), kl_weight(self.warmup, batch, step)
        kl_a, kl_p = (q.kl().sum(1).mean() for q in (appearance, perspective))
        terms = {"rec": nll.mean(), "kl": kl_a + kl_p, "kl_appearance": kl_a, "kl_perspective": kl_p, "weight": w}
        if self.samples == 1:
            return terms["rec"] + w * terms["kl"], terms
        bound = (-nll - w * ratio).unflatten(0, (-1, self.samples)).logsumexp(1) - math.log(self.samples)
        return -bound.mean(), terms

    def appearance_columns(self, latents: int) -> tuple[int, ...]:
        return tuple(range(latents - self.perspective))

    def decode_appearance(self, net: VAENet, z: Float[Tensor, "n d"]) -> Tensor:
        """Decode the appearance without applying the perspective."""
        decoder = cast(VitaeDecoder, net.decoder)
        return decoder.decode_appearance(z[:, : decoder.split])

    def column_names(self, columns: int) -> list[str]:
        """Return the names of the latents, such as "appearance 0"."""
        split = columns - self.perspective
        return [f"{'appearance' if i < split else 'perspective'} {i}" for i in range(columns)]

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return one row per latent. Latents of the appearance come first. Each of the two parts is sorted by KL."""
        z, start, labels = super().traversal(net, q, population, positions)
        names, split = self.column_names(len(labels)), len(labels) - self.perspective
        columns = [cast(int, label.column) for label in labels]
        rows = sorted(range(len(labels)), key=lambda row: columns[row] >= split)
        return Traversal(z[rows], start, [labels[row]._replace(name=names[columns[row]]) for row in rows])

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Return one control per latent. Its name begins with "appearance" or "perspective"."""
        controls = super().controls(net, q, population)
        return replace(controls, names=self.column_names(len(controls.names)))


@dataclass(frozen=True)
class CVITAE(UVITAE):
    r"""A variant of U-VITAE that undoes the perspective before it encodes the appearance.

    .. math:: E_q[-\log p(x | T_\gamma(g(z_A)))] + w\,[KL(q(z_A|T_\gamma^{-1}(x)) \| p) + KL(q(z_P|x) \| p)]

    The perspective :math:`z_P` is sampled first. The appearance is encoded from the image after the inverse of the
    transformation with parameters :math:`\gamma = h(z_P)`. To compute codes, the posterior mean of the perspective is
    used instead of a sample. Everything else is as in `u_vitae`.

    Deviations: those of `u_vitae`. In addition, the codes of the appearance are computed from
    :math:`T_\gamma^{-1}(x)`. The authors' code computes them from x.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, section 1 of its supplement.
    """

    conditional: ClassVar[bool] = True
