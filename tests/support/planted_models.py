"""Runs with linear networks whose codes are known functions of independent sources."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

import unbraid as ub
from unbraid.data.dataset import FactorData
from unbraid.methods import VAE
from unbraid.nets.vae import VAENet
from unbraid.runs.spec import RunSpec

WIDTH = 6  # entries of an example
LOG_VARIANCE = -12.0  # of all posteriors


def turn(degrees: float) -> Tensor:
    """Return the matrix of a rotation of two codes."""
    angle = math.radians(degrees)
    return torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def random_rotation(d: int, seed: int) -> Tensor:
    """Return a random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed)))[0]


def embedding(d: int) -> Tensor:
    """Return a fixed matrix (d, WIDTH) with orthonormal rows, which maps sources to examples."""
    return random_rotation(WIDTH, 0)[:d].contiguous()


def square_data(n: int = 2000, sources: int = 2) -> FactorData:
    """Return examples of independent sources, which are uniform on a square or cube around 0 with variance 1."""
    half = math.sqrt(3)
    values = torch.from_numpy(np.random.default_rng(0).uniform(-half, half, size=(n, sources))).float()
    return ub.data.from_arrays((values @ embedding(sources)).numpy(), name="square")


class LinearEncoder(nn.Module):
    """Means x W, and a constant log variance."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights.clone())

    def forward(self, x: Tensor) -> Tensor:
        mean = x @ self.weights
        return torch.cat([mean, torch.full_like(mean, LOG_VARIANCE)], 1)


class LinearDecoder(nn.Module):
    """Examples z W."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights.clone())

    def forward(self, z: Tensor) -> Tensor:
        return z @ self.weights


def linear_run(data: FactorData, mixing: Tensor, seed: int) -> ub.Run:
    """Return a run whose codes are the sources times an invertible matrix, and which reconstructs perfectly."""
    sources = embedding(len(mixing))
    encoder, decoder = LinearEncoder(sources.T @ mixing), LinearDecoder(torch.linalg.inv(mixing) @ sources)
    net = VAENet(encoder, decoder, "gaussian").eval().requires_grad_(False)
    net.shape = data.shape
    spec = RunSpec(VAE(), data.name, latents=len(mixing), seed=seed, net="mlp", likelihood="gaussian", precision="fp32")
    return ub.Run(spec, net, data=data)
