"""VAEs on closed manifolds."""

from __future__ import annotations

from families.base import MethodFacts
from unbraid.methods.diffusion_vae import DiffusionVAE

# A capacity of 0 from the first step is a plain KL term, because with four latents the KL is never negative.
FACTS: dict[str, MethodFacts] = {
    "diffusion_vae": MethodFacts(
        DiffusionVAE(beta=0.1),
        limits=[(DiffusionVAE(beta=3.0, iteration_threshold=1, c_max=0.0), DiffusionVAE(beta=3.0))],
    ),
}
