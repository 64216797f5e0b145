"""A stack of runs, which performs one training step of many runs in one computation.

The networks of all runs of a stack have the same shape. The parameters of each run are one flat row of a matrix (see
`unbraid.training.rows`), and a *member* is the index of a run, and of its row, in the stack. Methods, networks and
datasets are written for one run. Only the package `training` stacks them. In shapes, r is the number of runs and p the
number of parameters of one run. *Terms* are the values that an objective logs, of which the first is the loss.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from unbraid.accel.adam import adam_step, clip_gradients, decay_weights, fused_adam_step
from unbraid.accel.capture import CapturedStep, supports_kernels
from unbraid.accel.precision import matmul_precision
from unbraid.accel.sequential import use_fast_sequences
from unbraid.accel.tracing import CompiledFunction
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods.added_support import add_support
from unbraid.methods.decoder_penalties import DecoderPenalties, penalised_objective
from unbraid.methods.method import Batch, Method
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec
from unbraid.training.compiled import compile_step, is_worth_compiling
from unbraid.training.fused.streams import Product, all_postponed_products, postponed_joins
from unbraid.training.looped import Streams, needs_loop, reduce_precision, to_channels_last
from unbraid.training.parts import BatchPart
from unbraid.training.rows import Layout, Storage, adam_segments, buffer_places, state_sources
from unbraid.training.threads import map_in_threads

# Indices of the noise streams of a step, for the choice of examples, the objective, the random parts of examples, the
# penalties on the decoder, and the change of the weights after the last step.
DATA, OBJECTIVE, EXAMPLES, PENALTIES, FINISH = range(5)


class ObjectiveModule(nn.Module):
    """A module whose forward pass computes the objective of a network.

    `functional_call` needs such a module to replace the parameters of the network.
    """

    def __init__(self, net: VAENet, factorised_support: float = 0.0) -> None:
        super().__init__()
        self.net, self.factorised_support = net, factorised_support

    def forward(
        self, method: Method, penalties: DecoderPenalties, batch: Batch, noise: Sequence[Noise], step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        objective = penalised_objective(method, penalties, self.net, batch, noise, step)
        return add_support(objective, self.factorised_support, self.net, batch.x, noise[0])


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


def _expand_per_run(value: float | Tensor, rows: Tensor) -> Tensor:
    """Expand a number or a tensor to a contiguous float32 tensor (r), with one value per row."""
    return torch.as_tensor(value, dtype=torch.float32, device=rows.device).expand(len(rows)).contiguous()


def parameter_gradients(loss: Tensor, parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return the gradient of each parameter. It is 0 for parameters that are frozen or that the loss does not use."""
    every = list(parameters)
    trained = [parameter for parameter in every if parameter.requires_grad]
    found = iter(torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True))
    return [next(found) if parameter.requires_grad else torch.zeros_like(parameter) for parameter in every]


