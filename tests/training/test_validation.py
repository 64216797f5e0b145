"""Held-out examples and callbacks: they are logged, recorded in the spec, and change nothing when unused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unbraid as ub
from unbraid.errors import UserError
from unbraid.methods import Batch
from unbraid.noise import Noise
from unbraid.training.validation import split_data

SETTINGS: dict[str, Any] = {"steps": 20, "latents": 3, "batch": 16, "quiet": True}
X = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)


def test_the_split_is_disjoint_complete_and_repeatable() -> None:
    data = ub.data.from_arrays(X, np.arange(100) % 5)
    training, held_out = split_data(data, 0.2)
    again, _ = split_data(data, 0.2)
    assert (len(training), len(held_out)) == (80, 20)
    rows = {tuple(row.tolist()) for part in (training, held_out) for row in part.images(slice(None))}
    assert rows == {tuple(row.tolist()) for row in data.images(slice(None))}
    assert torch.equal(training.images(slice(None)), again.images(slice(None)))
    assert torch.equal(training.factors(slice(None))[:5], data.factors(slice(None))[_index(training, data)[:5]])


def _index(part: Any, data: Any) -> list[int]:
    rows = [tuple(row.tolist()) for row in data.images(slice(None))]
    return [rows.index(tuple(row.tolist())) for row in part.images(slice(None))]


def test_training_uses_the_training_part_only_and_logs_the_other(tmp_path: Path) -> None:
    """The weights are those of a training on the training part. The logged loss is that of the held-out part."""
    data = ub.data.from_arrays(X)
    training, held_out = split_data(data, 0.25)
    (run,) = ub.train("vae", data, validation=0.25, out=tmp_path, **SETTINGS)
    (other,) = ub.train("vae", training.images(slice(None)), **SETTINGS)
    assert torch.equal(run.encode(X), other.encode(X))
    assert {"loss", "rec", "kl", "validation.loss", "validation.rec", "validation.kl"} <= set(run.log[-1])
    q = run.posterior(held_out.images(range(16)))
    assert run.log[-1]["validation.kl"] == pytest.approx(float(q.kl().sum(1).mean()), rel=1e-4)
    assert run.spec.to_dict()["validation"] == 0.25
    assert ub.load_run(tmp_path, data=data).spec == run.spec


@pytest.mark.parametrize("method", [ub.methods.IVAE(), ub.methods.ICEBeeM()], ids=str)
def test_held_out_examples_have_their_labels(method: ub.methods.Method) -> None:
    """The logged loss is that of the held-out examples with their values of the auxiliary variable."""
    data = ub.data.from_arrays(X, np.arange(100) % 5)
    _, held_out = split_data(data, 0.25)
    (run,) = ub.train(method, data, validation=0.25, **SETTINGS)
    rows, zero = torch.arange(16), torch.tensor(0)
    losses = []
    for labels in (held_out.factors(rows)[:, 0], torch.zeros_like(rows)):
        batch = Batch(held_out.batch(rows), len(held_out), labels=labels)
        losses.append(method.objective(run.net, batch, Noise.from_seed(zero, zero), torch.tensor(20.0))[0].item())
    assert run.log[-1]["validation.loss"] == pytest.approx(losses[0], rel=1e-5)
    assert run.log[-1]["validation.loss"] != pytest.approx(losses[1], rel=1e-5)


def test_nothing_changes_when_unused() -> None:
    called: list[Any] = []
    (before,) = ub.train("vae", "toy", **SETTINGS)
    (after,) = ub.train("vae", "toy", on_log=lambda spec, record: called.append((spec.id, record)), **SETTINGS)
    assert before.id == after.id
    assert "validation" not in before.spec.to_dict()
    assert torch.equal(before.net.encoder[1].weight, after.net.encoder[1].weight)
    assert [record for _, record in called] == after.log


def test_an_exception_of_the_callback_ends_the_training() -> None:
    def stop(spec: Any, record: Any) -> None:
        if record["validation.loss"] < 1e9:
            raise StopIteration(record["step"])

    with pytest.raises((StopIteration, RuntimeError)):
        ub.train(["vae", "factor_vae"], X, validation=0.5, on_log=stop, **SETTINGS)


def test_errors() -> None:
    with pytest.raises(ub.UserError, match=r"must be between 0 and 0\.9"):
        ub.train("vae", X, validation=1.0, **SETTINGS)
    with pytest.raises(ub.UserError, match="at least 4 examples"):
        ub.train("vae", X[:3], validation=0.5, **SETTINGS)
    with pytest.raises(ub.UserError, match="full grid"):
        ub.train("ada_gvae", "toy", validation=0.5, **SETTINGS)


@pytest.mark.parametrize("name", ["color_dsprites", "noisy_dsprites", "scream_dsprites"])
def test_data_with_random_parts_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbraid.training.validation.MAX_BYTES", 1e12)
    with pytest.raises(ub.UserError, match="without random colours or backgrounds"):
        split_data(ub.data.load(name), 0.1)


@pytest.mark.parametrize("on_log", [lambda record: None, lambda: None])
def test_a_callback_that_does_not_take_two_arguments_is_refused(on_log: Any) -> None:
    with pytest.raises(UserError, match=r"'on_log' must be a function of two arguments, \(spec, record\)\. Got"):
        ub.train("vae", "toy", on_log=on_log, **SETTINGS)


@pytest.mark.parametrize("method", ["semi_vae", "triplet_vae"])
def test_methods_that_group_examples_are_an_error(method: str) -> None:
    with pytest.raises(UserError, match=r"validation split needs a method whose loss .* Leave out validation="):
        ub.train(method, "toy", validation=0.5, **SETTINGS)


def test_methods_without_groups_can_be_validated() -> None:
    """Without labels, the LSBD-VAE draws single examples, although it has a way of its own to draw."""
    (run,) = ub.train(ub.methods.LSBDVAE(circles=2, labels=0), "toy", validation=0.5, **{**SETTINGS, "latents": 4})
    assert "validation.loss" in run.log[-1]
