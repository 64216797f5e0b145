"""Encoding the same examples with many trained encoders at the same time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unbraid.accel.kernels.blocked import to_blocked
from unbraid.accel.precision import matmul_precision
from unbraid.errors import UserError
from unbraid.training.fused import dense
from unbraid.training.fused.functions import convolve
from unbraid.training.fused.networks import plan_encoder


class StackEncoder:
    """Encoders of the same architecture that encode examples at the same time, with one parameter row per encoder.

    Args:
        encoders: The encoders of r runs.
        shape: Shape (c, h, h) of the examples.
        precision: Precision of matrix products, which should be the one in which the runs were trained.

    Raises:
        UserError: If no kernels exist for the encoders.
    """

    def __init__(self, encoders: Sequence[nn.Module], shape: tuple[int, ...], precision: str) -> None:
        plan = plan_encoder(encoders[0], shape)
        if plan is None:
            raise UserError(
                f"The encoder must be a network for which kernels exist. Got {encoders[0]} for images of shape {shape} "
                "instead. Encode with each run separately."
            )
        self.plan, self.precision = plan, precision
        values = torch.stack([torch.cat([p.detach().flatten() for p in net.parameters()]) for net in encoders])
        half = precision == "bf16" and values.device.type == "cuda"
        self.rows = values.new_zeros(len(encoders), plan.packing.size)
        self.rows[:, plan.packing.positions.to(values.device)] = values
        self.rows = self.rows.bfloat16() if half else self.rows

    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs (r, b, 2d) of all encoders for examples (b, c, h, h)."""
        with matmul_precision(self.precision):
            image = to_blocked(x[None], self.plan.convs[0].C, self.rows.dtype)
            image = image.expand(len(self.rows), *image.shape[1:])
            for layer in self.plan.convs:
                image = convolve(self.rows, layer, image)
            values = dense.forward(self.rows, self.plan.dense, image.flatten(2), self.plan.outputs)
        return values[-1]
