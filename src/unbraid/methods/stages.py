"""Schedules of stages: which latents or groups of latents a method has begun to train."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from unbraid.methods.method import Hyper, setting


def stages_setting(default: float, unit: str) -> Any:
    """Return the dataclass field for the number of steps until the last stage begins.

    Args:
        default: The default number of steps.
        unit: What each stage adds, such as "latent".
    """
    text = f"number of training steps until the stage of the last {unit} begins; should not exceed the steps of the run"
    return setting(default, text, low=1)


def begun_stages(count: int, step: Tensor, threshold: Hyper) -> Bool[Tensor, " n"]:
    r"""Return which of n stages have begun at a step. Stage i of 0, ..., n - 1 begins at step :math:`i T / (n - 1)`.

    Stages have equal lengths, except for the last stage, which lasts until the end of the run. A single stage begins at
    step 0.

    Args:
        count: The number n of stages.
        step: The index of the step, which starts at 0.
        threshold: The step T at which the last stage begins.

    >>> [begun_stages(3, torch.tensor(step), 100.0).tolist() for step in (0, 50, 100)]
    [[True, False, False], [True, True, False], [True, True, True]]
    """
    return step * max(count - 1, 1) >= threshold * torch.arange(count, device=step.device)
