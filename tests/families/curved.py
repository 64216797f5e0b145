"""VAEs on closed manifolds."""

from __future__ import annotations

from families.base import MethodFacts
from unbraid.methods.diffusion_vae import DiffusionVAE

# With a capacity of 0, |KL - C| equals the KL, because the KL is never negative with four latents.
FACTS: dict[str, MethodFacts] = {
    "diffusion_vae": MethodFacts(
        DiffusionVAE(beta=0.1),
        limits=[(DiffusionVAE(beta=3.0, iteration_threshold=1, c_max=0.0), DiffusionVAE(beta=3.0))],
    ),
}
