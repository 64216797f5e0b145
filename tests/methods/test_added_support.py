"""The distance from a factorised support as a term of any VAE."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import unbraid as ub
from support.command_line import unbraid
from support.engine_laws import take_steps
from support.training import Killed, assert_same_run, flatten_gradients, kill_at, quick_train
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import HFS, METHODS, VAE, BetaTCVAE, BetaVAE, FactorVAE, Method
from unbraid.methods.added_support import add_support, check_support
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.spec import RunSpec
from unbraid.studies.study_files import find_study
from unbraid.training.stack import Stack

VAES = [name for name, cls in METHODS.items() if cls().code_kinds[:2] == ("mean", "sampled") and "vitae" not in name]
OTHERS = [name for name, cls in METHODS.items() if cls().code_kinds[:2] != ("mean", "sampled")]


def stack_with(data: FactorData, methods: Sequence[Method], weight: float, vmapped: bool = False) -> Stack:
    """A stack of runs with this weight of the term."""
    net, builder = resolve_net("mlp")
    specs = [
        RunSpec(method, "toy", seed, 100, 12, 1e-3, 4, net, "gaussian", factorised_support=weight)
        for seed, method in enumerate(methods)
    ]
    return Stack(specs, data, builder, vmapped=vmapped)


def test_a_beta_vae_with_the_term_equals_hfs(toy: FactorData) -> None:
    """The random points are the same too, because the term uses the random numbers after those of the method."""
    added, own = stack_with(toy, [BetaVAE(beta=3.0)], 7.0), stack_with(toy, [HFS(beta=3.0, gamma=7.0)], 0.0)
    take_steps(3, added, own)
    torch.testing.assert_close(added.rows, own.rows, rtol=0, atol=1e-6)
    logged, wanted = (dict(zip(s.terms, s.last[0].tolist(), strict=True)) for s in (added, own))
    assert logged["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
    assert logged["factorised_support"] == pytest.approx(wanted["support"], rel=1e-5)
    assert wanted["support"] > 0


@pytest.mark.parametrize("name", VAES)
def test_the_term_can_be_added_to_every_vae(name: str, toy: FactorData) -> None:
    """The loss rises by the weighted term, and the term has a gradient for the encoder but none for the decoder."""
    method = METHODS[name]()
    check_support(method, 5.0)
    plain, added = stack_with(toy, [method], 0.0), stack_with(toy, [method], 5.0)
    found = [s._gradients_one_by_one(torch.tensor(0)) for s in (plain, added)]
    before, after = (dict(zip(s.terms, values[0].tolist(), strict=True)) for s, (values, _) in
                     zip((plain, added), found, strict=True))  # fmt: skip
    assert after["loss"] == pytest.approx(before["loss"] + 5 * after["factorised_support"], rel=1e-4)
    change = added.layout.unflatten(found[1][1][0] - found[0][1][0])
    assert any(value.abs().max() > 1e-4 for part, value in change.items() if part.startswith("encoder."))
    assert all(value.abs().max() < 1e-4 for part, value in change.items() if not part.startswith("encoder."))


@pytest.mark.parametrize("method", [FactorVAE(), METHODS["ada_gvae"]()], ids=["factor_vae", "ada_gvae"])
def test_vmap_equals_one_by_one(method: Method, toy: FactorData) -> None:
    a, b = (stack_with(toy, [method] * 3, 2.0, vmapped) for vmapped in (False, True))
    values, gradients = b._gradients_vmapped(torch.tensor(0))
    expected = a._gradients_one_by_one(torch.tensor(0))
    torch.testing.assert_close(values, expected[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(flatten_gradients(gradients), expected[1], rtol=1e-3, atol=1e-4)


def test_training_lowers_the_distance_of_another_vae() -> None:
    distances = []
    for weight in (1e-6, 30.0):
        (run,) = quick_train(None, BetaTCVAE(beta=0.1), steps=100, batch=32, factorised_support=weight)
        assert run.log
        distances.append(run.log[-1]["factorised_support"])
    assert distances[1] < 0.7 * distances[0]


def test_ids_of_specs_without_the_term_are_as_before() -> None:
    spec = RunSpec(BetaVAE(), "toy")
    assert "factorised_support" not in spec.to_dict()
    changed = dataclasses.replace(spec, factorised_support=1.0)
    assert changed.id != spec.id
    assert changed.stack_key() != spec.stack_key()
    assert RunSpec.from_dict(changed.to_dict()) == changed
    with pytest.raises(UserError, match="must be finite and >= 0"):
        RunSpec(VAE(), "toy", factorised_support=-1.0)


def test_without_a_weight_the_examples_are_not_encoded_again() -> None:
    objective = (torch.tensor(1.0), {"rec": torch.tensor(1.0)})
    net = VAENet(torch.nn.Identity(), torch.nn.Identity())
    net.encoder = None  # type: ignore[assignment]
    assert add_support(objective, 0.0, net, torch.zeros(2, 2), Noise(torch.tensor(0))) is objective


@pytest.mark.parametrize("name", OTHERS)
def test_methods_without_posterior_means_reject_the_term(name: str) -> None:
    method = METHODS[name]()
    check_support(method, 0.0)
    with pytest.raises(UserError, match=f"factorised_support needs a VAE.*Got {type(method).__name__} instead"):
        check_support(method, 1.0)


def test_train_rejects_the_term_before_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="factorised_support needs a VAE"):
        quick_train(tmp_path, METHODS["ae"](), factorised_support=1.0)
    assert not list(tmp_path.glob("*/run.json"))


def test_resume_and_validation_include_the_term(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"factorised_support": 3.0, "validation": 0.2}
    (whole,) = quick_train(tmp_path / "whole", VAE(), **options)
    assert whole.log
    entry = next(entry for entry in whole.log if "validation.loss" in entry)
    parts = [entry[f"validation.{name}"] for name in ("rec", "kl", "factorised_support")]
    assert entry["validation.loss"] == pytest.approx(parts[0] + parts[1] + 3 * parts[2], rel=1e-4)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        quick_train(tmp_path / "cut", VAE(), checkpoint_seconds=0, **options)
    assert_same_run(whole, quick_train(tmp_path / "cut", VAE(), **options)[0])


def test_the_command_and_study_files_take_the_weight(tmp_path: Path) -> None:
    command = "train beta_vae --data toy --steps 2 --latents 3 --batch 4 --quiet --factorised-support 0,2 --out"
    assert unbraid(*command.split(), str(tmp_path / "runs")) == 0
    assert {run.spec.factorised_support for run in ub.load_runs(tmp_path / "runs")} == {0.0, 2.0}
    study = tmp_path / "study.toml"
    study.write_text('data = ["toy"]\nseeds = 1\nsteps = 2\nfactorised_support = 4.0\n[[method]]\nname = "vae"\n')
    assert {planned.spec.factorised_support for planned in find_study(str(study))()} == {4.0}
