"""What a stack stores: the parameters of its runs, the state of their training, and the sums of their terms.

Methods, networks and datasets are written for one run. The parameters of each run of a stack are one flat row of a
matrix (see `unbraid.training.rows`), and a *member* is the index of a run, and of its row, in the stack. In shapes, r
is the number of runs and p the number of parameters of one run. *Terms* are the values that an objective logs, of which
the first is the loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from unbraid.accel.capture import supports_kernels
from unbraid.accel.sequential import use_fast_sequences
from unbraid.data.dataset import FactorData
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec
from unbraid.training.looped import needs_loop, reduce_precision
from unbraid.training.objective import ObjectiveModule
from unbraid.training.rows import Layout, Storage, adam_segments, buffer_places, state_sources


@dataclass(frozen=True)
class Divergence:
    """A run that became non-finite.

    Attributes:
        member: Index of the run in its stack.
        step: The first step with a non-finite value.
        term: Name of the term that was not finite, or "gradient".
    """

    member: int
    step: int
    term: str


class StackState:
    """The tensors of a stack. `Stack` describes the arguments.

    Attributes:
        storage: The order in which the parameters of a run are stored, and their constants of Adam.
        rows: The parameters of each run, (r, stored elements).
        copy: The parameters that kernels read, perhaps in a lower precision.
        modules: The network of each run, or a single network if `vmap` computes all runs.
        critics: For each network whose weight gradients the optimiser computes, the name of its parameter.
        alive: Whether each run is still finite, (r,).
        diverged_at: The step at which each run became non-finite, or -1, (r,).
        step: The number of steps taken so far.
        device_step: `step` as a tensor, for CUDA graphs.
        terms: The names of the terms.
        last: The terms of the last step, (r, terms).
        total: The sums of the terms for the log, (r, terms).
        logged_steps: The number of steps over which `total` is summed.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        data: FactorData,
        builder: PairBuilder,
        *,
        vmapped: bool | None = None,
        fused: bool | None = None,
        looped: bool | None = None,
    ) -> None:
        nets = [build_net(spec, data.shape, builder) for spec in specs]
        device = data.device
        self.specs, self.data, self.method = list(specs), data, specs[0].method
        self.vmapped = device.type != "cpu" if vmapped is None else vmapped
        self.kernels = supports_kernels(device) if fused is None else fused
        self._read_specs()
        rows = self._read_networks(nets)
        self._allocate(nets, rows, looped)
        self.alive = torch.ones(len(specs), dtype=torch.bool, device=device)
        self.diverged_at = torch.full((len(specs),), -1, device=device)
        self.step, self.logged_steps = 0, 0
        self.device_step = torch.zeros((), dtype=torch.int64, device=device)
        self.terms: list[str] = []
        self.last = self.total = torch.zeros(len(specs), 0, device=device)

    def _read_specs(self) -> None:
        """Store what differs between the runs, with one value per run."""
        device = self.data.device
        self.seeds = torch.tensor([spec.seed for spec in self.specs], device=device)
        self.hypers = {
            name: torch.tensor([getattr(spec.method, name) for spec in self.specs], device=device)
            for name in self.method.hypers()
        }

    def _read_networks(self, nets: list[VAENet]) -> list[Tensor]:
        """Store the layout of the networks and their buffers, and return their parameters as rows."""
        self.layout = Layout.from_module(nets[0])
        self.state_sources, self.buffer_places = state_sources(nets[0]), buffer_places(nets[0])
        rows = [self.layout.flatten(net) for net in nets]
        self.buffers = {
            name: torch.stack([dict(net.named_buffers())[name] for net in nets]).to(self.data.device)
            for name, _ in nets[0].named_buffers()
        }
        return rows

    def _allocate(self, nets: list[VAENet], rows: list[Tensor], looped: bool | None) -> None:
        """Allocate the parameters, the moments of Adam, and the copy of the parameters that kernels read."""
        device, spec = self.data.device, self.specs[0]
        self._choose_storage(nets[0])
        if looped is None:
            looped = self.vmapped and self.kernels and not self.storage.copied and needs_loop(spec, nets[0])
        self.looped = looped
        if looped and spec.precision == "bf16":
            reduce_precision(nets[0], device, spec.float32_networks)
        support = spec.factorised_support
        self.modules = [ObjectiveModule(net, support).to(device) for net in (nets[:1] if self.vmapped else nets)]
        self.critics = self._find_critics()
        self.rows = self.storage.to_storage_order(rows).to(device)
        if not self.vmapped:
            self._prepare_networks()
        self.moment1, self.moment2 = torch.zeros_like(self.rows), torch.zeros_like(self.rows)
        self.grad = self.rows.new_zeros(0) if self.vmapped else torch.zeros_like(self.rows)
        half = spec.precision == "bf16" and device.type == "cuda" and self.storage.copied
        self.copy = self.rows.to(torch.bfloat16) if half else self.rows
        self.rates = {name: _expand_per_run(adam.learning_rate, self.rows) for name, adam in self.storage.adams.items()}

    def _choose_storage(self, net: VAENet) -> None:
        """Choose the order in which parameters are stored, and replace networks for which kernels exist."""
        rate = torch.tensor([spec.learning_rate for spec in self.specs], device=self.data.device)
        method = dataclasses.replace(self.method, **self.hypers)
        if self.kernels:
            without_kernels, likelihood = self.method.networks_without_kernels, self.specs[0].likelihood
            self.storage = Storage.fused(net, method, rate, self.data.shape, likelihood, without_kernels)
        else:
            self.storage = Storage.unfused(self.layout, method, rate)
        self.segments = adam_segments(self.layout, method, rate)

    def _find_critics(self) -> dict[Hashable, str]:
        """Return the critics, whose weight gradients the optimiser computes in the precision of the copy."""
        owners = {name: self.modules[0].net.get_submodule(name.rpartition(".")[0]) for name in self.storage.copied}
        plans = {name: cast(Any, owner).plan for name, owner in owners.items()}
        return {plan: name for name, plan in plans.items() if not plan.convs and not self._is_float32(name)}

    def _prepare_networks(self) -> None:
        """Let the parameters of each network be views of its row, and use faster sequences of layers."""
        for module, row in zip(self.modules, self.rows, strict=True):
            views = self.layout.unflatten(row)
            for name, parameter in module.net.named_parameters():
                parameter.data = views[name]
            use_fast_sequences(module.net)

    def __len__(self) -> int:
        return len(self.specs)

    def _is_float32(self, name: str) -> bool:
        """Return whether the network of a parameter is computed in float32, from the parameters themselves."""
        return name.partition(".")[0] in self.specs[0].float32_networks

    def _allocate_terms(self, values: Tensor) -> None:
        """Allocate the sums for the log and the terms of the last step, once the number of terms is known."""
        if self.total.shape != values.shape:
            self.total = values.new_zeros(values.shape)
        if self.last.shape != values.shape:
            self.last = values.clone(memory_format=torch.contiguous_format)

    def pop_mean_terms(self) -> list[dict[str, float]]:
        """Return the terms of each run, averaged over the steps since the last call, and reset the sums."""
        rows = (self.total / max(self.logged_steps, 1)).tolist()
        self.total.zero_()
        self.logged_steps = 0
        return [dict(zip(self.terms, row, strict=True)) for row in rows]

    def divergences(self) -> list[Divergence]:
        """Return the runs that have diverged so far."""
        found = []
        for i in (~self.alive).nonzero().flatten().tolist():
            bad = (~self.last[i].isfinite()).nonzero().flatten().tolist()
            found.append(Divergence(i, int(self.diverged_at[i]), self.terms[bad[-1]] if bad else "gradient"))
        return found

    def weights(self, i: int) -> dict[str, Tensor]:
        """Return the parameters and buffers of member `i` by name, on the CPU. Its network can load them."""
        row = self.storage.to_checkpoint_order(self.rows[i])
        named = {**self.layout.unflatten(row), **{name: value[i] for name, value in self.buffers.items()}}
        return {name: named[of].detach().cpu().contiguous().clone() for name, of in self.state_sources.items()}

    def states(self) -> list[dict[str, Tensor]]:
        """Return the state of each run. A run can be resumed from its state, its spec and the step."""
        tensors = {name: self.storage.to_checkpoint_order(value) for name, value in self._row_tensors().items()}
        tensors |= {name: value.detach().cpu() for name, value in self._other_tensors().items()}
        steps = torch.tensor(self.logged_steps)
        return [
            {**{name: value[i].contiguous() for name, value in tensors.items()}, "counted": steps}
            for i in range(len(self))
        ]

    def load_state(self, i: int, state: dict[str, Tensor]) -> None:
        """Load a state that `states` returned for one run into member `i`."""
        self.logged_steps = int(state["counted"])
        if self.total.shape[1] != len(state["total"]):
            self.total = self.total.new_zeros(len(self), len(state["total"]))
        for name, target in self._row_tensors().items():
            target[i].copy_(self.storage.to_storage_order([state[name]])[0])
        for name, target in self._other_tensors().items():
            target[i].copy_(state[name])
        self.copy[i].copy_(self.rows[i])

    def resume(self, step: int) -> None:
        """Set the number of steps taken so far. Call this with the step of the loaded states."""
        self.step = step
        self.device_step.fill_(step)

    def stop(self, members: Sequence[int]) -> None:
        """Stop updating the rows of these members, as if they had diverged."""
        for i in members:
            self.alive[i] = False

    def _row_tensors(self) -> dict[str, Tensor]:
        """Return the parameters and the moments of Adam, each (r, p), by their names in checkpoints."""
        return {"row": self.rows, "moment1": self.moment1, "moment2": self.moment2}

    def _other_tensors(self) -> dict[str, Tensor]:
        """Return the other tensors that change during training, with one row per run, by their names in checkpoints."""
        return {"total": self.total, **{f"buffer.{name}": value for name, value in self.buffers.items()}}


def _expand_per_run(value: float | Tensor, rows: Tensor) -> Tensor:
    """Expand a number or a tensor to a contiguous float32 tensor (r), with one value per row."""
    return torch.as_tensor(value, dtype=torch.float32, device=rows.device).expand(len(rows)).contiguous()
