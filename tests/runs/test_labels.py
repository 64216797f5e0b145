"""Labels of runs leave out what all runs share, and one sentence says it for all."""

from __future__ import annotations

import dataclasses

from unbraid.methods import VAE, AnnealedVAE, BetaVAE
from unbraid.methods.adopted import Adopted
from unbraid.runs.adopted_spec import AdoptedSpec
from unbraid.runs.labels import run_labels, shared_sentence
from unbraid.runs.spec import RunSpec

SPEC = RunSpec(BetaVAE(beta=4.0), "toy", steps=10, net="mlp")


def labels(*changes: dict[str, object]) -> list[str]:
    return list(run_labels(dataclasses.replace(SPEC, **change) for change in changes).values())


def test_only_settings_that_differ_are_named() -> None:
    assert labels({"seed": 0}, {"seed": 1}) == ["beta_vae seed=0", "beta_vae seed=1"]
    assert labels({"latents": 5}, {"latents": 10}) == ["beta_vae latents=5", "beta_vae latents=10"]
    assert labels({"steps": 0}, {}) == ["untrained steps=0", "beta_vae steps=10"]
    assert labels({}) == ["beta_vae beta=4 warmup=0 seed=0"], "a single run has nothing to share its settings with"
    assert labels() == []


def test_settings_of_a_method_are_compared_among_its_own_runs() -> None:
    methods = [{"method": method} for method in (BetaVAE(beta=1.0), BetaVAE(beta=2.5), AnnealedVAE(c_max=5.0), VAE())]
    assert labels(*methods) == ["beta_vae beta=1", "beta_vae beta=2.5", "annealed_vae", "vae"]


def test_shared_settings_are_said_once() -> None:
    sentence = shared_sentence([SPEC, dataclasses.replace(SPEC, seed=1)])
    assert sentence.startswith("All runs have method=beta_vae, beta=4, data=toy, steps=10, ")
    assert "seed" not in sentence
    assert shared_sentence([SPEC, SPEC]) == shared_sentence([]) == ""


def test_settings_that_an_adopted_model_lacks_are_not_shown_for_the_others() -> None:
    adopted = AdoptedSpec(Adopted.from_values("theirs", {}, ("mean",)), "toy", seed=0, latents=5, model="0" * 16)
    trained = [RunSpec(BetaVAE(beta=beta), "toy", latents=5) for beta in (1.0, 4.0)]
    assert list(run_labels([adopted, *trained]).values()) == ["theirs", "beta_vae beta=1", "beta_vae beta=4"]
