"""The only code that knows runs are stacked: many runs of one shape, advancing together."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from unbraid.accel.adam import adam_step
from unbraid.accel.capture import Captured, kernels_on
from unbraid.accel.precision import multiplying
from unbraid.data.dataset import FactorData
from unbraid.methods.method import Batch, Method
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec
from unbraid.training.rows import Layout, Storage, segments

DATA, OBJECTIVE, EXAMPLES = 0, 1, 2  # noise streams


@functools.cache
def workers(n: int) -> ThreadPoolExecutor:
    """Threads that share the cores, each computing on its part of them."""
    return ThreadPoolExecutor(n, initializer=torch.set_num_threads, initargs=(max(1, torch.get_num_threads() // n),))


class Trainee(nn.Module):
    """A network whose forward pass is a method's objective, so that `functional_call` can swap its parameters."""

    def __init__(self, net: VAENet) -> None:
        super().__init__()
        self.net = net

    def forward(self, method: Method, batch: Batch, noise: Noise, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return method.objective(self.net, batch, noise, step)


@dataclass(frozen=True)
class Divergence:
    """A run that stopped being finite: which of the stack, at which step, in which term."""

    member: int
    step: int
    term: str


def _each(value: float | Tensor, rows: Tensor) -> Tensor:
    """A number for every run."""
    return torch.as_tensor(value, dtype=torch.float32, device=rows.device).expand(len(rows)).contiguous()


class Stack:
    """Runs that share all but seed, learning rate and `Hyper` fields, as rows of one state.

    A run does not know its neighbours: its data and noise are functions of (seed, step), its row is updated from its
    own gradient, and a row that is no longer finite is set aside without touching the others.

    On a CPU runs go through ordinary kernels in turn, elsewhere all at once under `vmap`. Where Triton is, networks
    that have kernels are `fused`, and from the third step on the whole step is one CUDA graph.
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
        lane: int = 0,
    ) -> None:
        nets = [build_net(spec, data.shape, builder) for spec in specs]
        device = data.device
        self.specs, self.data, self.method = list(specs), data, specs[0].method
        self.vmapped = device.type != "cpu" if vmapped is None else vmapped
        self.threads = threads
        self.seeds = torch.tensor([spec.seed for spec in specs], device=device)
        self.hypers = {
            name: torch.tensor([getattr(spec.method, name) for spec in specs], device=device)
            for name in self.method.hypers()
        }
        self.layout = Layout.of(nets[0])
        rows = [self.layout.flatten(net) for net in nets]
        self.buffers = {
            name: torch.stack([dict(net.named_buffers())[name] for net in nets]).to(device)
            for name, _ in nets[0].named_buffers()
        }
        self.kernels = kernels_on(device) if fused is None else fused
        self._arrange(nets, rows, self.kernels if fused is None else fused)
        self.alive = torch.ones(len(specs), dtype=torch.bool, device=device)
        self.died = torch.full((len(specs),), -1, device=device)
        self.step = 0
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self.terms: list[str] = []
        self.last = self.total = torch.zeros(len(specs), 0, device=device)
        self.counted = 0
        self.captured = Captured(device, lane) if self.kernels and device.type == "cuda" else None

    def _arrange(self, nets: list[VAENet], rows: list[Tensor], kernels: bool) -> None:
        """Lay out the rows, the moments and, for kernels, the copy they read."""
        device, spec = self.data.device, self.specs[0]
        rate = torch.tensor([spec.learning_rate for spec in self.specs], device=device)
        method = dataclasses.replace(self.method, **self.hypers)
        if kernels and spec.precision != "fp32":
            self.storage = Storage.fused(nets[0], method, rate, self.data.shape, spec.likelihood)
        else:
            self.storage = Storage.plain(self.layout, method, rate)
        self.segments = segments(self.layout, method, rate)
        self.trainees = [Trainee(net).to(device) for net in (nets[:1] if self.vmapped else nets)]
        self.rows = self.storage.store(rows).to(device)
        self.moment1, self.moment2 = torch.zeros_like(self.rows), torch.zeros_like(self.rows)
        self.grad = self.rows.new_zeros(0) if self.vmapped else torch.zeros_like(self.rows)
        half = spec.precision == "bf16" and device.type == "cuda" and self.storage.copied
        self.copy = self.rows.to(torch.bfloat16) if half else self.rows
        self.rates = {name: _each(adam.learning_rate, self.rows) for name, adam in self.storage.adams.items()}

    def __len__(self) -> int:
        return len(self.specs)

    def objective(
        self,
        parameters: dict[str, Tensor],
        buffers: dict[str, Tensor],
        hypers: dict[str, Tensor],
        seed: Tensor,
        step: Tensor,
        member: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """The loss of one run at one step, and (loss, *terms) to log."""
        spec, method = self.specs[0], dataclasses.replace(self.method, **hypers)
        drawn = method.draw(self.data, Noise.of(seed, step, DATA), spec.batch)
        x = self.data.batch(drawn.examples, Noise.of(seed, step, EXAMPLES))
        batch = Batch(x, len(self.data), drawn.changed, spec.steps)
        state = {f"net.{name}": value for name, value in {**parameters, **buffers}.items()}
        loss, logs = functional_call(
            self.trainees[member], state, (method, batch, Noise.of(seed, step, OBJECTIVE), step.to(torch.float32))
        )
        self.terms = ["loss", *logs]
        return loss, torch.stack([loss, *logs.values()]).detach()

    def _gradients(self, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """(r, terms) values and (r, ...) gradients of all runs at once, the way of a GPU."""
        columns = self.storage.layout.columns(self.rows)
        leaves = {name: part.detach().requires_grad_() for name, part in columns.items()}
        copies = self.storage.layout.columns(self.copy)
        read = {f"{name.removesuffix('.row')}.copy": copies[name] for name in self.storage.copied}
        mapped = vmap(self.objective, in_dims=(0, 0, 0, 0, None))
        with multiplying(self.specs[0].precision):
            loss, values = mapped(leaves, {**self.buffers, **read}, self.hypers, self.seeds, step)
            given = list(leaves.values())
            found = torch.autograd.grad(loss.sum(), given, allow_unused=True, materialize_grads=True)
        return values, dict(zip(leaves, found, strict=True))

    def _gradients_in_turn(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """The same through ordinary kernels, which are faster on a CPU.

        One run after another with all cores, or with `threads` several at once that share them. Runs set aside cost
        nothing.
        """
        members = self.alive.nonzero().flatten().tolist()
        each = workers(self.threads).map if self.threads > 1 else map
        found = dict(zip(members, each(self._gradient, members, [step] * len(members)), strict=True))
        values = [found[i] if i in found else self.last[i] for i in range(len(self))]
        return torch.stack(values), self.grad

    def _gradient(self, i: int, step: Tensor) -> Tensor:
        """The values of one run; its gradient goes into its row of `grad`."""
        row = self.rows[i].detach().requires_grad_()
        buffers, hypers = ({k: v[i] for k, v in part.items()} for part in (self.buffers, self.hypers))
        loss, values = self.objective(self.layout.unflatten(row), buffers, hypers, self.seeds[i], step, i)
        self.grad[i] = torch.autograd.grad(loss, row)[0]
        return values

    def advance(self) -> None:
        """One optimiser step of every run that is still finite."""
        if self.captured is not None:
            self.captured.run(self._step_at_once)
        elif self.vmapped:
            self._step_at_once()
        else:
            self._step_in_turn()
        self.step += 1
        self.counted += 1

    def _step_at_once(self) -> None:
        """A step that never waits for the device and keeps every tensor where it is, so that it can be captured."""
        values, grads = self._gradients(self.clock)
        flat = {name: grad.reshape(len(self), -1).contiguous() for name, grad in grads.items()}
        sums = torch.stack([grad.sum(1) for grad in flat.values()]).sum(0)
        self._judge(values, sums)
        self.clock.add_(1)
        if self.kernels:
            self._update(flat)
        else:
            self._descend(torch.where(self.alive[:, None], torch.cat(list(flat.values()), 1), 0.0))

    def _update(self, grads: dict[str, Tensor]) -> None:
        """Adam in a kernel a parameter."""
        from unbraid.accel.kernels.adam import adam

        for name, span in self.storage.layout.spans().items():
            row, moment1, moment2, copy = (t[:, span] for t in (self.rows, self.moment1, self.moment2, self.copy))
            rate, constants = self.rates[name], self.storage.adams[name]
            adam(row, moment1, moment2, copy, grads[name], rate, self.alive, self.clock, constants)

    def _step_in_turn(self) -> None:
        values, grad = self._gradients_in_turn(self.clock)
        self._judge(values, grad.sum(1))
        self.clock.add_(1)
        self._descend(grad if self.alive.all() else torch.where(self.alive[:, None], grad, 0.0))

    def _judge(self, values: Tensor, sums: Tensor) -> None:
        """Keep what the terms were, for the log's means and for naming the term that diverged, and who is finite."""
        if self.total.shape != values.shape:
            self.total = torch.zeros_like(values)
        if self.last.shape != values.shape:
            self.last = values.clone()
        self.last.copy_(torch.where(self.alive[:, None], values, self.last))
        self.total.add_(self.last)
        finite = values.isfinite().all(1) & sums.isfinite()
        self.died.copy_(torch.where(self.alive & ~finite, self.clock, self.died))
        self.alive.logical_and_(finite)

    def _descend(self, grad: Tensor) -> None:
        """Adam in PyTorch's own operations, over whole rows as files have them."""
        t = self.step + 1
        for s in self.segments:
            part = slice(s.start, s.stop)
            pace = torch.where(self.alive, torch.as_tensor(s.adam.learning_rate), 0.0)[:, None]
            row, gradient, moment1, moment2 = (x[:, part] for x in (self.rows, grad, self.moment1, self.moment2))
            adam_step(row, gradient, moment1, moment2, pace, t, s.adam)

    def means(self) -> list[dict[str, float]]:
        """Each run's terms, averaged over the steps since the last call."""
        rows = (self.total / max(self.counted, 1)).tolist()
        self.total.zero_()
        self.counted = 0
        return [dict(zip(self.terms, row, strict=True)) for row in rows]

    def divergences(self) -> list[Divergence]:
        """The runs set aside so far, with the first step that was not finite."""
        found = []
        for i in (~self.alive).nonzero().flatten().tolist():
            bad = (~self.last[i].isfinite()).nonzero().flatten().tolist()
            found.append(Divergence(i, int(self.died[i]), self.terms[bad[-1]] if bad else "gradient"))
        return found

    def weights(self, i: int) -> dict[str, Tensor]:
        """The named parameters and buffers of one run, as its network would load them."""
        row = self.storage.restore(self.rows[i])
        named = {**self.layout.unflatten(row), **{name: value[i] for name, value in self.buffers.items()}}
        return {name: value.detach().cpu().contiguous().clone() for name, value in named.items()}

    def states(self) -> list[dict[str, Tensor]]:
        """All that training each run on from here needs, besides its spec and the step."""
        held = {name: self.storage.restore(value) for name, value in self._rows().items()}
        held |= {name: value.detach().cpu() for name, value in self._others().items()}
        counted = torch.tensor(self.counted)
        return [
            {**{name: value[i].contiguous() for name, value in held.items()}, "counted": counted}
            for i in range(len(self))
        ]

    def load_state(self, i: int, state: dict[str, Tensor]) -> None:
        """Put back what `states` gave for a run."""
        self.counted = int(state["counted"])
        if self.total.shape[1] != len(state["total"]):
            self.total = self.total.new_zeros(len(self), len(state["total"]))
        for name, target in self._rows().items():
            target[i].copy_(self.storage.store([state[name]])[0])
        for name, target in self._others().items():
            target[i].copy_(state[name])
        self.copy[i].copy_(self.rows[i])

    def resume(self, step: int) -> None:
        """Say that the states loaded are those after `step` steps."""
        self.step = step
        self.clock.fill_(step)

    def _rows(self) -> dict[str, Tensor]:
        return {"row": self.rows, "moment1": self.moment1, "moment2": self.moment2}

    def _others(self) -> dict[str, Tensor]:
        """What else changes with training, one row a run."""
        return {"total": self.total, **{f"buffer.{name}": value for name, value in self.buffers.items()}}
