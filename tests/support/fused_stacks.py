"""Plain and fused stacks of the same runs, and assertions that they agree."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.guarded import DEVICE
from unbraid.accel.layers import Conv, ConvTranspose, Flatten
from unbraid.accel.precision import matmul_precision
from unbraid.data.in_memory import ByteImages
from unbraid.methods import VAE, FactorVAE, Method
from unbraid.nets.conv import burgess, init_glorot, locatello
from unbraid.nets.mlp import critic
from unbraid.nets.vae import Pair, PairBuilder, VAENet
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

pytest.importorskip("triton", reason="Triton is not installed here")

from unbraid.accel.kernels import tuned

# Both stacks compute about ten layers in float32, in different orders. This gives errors of 1e-6 of the norm of a
# gradient, or 1e-5 where terms cancel. One wrong element in a million gives 1e-3. On a GPU the fused stack multiplies
# in TensorFloat-32, with 10 bits.
TOLERANCE = 5e-5 if DEVICE == "cpu" else 3e-2
# The first steps of Adam are the learning rate times g / |g|. Elements whose gradient is only rounding error have a
# random sign. There are few of them, so that the step as a whole is close.
STEP_TOLERANCE = 1e-3 if DEVICE == "cpu" else 0.3

FUSED_ROWS = ("encoder.row", "decoder.row")


def with_one_tile(name: str, c: int, o: int, launch: dict[str, Any]) -> dict[str, Any]:
    """Launch settings with one tile for all channels."""
    size = {"BLOCK": 1 << 16, "SPLIT": 1, "BO": o, "BN": 4 * c}
    if name == "conv4x4 weight gradient":
        size |= {"TM": 4 * c, "TN": 4 * o, "BK": 512}
    if name.startswith("dense"):
        size |= {"BN": 1024, "BK": 1024, "TM": 1024, "TN": 1024}
    return {key: size.get(key, value) for key, value in launch.items()}


def enlarge_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use tiles as large as a layer, which the interpreter computes faster."""
    if DEVICE == "cpu":
        names = [name for name, launch in tuned.DEFAULT.items() if {"BO", "BN", "TM"} & set(launch)]
        keys = itertools.product(names, (32, 64), (32, 64))
        with matmul_precision("tf32"):  # the precision of `make_stack`; others do not read the table
            table = {key: {1: with_one_tile(*key, tuned.launch_settings(*key, torch.float32, 2))} for key in keys}
        rest = {
            name: with_one_tile(name, 32, 32, launch)
            for name, launch in tuned.DEFAULT.items()
            if "BLOCK" in launch or name.startswith("dense")
        }
        monkeypatch.setattr(tuned, "FLOAT32", table)
        monkeypatch.setattr(tuned, "DEFAULT", tuned.DEFAULT | rest)


def random_images(channels: int = 1, side: int = 32) -> ByteImages:
    """A dataset of 20 random images."""
    generator = torch.Generator().manual_seed(side)
    table = torch.randint(0, 256, (20, channels, side, side), generator=generator, dtype=torch.uint8)
    return ByteImages("noise", ("a", "b"), (4, 5), (channels, side, side), table).to(DEVICE)


def make_stack(
    builder: PairBuilder,
    fused: bool,
    methods: list[Method],
    data: ByteImages | None = None,
    likelihood: str = "bernoulli",
    batch: int = 2,
    rate: float = 1e-3,
    **settings: Any,
) -> Stack:
    """A stack of runs with different seeds, learning rates and methods."""
    precision = "tf32" if fused else "fp32"
    specs = [
        RunSpec(method, "noise", seed, 9, batch, rate * (seed + 1), 3, "own:net", likelihood, precision, **settings)
        for seed, method in enumerate(methods)
    ]
    return Stack(specs, data or random_images(), builder, vmapped=True, fused=fused)


def plain_and_fused(
    builder: PairBuilder, methods: list[Method], *arguments: Any, **options: Any
) -> tuple[Stack, Stack]:
    """A plain and a fused stack of the same runs, with noise added to all parameters so that no bias is zero."""
    plain, fused = (make_stack(builder, kind, methods, *arguments, **options) for kind in (False, True))
    extra = 0.05 * torch.randn(plain.rows.shape)
    plain.rows += plain.storage.to_storage_order(list(extra)).to(DEVICE)
    fused.rows += fused.storage.to_storage_order(list(extra)).to(DEVICE)
    return plain, fused


def gradients_in_checkpoint_order(s: Stack, step: int = 2) -> tuple[Tensor, Tensor]:
    """Return the terms, and the gradients in checkpoint order. Assert that the gradients of padding are zero."""
    values, found = s._gradients_vmapped(torch.tensor(step, device=DEVICE))
    rows = torch.cat([grad.flatten(1) for grad in found.values()], 1)
    assert not padding_elements(s, rows).any()
    return values.cpu(), s.storage.to_checkpoint_order(rows)


def padding_elements(s: Stack, rows: Tensor) -> Tensor:
    """The elements of rows that belong to no parameter."""
    if s.storage.positions is None:
        return rows[:, :0]
    free = torch.ones(rows.shape[1], dtype=torch.bool)
    free[s.storage.positions] = False
    assert int(free.sum()) == rows.shape[1] - s.layout.size
    return rows.cpu()[:, free]


