"""The weight gradient of a dense layer and the step of Adam in one kernel, so that the gradient is never stored."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.adam import Adam
from unbraid.accel.kernels.adam import corrections, load_state, scalars, store_update
from unbraid.accel.kernels.dense import fit_tiles, weight_gradient_tile
from unbraid.accel.kernels.jit import block_count, kernel
from unbraid.accel.kernels.tuned import launch_settings
from unbraid.accel.precision import product_precision


@kernel
def _dense_adam(
    X: tl.tensor, G: tl.tensor, ROW: tl.tensor, M1: tl.tensor, M2: tl.tensor, COPY: tl.tensor, RATE: tl.tensor,
    ALIVE: tl.tensor, STEP: tl.tensor, P: tl.tensor, bias: tl.tensor, rest1: tl.tensor, rest2: tl.tensor,
    log1: tl.tensor, log2: tl.tensor, epsilon: tl.tensor, B: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
    KX: tl.constexpr, NG: tl.constexpr, HALF: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, BK: tl.constexpr,
    IP: tl.constexpr,
) -> None:  # fmt: skip
    """Update the weights and the bias of one layer in each run.

    Row n of ROW, M1, M2 and COPY is the state of run n. The weights are at its start, and the bias is at offset `bias`.
    """
    n = tl.program_id(1).to(tl.int64)
    across: tl.constexpr = (N + TN - 1) // TN
    k = tl.program_id(0) // across * TM + tl.arange(0, TM)
    c = tl.program_id(0) % across * TN + tl.arange(0, TN)
    alive = tl.load(ALIVE + n) != 0
    at = n * P + k[:, None] * N + c[None, :]
    ok = (k < K)[:, None] & (c < N)[None, :] & alive
    p, m1, m2 = load_state(ROW, M1, M2, at, ok)  # before the products, because the loads then overlap with them
    acc, total = weight_gradient_tile(X + n * B * KX, G + n * B * NG, k, c, B, KX, NG, HALF, TM, TN, BK, IP)
    rate = tl.load(RATE + n)
    c1, c2 = corrections(STEP, log1, log2)
    store_update(ROW, M1, M2, COPY, at, ok, p, m1, m2, acc, rate, c1, c2, rest1, rest2, epsilon)
    if tl.program_id(0) < across:
        at1 = n * P + bias + c
        ok1 = (c < N) & alive
        q, b1, b2 = load_state(ROW, M1, M2, at1, ok1)
        store_update(ROW, M1, M2, COPY, at1, ok1, q, b1, b2, total, rate, c1, c2, rest1, rest2, epsilon)


def dense_adam(
    x: Tensor, g: Tensor, state: tuple[Tensor, Tensor, Tensor, Tensor], shape: tuple[int, int], bias: int, rate: Tensor,
    alive: Tensor, step: Tensor, constants: Adam,
) -> None:  # fmt: skip
    """Update the weights and the bias of a dense layer by Adam.

    Args:
        x: The input of the layer, (r, b, k).
        g: The gradient with respect to x W + bias, (r, b, n).
        state: The parameters, their first moments, their second moments and their copy, each (r, ...). Each row begins
            with the weights of the layer.
        shape: The padded shape (K, N) of the weights.
        bias: The offset of the bias from the first weight.
        rate: The learning rate of each run, (r,).
        alive: Whether each run is updated, (r,). Runs that are not updated keep their state.
        step: The number of this update, counted from 1, as a tensor on the device.
        constants: The other constants of Adam.
    """
    runs, batch, inputs = x.shape
    K, N = shape
    half = state[3].dtype == torch.bfloat16
    tuned = fit_tiles(launch_settings("dense adam", K, N, state[3].dtype, runs), TM=K, TN=N, BK=batch)
    grid = (block_count(K, tuned["TM"]) * block_count(N, tuned["TN"]), runs)
    precision = product_precision(state[3].dtype)
    sizes = {"B": batch, "K": K, "N": N, "KX": inputs, "NG": g.shape[-1], "HALF": half, "IP": precision}
    _dense_adam[grid](
        x.contiguous(), g.contiguous(), *state, rate, alive, step, state[0].stride(0), bias, *scalars(constants),
        **sizes, **tuned,
    )  # fmt: skip
