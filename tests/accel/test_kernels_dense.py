"""Kernels of dense layers, of the end of a step and of partial sums agree with PyTorch in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from support.guarded import DEVICE

pytest.importorskip("triton", reason="Triton is not installed here")

from support.layers import assert_near, guarded_copy, randn
from unbraid.accel.adam import Adam, adam_step
from unbraid.accel.kernels import tuned
from unbraid.accel.kernels.dense import dense, dense_input_gradient, dense_weight_gradient
from unbraid.accel.kernels.dense_adam import dense_adam
from unbraid.accel.kernels.jit import divisor
from unbraid.accel.kernels.part_sums import FEW_PARTS, JOBS, PartSums
from unbraid.accel.kernels.record import block_sums, record

pytestmark = pytest.mark.usefixtures("poisoned")

# (runs, batch, inputs, padded inputs, outputs, padded outputs)
Sizes = tuple[int, int, int, int, int, int]
SIZES: list[Sizes] = [(2, 5, 10, 16, 40, 40), (1, 70, 72, 72, 20, 24), (3, 1, 8, 8, 2, 8), (2, 66, 128, 128, 136, 136)]


def padded(values: Tensor, *shape: int) -> Tensor:
    """The same numbers, with zeros appended along the last axes."""
    full = values.new_zeros(*values.shape[: -len(shape)], *shape)
    full[(..., *(slice(0, n) for n in values.shape[-len(shape) :]))] = values
    return full


def in_rows(w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights and biases as parts of longer rows of NaN, and these rows."""
    wide = torch.full((len(w), w[0].numel() + b.shape[1] + 64), math.nan, device=DEVICE)
    middle = 24 + w[0].numel()
    wide[:, 24:middle] = w.flatten(1)
    wide[:, middle : middle + b.shape[1]] = b
    return wide[:, 24:middle], wide[:, middle : middle + b.shape[1]], wide


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_dense(sizes: Sizes, slope: float) -> None:
    """A layer has its bias and activation. Padded outputs are zero, and `outputs` removes them."""
    runs, batch, k, K, n, N = sizes
    x, w, b = randn(runs, batch, k), randn(runs, k, n, scale=0.1), randn(runs, n)
    weight, bias, _ = in_rows(padded(w, K, N), padded(b, N))
    y = x @ w + b[:, None]
    wanted = torch.where(y > 0, y, slope * y)
    assert_near(dense(guarded_copy(x), weight, bias, (K, N), slope), padded(wanted, N))
    assert_near(dense(guarded_copy(x), weight, bias, (K, N), slope, n), wanted)


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_dense_gradients(sizes: Sizes, slope: float) -> None:
    """The input gradient passes the activation before the layer, and its sums over the batch are right."""
    runs, batch, k, K, n, N = sizes
    x, g, w = randn(runs, batch, k), randn(runs, batch, n), randn(runs, k, n, scale=0.1)
    weight, _, _ = in_rows(padded(w, K, N), padded(randn(runs, n), N))
    found, part = dense_input_gradient(guarded_copy(g), weight, (K, N), guarded_copy(x), slope, torch.float32, True)
    gx = g @ w.mT
    wanted = torch.where(x > 0, gx, slope * gx)
    assert_near(found, wanted)
    assert_near(part.sum(1), wanted.sum(1))
    out = torch.full((runs, K * N + N + 40), math.nan, device=DEVICE)
    dense_weight_gradient(
        guarded_copy(x), guarded_copy(g), out[:, 16 : 16 + K * N], out[:, 16 + K * N : -24], (K, N), half=False
    )
    assert_near(out[:, 16 : 16 + K * N].view(runs, K, N), padded(x.mT @ g, K, N))
    assert_near(out[:, 16 + K * N : -24], padded(g.sum(1), N))
    assert bool(out[:, :16].isnan().all() and out[:, -24:].isnan().all())