def assert_same_gradients(plain: Stack, fused: Stack, tolerance: float = TOLERANCE) -> None:
    """Assert that the terms and the gradients of all parameters agree for every run, and that runs differ."""
    (values, wanted), (ours, found) = gradients_in_checkpoint_order(plain), gradients_in_checkpoint_order(fused)
    assert plain.terms == fused.terms
    torch.testing.assert_close(ours, values, rtol=tolerance, atol=tolerance * float(values.abs().max()))
    for i in range(len(plain)):
        parts = fused.layout.unflatten(found[i])
        for name, part in plain.layout.unflatten(wanted[i]).items():
            norm = float(part.norm())
            assert norm > 0, name
            assert float((parts[name] - part).norm()) <= tolerance * norm, (i, name)
    if len(plain) > 1:
        assert not torch.isclose(found[0], found[1], rtol=0.01, atol=0).all()


def assert_same_steps(plain: Stack, fused: Stack, steps: int = 2) -> None:
    """Assert that weights change in the same way in some steps, and that padding stays zero in rows and moments."""
    start = plain.storage.to_checkpoint_order(plain.rows)
    torch.testing.assert_close(fused.storage.to_checkpoint_order(fused.rows), start, rtol=0, atol=0)
    for _ in range(steps):
        plain.advance()
        fused.advance()
    wanted = plain.storage.to_checkpoint_order(plain.rows) - start
    found = fused.storage.to_checkpoint_order(fused.rows) - start
    for i in range(len(plain)):
        parts = fused.layout.unflatten(found[i])
        for name, part in plain.layout.unflatten(wanted[i]).items():
            assert float((parts[name] - part).norm()) <= STEP_TOLERANCE * float(part.norm()), (i, name)
    for rows in (fused.rows, fused.moment1, fused.moment2):
        assert not padding_elements(fused, rows).any()
    torch.testing.assert_close(fused.last, plain.last, rtol=1e-4 if DEVICE == "cpu" else 0.05, atol=1e-4)
    assert not fused.divergences()


def hidden_units(width: int) -> int:
    """The number of values of an 8 x 8 image with `width` channels."""
    return width * 8 * 8


def tiny_net(shape: tuple[int, ...], latents: int) -> Pair:
    """Two convolutions and no hidden dense layer each, for tests that need any network for which kernels exist."""
    c = shape[0]
    encoder = [
        Conv(c, 32, 4),
        nn.ReLU(),
        Conv(32, 32, 4),
        nn.ReLU(),
        Flatten(),
        nn.Linear(hidden_units(32), 2 * latents),
    ]
    decoder = [nn.Linear(latents, hidden_units(32)), nn.ReLU(), nn.Unflatten(1, (32, 8, 8)), ConvTranspose(32, 32, 4)]
    return init_glorot(nn.Sequential(*encoder)), init_glorot(
        nn.Sequential(*decoder, nn.ReLU(), ConvTranspose(32, c, 4))
    )  # fmt: skip


def one_layer_net(shape: tuple[int, ...], latents: int) -> Pair:
    """One convolution each, which is both the first and the last."""
    c = shape[0]
    encoder = nn.Sequential(Conv(c, 32, 4), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16**2, 2 * latents))
    decoder = [nn.Linear(latents, 32 * 16**2), nn.ReLU(), nn.Unflatten(1, (32, 16, 16)), ConvTranspose(32, c, 4)]
    return encoder, nn.Sequential(*decoder)


def narrow_net(shape: tuple[int, ...], latents: int) -> Pair:
    """2x2 layers of 32 channels, a leaky ReLU, and a ReLU at the end of the encoder."""
    c = shape[0]
    layers = [Conv(c, 64, 4), nn.ReLU(), Conv(64, 32, 2), nn.ReLU(), Conv(32, 32, 2), nn.ReLU(), nn.Flatten()]
    encoder = nn.Sequential(*layers, nn.Linear(512, 9), nn.LeakyReLU(0.1), nn.Linear(9, 2 * latents), nn.ReLU())
    return encoder, tiny_net(shape, latents)[1]


def deep_net(shape: tuple[int, ...], latents: int) -> Pair:
    """Five convolutions each, down to a single pixel."""
    c, encoder, decoder = shape[0], [], []
    for i in range(5):
        encoder += [Conv(32 if i else c, 32, 4), nn.ReLU()]
        decoder += [ConvTranspose(32, 32 if i < 4 else c, 4), nn.ReLU()]
    head = [nn.Linear(latents, 32), nn.ReLU(), nn.Unflatten(1, (32, 1, 1))]
    return nn.Sequential(*encoder, nn.Flatten(), nn.Linear(32, 2 * latents)), nn.Sequential(*head, *decoder[:-1])


def shared_activation_net(shape: tuple[int, ...], latents: int) -> Pair:
    """All activations are the same module."""
    c, relu = shape[0], nn.ReLU()
    encoder = [Conv(c, 32, 4), relu, nn.Flatten(), nn.Linear(32 * 16**2, 8), relu, nn.Linear(8, 2 * latents)]
    decoder = [nn.Linear(latents, 8), relu, nn.Linear(8, hidden_units(32)), relu, nn.Unflatten(1, (32, 8, 8))]
    return nn.Sequential(*encoder), nn.Sequential(*decoder, ConvTranspose(32, 32, 4), relu, ConvTranspose(32, c, 4))


@dataclass(frozen=True)
class SmallFactorVAE(FactorVAE):
    """FactorVAE with a critic whose widths are not multiples of a tile."""

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.critic = critic(latents, 20, 2)
        return net


NETWORKS = {
    "locatello": (locatello, (1, 32, 32), VAE()),
    "locatello 64": (locatello, (3, 64, 64), VAE()),
    "burgess": (burgess, (3, 32, 32), VAE()),
    "with a critic": (burgess, (1, 32, 32), SmallFactorVAE()),
}
