"""Networks whose batch is divided among CPU threads give the same numbers as networks on one thread, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from unbraid.accel.cores import run_tasks, shared_cores, split_columns, usable_cores
from unbraid.accel.layers import Conv
from unbraid.accel.split import apply_network, can_split, split_batch
from unbraid.data.dataset import FactorData
from unbraid.methods import BetaVAE, FactorVAE
from unbraid.methods.method import Method
from unbraid.nets.registry import NETS, resolve_net
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack


@pytest.fixture
def threads() -> Iterator[int]:
    """Let PyTorch use three threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def trained_rows(data: FactorData, threads: int, runs: int = 1, batch: int = 64, **settings: str) -> tuple[Tensor, ...]:
    """Return the parameters and the terms of the first run of a stack after two steps."""
    torch.set_num_threads(threads)
    specs = [RunSpec(BetaVAE(beta=4.0), data.name, seed, 10, batch, **settings) for seed in range(runs)]
    stack = Stack(specs, data, resolve_net(specs[0].net)[1], threads=min(threads, runs))
    for _ in range(2):
        stack.advance()
    assert stack.shares_cores
    return stack.rows[0], stack.last[0]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("net", ["locatello", "burgess", "kim"])
def test_a_run_does_not_depend_on_the_number_of_threads(
    sprites: FactorData, net: str, precision: str, threads: int
) -> None:
    """A run that is trained alone on several cores equals the same run in a stack and on one core."""
    one = trained_rows(sprites, 1, net=net, precision=precision)
    for other in (trained_rows(sprites, n, runs, net=net, precision=precision) for n, runs in ((2, 1), (3, 1), (2, 2))):
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("batch", [7, 23, 50])
def test_batches_that_are_not_divisible(sprites: FactorData, batch: int, threads: int) -> None:
    one, several = (trained_rows(sprites, n, batch=batch) for n in (1, threads))
    assert all(map(torch.equal, one, several))


@pytest.mark.parametrize(("n", "parts", "sizes"), [(64, 2, [32, 32]), (64, 3, [16, 24, 24]), (50, 2, [24, 26])])
def test_parts_are_multiples_of_a_unit(n: int, parts: int, sizes: list[int]) -> None:
    assert [len(range(n)[part]) for part in split_batch(n, parts)] == sizes


@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_of_the_input_and_the_parameters(channels: int, threads: int) -> None:
    encoder, decoder = NETS["locatello"]((channels, 32, 32), 4)
    x = torch.rand(24, channels, 32, 32).requires_grad_()

    def gradients() -> tuple[Tensor, ...]:
        decoded = apply_network(decoder, apply_network(encoder, x)[:, :4], lambda _, output: torch.sigmoid(output))
        return torch.autograd.grad(decoded.square().sum(), [x, *encoder.parameters(), *decoder.parameters()])

    with shared_cores():
        several = gradients()
    torch.set_num_threads(1)
    assert all(map(torch.equal, gradients(), several))


def test_second_derivatives(threads: int) -> None:
    """Gradients that are differentiated again are computed with ordinary operations."""
    encoder, _ = NETS["locatello"]((1, 16, 16), 2)
    x = torch.rand(16, 1, 16, 16).requires_grad_()

    def penalty() -> Tensor:
        (slope,) = torch.autograd.grad(apply_network(encoder, x).sum(), x, create_graph=True)
        (found,) = torch.autograd.grad(slope.square().sum(), encoder[0].weight)
        return found

    with shared_cores():
        several = penalty()
    torch.testing.assert_close(several, penalty())


def test_transforms_are_computed_with_ordinary_operations(threads: int) -> None:
    encoder, _ = NETS["locatello"]((1, 16, 16), 2)
    x = torch.rand(2, 16, 1, 16, 16)
    with shared_cores():
        mapped = torch.vmap(lambda batch: apply_network(encoder, batch))(x)
    torch.testing.assert_close(mapped, torch.stack([encoder(batch) for batch in x]), rtol=1e-4, atol=1e-5)


def test_only_known_convolutional_networks_are_divided() -> None:
    assert all(map(can_split, NETS["locatello"]((1, 32, 32), 2)))
    assert not any(map(can_split, NETS["mlp"]((1, 32, 32), 2)))
    assert not can_split(nn.Sequential(Conv(1, 8, 4), nn.BatchNorm2d(8), nn.ReLU()))


@pytest.mark.parametrize(("method", "shares"), [(BetaVAE(), True), (FactorVAE(), False)])
def test_large_other_networks_use_the_threads_of_pytorch(sprites: FactorData, method: Method, shares: bool) -> None:
    spec = RunSpec(method, sprites.name)
    assert Stack([spec], sprites, resolve_net(spec.net)[1]).shares_cores == shares


def test_shared_cores_restores_the_number_of_threads(threads: int) -> None:
    with shared_cores(), shared_cores():
        assert (usable_cores(), torch.get_num_threads()) == (threads, 1)
    assert (usable_cores(), torch.get_num_threads()) == (1, threads)


def test_tasks_return_their_results_in_order_and_raise_their_errors() -> None:
    assert run_tasks([lambda i=i: i**2 for i in range(10)], 3) == [i**2 for i in range(10)]
    with pytest.raises(ZeroDivisionError):
        run_tasks([lambda i=i: 1 // i for i in range(3)], 2)


def test_columns_are_divided_among_cores(threads: int) -> None:
    with shared_cores():
        parts = split_columns(torch.zeros(2, 300_001))
        assert [part.shape[1] for part in split_columns(torch.zeros(2, 100))] == [100]
    assert len(parts) == threads
    assert sum(part.shape[1] for part in parts) == 300_001
