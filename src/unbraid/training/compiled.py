"""Compiling the step of a stack, and comparing its results with those of the step that is not compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from unbraid.accel.tracing import CompiledFunction
from unbraid.errors import warn_user
from unbraid.runs.spec import RunSpec

MIN_COMPILED_STEPS = 20_000  # shorter runs would not save the time that compiling takes, about ten seconds
# Maximum relative and absolute differences of compiled steps from those that are not compiled. Rounding can change the
# answers that the accuracy of PCL counts. An operation that is left out changes much more.
TERM_TOLERANCE, GRADIENT_TOLERANCE = (0.02, 0.15), (0.05, 1e-3)


def is_worth_compiling(spec: RunSpec, device: torch.device) -> bool:
    """Return whether the steps of a run are compiled by default.

    Penalties on the decoder, which compute it in float32, amplify rounding. Their results could not be compared.
    """
    return device.type == "cuda" and spec.steps >= MIN_COMPILED_STEPS and not spec.float32_networks


def compile_step(
    function: Callable[..., list[Tensor]],
    inputs: Sequence[Tensor],
    others: Sequence[Tensor],
    context: Callable[[], AbstractContextManager[None]],
) -> CompiledFunction | None:
    """Compile the function that computes the terms and the gradients of a step.

    Args:
        function: The function. Its first result has the terms, and the others are gradients and factors of gradients.
        inputs: Its arguments at one step.
        others: Its arguments at another step, at which results are compared. At the first one, a value that is not
            recorded would not be noticed, because it stays that of this step.
        context: Returns the context in which the function is called.

    Returns:
        The compiled function. If it cannot be compiled, or if its results differ, warn and return None.
    """
    try:
        with context():
            compiled = CompiledFunction(function, inputs)
        with context():
            found = compiled(*others)
    except Exception as error:  # the compiler raises many kinds of errors
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        warn_user(
            f"This step cannot be compiled. Training continues without compilation, which may be slower. {reason}"
        )
        return None
    with context():
        expected = function(*others)
    if difference := first_changed_result(found, expected):
        warn_user(
            f"Compiling this step changes its result. The difference is {difference}. Training continues without "
            "compilation, which may be slower. Objectives must be deterministic and use only PyTorch operations."
        )
        return None
    return compiled


def first_changed_result(found: Sequence[Tensor], expected: Sequence[Tensor]) -> str:
    """Return a description of the first tensor that differs from its expected value, or "" if there is none.

    The first tensor has the terms of each run, and each of its elements is compared. Of the others, (r, ...), the norm
    of the difference is compared for each run. Differences by rounding are allowed. Where the expected value is not
    finite, nothing is compared.
    """
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        error, size = (a - b).abs(), b.abs()
        relative, absolute = GRADIENT_TOLERANCE if i else TERM_TOLERANCE
        if i:
            error, size = (part.flatten(1).norm(dim=1) for part in (error, size))
        wrong = size.isfinite() & ~(error <= relative * size + absolute)
        if bool(wrong.any()):
            return f"{float(error[wrong][0]):.4g}, and the expected value is {float(size[wrong][0]):.4g}"
    return ""
