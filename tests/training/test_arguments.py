"""Natural forms of the arguments of `train` and `score` are accepted, or an error says what is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader

import unbraid as ub
from support.own import random_pixels
from support.training import quick_train
from unbraid.errors import UserError
from unbraid.methods import BetaVAE, Method
from unbraid.runs.run import as_runs
from unbraid.runs.spec import as_methods


@pytest.mark.parametrize("given", ["beta_vae", BetaVAE, BetaVAE(), ["beta_vae"], (BetaVAE,)])
def test_a_method_may_be_a_name_or_a_class(given: Any) -> None:
    assert as_methods(given) == [BetaVAE()]


def test_a_method_without_defaults_says_what_is_missing() -> None:
    class Needs(Method):
        def __init__(self, weight: float) -> None: ...

    with pytest.raises(UserError, match=r"a name such as 'beta_vae'\. Got 4\.0 instead"):
        as_methods(4.0)
    with pytest.raises(UserError, match=r"Needs has settings without a default .*weight.*Needs\(\.\.\.\)"):
        as_methods(Needs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 3}, r"Got 3 instead. For 3 runs, pass range\(3\). For one run with this seed, pass \[3\]"),
        ({"method": "beta_va"}, "Did you mean 'beta_vae'"),
        ({"data": 3}, "Got int instead. See ub.data.from_arrays"),
        ({"data": np.zeros((4, 4, 4, 4))}, "Images must have shape"),
        ({"data": "arrays"}, "Or pass the path of your own"),
        ({"learning_rate": []}, "at least one learning rate"),
        ({"checkpoint_seconds": -1.0}, "'checkpoint_seconds' must be a number >= 0. Got -1"),
        ({"checkpoint_seconds": float("nan")}, "'checkpoint_seconds' must be a number >= 0. Got nan"),
    ],
)
def test_slips_say_what_is_meant(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        quick_train(**arguments)


@pytest.mark.parametrize("form", [np.asarray, torch.tensor, lambda x: (x, ["a", "b"] * 5), lambda x: (x, None)])
def test_arrays_are_data(form: Any) -> None:
    (run,) = quick_train(data=form(random_pixels(10, 16, 16)), steps=1)
    assert run.encode(random_pixels(2, 16, 16)).shape == (2, 3)


def test_score_takes_a_folder_and_one_metric(tmp_path: Path) -> None:
    runs = quick_train(tmp_path, seeds=[0, 1], steps=1)
    rows = ub.score(str(tmp_path), "mig", quiet=True)
    assert [row["run"] for row in rows] == [run.id for run in runs]
    assert ub.score(tmp_path, "mig,sap", codes="mean", quiet=True) == ub.score(
        runs, ["mig", "sap"], codes=["mean"], quiet=True
    )
    (tmp_path / runs[0].id / "diverged.json").write_text('{"step": 1, "term": "loss"}')
    with pytest.warns(RuntimeWarning, match="left out: 1 diverged"):
        assert [row["run"] for row in ub.score(tmp_path, "mig", quiet=True)] == [runs[1].id]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"codes": np.zeros((3, 2))}, "Got codes without factors"),
        ({"factors": np.zeros((3, 2))}, "Got factors without codes"),
        ({}, "Got none instead"),
        ({"runs": "nowhere", "codes": np.zeros((3, 2)), "factors": np.zeros(3)}, "either runs, with data= if needed"),
        ({"runs": [], "continuous": "a"}, "Pass them to the dataset"),
        ({"codes": np.zeros((3, 2)), "factors": np.zeros(4)}, "same number of rows. Got 3 and 4"),
        ({"codes": np.zeros((3, 2)), "factors": ["a", "b", "c"], "continuous": "label"}, "Got words in label"),
    ],
)
def test_wrong_arguments_of_score(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ub.score(**arguments)


@pytest.mark.parametrize("given", [np.zeros((3, 2)), [np.zeros(2)], 3])
def test_arrays_are_not_runs(given: Any) -> None:
    with pytest.raises(UserError, match=r"ub.score\(codes=z, factors=v\)"):
        as_runs(given)


def test_codes_of_runs_are_kinds() -> None:
    with pytest.raises(UserError, match=r"kinds of codes, such as 'mean'\. Got ndarray"):
        ub.score(quick_train(steps=1), "mig", codes=np.zeros((3, 2)))


def test_codes_and_factors_are_scored_in_one_call() -> None:
    rng = np.random.default_rng(0)
    shape, size, angle = rng.integers(3, size=600), rng.integers(4, size=600), rng.random(600)
    words = np.array(["square", "heart", "ellipse"])[shape]
    factors = pd.DataFrame({"shape": words, "size": size, "angle": angle})
    codes = np.stack([shape == 1, shape == 2, size, angle], 1) + rng.normal(0, 0.01, (600, 4))
    with pytest.warns(UserWarning, match="angle: 600 distinct values in 600 rows, treated as continuous"):
        [row] = ub.score(codes=codes, factors=factors, metrics="mig,sap", quiet=True)
    assert row["label"] == "codes"
    numbers = np.stack([np.unique(words, return_inverse=True)[1], size, angle], 1)
    forms: dict[str, Any] = {
        "columns": {"shape": list(words), "size": size, "angle": angle},
        "numbers": pd.DataFrame(numbers, columns=["shape", "size", "angle"]),
        "rows": np.array([words, size, angle], dtype=object).T,
    }
    for name, form in forms.items():
        told = "factor2" if name == "rows" else "angle"
        codes_form = torch.tensor(codes, requires_grad=True) if name == "rows" else pd.DataFrame(codes)
        assert ub.score(codes=codes_form, factors=form, metrics=["mig", "sap"], continuous=told, quiet=True) == [row]


def test_one_column_of_many_words_is_classes() -> None:
    words = np.array([f"word {i % 60}" for i in range(300)])
    codes = np.stack([np.arange(300) % 60, np.arange(300) // 60], 1) + 0.0
    [row] = ub.score(codes=codes, factors=words, metrics="mig", quiet=True)
    assert row["mig.discrete_mig"] > 0.3


@pytest.mark.parametrize("name", ["toy", "sprites"])
def test_every_dataset_is_a_torch_dataset(name: str) -> None:
    data = ub.data.load(name)
    x, factors = next(iter(DataLoader(data, batch_size=5)))
    assert torch.equal(x, data.batch(torch.arange(5)))
    assert torch.equal(factors, data.factors(range(5)))
    assert torch.equal(data[-1][0], data.batch(torch.tensor([len(data) - 1]))[0])
    shuffled = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
    assert next(iter(shuffled))[0].shape == (64, *data.shape)
    with pytest.raises(IndexError, match="must lie in 0"):
        data[len(data)]


def test_items_of_continuous_data_have_the_original_numbers() -> None:
    angles = np.linspace(0, 1, 20)
    data = ub.data.from_arrays(random_pixels(20, 8, 8), {"angle": angles}, continuous="angle")
    assert [float(factors) for _, factors in data] == angles.tolist()
