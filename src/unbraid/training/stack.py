"""A stack of runs, which performs one training step of many runs in one computation.

The networks of all runs of a stack have the same shape. Only the package `training` stacks runs. `StackState` has the
tensors of a stack, `StackGradients` computes gradients, and `Stack` takes steps with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unbraid.accel.adam import adam_step, clip_gradients, decay_weights, fused_adam_step
from unbraid.accel.capture import CapturedStep
from unbraid.data.dataset import FactorData
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec
from unbraid.training.parts import BatchPart
from unbraid.training.stack_gradients import StackGradients


class Stack(StackGradients):
    """Runs that differ only in seed, learning rate and `Hyper` fields, with the state of their training.

    A run never depends on the other runs of its stack. Its data and noise are functions of its seed and the step, and
    its row is updated from its own gradient. When a run becomes non-finite, its row is not updated any more, and the
    other runs continue.

    On a CPU, the runs are computed one after another with ordinary operations. On other devices, `vmap` computes all
    runs at once. On a GPU with Triton, networks for which kernels exist are replaced by fused ones (see
    `unbraid.training.fused`), and from the third step on, the whole step is replayed as one CUDA graph. With bf16, a
    user's own convolutional networks for which no kernels exist are computed one run after another inside this graph
    (see `unbraid.training.looped`).

    Args:
        specs: The specs, whose `stack_key` must be equal.
        data: The dataset, on the device to train on.
        builder: Function that builds the encoder and decoder of a run.
        vmapped: Whether to compute all runs at once with `vmap`. By default, this is done on every device except the
            CPU.
        threads: The number of CPU threads that compute different runs. Only used if not `vmapped`.
        fused: Whether to use kernels. By default, they are used if the device supports them.
        looped: Whether to compute one run after another where `vmapped` would compute all runs at once. By default,
            this is done on a GPU with bf16 for a user's own convolutional networks for which no kernels exist.
        compiled: Whether to compile the objective and its gradients (see `unbraid.accel.tracing`). By default, this is
            done on a GPU in runs of at least MIN_COMPILED_STEPS steps. It is never done if no network has kernels, or
            if a network has buffers.
        stream_index: Index of the CUDA stream on which the graph is captured. Stacks that train at the same time need
            different streams.
        part: The part of each batch that this process computes, if several processes train the stack together. Their
            gradients and terms are averaged. Steps are then neither compiled nor captured. By default, this process
            computes whole batches.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        data: FactorData,
        builder: PairBuilder,
        *,
        vmapped: bool | None = None,
        threads: int = 1,
        fused: bool | None = None,
        looped: bool | None = None,
        compiled: bool | None = None,
        stream_index: int = 0,
        part: BatchPart | None = None,
    ) -> None:
        super().__init__(
            specs, data, builder, vmapped=vmapped, threads=threads, fused=fused, looped=looped, compiled=compiled,
            stream_index=stream_index, part=part,
        )  # fmt: skip
        captured = self.kernels and part is None and data.device.type == "cuda"
        self.captured = CapturedStep(data.device, stream_index) if captured else None

    def advance(self) -> None:
        """Take one training step of every run that is still finite."""
        if self.part is not None:
            self.part.begin_step()
        if self.captured is not None:
            self.captured.run(self._step_vmapped)
        elif self.vmapped:
            self._step_vmapped()
        else:
            self._step_one_by_one()
        self.step += 1
        self.logged_steps += 1

    def _step_vmapped(self) -> None:
        """Take a step with `vmap`.

        After the first step, which may be compiled, it never waits for the device. It works in place, so that a CUDA
        graph can capture it.
        """
        clip = self.specs[0].clip_norm
        whole_gradients = clip or self.part is not None
        values, grads, postponed = self._differentiate(self.device_step, () if whole_gradients else self.critics)
        if self.part is not None:
            values, *averaged = self.part.average([values, *grads.values()])
            grads = dict(zip(grads, averaged, strict=True))
        products = {self.critics[network]: found for network, found in postponed.items()}
        flat = {name: g.reshape(len(self), -1).contiguous() for name, g in grads.items() if name not in products}
        if self.kernels:
            factors = [factor.flatten(1) for found in products.values() for p in found for factor in (p.x, p.g)]
            self._record_terms_in_kernels(values, [*flat.values(), *factors])
            self.device_step.add_(1)
            if clip:
                clip_gradients([flat[name] for name, adam in self.storage.adams.items() if adam.regularised], clip)
            with self._matmul_precision():
                self._adam_in_kernels(flat, products)
        else:
            self._record_terms(values, torch.stack([grad.sum(1) for grad in flat.values()]).sum(0))
            self.device_step.add_(1)
            self._adam_in_pytorch(torch.where(self.alive[:, None], torch.cat(list(flat.values()), 1), 0.0))

    def _step_one_by_one(self) -> None:
        """Take a step with ordinary operations, for the CPU."""
        values, grad = self._gradients_one_by_one(self.device_step)
        if self.part is not None:
            values, grad = self.part.average([values, grad])
        self._record_terms(values, grad.sum(1))
        self.device_step.add_(1)
        self._adam_in_pytorch(grad)

    def _record_terms(self, values: Tensor, sums: Tensor) -> None:
        """Add the terms to the sums for the log, and record which runs are still finite.

        Args:
            values: The terms of each run, (r, terms).
            sums: The sum of the gradient of each run, (r,). It is finite only if the whole gradient is finite.
        """
        self._allocate_terms(values)
        self.last.copy_(torch.where(self.alive[:, None], values, self.last))
        self.total.add_(self.last)
        finite = values.isfinite().all(1) & sums.isfinite()
        self.diverged_at.copy_(torch.where(self.alive & ~finite, self.device_step, self.diverged_at))
        self.alive.logical_and_(finite)

    def _record_terms_in_kernels(self, values: Tensor, grads: list[Tensor]) -> None:
        """Do the same as `_record_terms` with GPU kernels.

        `grads` contains the gradients of the parameters. A gradient that is not stored is replaced by its factors.
        """
        from unbraid.accel.kernels.record import block_sums, record

        self._allocate_terms(values)
        sums = block_sums(grads)
        record(values, sums, self.last, self.total, self.alive, self.diverged_at, self.device_step)

    def _adam_in_kernels(self, grads: dict[str, Tensor], products: dict[str, list[Any]]) -> None:
        """Update the parameters by Adam, with one kernel launch per tensor in `grads` and per layer in `products`."""
        from unbraid.accel.fitted import dense_adam
        from unbraid.accel.kernels.adam import adam

        decay = self.specs[0].weight_decay
        for name, span in self.storage.layout.spans().items():
            constants = self.storage.adams[name]
            if decay and constants.regularised:
                decay_weights(self.rows[:, span], torch.where(self.alive, self.rates[name], 0.0)[:, None], decay)
            common = (self.rates[name], self.alive, self.device_step, constants)
            if name in grads:
                adam(*self._optimiser_state(span), grads[name], *common)
            for layer, x, g in products.get(name, ()):
                start, bias = layer.weight.start, layer.bias.start
                state = self._optimiser_state(slice(span.start + start, span.stop))
                dense_adam(x, g, state, layer.matrix, bias - start, *common)

    def _optimiser_state(self, columns: slice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return some columns of the parameters, of both moments of Adam and of the copy that kernels read."""
        return self.rows[:, columns], self.moment1[:, columns], self.moment2[:, columns], self.copy[:, columns]

    def _adam_in_pytorch(self, grad: Tensor) -> None:
        """Update the parameters by Adam with PyTorch operations on whole segments of the rows."""
        t, decay, clip = self.step + 1, self.specs[0].weight_decay, self.specs[0].clip_norm
        if clip:
            clip_gradients([grad[:, s.start : s.stop] for s in self.segments if s.adam.regularised], clip)
        for s in self.segments:
            part = slice(s.start, s.stop)
            rate = torch.where(self.alive, torch.as_tensor(s.adam.learning_rate), 0.0)[:, None]
            row, gradient, moment1, moment2 = (x[:, part] for x in (self.rows, grad, self.moment1, self.moment2))
            if decay and s.adam.regularised:
                decay_weights(row, rate, decay)
            step = adam_step if self.vmapped else fused_adam_step
            step(row, gradient, moment1, moment2, rate, t, s.adam)
