"""Kernels for Adam, noise and packed bits agree with PyTorch versions, and launch settings are valid."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from support.guarded import DEVICE
from unbraid import noise as noise_module
from unbraid.accel.adam import Adam, adam_step
from unbraid.data.rendered import painted
from unbraid.data.rendered.painted import ExampleNoise
from unbraid.noise import GAMMA, Noise

pytest.importorskip("triton", reason="Triton is not installed here")

from unbraid.accel.kernels import noise as noise_kernels
from unbraid.accel.kernels import tuned
from unbraid.accel.kernels.adam import adam
from unbraid.accel.kernels.bits import Unpack
from unbraid.accel.kernels.blocked import empty_blocked
from unbraid.accel.kernels.jit import block_count, is_interpreted, next_power_of_two

pytestmark = pytest.mark.usefixtures("poisoned")


# Adam


@pytest.mark.parametrize("first_step", [0, 1, 4_999, 299_997])
@pytest.mark.parametrize("constants", [(0.9, 0.999, 1e-8), (0.5, 0.9, 1e-8), (0.0, 0.99, 1e-3)], ids=str)
def test_adam_equals_the_pytorch_version(constants: tuple[float, float, float], first_step: int) -> None:
    """Three updates agree. Runs with a learning rate of 0, diverged runs and other parts of rows do not change."""
    settings, runs, size, wide = Adam(0.1, *constants), 4, 2500, 2600
    rows, moment1 = torch.randn(2, runs, wide, device=DEVICE).unbind()
    moment2 = torch.rand(runs, wide, device=DEVICE)
    if first_step == 0:
        moment1.zero_()
        moment2.zero_()
    copy = torch.randn(runs, wide, device=DEVICE)
    before = [t.clone() for t in (rows, moment1, moment2, copy)]
    after = [t.clone().cpu() for t in before[:3]]
    rate = torch.tensor([0.1, 0.0, 0.3, 0.5], device=DEVICE)
    alive = torch.tensor([True, True, False, True], device=DEVICE)
    part = slice(40, 40 + size)
    for t in range(first_step + 1, first_step + 4):
        grad = torch.randn(runs, size, device=DEVICE)
        grad[:, :7] = 0
        views = [tensor[:, part] for tensor in (rows, moment1, moment2, copy)]
        adam(*views, grad, rate, alive, torch.tensor(t, device=DEVICE), settings)
        row, first, second = (tensor[:, part] for tensor in after)
        adam_step(row, grad.cpu(), first, second, rate.cpu()[:, None], t, settings)
    live = alive.cpu()
    for ours, wanted, start in zip((rows, moment1, moment2), after, before, strict=False):
        # An update changes a parameter by up to 1.5, and float32 rounding errors are about 1e-7 of that.
        torch.testing.assert_close(ours.cpu()[live], wanted[live], rtol=3e-6, atol=2e-6)
        assert torch.equal(ours[2], start[2])
        assert torch.equal(ours[:, :40], start[:, :40])
        assert torch.equal(ours[:, 40 + size :], start[:, 40 + size :])
    assert torch.equal(rows[1], before[0][1])
    assert not torch.equal(moment1[1], before[1][1])
    assert torch.equal(copy[:, part][alive], rows[:, part][alive])
    assert torch.equal(copy[2], before[3][2])
    assert torch.equal(copy[:, 40 + size :], before[3][:, 40 + size :])


def test_adam_rounds_the_copy_that_kernels_read() -> None:
    """The copy is the new row in lower precision, and the row stays in float32."""
    rows, moment1, moment2 = torch.zeros(3, 2, 100, device=DEVICE).unbind()
    rows += torch.randn(2, 100, device=DEVICE)
    copy, start = rows.bfloat16(), rows.clone()
    grad, rate = torch.randn(2, 100, device=DEVICE), torch.tensor([0.1, 0.2], device=DEVICE)
    alive, step = torch.ones(2, dtype=torch.bool, device=DEVICE), torch.tensor(1, device=DEVICE)
    adam(rows, moment1, moment2, copy, grad, rate, alive, step, Adam(0.1))
    torch.testing.assert_close(rows, start - rate[:, None] * grad.sign(), rtol=0, atol=1e-5)  # up to epsilon
    # The interpreter rounds towards zero, and a GPU to the nearest number. Both differ by at most one unit of 8 bits.
    torch.testing.assert_close(copy.float(), rows, rtol=2**-7, atol=0)
    assert not torch.equal(copy.float(), rows)


# Noise

KEYS = [0, 1, -1, 2**63 - 1, -(2**63), 0x1234567890ABCDEF]
SHAPES = [(1,), (7, 3), (1024,), (3, 700)]


def draw_offset(draw: int) -> int:
    return noise_module._wrap_to_int64(draw * GAMMA)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_draws_equal_the_pytorch_version(shape: tuple[int, ...]) -> None:
    """Words and uniform numbers are equal for every key and draw. Normal numbers agree up to rounding."""
    keys = torch.tensor(KEYS)
    for draw in (1, 2, 1000):
        wanted = [Noise(key, draw - 1) for key in keys]
        words = noise_kernels.Draw.apply(keys.to(DEVICE), draw_offset(draw), shape, noise_kernels.WORDS)
        assert torch.equal(words.cpu(), torch.stack([noise._words(shape) for noise in wanted]))
        uniform = noise_kernels.Draw.apply(keys.to(DEVICE), draw_offset(draw), shape, noise_kernels.UNIFORM)
        assert torch.equal(uniform.cpu(), torch.stack([Noise(key, draw - 1).uniform(*shape) for key in keys]))
        normal = noise_kernels.Draw.apply(keys.to(DEVICE), draw_offset(draw), shape, noise_kernels.NORMAL)
        reference = torch.stack([Noise(key, draw - 1).normal(*shape) for key in keys])
        torch.testing.assert_close(normal.cpu(), reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(8,), (3, 16), (2, 5, 1024)], ids=str)
def test_bytes_equal_the_pytorch_version(shape: tuple[int, ...]) -> None:
    """All bytes are equal, and a word gives eight bytes."""
    keys = torch.tensor(KEYS)
    result = noise_kernels.Draw.apply(keys.to(DEVICE), draw_offset(2), shape, noise_kernels.BYTES)
    assert torch.equal(result.cpu(), torch.stack([Noise(key, 1).bytes(*shape) for key in keys]))


def test_draws_under_vmap_equal_those_of_each_key() -> None:
    """Draws under one and two levels of `vmap`, over any axis, are equal to separate draws."""
    keys = torch.tensor(KEYS).view(2, 3).to(DEVICE)

    def draw(key: Tensor) -> Tensor:
        return noise_kernels.Draw.apply(key, draw_offset(3), (4, 5), noise_kernels.WORDS)

    wanted = torch.stack([torch.stack([Noise(k, 2)._words((4, 5)) for k in row]) for row in keys.cpu()])
    assert torch.equal(vmap(draw)(keys[0]).cpu(), wanted[0])
    assert torch.equal(vmap(vmap(draw))(keys).cpu(), wanted)
    assert torch.equal(vmap(vmap(draw), in_dims=1)(keys).cpu(), wanted.transpose(0, 1))


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_keys_equal_the_pytorch_version(stream: int) -> None:
    """Keys are equal for one run, for many runs with one step, and for many runs with one step each."""
    seeds, steps = torch.tensor(KEYS), torch.tensor([0, 1, 5, 2**40, 300_000, 7])
    start = noise_module._wrap_to_int64(stream * GAMMA)
    for seed, step in ((seeds[5], steps[4]), (seeds, steps[4]), (seeds, steps)):
        result = noise_kernels.Key.apply(seed.to(DEVICE), step.to(DEVICE), start)
        assert torch.equal(result.cpu(), Noise.from_seed(seed, step, stream).key)


def test_keys_under_vmap_equal_those_of_each_pair() -> None:
    """Seeds, steps or both are mapped, in either order of nesting, with equal or different numbers of them."""
    start = noise_module._wrap_to_int64(GAMMA)

    def key(seed: Tensor, step: Tensor) -> Tensor:
        return noise_kernels.Key.apply(seed, step, start)

    seeds, steps = torch.tensor(KEYS, device=DEVICE), torch.arange(6, device=DEVICE) ** 9
    table = Noise.from_seed(seeds.cpu()[:, None], steps.cpu(), 1).key
    assert torch.equal(vmap(key, (0, None))(seeds, steps[3]).cpu(), table[:, 3])
    assert torch.equal(vmap(key, (None, 0))(seeds[2], steps).cpu(), table[2])
    assert torch.equal(vmap(key)(seeds, steps).cpu(), table.diagonal())
    for n in (6, 4):
        assert torch.equal(vmap(vmap(key, (None, 0)), (0, None))(seeds, steps[:n]).cpu(), table[:, :n])
        assert torch.equal(vmap(vmap(key, (0, None)), (None, 0))(seeds, steps[:n]).cpu(), table[:, :n].T)


def test_noise_is_the_same_with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequence of different draws gives the same numbers, and the same number of draws, with and without kernels."""

    def sequence(seed: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        noise = Noise.from_seed(seed, step, 1)
        z = noise.normal(5, 2)
        result = (
            noise.uniform(3),
            noise.integers(7, 9),
            noise.bytes(2, 8),
            noise.shuffle(torch.arange(8.0).view(4, 2)),
        )
        assert noise.draws == 6
        return noise.key, *result, z

    seeds, step = torch.tensor([3, 1, 4]), torch.tensor(20)
    wanted = [vmap(sequence, (0, None))(seeds, step), sequence(seeds[0], step)]
    calls = []
    monkeypatch.setattr(noise_module, "noise_kernels", lambda device: calls.append(device) or noise_kernels)
    if DEVICE == "cuda":
        pytest.skip("on a GPU, noise always uses these kernels, and they cannot run on CPU tensors")
    result = [vmap(sequence, (0, None))(seeds, step), sequence(seeds[0], step)]
    assert len(calls) == 12
    for ours, theirs in zip(result, wanted, strict=True):
        for a, b in zip(ours[:-1], theirs[:-1], strict=True):
            assert torch.equal(a, b)
        torch.testing.assert_close(ours[-1], theirs[-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 3, 1, 1), (5, 3, 8, 8)], ids=str)
