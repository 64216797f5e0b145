"""Specs: validation of settings, JSON, ids and keys."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

from unbraid.accel import precision
from unbraid.methods import METHODS, VAE, BetaTCVAE, BetaVAE
from unbraid.runs.spec import RunSpec


@pytest.mark.parametrize("name", METHODS)
def test_spec_survives_json(name: str) -> None:
    highest = {field.name: field.metadata.get("high") for field in dataclasses.fields(METHODS[name])}
    values = {hyper: min(1.5, highest[hyper]) for hyper in METHODS[name].hypers()}
    spec = RunSpec(METHODS[name](**values), "sprites", seed=7, learning_rate=3e-4)
    again = RunSpec.from_dict(json.loads(spec.to_json()))
    assert again == spec
    assert again.id == spec.id


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BetaVAE(beta=-1.0), r"The 'beta' parameter of BetaVAE must be finite and >= 0. Got -1.0 instead"),
        (lambda: BetaVAE(beta=math.nan), r"must be finite and >= 0"),
        (lambda: BetaVAE(beta=10**400), r"must be finite and >= 0"),
        (lambda: RunSpec(VAE(), 5), r"The 'data' parameter of RunSpec must be a name. Got 5 instead"),
        (lambda: RunSpec(VAE(), "toy", net=None), r"The 'net' parameter of RunSpec must be a name"),
        (lambda: RunSpec.from_dict({"data": "toy"}), r"'method' of RunSpec is missing"),
        (lambda: RunSpec.from_dict({"method": {"name": "vae"}}), r"'data' of RunSpec is missing"),
        (lambda: RunSpec.from_dict({"method": "vae", "data": "toy"}), r"must be an object with a name. Got 'vae'"),
        (lambda: BetaVAE(beta="4"), r"must be a number. Got '4' instead"),
        (lambda: BetaVAE(beta=True), r"must be a number. Got True instead"),
        (lambda: BetaTCVAE(estimator="exact"), r"must be one of weighted, stratified"),
        (lambda: RunSpec(VAE(), "toy", steps=1.5), r"must be a whole number"),
        (lambda: RunSpec(VAE(), "toy", batch=1), r"must be finite and >= 2"),
        (lambda: RunSpec("vae", "toy"), r"must be a Method"),
        (lambda: RunSpec.from_dict({"method": {"name": "beta_vea"}, "data": "toy"}), r"Did you mean 'beta_vae'"),
        (
            lambda: RunSpec.from_dict({"method": {"name": "vae", "beta": 1}, "data": "toy"}),
            r"Unknown field of VAE 'beta'",
        ),
        (lambda: RunSpec.from_dict({"method": {"name": "vae"}, "data": "toy", "step": 3}), r"Did you mean 'steps'"),
    ],
)
def test_invalid_settings_raise_an_error(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_ids() -> None:
    """Equal specs have equal ids, also for an int instead of a float. Any change of a setting changes the id."""
    spec = RunSpec(BetaVAE(beta=4), "sprites")
    assert spec.id == RunSpec(BetaVAE(beta=4.0), "sprites").id
    others = [
        RunSpec(BetaVAE(beta=4.5), "sprites"),
        RunSpec(BetaVAE(beta=4), "toy"),
        RunSpec(BetaVAE(beta=4), "sprites", 1),
    ]
    assert len({spec.id, *(other.id for other in others)}) == 4


def test_canonical_json_is_sorted_and_compact() -> None:
    text = RunSpec(BetaVAE(beta=4), "sprites").to_json()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert '"method":{"beta":4.0,"name":"beta_vae"}' in text


def test_runs_of_a_stack_may_differ_only_in_seed_rate_and_hypers() -> None:
    base = RunSpec(BetaVAE(beta=4), "sprites")
    for other in (RunSpec(BetaVAE(beta=1), "sprites", 3, learning_rate=1e-3),):
        assert other.stack_key() == base.stack_key()
    different = [RunSpec(VAE(), "sprites"), RunSpec(BetaVAE(), "toy"), RunSpec(BetaVAE(), "sprites", latents=5)]
    different += [RunSpec(BetaVAE(), "sprites", batch=32), RunSpec(BetaVAE(), "sprites", precision="bf16")]
    assert len({spec.stack_key() for spec in [base, *different]}) == 6


@pytest.mark.parametrize(("flags", "expected"), [({"avx512_bf16"}, "bf16"), ({"amx_bf16"}, "bf16"), ({"avx2"}, "fp32")])
def test_fastest_precision_depends_on_the_processor(
    flags: set[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "_cpu_flags", lambda: flags)
    assert precision.fastest_precision.__wrapped__(torch.device("cpu")) == expected


def test_flat_and_settings_key() -> None:
    spec = RunSpec(BetaVAE(beta=4), "sprites", seed=3)
    fields = ["data", "seed", "steps", "batch", "learning_rate", "latents", "net", "likelihood", "precision"]
    assert list(spec.flat()) == ["method", "beta", *fields]
    assert (spec.flat()["method"], spec.flat()["beta"]) == ("beta_vae", 4.0)
    assert spec.settings_key() == RunSpec(BetaVAE(beta=4), "sprites", seed=0).settings_key()
    assert spec.settings_key() != RunSpec(BetaVAE(beta=5), "sprites", seed=3).settings_key()
