"""Adam for some of the parameters of every run. It also updates a copy of them, which other kernels read."""

from __future__ import annotations

import math

import triton.language as tl
from torch import Tensor

from unbraid.accel.adam import Adam
from unbraid.accel.kernels.jit import block_count, kernel
from unbraid.accel.kernels.tuned import launch_settings


@kernel
def corrections(STEP: tl.tensor, log1: tl.tensor, log2: tl.tensor) -> tl.tensor:
    """Return the bias corrections 1 - beta^t of both moments, from the logarithms of the two betas."""
    t = tl.load(STEP).to(tl.float64)
    return (1.0 - tl.exp(t * log1)).to(tl.float32), (1.0 - tl.exp(t * log2)).to(tl.float32)


@kernel
def load_state(ROW: tl.tensor, M1: tl.tensor, M2: tl.tensor, at: tl.tensor, ok: tl.tensor) -> tl.tensor:
    """Load parameters and their moments."""
    m1 = tl.load(M1 + at, mask=ok, other=0.0)
    m2 = tl.load(M2 + at, mask=ok, other=0.0)
    return tl.load(ROW + at, mask=ok, other=0.0), m1, m2


@kernel
def store_update(
    ROW: tl.tensor, M1: tl.tensor, M2: tl.tensor, COPY: tl.tensor, at: tl.tensor, ok: tl.tensor, p: tl.tensor,
    m1: tl.tensor, m2: tl.tensor, g: tl.tensor, rate: tl.tensor, c1: tl.tensor, c2: tl.tensor, rest1: tl.tensor,
    rest2: tl.tensor, epsilon: tl.tensor,
) -> None:  # fmt: skip
    """Update parameters p with moments m1 and m2 and gradients g by Adam, and store the parameters and the moments.

    c1 and c2 are the bias corrections 1 - beta^t of the two moments, and rest1 and rest2 are 1 - beta.
    """
    m1 += rest1 * (g - m1)
    m2 += rest2 * (g * g - m2)
    p -= rate * (m1 / c1) / (tl.sqrt(m2 / c2) + epsilon)
    tl.store(M1 + at, m1, mask=ok)
    tl.store(M2 + at, m2, mask=ok)
    tl.store(ROW + at, p, mask=ok)
    tl.store(COPY + at, p.to(COPY.dtype.element_ty), mask=ok)


@kernel
def _adam(
    ROW: tl.tensor, GRAD: tl.tensor, M1: tl.tensor, M2: tl.tensor, COPY: tl.tensor, RATE: tl.tensor, ALIVE: tl.tensor,
    STEP: tl.tensor, P: tl.tensor, stride: tl.tensor, rest1: tl.tensor, rest2: tl.tensor, log1: tl.tensor,
    log2: tl.tensor, epsilon: tl.tensor, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Update a block of parameters of one run. P is the number of parameters of a run.

    `stride` is the distance between the rows of two runs in all tensors except GRAD, whose rows are contiguous.
    """
    n = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    alive = tl.load(ALIVE + n) != 0
    ok = (r < P) & alive
    rate = tl.load(RATE + n)
    c1, c2 = corrections(STEP, log1, log2)
    at = n * stride + r
    g = tl.load(GRAD + n * P + r, mask=ok, other=0.0)
    p, m1, m2 = load_state(ROW, M1, M2, at, ok)
    store_update(ROW, M1, M2, COPY, at, ok, p, m1, m2, g, rate, c1, c2, rest1, rest2, epsilon)


def _log(beta: float) -> float:
    """Return the natural logarithm of beta, or minus infinity if beta is 0."""
    return math.log(beta) if beta > 0 else -math.inf


def scalars(constants: Adam) -> tuple[float, float, float, float, float]:
    """Return the arguments rest1, rest2, log1, log2 and epsilon of the kernels of Adam.

    rest1 and rest2 are 1 - beta for the two betas, and log1 and log2 are the logarithms of the betas.
    """
    beta1, beta2 = constants.beta1, constants.beta2
    return 1 - beta1, 1 - beta2, _log(beta1), _log(beta2), constants.epsilon


def adam(
    row: Tensor, moment1: Tensor, moment2: Tensor, copy: Tensor, grad: Tensor, rate: Tensor, alive: Tensor,
    step: Tensor, constants: Adam,
) -> None:  # fmt: skip
    """Update rows in place like `unbraid.accel.adam.adam_step`. Gradients must be contiguous.

    Args:
        row: The parameters of each run, (r, p).
        moment1: The first moments of Adam, (r, p).
        moment2: The second moments of Adam, (r, p).
        copy: Receives the new parameters in its own dtype, (r, p).
        grad: The gradients, (r, p).
        rate: The learning rate of each run, (r,).
        alive: Whether each run is updated, (r,). Runs that are not updated keep their state.
        step: The number of this update, counted from 1, as a tensor on the device.
        constants: The other constants of Adam.
    """
    runs, p = grad.shape
    tuned = launch_settings("adam", 0, 0, copy.dtype, runs)
    _adam[(block_count(p, tuned["BLOCK"]), runs)](
        row, grad, moment1, moment2, copy, rate, alive, step, p, row.stride(0),
        *scalars(constants), **tuned,
    )  # fmt: skip
