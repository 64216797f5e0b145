"""VAEs on closed manifolds."""

from __future__ import annotations

from families.base import Known
from unbraid.methods.diffusion_vae import DiffusionVAE

# A capacity held at zero from the first step is a plain KL term, for on four latents the formula is never negative.
KNOWN: dict[str, Known] = {
    "diffusion_vae": Known(
        DiffusionVAE(beta=0.1),
        limits=[(DiffusionVAE(beta=3.0, iteration_threshold=1, c_max=0.0), DiffusionVAE(beta=3.0))],
    ),
}
