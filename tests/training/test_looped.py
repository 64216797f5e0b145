"""A stack that computes its runs one after another equals one that computes them all at once with `vmap`."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from unbraid.data.dataset import FactorData
from unbraid.methods import METHODS, BetaVAE, ICEBeeM, Method
from unbraid.nets.conv import locatello
from unbraid.nets.vae import PairBuilder
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec
from unbraid.training.looped import needs_loop
from unbraid.training.stack import Stack


class Residual(nn.Module):
    """A convolution with batch normalisation whose result is added to its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.layers(x))


def residual_pair(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    side = shape[1] // 4
    encoder = nn.Sequential(
        nn.Conv2d(shape[0], 8, 4, 4), nn.ReLU(), Residual(8), nn.Flatten(), nn.Linear(8 * side**2, 2 * latents)
    )
    decoder = nn.Sequential(
        nn.Linear(latents, 8 * side**2), nn.Unflatten(1, (8, side, side)), Residual(8),
        nn.ConvTranspose2d(8, shape[0], 4, 4),
    )  # fmt: skip
    return encoder, decoder


def plain_pair(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    side = shape[1] // 4
    encoder = nn.Sequential(nn.Conv2d(shape[0], 8, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * side**2, 2 * latents))
    return encoder, nn.Sequential(nn.Linear(latents, shape[0] * shape[1] ** 2), nn.Unflatten(1, shape))


def dense_pair(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    pixels = shape[0] * shape[1] * shape[2]
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 2 * latents))
    return encoder, nn.Sequential(nn.Linear(latents, pixels), nn.Unflatten(1, shape))


def specs(method: Method, precision: str = "fp32", net: str = "own") -> list[RunSpec]:
    spec = RunSpec(method, "sprites", 0, 10, 8, 1e-3, 4, net)
    return [dataclasses.replace(spec, seed=seed, precision=precision) for seed in range(3)]


@pytest.mark.parametrize("method", ["beta_vae", "factor_vae", "beta_tcvae", "slow_vae", "pcl", "ada_gvae"])
def test_looped_equals_vmapped(method: str, sprites: FactorData) -> None:
    """Terms, gradients and the statistics of batch normalisation agree.

    Parameters after a step are not compared, because Adam divides a gradient by its own size. A bias in front of a
    batch normalisation has a gradient of rounding errors alone.
    """
    together, looped = (
        Stack(specs(METHODS[method]()), sprites, residual_pair, vmapped=True, looped=looped) for looped in (False, True)
    )
    values, gradients = together._gradients_vmapped(together.device_step)
    looped_values, looped_gradients = looped._gradients_vmapped(looped.device_step)
    torch.testing.assert_close(looped_values, values, rtol=1e-4, atol=1e-4)
    assert gradients.keys() == looped_gradients.keys()
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, gradient in gradients.items():
        torch.testing.assert_close(looped_gradients[name], gradient, rtol=1e-3, atol=1e-5 * largest)
    assert together.buffers
    for name, value in together.buffers.items():
        torch.testing.assert_close(looped.buffers[name], value, rtol=1e-4, atol=1e-5)


def test_networks_that_need_float32_are_not_reduced(sprites: FactorData) -> None:
    """The encoder of ICE-BeeM stays in float32, so both precisions have the same terms and gradients."""
    found = [
        Stack(specs(ICEBeeM(), precision), sprites, plain_pair, vmapped=True, looped=True)._gradients_vmapped(
            torch.tensor(0)
        )
        for precision in ("fp32", "bf16")
    ]
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_bfloat16_is_close_to_float32_but_not_equal(sprites: FactorData) -> None:
    """Without autocast, both stacks would be equal, because the layers are PyTorch's own."""
    exact, reduced = (
        Stack(specs(BetaVAE(), precision), sprites, residual_pair, vmapped=True, looped=True)
        for precision in ("fp32", "bf16")
    )
    for _ in range(3):
        exact.advance()
        reduced.advance()
    torch.testing.assert_close(reduced.last, exact.last, rtol=2e-2, atol=0.05)
    assert not torch.equal(reduced.last, exact.last)
    assert reduced.rows.dtype == torch.float32


def test_a_diverged_run_does_not_affect_the_others(sprites: FactorData) -> None:
    stack, reference = (Stack(specs(BetaVAE()), sprites, residual_pair, vmapped=True, looped=True) for _ in range(2))
    stack.rows[1, 0] = float("nan")
    for _ in range(2):
        stack.advance()
        reference.advance()
    assert stack.alive.tolist() == [True, False, True]
    torch.testing.assert_close(stack.rows[[0, 2]], reference.rows[[0, 2]])


@pytest.mark.parametrize(
    ("net", "builder", "precision", "looped"),
    [
        ("own", residual_pair, "bf16", True),
        ("own", residual_pair, "fp32", False),
        ("own", dense_pair, "bf16", False),
        ("locatello", locatello, "bf16", False),
    ],
)
def test_only_own_convolutional_networks_in_bfloat16_are_looped(
    net: str, builder: PairBuilder, precision: str, looped: bool, sprites: FactorData
) -> None:
    (spec, *_) = specs(BetaVAE(), precision, net)
    assert needs_loop(spec, build_net(spec, sprites.shape, builder)) == looped


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_an_own_network_on_a_gpu_equals_a_cpu(precision: str, sprites: FactorData) -> None:
    """The whole step is one CUDA graph. With bf16, the runs are computed one after another."""
    cpu = Stack(specs(BetaVAE()), sprites, residual_pair)
    gpu = Stack(specs(BetaVAE(), precision), sprites.to("cuda"), residual_pair)
    assert gpu.looped == (precision == "bf16")
    for _ in range(5):
        cpu.advance()
        gpu.advance()
    assert gpu.captured is not None
    assert gpu.captured.graph is not None
    torch.testing.assert_close(gpu.last.cpu(), cpu.last, rtol=2e-2, atol=0.05)
    for name, value in cpu.buffers.items():
        torch.testing.assert_close(gpu.buffers[name].cpu(), value, rtol=2e-2, atol=1e-2)
