"""The VAEs of the large study."""

from __future__ import annotations

from families.base import Known
from unbraid.methods import DIPVAEI, DIPVAEII, VAE, AnnealedVAE, BetaTCVAE, BetaVAE, FactorVAE

# With unit-variance pixels a beta of 4 rightly collapses the code, so the gentle ones are far below.
KNOWN: dict[str, Known] = {
    "vae": Known(VAE(), limits=[(VAE(), BetaVAE(beta=1.0))]),
    "beta_vae": Known(BetaVAE(beta=0.1), limits=[(BetaVAE(beta=1.0), VAE())]),
    "annealed_vae": Known(AnnealedVAE(gamma=0.1), limits=[(AnnealedVAE(gamma=3.0, c_max=0.0), BetaVAE(beta=3.0))]),
    "factor_vae": Known(FactorVAE(gamma=1.0), limits=[(FactorVAE(gamma=0.0), VAE())]),
    "beta_tcvae": Known(
        BetaTCVAE(beta=1.5),
        limits=[(BetaTCVAE(beta=1.0), VAE()), (BetaTCVAE(beta=1.0, estimator="stratified"), VAE())],
    ),
    "dip_vae_i": Known(DIPVAEI(lambda_od=0.1), limits=[(DIPVAEI(lambda_od=0.0), VAE())]),
    "dip_vae_ii": Known(DIPVAEII(lambda_od=0.1), limits=[(DIPVAEII(lambda_od=0.0), VAE())]),
}