class Stack:
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
        self.part = part
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
        self.layout = Layout.from_module(nets[0])
        self.state_sources, self.buffer_places = state_sources(nets[0]), buffer_places(nets[0])
        rows = [self.layout.flatten(net) for net in nets]
        self.buffers = {
            name: torch.stack([dict(net.named_buffers())[name] for net in nets]).to(device)
            for name, _ in nets[0].named_buffers()
        }
        self.kernels = supports_kernels(device) if fused is None else fused
        self._allocate(nets, rows, looped)
        if compiled is None:
            compiled = self.kernels and part is None and is_worth_compiling(specs[0], device)
        # The compiled function, or None if it is not used. It is compiled at the first step.
        self.compiled: CompiledFunction | None = None
        self.compile_at_next_step = compiled and bool(self.storage.copied) and not self.buffers
        self.streams = Streams(device, stream_index)
        self.alive = torch.ones(len(specs), dtype=torch.bool, device=device)
        self.diverged_at = torch.full((len(specs),), -1, device=device)
        self.step = 0
        self.device_step = torch.zeros((), dtype=torch.int64, device=device)  # `step` as a tensor, for CUDA graphs
        self.terms: list[str] = []
        # For each network whose weight gradients the optimiser computes, its layers, last first.
        self.product_layers: dict[Hashable, list[Any]] = {}
        # The terms of the last step and the sums of terms for the log, both (r, terms).
        self.last = self.total = torch.zeros(len(specs), 0, device=device)
        self.logged_steps = 0  # the number of steps over which `total` is summed
        captured = self.kernels and part is None and device.type == "cuda"
        self.captured = CapturedStep(device, stream_index) if captured else None

    def _allocate(self, nets: list[VAENet], rows: list[Tensor], looped: bool | None) -> None:
        """Allocate the parameters, the moments of Adam, and the copy of the parameters that kernels read."""
        device, spec = self.data.device, self.specs[0]
        rate = torch.tensor([spec.learning_rate for spec in self.specs], device=device)
        method = dataclasses.replace(self.method, **self.hypers)
        if self.kernels:
            plain = self.method.networks_without_kernels
            self.storage = Storage.fused(nets[0], method, rate, self.data.shape, spec.likelihood, plain)
        else:
            self.storage = Storage.plain(self.layout, method, rate)
        self.segments = adam_segments(self.layout, method, rate)
        support = spec.factorised_support
        if looped is None:
            looped = self.vmapped and self.kernels and not self.storage.copied and needs_loop(spec, nets[0])
        self.looped = looped
        if looped and spec.precision == "bf16":
            reduce_precision(nets[0], device, spec.float32_networks)
        self.modules = [ObjectiveModule(net, support).to(device) for net in (nets[:1] if self.vmapped else nets)]
        owners = {name: self.modules[0].net.get_submodule(name.rpartition(".")[0]) for name in self.storage.copied}
        plans = {name: cast(Any, owner).plan for name, owner in owners.items()}
        # The optimiser computes weight gradients of critics in the precision of the copy.
        self.critics: dict[Hashable, str] = {
            plan: name for name, plan in plans.items() if not plan.convs and not self._is_float32(name)
        }
        self.rows = self.storage.to_storage_order(rows).to(device)
        if not self.vmapped:
            self._prepare_networks()
        self.moment1, self.moment2 = torch.zeros_like(self.rows), torch.zeros_like(self.rows)
        self.grad = self.rows.new_zeros(0) if self.vmapped else torch.zeros_like(self.rows)
        half = spec.precision == "bf16" and device.type == "cuda" and self.storage.copied
        self.copy = self.rows.to(torch.bfloat16) if half else self.rows
        self.rates = {name: _expand_per_run(adam.learning_rate, self.rows) for name, adam in self.storage.adams.items()}

    def _prepare_networks(self) -> None:
        """Let the parameters of each network be views of its row, and use faster sequences of layers."""
        for module, row in zip(self.modules, self.rows, strict=True):
            views = self.layout.unflatten(row)
            for name, parameter in module.net.named_parameters():
                parameter.data = views[name]
            use_fast_sequences(module.net)

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
        """Return the loss of one run at one step with the given parameters and buffers, and the vector of its terms."""
        state = {f"net.{name}": value for name, value in {**parameters, **buffers}.items()}
        module = functools.partial(functional_call, self.modules[member], state)
        return self._evaluate(lambda *arguments: module(arguments), hypers, seed, step)

    def _evaluate(
        self,
        module: Callable[..., tuple[Tensor, dict[str, Tensor]]],
        hypers: dict[str, Tensor],
        seed: Tensor,
        step: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Draw the batch of one run at one step, and return the loss and the vector of the terms of the module."""
        spec, method = self.specs[0], dataclasses.replace(self.method, **hypers)
        drawn = method.draw(self.data, Noise.from_seed(seed, step, DATA), spec.batch)
        x = self.data.batch(drawn.examples, Noise.from_seed(seed, step, EXAMPLES))
        batch = Batch(x, len(self.data), drawn.changed, spec.steps, drawn.labels)
        streams = (OBJECTIVE, PENALTIES) if spec.penalties.active else (OBJECTIVE,)
        noise = [Noise.from_seed(seed, step, stream) for stream in streams]
        if self.part is not None:
            batch, noise = self.part.take(batch, noise, drawn.groups)
        loss, logs = module(method, spec.penalties, batch, noise, step.to(torch.float32))
        self.terms = ["loss", *logs]
        return loss, torch.stack([loss, *logs.values()]).detach()

    def _gradients_vmapped(self, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the terms of all runs, (r, terms), and their gradients, (r, ...), by parameter name."""
        values, gradients, _ = self._differentiate(step)
        return values, gradients

    def _differentiate(
        self, step: Tensor, networks: Collection[Hashable] = ()
    ) -> tuple[Tensor, dict[str, Tensor], dict[Hashable, list[Product]]]:
        """Do the same as `_gradients_vmapped`, but do not compute the weight gradients of `networks`.

        The third result has, for each of these networks, the two factors of the weight gradient of each layer. If a
        network is used several times in a step, its weight gradients are computed as usual, and it has no entry there.
        """
        if self.looped:
            return *self._differentiate_looped(step), {}
        tensors, structure = tree_flatten(self._tensors(step))
        gradients = functools.partial(self._gradients, structure)
        if self.compile_at_next_step:
            self.compile_at_next_step = False
            others, _ = tree_flatten(self._tensors(step + 1))
            self.compiled = compile_step(gradients, tensors, others, functools.partial(self._contexts, networks))
        function = self.compiled or gradients
        with self._contexts(networks):
            values, *found = function(*tensors)
        names, factors = list(self.storage.layout.spans()), iter(found[len(self.storage.layout.spans()) :])
        products = {
            network: [Product(layer, next(factors), next(factors)) for layer in layers]
            for network, layers in self.product_layers.items()
        }
        return values, dict(zip(names, found, strict=False)), products

    @contextmanager
    def _contexts(self, networks: Collection[Hashable]) -> Iterator[None]:
        """Compute in the precision of the runs, and postpone joins (see `postponed_joins`)."""
        with self._matmul_precision(), postponed_joins(self.data.device, networks):
            yield

    def _matmul_precision(self) -> AbstractContextManager[None]:
        """Compute in the precision of the runs. If a network needs float32, TensorFloat-32 is not used at all."""
        precision = self.specs[0].precision
        return matmul_precision("fp32" if precision == "tf32" and self.specs[0].float32_networks else precision)

    def _tensors(self, step: Tensor) -> tuple[Any, ...]:
        """Return what a step reads: the parameters, the buffers and the copies for kernels, hypers, seeds and step."""
        copies, parameters = (self.storage.layout.columns(rows) for rows in (self.copy, self.rows))
        read = {
            f"{name.removesuffix('.row')}.copy": (parameters if self._is_float32(name) else copies)[name]
            for name in self.storage.copied
        }
        return parameters, {**self.buffers, **read}, self.hypers, self.seeds, step

    def _is_trained(self, name: str) -> bool:
        """Return whether a parameter requires gradients. The rows of kernels always do."""
        return name not in self.layout.frozen

    def _is_float32(self, name: str) -> bool:
        """Return whether the network of a parameter is computed in float32, from the parameters themselves."""
        return name.partition(".")[0] in self.specs[0].float32_networks

    def _gradients(self, structure: Any, *tensors: Tensor) -> list[Tensor]:
        """Return the terms of all runs, (r, terms), and the gradient of each parameter, (r, ...).

        If the optimiser computes the weight gradients of a network, the factors of these gradients follow, two for each
        layer of `product_layers`. The arguments are the flattened result of `_tensors`.
        """
        columns, read, hypers, seeds, step = tree_unflatten(tensors, structure)
        leaves = {name: part.detach().requires_grad_(self._is_trained(name)) for name, part in columns.items()}
        loss, values = vmap(self.objective, in_dims=(0, 0, 0, 0, None))(leaves, read, hypers, seeds, step)
        gradients = parameter_gradients(loss.sum(), leaves.values())
        products = all_postponed_products()
        self.product_layers = {network: [p.layer for p in found] for network, found in products.items()}
        return [values, *gradients, *(factor for found in products.values() for p in found for factor in (p.x, p.g))]

    def _differentiate_looped(self, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Do the same as `_gradients_vmapped`, one run after another on several streams. It never waits for the GPU."""
        values, gradients = [], []
        with self._matmul_precision(), self.streams.fork():
            for i in range(len(self)):
                with self.streams.run(i):
                    terms, found = self._differentiate_member(i, step)
                values.append(terms)
                gradients.append(found)
        return torch.stack(values), {name: torch.stack([found[name] for found in gradients]) for name in gradients[0]}

    def _differentiate_member(self, i: int, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the terms of member `i` and its gradients by parameter name, and update its buffers.

        Parameters and buffers are copied, because GPU libraries need aligned memory, and a parameter may start anywhere
        in a row.
        """
        columns = self.storage.layout.columns(self.rows)
        leaves = {name: part[i].detach().clone() for name, part in columns.items()}
        for name, leaf in leaves.items():
            leaf.requires_grad_(self._is_trained(name))
        parameters = {name: to_channels_last(leaf) for name, leaf in leaves.items()}
        buffers = {name: value[i].clone() for name, value in self.buffers.items()}
        hypers = {name: value[i] for name, value in self.hypers.items()}
        loss, terms = self.objective(parameters, buffers, hypers, self.seeds[i], step)
        found = parameter_gradients(loss, leaves.values())
        for name, value in self.buffers.items():
            value[i].copy_(buffers[name])
        return terms, dict(zip(leaves, found, strict=True))

    def _gradients_one_by_one(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one run at a time with ordinary operations. Return the terms (r, terms) and the gradients (r, p).

        This is faster than `vmap` on a CPU. With several threads, each thread computes a different run on its part of
        the cores. Diverged runs are skipped and keep their last terms.
        """
        members = self.alive.nonzero().flatten().tolist()
        each = functools.partial(map_in_threads, self.threads) if self.threads > 1 else map
        computed = dict(zip(members, each(self._gradient, members, [step] * len(members)), strict=True))
        last = self.last if self.last.shape[1] else torch.zeros(len(self), len(self.terms))
        values = [computed[i] if i in computed else last[i] for i in range(len(self))]
        return torch.stack(values), self.grad

    def _gradient(self, i: int, step: Tensor) -> Tensor:
        """Return the terms of member `i`, and write its gradient to its row of `grad`."""
        module, hypers = self.modules[i], {name: value[i] for name, value in self.hypers.items()}
        buffers = {name: value[i] for name, value in self.buffers.items()}
        for name, places in self.buffer_places.items():
            for owner, attribute in places:
                setattr(module.net.get_submodule(owner), attribute, buffers[name])
        loss, values = self._evaluate(module, hypers, self.seeds[i], step)
        self._reject_replaced_buffers(module.net, buffers)
        gradients = parameter_gradients(loss, module.net.parameters())
        torch.cat([gradient.reshape(-1) for gradient in gradients], out=self.grad[i])
        return values

    def _reject_replaced_buffers(self, net: VAENet, buffers: dict[str, Tensor]) -> None:
        """Raise an error if the buffers of a network are not the given tensors any more."""
        for name, places in self.buffer_places.items():
            for owner, attribute in places:
                now = getattr(net.get_submodule(owner), attribute, None)
                if now is None or now.data_ptr() != buffers[name].data_ptr():
                    raise UserError(
                        f"A network must change its buffers in place. Got the buffer {name}, which was replaced by "
                        "another tensor in a training step. Use operations such as self.count.add_(1) or "
                        "self.mean.copy_(new)."
                    )

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

    def _allocate_terms(self, values: Tensor) -> None:
        """Allocate the sums for the log and the terms of the last step, once the number of terms is known."""
        if self.total.shape != values.shape:
            self.total = values.new_zeros(values.shape)
        if self.last.shape != values.shape:
            self.last = values.clone(memory_format=torch.contiguous_format)

    def _record_terms_in_kernels(self, values: Tensor, grads: list[Tensor]) -> None:
        """Do the same as `_record_terms` with GPU kernels.

        `grads` contains the gradients of the parameters. A gradient that is not stored is replaced by its factors.
        """
        from unbraid.accel.kernels.record import block_sums, record

        self._allocate_terms(values)
        sums = block_sums(grads)
        record(values, sums, self.last, self.total, self.alive, self.diverged_at, self.device_step)

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
