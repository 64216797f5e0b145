"""Methods that learn from labels."""

from __future__ import annotations

from dataclasses import dataclass

from families.base import MethodFacts
from unbraid.accel.adam import Adam
from unbraid.methods import IVAE, VAE, AdaTVAE, AnnealedVAE, BetaTCVAE, BetaVAE, ICEBeeM, SemiVAE, TripletVAE
from unbraid.methods.dip_vae import DIPVAEI, DIPVAEII
from unbraid.methods.method import Hyper


@dataclass(frozen=True)
class FixedPriorIVAE(IVAE):
    """iVAE whose prior stays a standard normal for every value."""

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(0.0) if parameter.startswith("prior.") else Adam(learning_rate)


@dataclass(frozen=True)
class TripletBaseline(BetaVAE):
    """A beta-VAE that draws the examples of the triplet VAE."""

    draw = TripletVAE.draw


FACTS: dict[str, MethodFacts] = {
    "semi_vae": MethodFacts(
        SemiVAE(regularisation=0.1, gamma=0.1),
        limits=[
            (SemiVAE(family="beta_vae", regularisation=3.0, gamma=0.0), BetaVAE(beta=3.0)),
            (SemiVAE(family="annealed_vae", regularisation=3.0, gamma=0.0), AnnealedVAE(c_max=3.0)),
            (SemiVAE(family="factor_vae", regularisation=0.0, gamma=0.0), VAE()),
            (SemiVAE(family="beta_tcvae", regularisation=3.0, gamma=0.0), BetaTCVAE(beta=3.0)),
            (SemiVAE(family="dip_vae_i", regularisation=3.0, gamma=0.0), DIPVAEI(lambda_od=3.0)),
            (SemiVAE(family="dip_vae_ii", regularisation=3.0, gamma=0.0), DIPVAEII(lambda_od=3.0)),
            (SemiVAE(bins=8, observed=4), SemiVAE()),
        ],
    ),
    "ivae": MethodFacts(IVAE(beta=0.1), limits=[(FixedPriorIVAE(beta=3.0), BetaVAE(beta=3.0))]),
    "ice_beem": MethodFacts(ICEBeeM(sigma=1.0), falling_term="denoising"),
    "triplet_vae": MethodFacts(
        TripletVAE(beta=0.1, gamma=0.1), limits=[(TripletVAE(beta=3.0, gamma=0.0), TripletBaseline(beta=3.0))]
    ),
    "ada_tvae": MethodFacts(
        AdaTVAE(beta=0.1, gamma=0.1),
        limits=[
            (AdaTVAE(beta=3.0, gamma=2.0, share=1.0, ramp=0.0, norm="squared"), TripletVAE(beta=3.0, gamma=2.0)),
            (AdaTVAE(beta=3.0, gamma=2.0, ratio=0.0, ramp=0.0, norm="squared"), TripletVAE(beta=3.0, gamma=2.0)),
            (AdaTVAE(beta=3.0, gamma=0.0), TripletBaseline(beta=3.0)),
        ],
    ),
}
