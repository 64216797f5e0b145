"""The only code that knows runs are stacked: many runs of one shape, advancing together."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from unbraid.data.base import FactorData
from unbraid.data.sampling import SAMPLERS
from unbraid.engine.adam import adam_step
from unbraid.methods.base import Adam, Batch, Method
from unbraid.nets.build import build_net
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.spec import RunSpec

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
class Layout:
    """Where each named parameter lies in a flat row."""

    shapes: dict[str, torch.Size]

    @classmethod
    def of(cls, net: nn.Module) -> Layout:
        return cls({name: p.shape for name, p in net.named_parameters()})

    def flatten(self, net: nn.Module) -> Float[Tensor, " p"]:
        """The parameters of a module as one row."""
        values = dict(net.named_parameters())
        return torch.cat([values[name].detach().reshape(-1) for name in self.shapes])

    def unflatten(self, row: Float[Tensor, " p"]) -> dict[str, Tensor]:
        """Named views of a row; their gradient is one concatenation."""
        parts = row.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}


@dataclass(frozen=True)
class Segment:
    """A stretch of the row that shares optimiser constants."""

    start: int
    stop: int
    adam: Adam


def segments(layout: Layout, method: Method, learning_rate: Tensor) -> list[Segment]:
    """Consecutive parameters with equal constants, merged."""

    def constants(name: str) -> tuple[int, float, float, float]:
        adam = method.adam(name, learning_rate)
        return id(adam.learning_rate), adam.beta1, adam.beta2, adam.epsilon

    found, start = [], 0
    for _, group in groupby(layout.shapes, constants):
        names = list(group)
        stop = start + sum(layout.shapes[name].numel() for name in names)
        found.append(Segment(start, stop, method.adam(names[0], learning_rate)))
        start = stop
    return found


@dataclass(frozen=True)
class Divergence:
    """A run that stopped being finite: which of the stack, at which step, in which term."""

    member: int
    step: int
    term: str


class Stack:
    """Runs that share all but seed, learning rate and `Hyper` fields, as rows of one state.

    A run does not know its neighbours: its data and noise are functions of (seed, step), its row is updated from its
    own gradient, and a row that is no longer finite is set aside without touching the others.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        data: FactorData,
        builder: PairBuilder,
        *,
        vmapped: bool | None = None,
        threads: int = 1,
    ) -> None:
        nets = [build_net(spec, data.shape, builder) for spec in specs]
        device = data.device
        self.specs, self.data, self.method = list(specs), data, specs[0].method
        self.vmapped = device.type != "cpu" if vmapped is None else vmapped
        self.threads = threads
        self.trainees = [Trainee(net).to(device) for net in nets]  # one each, since functional_call borrows the module
        self.layout = Layout.of(nets[0])
        self.rows = torch.stack([self.layout.flatten(net) for net in nets]).to(device)
        self.moment1, self.moment2, self.grad = (torch.zeros_like(self.rows) for _ in range(3))
        self.buffers = {
            name: torch.stack([dict(net.named_buffers())[name] for net in nets]).to(device)
            for name, _ in nets[0].named_buffers()
        }
        self.seeds = torch.tensor([spec.seed for spec in specs], device=device)
        self.hypers = {
            name: torch.tensor([getattr(spec.method, name) for spec in specs], device=device)
            for name in self.method.hypers()
        }
        learning_rate = torch.tensor([spec.learning_rate for spec in specs], device=device)
        self.segments = segments(self.layout, dataclasses.replace(self.method, **self.hypers), learning_rate)
        self.alive = torch.ones(len(specs), dtype=torch.bool, device=device)
        self.died = torch.full((len(specs),), -1, device=device)
        self.step = 0
        self.terms: list[str] = []
        self.last = self.total = torch.zeros(len(specs), 0, device=device)
        self.counted = 0

    def __len__(self) -> int:
        return len(self.specs)

    def objective(
        self,
        row: Tensor,
        buffers: dict[str, Tensor],
        hypers: dict[str, Tensor],
        seed: Tensor,
        step: Tensor,
        member: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """The loss of one run at one step, and (loss, *terms) to log."""
        spec, method = self.specs[0], dataclasses.replace(self.method, **hypers)
        index = SAMPLERS[method.draws](self.data, Noise.of(seed, step, DATA), spec.batch)
        batch = Batch(self.data.batch(index, Noise.of(seed, step, EXAMPLES)), len(self.data))
        state = {f"net.{name}": value for name, value in {**self.layout.unflatten(row), **buffers}.items()}
        loss, logs = functional_call(
            self.trainees[member], state, (method, batch, Noise.of(seed, step, OBJECTIVE), step.to(row.dtype))
        )
        self.terms = ["loss", *logs]
        return loss, torch.stack([loss, *logs.values()]).detach()

    def _gradients(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """(r, terms) values and (r, p) gradients of all runs at once: grouped kernels, the way of a GPU."""
        rows = self.rows.detach().requires_grad_()
        mapped = vmap(self.objective, in_dims=(0, 0, 0, 0, None))
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # fp32 means fp32
            loss, values = mapped(rows, self.buffers, self.hypers, self.seeds, step)
            (grad,) = torch.autograd.grad(loss.sum(), rows)
        return values, grad

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
        loss, values = self.objective(row, buffers, hypers, self.seeds[i], step, i)
        self.grad[i] = torch.autograd.grad(loss, row)[0]
        return values

    def advance(self) -> None:
        """One optimiser step of every run that is still finite."""
        gradients: Callable[[Tensor], tuple[Tensor, Tensor]]
        gradients = self._gradients if self.vmapped else self._gradients_in_turn
        values, grad = gradients(torch.tensor(self.step, device=self.rows.device))
        self._record(values)
        finite = values.isfinite().all(1) & grad.sum(1).isfinite()
        self.died = torch.where(self.alive & ~finite, self.step, self.died)
        self.alive = self.alive & finite
        if self.vmapped or not self.alive.all():
            grad = torch.where(self.alive[:, None], grad, 0.0)
        self.step += 1
        for s in self.segments:
            part = slice(s.start, s.stop)
            pace = torch.where(self.alive, torch.as_tensor(s.adam.learning_rate), 0.0)[:, None]
            row, gradient, moment1, moment2 = (t[:, part] for t in (self.rows, grad, self.moment1, self.moment2))
            adam_step(row, gradient, moment1, moment2, pace, self.step, s.adam)

    def _record(self, values: Tensor) -> None:
        """Keep what the terms were, for the log's means and for naming the term that diverged."""
        if not self.counted:
            self.total = torch.zeros_like(values)
        if self.last.shape != values.shape:
            self.last = values.clone()
        self.last = torch.where(self.alive[:, None], values, self.last)
        self.total, self.counted = self.total + self.last, self.counted + 1

    def means(self) -> list[dict[str, float]]:
        """Each run's terms, averaged over the steps since the last call."""
        rows = (self.total / max(self.counted, 1)).tolist()
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
        named = {**self.layout.unflatten(self.rows[i]), **{name: value[i] for name, value in self.buffers.items()}}
        return {name: value.detach().cpu().contiguous().clone() for name, value in named.items()}

    def state(self, i: int) -> dict[str, Tensor]:
        """All that training one run on from here needs, besides its spec and the step."""
        named = {name: value[i].detach().cpu().contiguous().clone() for name, value in self._tensors().items()}
        return {**named, "counted": torch.tensor(self.counted)}

    def load_state(self, i: int, state: dict[str, Tensor]) -> None:
        """Put back what `state` gave."""
        self.counted = int(state["counted"])
        if self.total.shape[1] != len(state["total"]):
            self.total = self.total.new_zeros(len(self), len(state["total"]))
        for name, target in self._tensors().items():
            target[i].copy_(state[name])

    def _tensors(self) -> dict[str, Tensor]:
        """Every tensor that changes with training, one row a run."""
        buffers = {f"buffer.{name}": value for name, value in self.buffers.items()}
        return {"row": self.rows, "moment1": self.moment1, "moment2": self.moment2, "total": self.total, **buffers}