def test_noise_of_examples_is_the_same_with_kernels(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    """Each example has the same bytes with and without kernels, also if their number is not a multiple of 8."""

    def draw(index: Tensor) -> tuple[Tensor, Tensor]:
        noise = ExampleNoise(index)
        return noise.bytes(*shape), noise.bytes(*shape)

    index = torch.tensor([[0, 1, 7, 1, 737_279], [5, 4, 3, 2, 1]], device=DEVICE)
    kernels = vmap(draw)(index) if DEVICE == "cuda" else None
    monkeypatch.setattr(painted, "noise_kernels", lambda device: None)
    wanted = vmap(draw)(index)
    if kernels is None:
        monkeypatch.setattr(painted, "noise_kernels", lambda device: noise_kernels)
        kernels = vmap(draw)(index)
    assert all(torch.equal(a, b) for a, b in zip(kernels, wanted, strict=True))
    assert not torch.equal(wanted[0], wanted[1])


# Packed bits


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 64, 64), (3, 8, 24)], ids=str)
def test_bits_are_unpacked(shape: tuple[int, ...]) -> None:
    """Pixel j of an image is bit j % 8 of byte j // 8. Indices have any shape, with or without `vmap`."""
    table = torch.randint(0, 256, (5, math.prod(shape) // 8), dtype=torch.uint8)
    pixels = ((table[:, :, None] >> torch.arange(8, dtype=torch.uint8)) & 1).float().view(5, *shape)
    index = torch.tensor([[4, 0, 0], [2, 3, 4]])

    def unpack(chosen: Tensor) -> Tensor:
        return Unpack.apply(table.to(DEVICE), chosen, shape)

    assert torch.equal(unpack(index.to(DEVICE)).cpu(), pixels[index])
    assert torch.equal(vmap(unpack)(index.to(DEVICE)).cpu(), pixels[index])
    assert torch.equal(vmap(vmap(unpack), in_dims=1)(index.to(DEVICE)).cpu(), pixels[index.T])


# Launch settings


@pytest.mark.parametrize(("n", "size"), [(1, 64), (64, 64), (65, 64), (0, 8)])
def test_blocks_cover_all_elements(n: int, size: int) -> None:
    """The blocks cover all elements, and one block fewer would not."""
    count = block_count(n, size)
    assert count * size >= n > (count - 1) * size


def test_next_power_of_two() -> None:
    assert [next_power_of_two(n) for n in (1, 2, 3, 4, 5, 72, 1024, 1025)] == [1, 2, 4, 4, 8, 128, 1024, 2048]


def test_kernels_are_interpreted_only_without_a_gpu() -> None:
    assert is_interpreted() == (DEVICE == "cpu")


@pytest.mark.parametrize("runs", [1, 4, 16, 40, 64, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiles_divide_the_channels_of_every_layer(dtype: torch.dtype, runs: int) -> None:
    """Tiles must cover the channels exactly, because kernels do not mask channels."""
    for C in (32, 64):
        for M in (32, 64):
            for name in ("conv4x4", "conv4x4 gradient"):
                assert M % tuned.launch_settings(name, C, M, dtype, runs).get("BO", M) == 0  # without BO, all channels
            for name in ("conv_transpose4x4", "conv_transpose4x4 gradient"):
                assert 4 * C % tuned.launch_settings(name, C, M, dtype, runs)["BN"] == 0
            for name, columns in (("conv4x4 weight gradient", 4 * M), ("conv2x2 weight gradient", M)):
                tile = tuned.launch_settings(name, C, M, dtype, runs)
                assert 4 * C % tile["TM"] == 0
                assert columns % tile["TN"] == 0, (name, C, M)


def test_shape_of_blocked_images() -> None:
    """An image of side 8 with a border of one pixel has 5 x 5 blocks of 2x2 pixels."""
    assert empty_blocked(torch.zeros(2, 3), 8, 4, torch.float32).shape == (2, 3, 5, 5, 16)
