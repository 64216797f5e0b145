"""VAEs whose images are an appearance put in perspective by a spatial transformation."""

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
from unbraid.methods.method import Batch, Hyper, Loss, Method, Walk, setting
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.nets.vitae import VitaeNet, vitae_net
from unbraid.noise import Noise
from unbraid.spaces.transformers import TRANSFORMERS, Cpab, Transformer


@dataclass(frozen=True)
class UVITAE(Method):
    r"""A VAE that makes an upright image and then warps it, with independent posteriors of both.

    .. math:: E_q[-\log p(x | T_\gamma(g(z_A)))] + w\,[KL(q(z_A|x) \| p) + KL(q(z_P|x) \| p)], \quad \gamma = h(z_P)

    The first latents are the appearance :math:`z_A`, the last `perspective` of them the perspective :math:`z_P`; g and
    h are their decoders, :math:`T_\gamma` a spatial transformation of images (bilinear, zeros beyond the edge, zero
    parameters for the identity), p the standard normal. w rises linearly from 0 to 1 over the `warmup` share of the
    training. With several `samples` S the loss is the importance-weighted bound,
    :math:`-\log \frac1S \sum_s p(x|z_s)\,[p(z_s) / q(z_s|x)]^w`.
    The paper has 2 + 2 latents, Adam at 1e-4, batches of 512 (MNIST) or 256, and encoders and decoders of about half
    the units of the VAE it compares with (`vitae_mlp_half` beside `vitae_mlp`).
    Deviations: with one sample the KL is its formula, where the authors' program takes the difference of log densities
    at the sample. The field of `affine_diffeomorphic` is bounded, to stretches of at most 4.5 and about half a turn.
    Bernoulli means are kept within 1e-5 of 0 and 1, as there. Inverses are true ones: the program's inverses of
    `affine` and `affine_decomposed` are not.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, section 1 of its supplement.
    """

    conditional: ClassVar[bool] = False

    transform: Literal["affine", "affine_decomposed", "affine_diffeomorphic", "cpab"] = setting(
        "affine_diffeomorphic", "the family of transformations"
    )
    perspective: int = setting(2, "latents of the perspective, the last ones; the others are the appearance", low=1)
    warmup: Hyper = setting(0.5, "share of the training over which the weight of the KL rises to 1", low=0, swept=False)
    samples: int = setting(1, "importance samples of the bound", low=1)
    nx: int = setting(4, "rectangles of cpab's tessellation across", low=1)
    ny: int = setting(4, "and down", low=1)
    flow_steps: int = setting(20, "steps in which cpab's field is integrated", low=1)

    def transformer(self) -> Transformer:
        """The family of transformations with its settings."""
        if self.transform == "cpab":
            return Cpab(self.nx, self.ny, self.flow_steps)
        return TRANSFORMERS[self.transform]()

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if len(data.shape) != 3:
            raise UserError(
                f"{type(self).__name__} warps images. Got {data.name} of shape {data.shape}. Choose images."
            )
        self.check_latents(latents)

    def check_latents(self, latents: int) -> None:
        """Refuse a code that leaves no latent for the appearance."""
        if latents <= self.perspective:
            raise UserError(
                f"{type(self).__name__} needs more latents than the {self.perspective} of the perspective. "
                f"Got {latents} instead. Use {self.perspective + 2} or lower 'perspective'."
            )

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        self.check_latents(latents)
        parts = latents - self.perspective, self.perspective
        return vitae_net(builder, shape, parts, self.transformer(), likelihood, self.conditional)

    def infer(
        self, net: VAENet, x: Tensor, noise: Noise
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, " b"], tuple[Gaussian, Gaussian]]:
        """A sample of the code, log q(z|x) - log p(z) of it, and the posteriors of appearance and perspective."""
        net = cast(VitaeNet, net)
        perspective = net.see_perspective(x)
        z_p = perspective.sample(noise)
        appearance = net.see_appearance(x, z_p)
        z_a = appearance.sample(noise)
        ratio = appearance.log_ratio(z_a).sum(1) + perspective.log_ratio(z_p).sum(1)
        return torch.cat([z_a, z_p], 1), ratio, (appearance, perspective)

    def posterior_sample(self, net: VAENet, x: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        z, ratio, _ = self.infer(net, x, noise)
        return z, ratio

    def weight(self, batch: Batch, step: Tensor) -> Tensor:
        """w, the weight of the KL."""
        rising = self.warmup * batch.steps * torch.ones_like(step)
        return torch.where(step < rising, step / rising.clamp(min=1), 1.0)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        x = batch.x.repeat_interleave(self.samples, 0)
        z, ratio, (appearance, perspective) = self.infer(net, x, noise)
        nll, w = net.nll(x, z), self.weight(batch, step)
        kl_a, kl_p = (q.kl().sum(1).mean() for q in (appearance, perspective))
        terms = {"rec": nll.mean(), "kl": kl_a + kl_p, "kl_appearance": kl_a, "kl_perspective": kl_p, "weight": w}
        if self.samples == 1:
            return terms["rec"] + w * terms["kl"], terms
        bound = (-nll - w * ratio).unflatten(0, (-1, self.samples)).logsumexp(1) - math.log(self.samples)
        return -bound.mean(), terms

    def walk(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Walk:
        """Every latent in turn, the appearance's first."""
        z, start, _ = super().walk(net, q, population, positions)
        kl = population.kl().mean(0)
        order = kl.argsort(descending=True).tolist()
        split = len(order) - self.perspective
        rows = sorted(range(len(order)), key=lambda row: order[row] >= split)
        kinds = ["perspective" if order[row] >= split else "appearance" for row in rows]
        labels = [f"{kind} {order[r]}\n{float(kl[order[r]]):.2f} nats" for kind, r in zip(kinds, rows, strict=True)]
        return Walk(z[rows], start, labels)

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Every latent, named by what it is for."""
        made = super().controls(net, q, population)
        split = len(made.names) - self.perspective
        kinds = ["appearance"] * split + ["perspective"] * self.perspective
        return replace(made, names=[f"{kind} {i}" for i, kind in enumerate(kinds)])


@dataclass(frozen=True)
class CVITAE(UVITAE):
    r"""U-VITAE that takes the perspective back before it looks at the appearance.

    .. math:: E_q[-\log p(x | T_\gamma(g(z_A)))] + w\,[KL(q(z_A|T_\gamma^{-1}(x)) \| p) + KL(q(z_P|x) \| p)]

    :math:`\gamma = h(z_P)` is drawn first, and the appearance is inferred from the image under the inverse
    transformation. Codes take the mean of the perspective there. All else is as in `u_vitae`.
    Deviations: those of `u_vitae`; and codes are of :math:`T_\gamma^{-1}(x)`, where the authors' program encodes x.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, section 1 of its supplement.
    """

    conditional: ClassVar[bool] = True
