"""Compiling a computation on a GPU, so that its small operations share kernels.

The objective of a method consists of many small operations, such as those of a KL divergence, and each of them is a
kernel launch. `CompiledFunction` records all operations of a function, and Inductor, the compiler of PyTorch, joins
them into fewer kernels. The kernels of `unbraid.accel.kernels` are called as they are: functions that launch them are
marked with `opaque`, and a call of such a function is a single operation for the compiler.
"""

from __future__ import annotations

import functools
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Function = TypeVar("Function", bound=Callable[..., Any])
Layout = tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]

# Inductor must not reuse buffers, because kernels on a second stream may still read them. Its cache of compiled graphs
# must not be used, because it does not know the opaque functions. With more than one thread, Inductor starts worker
# processes, which keep running if this process is killed.
REQUIRED_OPTIONS = {
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    "fx_graph_cache": False,
    "compile_threads": 1,
}
# If Inductor has this option, it does not choose kernels by timing them, and results are the same in every process.
OPTIONS = {"deterministic": True}


@dataclass
class Calls:
    """The calls of opaque functions in a traced computation.

    Attributes:
        functions: For each call, a function that takes the tensors among its arguments and returns those of its result.
        layouts: For each call, the shape, strides, data type and device of each result.
        recording: Whether calls are being recorded.
    """

    functions: list[Callable[..., list[Tensor]]] = field(default_factory=list)
    layouts: dict[int, list[Layout]] = field(default_factory=dict)
    recording: bool = False


class Active(threading.local):
    """The calls in which the operation `unbraid::call` of this thread looks up its functions, innermost last."""

    def __init__(self) -> None:
        self.calls: list[Calls] = []


_active = Active()


@contextmanager
def _activated(calls: Calls) -> Iterator[None]:
    """Let the operation `unbraid::call` look up its functions in `calls`."""
    _active.calls.append(calls)
    try:
        yield
    finally:
        _active.calls.pop()


def _call(tensors: list[Tensor], number: int) -> list[Tensor]:
    """Call the opaque function with this number. While calls are recorded, record the layouts of its results."""
    calls = _active.calls[-1]
    recording, calls.recording = calls.recording, False
    try:
        results = calls.functions[number](*tensors)
    finally:
        calls.recording = recording
    if recording:
        calls.layouts[number] = [(t.shape, t.stride(), t.dtype, t.device) for t in results]
    return results


def _empty_results(tensors: list[Tensor], number: int) -> list[Tensor]:
    """Return tensors with the layouts of the results of `_call`. The compiler calls this instead of `_call`."""
    return [
        torch.empty_strided(shape, stride, dtype=dtype, device=device)
        for shape, stride, dtype, device in _active.calls[-1].layouts[number]
    ]


@functools.cache
def _register_call() -> None:
    """Register the operation `unbraid::call`. This is done at the first use, because the import takes a second."""
    operation = torch.library.custom_op("unbraid::call", _call, mutates_args=())
    operation.register_fake(_empty_results)


def opaque(function: Function) -> Function:
    """Mark a function that launches kernels. In a traced computation, each of its calls is a single operation.

    The arguments are positional. They may be nested tuples and lists of tensors and other values, and the result may
    consist of tensors and None. A result must not share memory with an argument or with another result.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if not _active.calls or not _active.calls[-1].recording:
            return function(*arguments)
        values, structure = pytree.tree_flatten(arguments)
        places = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
        constants = [None if isinstance(value, Tensor) else value for value in values]
        found: list[Any] = []  # the structure of the result, and whether each of its values is a tensor

        def call_with_tensors(*tensors: Tensor) -> list[Tensor]:
            merged = list(constants)
            for i, tensor in zip(places, tensors, strict=True):
                merged[i] = tensor
            results, spec = pytree.tree_flatten(function(*pytree.tree_unflatten(merged, structure)))
            found[:] = [spec, [isinstance(result, Tensor) for result in results]]
            return [result for result in results if isinstance(result, Tensor)]

        calls = _active.calls[-1]
        calls.functions.append(call_with_tensors)
        results = iter(torch.ops.unbraid.call([values[i] for i in places], len(calls.functions) - 1))
        return pytree.tree_unflatten([next(results) if is_tensor else None for is_tensor in found[1]], found[0])

    return cast(Function, call)


class CompiledFunction:
    """A compiled function of tensors that returns a list of tensors.

    Args:
        function: The function. It must compute its results from its arguments and from constants. It must have no side
            effects, because operations whose results are not used are removed.
        inputs: Arguments of the shapes, strides and devices that all later calls have.
    """

    def __init__(self, function: Callable[..., list[Tensor]], inputs: Sequence[Tensor]) -> None:
        import torch._inductor
        from torch.fx.experimental.proxy_tensor import make_fx

        _register_call()
        self.calls = Calls()
        with _activated(self.calls), torch.autograd.set_multithreading_enabled(False):
            self.calls.recording = True
            try:
                graph = make_fx(function)(*inputs)
            finally:
                self.calls.recording = False
            self.used = _remove_unused_inputs(graph)
            used = [inputs[i] for i in self.used]
            with torch.no_grad(), _without_log():
                self.compiled = torch._inductor.compile(graph, [*used], options=_options())

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        with _activated(self.calls), torch.no_grad():
            return list(self.compiled(*[inputs[i] for i in self.used]))


@contextmanager
def _without_log() -> Iterator[None]:
    """Do not print the log and the warnings of the compiler. If it fails, it logs the whole computation."""
    logger = logging.getLogger("torch")
    disabled, logger.disabled = logger.disabled, True
    children = [child for name, child in logger.manager.loggerDict.items() if name.startswith("torch._")]
    levels = {child: child.level for child in children if isinstance(child, logging.Logger)}
    for child in levels:
        child.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = disabled
        for child, level in levels.items():
            child.setLevel(level)


def _options() -> dict[str, Any]:
    """Return the options of Inductor. Raise an error if this version of PyTorch lacks a required one."""
    import torch._inductor.config

    known = {name for name in (*REQUIRED_OPTIONS, *OPTIONS) if hasattr(torch._inductor.config, name)}
    if missing := [name for name in REQUIRED_OPTIONS if name not in known]:
        raise RuntimeError(f"Inductor of PyTorch {torch.__version__} has no option {missing[0]}.")
    return {**REQUIRED_OPTIONS, **{name: value for name, value in OPTIONS.items() if name in known}}


def _remove_unused_inputs(graph: torch.fx.GraphModule) -> list[int]:
    """Remove the inputs that a graph does not use, and return the positions of the others."""
    graph.graph.eliminate_dead_code()
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    used = [i for i, node in enumerate(inputs) if node.users]
    for node in inputs:
        if not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
    return used
