"""The VAEs of the study of Locatello et al. (2019), and VAEs with further regularisers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from families.base import MethodFacts
from unbraid.methods import (
    DEFT,
    DFCVAE,
    DIPVAEI,
    DIPVAEII,
    HFS,
    VAE,
    AnnealedVAE,
    BetaTCVAE,
    BetaVAE,
    CascadeVAEC,
    CommutativeVAE,
    ControlVAE,
    DeVAE,
    DynamicVAE,
    FactorVAE,
    GroupifiedVAE,
    InfoVAE,
    JointVAE,
)
from unbraid.methods.method import Batch, Loss
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


@dataclass(frozen=True)
class MatrixBetaVAE(CommutativeVAE):
    """A beta-VAE with the networks of a Commutative VAE, whose decoder gets the matrix exponential."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        return BetaVAE(beta=self.beta).objective(net, batch, noise, step)


@dataclass(frozen=True)
class CircleBetaVAE(GroupifiedVAE):
    """A beta-VAE whose decoder gets the sines and cosines of its latents."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        return BetaVAE(beta=self.beta).objective(net, batch, noise, step)


# The weights are small, because with unit-variance pixels a beta of 4 leads to posterior collapse.
FACTS: dict[str, MethodFacts] = {
    "vae": MethodFacts(VAE(), limits=[(VAE(), BetaVAE(beta=1.0))]),
    "beta_vae": MethodFacts(BetaVAE(beta=0.1), limits=[(BetaVAE(beta=1.0), VAE())]),
    "annealed_vae": MethodFacts(
        AnnealedVAE(gamma=0.1), limits=[(AnnealedVAE(gamma=3.0, c_max=0.0), BetaVAE(beta=3.0))]
    ),
    "joint_vae": MethodFacts(
        JointVAE(gamma=0.1),
        limits=[(JointVAE(gamma=3.0, discrete=0), AnnealedVAE(gamma=3.0, c_max=40.0, iteration_threshold=300_000.0))],
    ),
    "control_vae": MethodFacts(ControlVAE(), limits=[(ControlVAE(kp=0.0, ki=0.0, beta_min=3.0), BetaVAE(beta=3.0))]),
    "dynamic_vae": MethodFacts(
        DynamicVAE(beta_start=0.1, beta_min=0.0),
        limits=[(DynamicVAE(kp=0.0, ki=0.0, beta_start=3.0), BetaVAE(beta=3.0))],
    ),
    "devae": MethodFacts(DeVAE(beta=0.1, beta_last=0.2)),
    "cascade_vae_c": MethodFacts(
        CascadeVAEC(beta_high=0.2, beta_low=0.1, iteration_threshold=100.0),
        limits=[(CascadeVAEC(beta_high=3.0, beta_low=3.0), BetaVAE(beta=3.0))],
    ),
    "deft": MethodFacts(
        DEFT(beta=0.2, beta_last=0.1, iteration_threshold=50.0),
        all_learn_at=60_000,
        limits=[(DEFT(beta=3.0, beta_last=1.0, group_size=100), BetaVAE(beta=3.0))],
    ),
    "factor_vae": MethodFacts(FactorVAE(gamma=1.0), limits=[(FactorVAE(gamma=0.0), VAE())]),
    "beta_tcvae": MethodFacts(
        BetaTCVAE(beta=1.5),
        limits=[(BetaTCVAE(beta=1.0), VAE()), (BetaTCVAE(beta=1.0, estimator="stratified"), VAE())],
    ),
    "dip_vae_i": MethodFacts(DIPVAEI(lambda_od=0.1), limits=[(DIPVAEI(lambda_od=0.0), VAE())]),
    "dip_vae_ii": MethodFacts(DIPVAEII(lambda_od=0.1), limits=[(DIPVAEII(lambda_od=0.0), VAE())]),
    "info_vae": MethodFacts(
        InfoVAE(alpha=0.9, lambda_mmd=1.0),
        limits=[
            (InfoVAE(lambda_mmd=1.0), VAE()),
            (InfoVAE(alpha=-3.0, lambda_mmd=4.0, kernel="imq"), BetaVAE(beta=4.0)),
        ],
    ),
    "dfc_vae": MethodFacts(
        DFCVAE(beta=0.1),
        falling_term="features",
        limits=[(DFCVAE(beta=3.0, features=0.0, pixels=1.0), BetaVAE(beta=3.0))],
    ),
    "commutative_vae": MethodFacts(
        CommutativeVAE(beta=0.1),
        limits=[(CommutativeVAE(beta=3.0, hessian=0.0, group=0.0, forward=0.0), MatrixBetaVAE(beta=3.0))],
    ),
    "groupified_vae": MethodFacts(
        GroupifiedVAE(beta=0.1, start=20, min_kl=0.1),
        limits=[(GroupifiedVAE(beta=3.0, isomorphism=0.0, start=0, min_kl=0.0), CircleBetaVAE(beta=3.0))],
    ),
    "hfs": MethodFacts(HFS(beta=0.1, gamma=0.1), limits=[(HFS(beta=3.0, gamma=0.0), BetaVAE(beta=3.0))]),
}
