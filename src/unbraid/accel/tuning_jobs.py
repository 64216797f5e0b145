"""The jobs that `unbraid tune` measures. Each job calls one kernel on random tensors with the sizes of a layer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unbraid.accel.adam import Adam
from unbraid.accel.kernels.blocked import empty_blocked
from unbraid.accel.kernels.conv2x2 import conv2x2, conv2x2_input_gradient, conv2x2_weight_gradient
from unbraid.accel.kernels.conv4x4 import conv4x4
from unbraid.accel.kernels.conv_transpose4x4 import conv_transpose4x4
from unbraid.accel.kernels.dense import dense, dense_input_gradient, dense_weight_gradient
from unbraid.accel.kernels.dense_adam import dense_adam
from unbraid.accel.kernels.last_layer import BERNOULLI, conv_transpose4x4_nll
from unbraid.accel.kernels.weights import conv4x4_weight_gradient, image_conv4x4_weight_gradient
from unbraid.accel.launch_candidates import Key

Job = Callable[[], Any]
BATCH = 64
SIDE = 64  # the side of the images, in pixels
BIAS = 1024  # the largest number of outputs of a layer
SMALL_SIDES = {
    (32, 32): 16,
    (32, 64): 8,
    (64, 64): 4,
}  # the side of the small image, by the channels of the large and the small image


@dataclass(frozen=True)
class Workload:
    """The tensors of one layer of several runs.

    Attributes:
        runs: The number of runs.
        dtype: The dtype of weights and activations: bfloat16, or float32 for tf32.
        device: The device.
        batch: The number of examples per run.
    """

    runs: int
    dtype: torch.dtype
    device: torch.device
    batch: int = BATCH

    def job(self, key: Key) -> Job:
        """Return a function that launches the kernel of a layer once."""
        name, c, m = key
        torch.manual_seed(0)
        for start, build in (("image", self._image), ("conv2x2", self._conv2x2), ("dense", self._dense)):
            if name.startswith(start):
                return build(name, c, m)
        return self._conv4x4(name, c, m)

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(self.runs, *shape, device=self.device).to(self.dtype)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(self.runs, *shape, device=self.device)

    def _blocked(self, side: int, channels: int) -> Tensor:
        """Return blocked images of random values."""
        return empty_blocked(self._zeros(self.batch), side, channels, self.dtype).normal_()

    def _small(self, h: int, m: int, plain: bool) -> Tensor:
        return self._random(self.batch, h, h, m) if plain else self._blocked(h, m)

    def _weights(self, size: int) -> tuple[Tensor, Tensor]:
        """Return the weights (r, size) and the bias of a layer. Both are views of one tensor with one row per run."""
        rows = self._random(size + BIAS) * 0.05
        return rows[:, :size], rows[:, size:]

    def _image(self, name: str, c: int, m: int) -> Job:
        """Return the job of the first layer of an encoder or of the last layer of a decoder."""
        half = SIDE // 2
        weight, bias = self._weights(16 * c * m)
        x, act = self._blocked(SIDE, c), self._blocked(half, m)
        if name == "image conv4x4":
            return partial(conv4x4, x, weight, bias, half, c, m, False)
        if name == "image conv_transpose4x4":
            target = torch.rand(self.runs, self.batch, {1: 1, 4: 3}[c], SIDE, SIDE, device=self.device)
            return partial(conv_transpose4x4_nll, act, weight, bias, target, c, False, BERNOULLI)
        gradient = functools.partial(image_conv4x4_weight_gradient, x, act, self._zeros(16 * c * m), half, c, False)
        if name == "image weight gradient":
            return gradient
        scale = self._zeros(self.batch) + 1 / self.batch
        return partial(gradient, weight, scale, torch.empty_like(act))

    def _conv4x4(self, name: str, c: int, m: int) -> Job:
        """Return the job of a 4x4 convolution or transposed convolution."""
        h = SMALL_SIDES[c, m]
        plain = h == 4
        weight, bias = self._weights(16 * c * m)
        big = self._blocked(2 * h, c)
        if name == "conv4x4":
            return partial(conv4x4, big, weight, bias, h, c, m, True)
        if name == "conv_transpose4x4 gradient":
            return partial(conv_transpose4x4, self._small(h, m, True), weight, None, h, c, m, True, big)
        little = self._small(h, m, plain)
        if name == "conv4x4 gradient":
            return partial(conv4x4, big, weight, None, h, c, m, plain, little)
        if name == "conv_transpose4x4":
            return partial(conv_transpose4x4, little, weight, bias, h, c, m, plain)
        return partial(conv4x4_weight_gradient, big, little, self._zeros(16 * c * m), h, c, m, plain)

    def _conv2x2(self, name: str, c: int, m: int) -> Job:
        """Return the job of a 2x2 convolution."""
        h = SMALL_SIDES[c, m]
        weight, bias = self._weights(4 * c * m)
        big, little = self._small(2 * h, c, True), self._small(h, m, True)
        if name == "conv2x2":
            return partial(conv2x2, big, weight, bias, h, c, m)
        if name == "conv2x2 input gradient":
            return partial(conv2x2_input_gradient, little, weight, big, h, c, m)
        return partial(conv2x2_weight_gradient, big, little, self._zeros(4 * c * m), h, c, m)

    def _dense(self, name: str, k: int, n: int) -> Job:
        """Return the job of a dense layer. The critic of FactorVAE, with 1000 units, reads two batches."""
        batch = 2 * self.batch if k == n else self.batch
        x, g = self._random(batch, k), self._random(batch, n)
        if name == "dense adam":
            return self._dense_adam(x, g)
        weight, bias = self._weights(k * n)
        if name == "dense":
            return partial(dense, x, weight, bias, (k, n), 0.0)
        if name == "dense input gradient":
            return partial(dense_input_gradient, g, weight, (k, n), x, 0.0, self.dtype)
        out = self._zeros(k * n + BIAS)
        half = self.dtype == torch.bfloat16
        return partial(dense_weight_gradient, x, g, out[:, : k * n], out[:, k * n :], (k, n), half)

    def _dense_adam(self, x: Tensor, g: Tensor) -> Job:
        """Return the job of Adam inside the kernel of a weight gradient."""
        k, n = x.shape[-1], g.shape[-1]
        rows = [self._zeros(k * n + BIAS) for _ in range(3)]
        state = (rows[0], rows[1], rows[2], self._random(k * n + BIAS))
        alive = torch.ones(self.runs, dtype=torch.bool, device=self.device)
        step = torch.ones((), dtype=torch.int64, device=self.device)
        rate = torch.zeros(self.runs, device=self.device)
        return partial(dense_adam, x, g, state, (k, n), k * n, rate, alive, step, Adam(1e-4))