@pytest.mark.parametrize("sizes", SIZES[:3], ids=str)
def test_dense_adam_equals_a_gradient_and_a_step(sizes: Sizes) -> None:
    """Runs that have diverged, and all other parts of the rows, do not change."""
    runs, batch, k, K, n, N = sizes
    x, g = randn(runs, batch, k), randn(runs, batch, n)
    grad = torch.cat([padded(x.mT @ g, K, N).flatten(1), padded(g.sum(1), N)], 1)
    state = [torch.randn(runs, 16 + grad.shape[1] + 24, device=DEVICE) for _ in range(4)]
    state[2].abs_()
    before = [values.clone() for values in state]
    rate, alive = torch.full((runs,), 0.1, device=DEVICE), torch.ones(runs, dtype=torch.bool, device=DEVICE)
    alive[-1] = runs == 1
    inside = slice(16, 16 + grad.shape[1])
    views = (state[0][:, 16:], state[1][:, 16:], state[2][:, 16:], state[3][:, 16:])
    constants = Adam(0.1, 0.5, 0.9)
    step = torch.tensor(3, device=DEVICE)
    dense_adam(guarded_copy(x), guarded_copy(g), views, (K, N), K * N, rate, alive, step, constants)
    row, first, second = (values[:, inside].cpu().double() for values in before[:3])
    adam_step(row, grad.clone(), first, second, rate.cpu().double()[:, None], 3, constants)
    for found, wanted, start in zip(state, (row, first, second, row), before, strict=True):
        torch.testing.assert_close(
            found[:, inside].cpu().double()[alive.cpu()], wanted[alive.cpu()], rtol=1e-5, atol=1e-5
        )
        assert torch.equal(found[~alive], start[~alive])
        assert torch.equal(found[:, :16], start[:, :16])
        assert torch.equal(found[:, inside.stop :], start[:, inside.stop :])


def test_part_sums_of_many_gradients() -> None:
    """More sums than one launch holds, with few and many parts, are written to their places and nowhere else."""
    runs, shapes = 2, [(1, 5), (FEW_PARTS, 130), (FEW_PARTS + 1, 32), (70, 64), (130, 1)] * 3
    assert len(shapes) > JOBS
    wide, sums, start, wanted = torch.full((runs, 4000), math.nan, device=DEVICE), PartSums(), 8, []
    for parts, size in shapes:
        values = randn(runs, parts, size)
        sums.add(guarded_copy(values), wide[:, start : start + size])
        wanted.append((start, values.sum(1)))
        start += size + 8
    sums.run()
    for place, total in wanted:
        assert_near(wide[:, place : place + total.shape[1]], total)
        assert bool(wide[:, place - 8 : place].isnan().all())
    assert bool(wide[:, start - 8 :].isnan().all())


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["term", "gradient"])
def test_record_stops_runs_that_are_not_finite(bad: float | None, place: str) -> None:
    """Terms are summed. The first non-finite term or gradient ends a run, and a run that has ended stays unchanged."""
    runs, terms = 4, 3
    values, grads = torch.randn(terms, runs, device=DEVICE).T, [torch.randn(runs, p, device=DEVICE) for p in (9000, 3)]
    if bad is not None:
        (values if place == "term" else grads[1])[1, 2] = bad
        grads[0][3, 8500] = bad
    last, total = torch.randn(2, runs, terms, device=DEVICE).unbind()
    alive = torch.tensor([True, True, False, True], device=DEVICE)
    diverged_at, step = torch.tensor([-1, -1, 5, -1], device=DEVICE), torch.tensor(7, device=DEVICE)
    before, sums = last.clone(), total.clone()
    parts = block_sums(grads)
    record(values, parts, last, total, alive, diverged_at, step)
    wanted = torch.where(torch.tensor([[True], [True], [False], [True]], device=DEVICE), values, before)
    torch.testing.assert_close(last, wanted, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(total, sums + wanted, equal_nan=True)
    ended = [False, bad is not None, True, bad is not None]
    assert alive.tolist() == [not end for end in ended]
    assert diverged_at.tolist() == [-1, 7 if bad is not None else -1, 5, 7 if bad is not None else -1]
    if bad is None:
        torch.testing.assert_close(parts.sum(1), sum(g.sum(1) for g in grads), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("n", "most", "wanted"), [(16, 8, 8), (4, 8, 4), (6, 4, 3), (7, 4, 1), (1, 1, 1)])
def test_divisor(n: int, most: int, wanted: int) -> None:
    assert divisor(n, most) == wanted


def test_settings_depend_on_the_number_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings with the smallest limit that is not exceeded are used, and the last ones beyond all limits."""
    table = {("conv2x2", 32, 64): {25: {"BM": 16}, 2: {"BM": 8}, 256: {"BM": 64}}}
    monkeypatch.setattr(tuned, "BFLOAT16", table)
    found = [tuned.launch_settings("conv2x2", 32, 64, torch.bfloat16, runs)["BM"] for runs in (1, 2, 3, 25, 26, 999)]
    assert found == [8, 8, 16, 16, 64, 64]
    assert tuned.launch_settings("conv2x2", 64, 64, torch.bfloat16, 1) == tuned.DEFAULT["conv2x2"]
