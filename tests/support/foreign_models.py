"""Models as other libraries define them, for examples of 12 x 12 grey pixels."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

SIDE, LATENTS = 12, 3
PIXELS = SIDE * SIDE


class ModelOutput(OrderedDict[str, Tensor]):
    """An ordered dictionary whose entries are also attributes, as the outputs of pythae are."""

    def __getattr__(self, name: str) -> Tensor:
        return self[name]


class LibraryEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 4, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten()
        )
        self.mean, self.spread = nn.Linear(4 * 36, LATENTS), nn.Linear(4 * 36, LATENTS)

    def forward(self, x: Tensor) -> ModelOutput:
        h = self.features(x)
        return ModelOutput(embedding=self.mean(h), log_covariance=self.spread(h) - 1)


class LibraryDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(LATENTS, PIXELS), nn.Sigmoid())

    def forward(self, z: Tensor) -> ModelOutput:
        return ModelOutput(reconstruction=self.layers(z).reshape(z.shape[0], 1, SIDE, SIDE))


class LibraryVAE(nn.Module):
    """A VAE with the structure of those in pythae: modules `encoder` and `decoder`, and a forward of a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = LibraryEncoder(), LibraryDecoder()

    def forward(self, inputs: dict[str, Tensor]) -> ModelOutput:
        return self.decoder(self.encoder(inputs["data"]).embedding)


class SpatialVAE(nn.Module):
    """A VAE with the structure of those in diffusers: codes (n, c, h, w), pixels in [-1, 1], distributions."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 4, 4, 4), nn.ConvTranspose2d(2, 1, 4, 4)

    def encode(self, x: Tensor) -> Any:
        mean, logvar = self.down(x).chunk(2, 1)
        return SimpleNamespace(latent_dist=SimpleNamespace(mean=mean, logvar=logvar - 2))

    def decode(self, z: Tensor) -> Any:
        return SimpleNamespace(sample=self.up(z).tanh())


class PairVAE(nn.Module):
    """A VAE that returns pairs and distributions, depending on its form."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.layer, self.back = form, nn.Linear(PIXELS, 2 * LATENTS), nn.Linear(LATENTS, PIXELS)

    def encode(self, x: Tensor) -> Any:
        output = self.layer(x.flatten(1))
        mean, logvar = output.chunk(2, 1)
        logvar = logvar - 1
        if self.form == "distribution":
            return torch.distributions.Normal(mean, (logvar / 2).exp())
        return {"logvar": (mean, logvar), "std": (mean, (logvar / 2).exp()), "one": output}[self.form]

    def decode(self, z: Tensor) -> Tensor:
        return self.back(z)


def plain_pair() -> tuple[nn.Module, nn.Module]:
    """Return an encoder without variances and a decoder with rows of pixels, made of plain layers."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 8), nn.ReLU(), nn.Linear(8, LATENTS))
    return encoder, nn.Sequential(nn.Linear(LATENTS, 8), nn.ReLU(), nn.Linear(8, PIXELS), nn.Sigmoid())


class Branching(nn.Module):
    """A model that cannot be traced, because it has a branch that depends on its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(PIXELS, LATENTS)

    def encode(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1)) if float(x.sum()) > -1e9 else x
