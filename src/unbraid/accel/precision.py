"""The precision of matrix products (float32, TensorFloat-32 or bfloat16), and which precisions a device supports.

Checks of gradients compute in float64 instead (`Float64Operations`).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from unbraid.errors import UserError

Precision = Literal["fp32", "tf32", "bf16"]


@functools.cache
def fastest_precision(device: str | torch.device) -> Precision:
    """Return "bf16" if the processor multiplies bfloat16 natively, and "fp32" otherwise.

    Only products use this precision. Parameters and sums stay in float32. `benchmarks/bench_precision.py` compares the
    scores of runs that were trained in bf16 and in fp32. All differences that it found can be explained by chance.
    """
    if torch.device(device).type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    if torch.device(device).type != "cpu":
        return "fp32"
    return "bf16" if {"avx512_bf16", "amx_bf16"} & _cpu_flags() else "fp32"


def check_precision(precision: str, device: torch.device) -> None:
    """Raise a `UserError` if the device does not support the precision."""
    if precision == "tf32" and (device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0)):
        raise UserError(
            f"Precision tf32 needs an NVIDIA GPU of compute capability 8.0 or more. Got {device} instead. Use fp32."
        )


@contextlib.contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Allow TensorFloat-32 in float32 products on a GPU inside this context if `precision` is "tf32".

    Otherwise forbid it. Inside the context, cuDNN uses only algorithms that give the same bits every time.

    Raises:
        UserError: If the process has set the attribute `fp32_precision` of a backend of PyTorch. PyTorch does not allow
            to mix it with `torch.set_float32_matmul_precision`, which this function uses.
    """
    allow = precision == "tf32"
    with contextlib.ExitStack() as stack:
        with _explained_attributes():
            before = torch.get_float32_matmul_precision()
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=allow))
        stack.callback(torch.set_float32_matmul_precision, before)
        torch.set_float32_matmul_precision("high" if allow else "highest")
        yield


@contextlib.contextmanager
def _explained_attributes() -> Iterator[None]:
    """Raise a UserError if PyTorch refuses to read a precision because an attribute `fp32_precision` is set."""
    try:
        yield
    except RuntimeError as error:
        raise UserError(
            "The precision of float32 products must not be set by an attribute fp32_precision of torch.backends, "
            "because unbraid sets it for every run. Got such a setting. Remove it, and choose fp32, tf32 or bf16 "
            "as the precision of the run."
        ) from error


class _FullProducts:
    """Counts the contexts in which float32 products are computed in float32, in all threads of the process."""

    lock = threading.Lock()
    contexts = 0
    before = "highest"


@contextlib.contextmanager
def full_float32_products() -> Iterator[None]:
    """Compute float32 products in float32 inside this context.

    With `torch.set_float32_matmul_precision("medium")`, some CPUs would compute them in bfloat16. This setting belongs
    to the process, so it is changed when the first thread enters such a context, and restored when the last one leaves.

    Raises:
        UserError: If the process has set the attribute `fp32_precision` of a backend of PyTorch.
    """
    with _FullProducts.lock:
        if _FullProducts.contexts == 0:
            with _explained_attributes():
                _FullProducts.before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("highest")
        _FullProducts.contexts += 1
    try:
        yield
    finally:
        with _FullProducts.lock:
            _FullProducts.contexts -= 1
            if _FullProducts.contexts == 0:
                torch.set_float32_matmul_precision(_FullProducts.before)


class Float64Operations(TorchFunctionMode):
    """A context in which PyTorch's functions convert arguments and results in float32 to float64.

    Networks and methods need not know of it. Functions that write to one of their arguments, and `torch.autograd.grad`,
    are called as usual, because a converted argument would be a copy. Tensors that are created in the context are in
    float64, so that these functions can write to them.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        written = name.endswith("_") or "out" in kwargs  # true for `__get__` and `__set__` of attributes, too
        if written or func is torch.autograd.grad:
            return func(*args, **kwargs)
        func = Tensor.double if func is Tensor.float else func
        return tree_map(_as_float64, func(*tree_map(_as_float64, args), **tree_map(_as_float64, kwargs)))


def _as_float64(value: Any) -> Any:
    """Return float64 for the data type float32, and a tensor of float32 as float64. Other values do not change."""
    if isinstance(value, Tensor):
        return value.double() if value.dtype == torch.float32 else value
    return torch.float64 if value is torch.float32 else value


def product_precision(dtype: torch.dtype) -> str:
    """Return how a kernel multiplies numbers of a data type, in the words of Triton.

    Tensor cores multiply float32 numbers as TensorFloat-32 ("tf32"), with 10 bits. Where `matmul_precision` forbids
    this, each float32 number is divided into two TensorFloat-32 numbers, and a product is the sum of three products
    ("tf32x3"), which has about the error of a product in float32. Other data types are multiplied as they are.
    """
    return "tf32x3" if dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32 else "tf32"


def _cpu_flags() -> set[str]:
    """Return the CPU feature flags that Linux lists, or an empty set on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())
