"""The outputs of models of other libraries are understood."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from unbraid.nets.any_model import model_parts, read_examples, read_posterior

MEAN, LOGVAR = torch.tensor([[1.0, 2.0]]), torch.tensor([[-1.0, 0.5]])
STD = (LOGVAR / 2).exp()
WITH_VARIANCES: dict[str, Any] = {
    "distribution": Normal(MEAN, STD),
    "independent": Independent(Normal(MEAN, STD), 1),
    "mean and log variance": SimpleNamespace(mean=MEAN, logvar=LOGVAR),
    "mu and log_var": SimpleNamespace(mu=MEAN, log_var=LOGVAR),
    "a dictionary with names of pythae": OrderedDict(embedding=MEAN, log_covariance=LOGVAR),
    "latent_dist, as in diffusers": SimpleNamespace(latent_dist=SimpleNamespace(mean=MEAN, logvar=LOGVAR)),
    "z_mean and sigma": {"z_mean": MEAN, "sigma": STD},
    "a tuple with a distribution": (Normal(MEAN, STD), torch.zeros(1)),
}


@pytest.mark.parametrize("name", WITH_VARIANCES)
def test_posteriors_with_variances(name: str) -> None:
    mean, logvar = read_posterior(WITH_VARIANCES[name])
    assert torch.equal(mean, MEAN)
    torch.testing.assert_close(logvar, LOGVAR)


@pytest.mark.parametrize("output", [MEAN, (MEAN,), [MEAN, LOGVAR, MEAN], {"z": MEAN}, (MEAN, LOGVAR)])
def test_outputs_without_variances(output: Any) -> None:
    mean, logvar = read_posterior(output)
    assert torch.equal(mean, MEAN)
    assert logvar is None


@pytest.mark.parametrize(
    ("second", "value"), [("logvar", LOGVAR), ("variance", LOGVAR.exp()), ("std", STD), ("other", STD)]
)
def test_the_second_of_two_outputs_is_what_the_user_says(second: str, value: Tensor) -> None:
    mean, logvar = read_posterior((MEAN, value), second)
    assert torch.equal(mean, MEAN)
    assert logvar is None if second == "other" else torch.allclose(logvar, LOGVAR)


@pytest.mark.parametrize(
    "output",
    [MEAN, (MEAN, 3), {"reconstruction": MEAN}, SimpleNamespace(sample=MEAN), Normal(MEAN, STD), [MEAN]],
)
def test_decoded_examples(output: Any) -> None:
    torch.testing.assert_close(read_examples(output), MEAN)


def test_arrays_are_accepted() -> None:
    assert read_posterior(np.ones(2))[0].tolist() == read_examples(np.ones(2)).tolist() == [1, 1]


def test_parts_are_found_in_every_form() -> None:
    encoder, decoder = nn.Linear(2, 1), nn.Linear(1, 2)

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = encoder, decoder

    class Methods(Whole):
        def encode(self, x: Tensor) -> Tensor:
            return self.encoder(x)

    assert model_parts((encoder, decoder)) == (encoder, decoder, (encoder, decoder))
    assert model_parts(encoder) == (encoder, None, (encoder,))
    assert model_parts(Whole())[:2] == (encoder, decoder)
    assert model_parts(model := Methods())[:2] == (model.encode, decoder)
    assert model_parts(3)[:2] == model_parts(nn.Linear)[:2] == (None, None)
