"""The gradients of a stack, of all runs at once or of one run after another."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from unbraid.accel.precision import matmul_precision
from unbraid.accel.tracing import CompiledFunction
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods.method import Batch
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.runs.spec import RunSpec
from unbraid.training.compiled import compile_step, is_worth_compiling
from unbraid.training.fused.streams import Product, all_postponed_products, postponed_joins
from unbraid.training.looped import Streams, images_to_channels_last
from unbraid.training.objective import DATA, EXAMPLES, OBJECTIVE, PENALTIES, parameter_gradients
from unbraid.training.parts import BatchPart
from unbraid.training.stack_state import StackState
from unbraid.training.threads import map_in_threads


class StackGradients(StackState):
    """A stack that computes the terms and the gradients of its runs. `Stack` describes the arguments.

    Attributes:
        compiled: The compiled function, or None if it is not used. It is compiled at the first step.
        product_layers: For each network whose weight gradients the optimiser computes, its layers, last first.
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
        super().__init__(specs, data, builder, vmapped=vmapped, fused=fused, looped=looped)
        self.part, self.threads = part, threads
        if compiled is None:
            compiled = self.kernels and part is None and is_worth_compiling(specs[0], data.device)
        self.compiled: CompiledFunction | None = None
        self.compile_at_next_step = compiled and bool(self.storage.copied) and not self.buffers
        self.streams = Streams(data.device, stream_index)
        self.product_layers: dict[Hashable, list[Any]] = {}

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
        parameters = {name: images_to_channels_last(leaf) for name, leaf in leaves.items()}
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
