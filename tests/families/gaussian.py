"""The VAEs of the study of Locatello et al. (2019), and VAEs with further regularisers."""

from __future__ import annotations

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
    ControlVAE,
    DeVAE,
    DynamicVAE,
    FactorVAE,
    InfoVAE,
    JointVAE,
)

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
    "hfs": MethodFacts(HFS(beta=0.1, gamma=0.1), limits=[(HFS(beta=3.0, gamma=0.0), BetaVAE(beta=3.0))]),
}
