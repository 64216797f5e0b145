"""Operations in float64 inside a context."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unbraid.accel.precision import Float64Operations


class Network(nn.Module):
    """A network that converts its input to float32 in three ways, and writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Linear(4 * 36, 2)
        self.scale = torch.linspace(0.1, 1, 2)  # neither a parameter nor a buffer

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x.float()).relu_().to(torch.float32).flatten(1).to(dtype=torch.float32)
        return (self.second(y) @ torch.diag(self.scale)).add_(torch.ones(()))


def test_networks_compute_in_float64() -> None:
    torch.manual_seed(0)
    net, x = Network(), torch.randn(5, 1, 8, 8)
    with Float64Operations():
        y = net(x)
        gradients = torch.autograd.grad(y.square().sum(), list(net.parameters()))
    single = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    scale = net.scale.double()
    net.double()
    expected = net.second(net.first(x.double()).relu().flatten(1)) @ torch.diag(scale) + 1
    exact = torch.autograd.grad(expected.square().sum(), list(net.parameters()))
    torch.testing.assert_close(y, expected, rtol=1e-14, atol=1e-14)
    for found, value in zip(gradients, exact, strict=True):
        torch.testing.assert_close(found, value.float(), rtol=0, atol=0)
    assert not all(torch.equal(rounded, value.float()) for rounded, value in zip(single, exact, strict=True))


def test_arguments_that_are_written_stay_the_same_tensors() -> None:
    x, total = torch.ones(3), torch.zeros(3)
    with Float64Operations():
        x.mul_(2)
        torch.add(x, x, out=total)
        index = torch.arange(3) + 1
    assert x.tolist() == [2, 2, 2]
    assert total.tolist() == [4, 4, 4]
    assert (x.dtype, total.dtype, index.dtype) == (torch.float32, torch.float32, torch.int64)


def test_tensors_that_are_created_in_the_context_can_be_written() -> None:
    x = torch.tensor([0.1, 0.2])
    with Float64Operations():
        square = torch.zeros(2, 2)
        square.diagonal().add_(x)
        sums = torch.zeros(2).index_add_(0, torch.tensor([0, 1]), x * 3)
        masked = torch.ones(2)
        masked[x > 0.15] = x[1]
    assert {tensor.dtype for tensor in (square, sums, masked)} == {torch.float64}
    assert square.diagonal().tolist() == x.double().tolist()
    assert sums.tolist() == (3 * x.double()).tolist()
    assert masked.tolist() == [1, float(x[1])]
