"""Schedules of methods: they are fractions of a run or visible in the help, and a run that is too short is reported."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import unbraid as ub
from support.pmp_examples import build_pmp, make_noise
from unbraid.cli.train import method_parser
from unbraid.data.dataset import FactorData
from unbraid.methods import METHODS, PMP, UVITAE, VAE, AnnealedVAE, Batch, DiffusionVAE, Method, SemiVAE
from unbraid.runs.spec import RunSpec

IDS = json.loads((Path(__file__).parents[1] / "fixtures" / "release_0_1" / "ids.json").read_text())
TERMS = ("distance", "sparsity", "consistency", "regularisation")


@pytest.mark.parametrize("name", METHODS)
def test_the_help_names_every_schedule(name: str) -> None:
    """A field that moves the end of the schedule is described by the number or the fraction of training steps."""
    cls = METHODS[name]
    method = SemiVAE(family="annealed_vae") if cls is SemiVAE else cls()  # this family has a schedule
    end = method.schedule_end(1_000)
    for field in dataclasses.fields(cls):
        if isinstance(field.default, int | float):
            other = min(field.default + 1, field.metadata["high"])
            moved = dataclasses.replace(method, **{field.name: other}).schedule_end(1_000) != end
            assert ("training steps" in field.metadata["help"]) == moved, field.name
    if end:
        assert "training steps" in method_parser(name, cls).format_help().replace("\n" + " " * 24, " ")


def train_briefly(method: Method, steps: int = 4) -> None:
    ub.train(method, "toy", steps=steps, latents=3, batch=4, quiet=True)


LONG: dict[str, Method] = {
    "AnnealedVAE": AnnealedVAE(),
    "DiffusionVAE": DiffusionVAE(iteration_threshold=5, c_min=1.0, c_max=2.0),
    "PMP": PMP(horizon=16_500.0),
    "VAE": VAE(warmup=1.5),
}


@pytest.mark.parametrize("name", LONG)
def test_a_run_that_ends_before_its_schedule_is_reported(name: str) -> None:
    with pytest.warns(RuntimeWarning, match="with 4 steps ends before its schedule, which ends at step"):
        train_briefly(LONG[name])


@pytest.mark.parametrize("method", [AnnealedVAE(iteration_threshold=4), PMP(), VAE(warmup=1.0), VAE(), UVITAE()])
def test_a_run_with_a_complete_schedule_is_not_reported(method: Method) -> None:
    assert method.schedule_end(4) <= 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if not isinstance(method, UVITAE):  # it needs images
            train_briefly(method)


def test_one_warning_names_the_longest_schedule_of_a_method() -> None:
    methods = [AnnealedVAE(iteration_threshold=10), AnnealedVAE(iteration_threshold=20)]
    with pytest.warns(RuntimeWarning, match="step 20") as caught:
        ub.train(methods, "toy", steps=4, latents=3, batch=4, quiet=True)
    assert len(caught) == 1


def weights(toy: FactorData, method: PMP, steps: int, step: float) -> list[float]:
    """Return the weights of the terms, as differences of the loss of a run with this number of steps."""
    net = build_pmp(toy, method)
    batch = Batch(toy.batch(method.draw(toy, make_noise(1), 12).examples), len(toy), steps=steps)
    at = torch.tensor(step)
    with torch.no_grad():
        loss, terms = method.objective(net, batch, make_noise(2), at)
        without = [dataclasses.replace(method, **{term: 0.0}) for term in TERMS]
        losses = [m.objective(net, batch, make_noise(2), at)[0] for m in without]
    return [float((loss - other) / terms[term]) for other, term in zip(losses, TERMS, strict=True)]


@pytest.mark.parametrize("steps", [60, 16_500, 300_000])
def test_schedules_of_pmp_are_fractions_of_the_run(toy: FactorData, steps: int) -> None:
    """The first 20 % train on the reconstruction only, and all terms but the regularisation are complete at 50 %."""
    method = PMP(subspaces=3, consistency=1.0, regularisation=1.0)
    assert weights(toy, method, steps, 0.2 * steps) == pytest.approx([0.0] * 4, abs=1e-6)
    assert weights(toy, method, steps, 0.5 * steps) == pytest.approx([0.1, 0.1, 1.0, 0.0], rel=1e-3, abs=1e-5)
    assert method.schedule_end(steps) == 0.5 * steps


def test_a_short_run_of_pmp_is_not_a_plain_autoencoder() -> None:
    """After 60 steps, the weights differ from those of a run in which all other terms have weight 0."""
    settings: dict[str, Any] = {"data": "toy", "steps": 60, "latents": 3, "batch": 8, "quiet": True}
    (run,) = ub.train(PMP(subspaces=3), **settings)
    (plain,) = ub.train(PMP(subspaces=3, **dict.fromkeys(TERMS, 0.0)), **settings)
    pairs = zip(run.net.parameters(), plain.net.parameters(), strict=True)
    assert any(not torch.equal(first, second) for first, second in pairs)


def test_the_learning_rate_of_pmp_is_that_of_its_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert RunSpec(PMP(), "toy").learning_rate == 5e-4
    assert RunSpec(VAE(), "toy").learning_rate == 1e-4
    runs = ub.train([PMP(), VAE()], "toy", steps=0, quiet=True)
    assert [run.spec.learning_rate for run in runs] == [5e-4, 1e-4]
    assert "[0.0005]" in method_parser("pmp", PMP).format_help()
    assert "[0.0001]" in method_parser("vae", VAE).format_help()


def test_specs_of_release_0_1_keep_their_absolute_schedule(toy: FactorData) -> None:
    """Their horizon is a number of steps, whatever the length of the run is."""
    entry = next(entry for entry in IDS if entry["spec"]["method"]["name"] == "pmp" and entry["spec"]["steps"] == 100)
    spec = RunSpec.from_dict(entry["spec"])
    assert (spec.id, spec.learning_rate) == (entry["id"], entry["spec"]["learning_rate"])
    method = dataclasses.replace(spec.method, subspaces=3, consistency=1.0)  # type: ignore[call-arg]
    assert isinstance(method, PMP)
    assert weights(toy, method, 100, 100.0) == pytest.approx([0.0] * 4, abs=1e-6)
    assert weights(toy, method, 100, 8_250.0)[:3] == pytest.approx([0.1, 0.1, 1.0], rel=1e-3)
    assert RunSpec(PMP(), "toy").id != dataclasses.replace(spec, method=PMP(horizon=16_500.0)).id
