"""Tests of `FastSequential`: it equals an `nn.Sequential` to the last bit, and is used only where it can be."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from unbraid.accel.layers import Conv, ConvTranspose
from unbraid.accel.sequential import FastSequential, relu_, use_fast_sequences
from unbraid.data import load
from unbraid.methods import BetaVAE
from unbraid.nets.registry import NETS
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

BATCH, LATENTS = 6, 7


def networks(name: str, shape: tuple[int, int, int], reduced: bool = False) -> list[tuple[nn.Sequential, Tensor]]:
    """Return the encoder and the decoder of a preset, each with an input."""
    torch.manual_seed(0)
    pair = cast(tuple[nn.Sequential, nn.Sequential], NETS[name](shape, LATENTS))
    for layer in (*pair[0], *pair[1]):
        if isinstance(layer, Conv | ConvTranspose):
            layer.reduced = reduced
    return list(zip(pair, (torch.rand(BATCH, *shape), torch.randn(BATCH, LATENTS)), strict=True))


def results(net: nn.Module, x: Tensor, g: Tensor | None = None) -> list[Tensor]:
    """Return the output for x, and the gradients of x and of all parameters."""
    x = x.clone().requires_grad_()
    y = net(x)
    g = torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(y.dtype) if g is None else g
    return [y, *torch.autograd.grad(y, [x, *net.parameters()], g)]


@pytest.mark.parametrize("reduced", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("shape", [(1, 64, 64), (3, 32, 32)], ids=str)
@pytest.mark.parametrize("name", ["locatello", "burgess", "fumero", "kim"])
def test_output_and_gradients_have_the_bits_of_a_sequential(
    name: str, shape: tuple[int, int, int], reduced: bool
) -> None:
    for plain, x in networks(name, shape, reduced):
        fast = FastSequential(*plain)
        assert type(fast(x).grad_fn).__name__ == "SequentialFunctionBackward"
        for found, expected in zip(results(fast, x), results(plain, x), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_gradients_can_be_differentiated() -> None:
    for plain, x in networks("locatello", (1, 32, 32)):
        plain, x = plain.double(), x.double()
        second = []
        for net in (FastSequential(*plain), plain):
            point = x.clone().requires_grad_()
            (first,) = torch.autograd.grad(net(point).pow(3).sum(), point, create_graph=True)
            second.append(torch.autograd.grad(first.square().sum(), [point, *net.parameters()], allow_unused=True))
        for found, expected in zip(*second, strict=True):
            assert (found is None) == (expected is None)
            torch.testing.assert_close(found, expected)


def test_gradients_can_be_computed_twice_and_do_not_change_their_input() -> None:
    plain, x = networks("locatello", (1, 32, 32))[0]
    net, point = FastSequential(*plain[:2]), x.requires_grad_()  # the last module is a ReLU
    y = net(point)
    g = torch.randn_like(y)
    before = g.clone()
    first, second = (torch.autograd.grad(y, point, g, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(g, before)
    assert torch.equal(first, second)
    assert float(first.norm()) > 0


def test_inputs_that_need_no_gradient_get_none() -> None:
    plain, x = networks("locatello", (1, 32, 32))[0]
    found = torch.autograd.grad(FastSequential(*plain)(x).sum(), list(plain.parameters()))
    expected = torch.autograd.grad(plain(x).sum(), list(plain.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_relu_keeps_nan(dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([2.0, -2.0, 0.0, -0.0, inf, -inf, nan]).to(dtype)
    negative_nan = torch.tensor([-1], dtype=torch.int16 if dtype == torch.bfloat16 else torch.int32).view(dtype)
    x = torch.cat([x, negative_nan])
    expected = torch.relu(x)
    assert int(expected.isnan().sum()) == 2
    torch.testing.assert_close(relu_(x), expected, rtol=0, atol=0, equal_nan=True)


def test_transforms_and_odd_images_use_the_modules() -> None:
    plain, x = networks("locatello", (1, 32, 32))[0]
    convs = FastSequential(*plain[:4])
    odd = torch.rand(2, 1, 30, 30)  # the second convolution gets 15 x 15 pixels
    assert torch.equal(convs(odd), plain[:4](odd))
    stacked = torch.vmap(convs)(x[None].repeat(2, 1, 1, 1, 1))
    torch.testing.assert_close(stacked[1], plain[:4](x))
    gradient: Callable[[Tensor], Tensor] = torch.func.grad(lambda images: convs(images).square().sum())
    assert gradient(x).shape == x.shape


def test_hooks_are_called() -> None:
    plain, x = networks("locatello", (1, 32, 32))[0]
    net, seen = FastSequential(*plain), []
    net[2].register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    net(x)
    assert seen == [torch.Size([BATCH, 64, 8, 8])]


def test_hooks_of_all_modules_are_called() -> None:
    plain, x = networks("locatello", (1, 32, 32))[0]
    net, seen = FastSequential(*plain), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: seen.append(type(module)))
    try:
        net(x)
    finally:
        handle.remove()
    assert seen == [*map(type, plain), FastSequential]


def test_an_output_without_relu_can_be_changed_in_place() -> None:
    for plain, x in networks("locatello", (1, 32, 32)):
        expected = torch.autograd.grad((plain(x) * 2).sum(), list(plain.parameters()))
        found = torch.autograd.grad(FastSequential(*plain)(x).mul_(2).sum(), list(plain.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_slice_is_computed() -> None:
    plain, x = networks("locatello", (1, 32, 32))[0]
    assert torch.equal(FastSequential(*plain)[:3](x), plain[:3](x))


def tied() -> nn.Sequential:
    first, second = Conv(8, 8, 4), Conv(8, 8, 4)
    second.weight = first.weight
    return nn.Sequential(Conv(1, 8, 4), first, second)


def second_derivatives_needed() -> nn.Sequential:
    layer = Conv(1, 8, 4)
    layer.twice_differentiable = True
    return nn.Sequential(layer, nn.ReLU())


def other_forward() -> nn.Sequential:
    """A layer whose `forward` was replaced."""
    layer = Conv(1, 8, 4)
    original = layer.forward
    cast(Any, layer).forward = lambda x: 2 * original(x)
    return nn.Sequential(layer, nn.ReLU())


LEFT_ALONE: dict[str, Callable[[], nn.Module]] = {
    "another activation": lambda: nn.Sequential(Conv(1, 8, 4), nn.SiLU()),
    "a leaky ReLU": lambda: nn.Sequential(Conv(1, 8, 4), nn.LeakyReLU(0.2)),
    "two ReLUs": lambda: nn.Sequential(Conv(1, 8, 4), nn.ReLU(), nn.ReLU()),
    "PyTorch's convolution": lambda: nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU()),
    "dense layers only": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
    "dense layer on pixels": lambda: nn.Sequential(Conv(1, 8, 4), nn.Linear(8, 4)),
    "partial flattening": lambda: nn.Sequential(Conv(1, 8, 4), nn.Flatten(2), nn.Linear(64, 4)),
    "convolution of unflattened images": lambda: nn.Sequential(
        Conv(1, 8, 4), nn.Flatten(), nn.Linear(512, 72), nn.ReLU(), nn.Unflatten(1, (8, 3, 3)), Conv(8, 8, 4)
    ),
    "shape at the end": lambda: nn.Sequential(Conv(1, 8, 4), nn.Flatten()),
    "no bias": lambda: nn.Sequential(Conv(1, 8, 4), nn.Flatten(), nn.Linear(512, 4, bias=False)),
    "a parametrised layer": lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(Conv(1, 8, 4)), nn.ReLU()),
    "unflattened images": lambda: nn.Sequential(nn.Unflatten(1, (1, 28, 28)), Conv(1, 8, 4), nn.ReLU()),
    "another forward function": other_forward,
    "tied weights": tied,
    "second derivatives": second_derivatives_needed,
}


@pytest.mark.parametrize("build", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_other_networks_are_left_alone(build: Callable[[], nn.Module]) -> None:
    net = nn.ModuleDict({"inner": build()})
    use_fast_sequences(net)
    assert type(net["inner"]) is nn.Sequential


def test_networks_in_lists_and_other_modules_are_replaced() -> None:
    net = nn.ModuleList([nn.ModuleDict({"inner": nn.Sequential(Conv(1, 8, 4), nn.ReLU())})])
    inner = cast(Any, net[0])["inner"]
    inner.note = "an attribute of the user's"
    names = [name for name, _ in net.named_parameters()]
    use_fast_sequences(net)
    assert cast(Any, net[0])["inner"] is inner
    assert type(inner) is FastSequential
    assert inner.note == "an attribute of the user's"
    assert [name for name, _ in net.named_parameters()] == names


def test_autocast_and_several_vectors_at_once() -> None:
    """Both need operations that the autograd function does not have."""
    plain = nn.Sequential(nn.Linear(4, 512), nn.ReLU(), nn.Unflatten(1, (8, 8, 8)), ConvTranspose(8, 1, 4))
    fast, z = FastSequential(*plain), torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fast(z), plain(z))
    jacobian = torch.autograd.functional.jacobian
    torch.testing.assert_close(jacobian(fast, z, vectorize=True), jacobian(plain, z))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_has_the_bits_of_ordinary_modules(precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("sprites")
    specs = [
        RunSpec(BetaVAE(), data.name, seed, 10, 8, 1e-3, LATENTS, "locatello", precision=precision) for seed in (0, 1)
    ]
    fast = Stack(specs, data, NETS["locatello"])
    monkeypatch.setattr("unbraid.training.stack_state.use_fast_sequences", lambda net: None)
    plain = Stack(copy.deepcopy(specs), data, NETS["locatello"])
    assert [type(stack.modules[1].net.encoder) for stack in (fast, plain)] == [FastSequential, nn.Sequential]
    for _ in range(3):
        fast.advance()
        plain.advance()
    assert torch.equal(fast.rows, plain.rows)
