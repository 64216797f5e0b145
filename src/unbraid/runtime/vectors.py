"""Operations on vectors of 4 or 8 float64 numbers in compiled code.

LLVM also vectorises loops over single numbers. But in products of matrices it does not keep a tile of the product in
registers, and it uses only half of a register of 512 bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic, models, register_model
from numpy.polynomial import Chebyshev, Polynomial

from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]
Operation = Callable[..., Any]

FEATURES = config.CPU_FEATURES or get_host_cpu_features()  # type: ignore[attr-defined]
LANES = 8 if "+avx512f" in FEATURES else 4  # numbers per vector
ALIGNMENT = 8  # numbers per cache line; vectors are loaded faster if they do not lie in two cache lines
ROUNDER = 1.5 * 2.0**52  # adding this number to a float rounds it to an integer, which is then in the lowest bits
LOWEST = -600.0  # powers of two with smaller exponents are computed as 2^LOWEST
FUSED = ("contract",)  # a product and a sum may become one instruction

NUMBERS, BITS = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(64), LANES)


def _exp2_coefficients(degree: int) -> tuple[float, ...]:
    """Return the coefficients, highest first, of a polynomial that interpolates 2^u on [-1/2, 1/2]."""
    fitted = Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
    return tuple(float(a) for a in fitted.convert(kind=Polynomial).coef[::-1])


EXP2_COEFFICIENTS = _exp2_coefficients(9)  # relative error 2e-14


class VectorType(types.Type):
    """The numba type of a vector."""


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    """The machine representation of a vector."""

    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, NUMBERS)  # type: ignore[no-untyped-call]


VECTOR = VectorType(name=f"float64x{LANES}")


class IntegersType(types.Type):
    """The numba type of a vector of int64."""


@register_model(IntegersType)
class IntegersModel(models.PrimitiveModel):
    """The machine representation of a vector of int64."""

    def __init__(self, manager: Any, kind: IntegersType) -> None:
        super().__init__(manager, kind, BITS)  # type: ignore[no-untyped-call]


INTEGERS = IntegersType(name=f"int64x{LANES}")


def _operation(result: Any) -> Callable[[Operation], Operation]:
    """Return a decorator for operations of compiled code that return the type `result`.

    The decorated function emits instructions. Its arguments are an LLVM builder and the arguments of the operation.
    Contiguous arrays of float64 become pointers.
    """

    def decorate(emit: Operation) -> Operation:
        bare = inspect.unwrap(emit)  # because tests wrap every function in a type check

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            pairs = zip(signature.args, values, strict=True)
            plain = [
                context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
                for kind, value in pairs
            ]
            return bare(builder, *plain)

        def cast(typing: Any, *arguments: Any) -> tuple[Any, Operation]:
            return result(*arguments), inspect.unwrap(generate)

        bare_cast = inspect.unwrap(cast)
        bare_cast.__signature__ = inspect.signature(bare)
        bare_cast.__name__, bare_cast.__doc__ = bare.__name__, bare.__doc__
        operation: Operation = intrinsic(bare_cast)
        return operation

    return decorate


def _constant(number: float) -> Any:
    """Return a constant vector."""
    return ir.Constant(NUMBERS, [number] * LANES)


def _pointer(builder: Any, data: Any, index: Any) -> Any:
    """Return a pointer to the vector that begins at `index` of an array."""
    return builder.bitcast(builder.gep(data, [index]), NUMBERS.as_pointer())


@kernel()
def round_up(n: Any, multiple: int) -> Any:
    """Return the smallest multiple of `multiple` that is not below n."""
    return -(-n // multiple) * multiple


@kernel()
def aligned(size: int, number: float) -> Array:
    """Return an array of `size` numbers that all equal `number`. It begins at the beginning of a cache line."""
    numbers = np.full(size + ALIGNMENT, number)
    start = -(numbers.ctypes.data // numbers.itemsize) % ALIGNMENT
    return numbers[start : start + size]


@_operation(VECTOR)
def fill(builder: Any, number: Any) -> Any:
    """Return a vector whose entries all equal a number."""
    empty, lane = ir.Constant(NUMBERS, ir.Undefined), ir.IntType(32)
    first = builder.insert_element(empty, number, lane(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(lane, LANES), [0] * LANES))


@_operation(VECTOR)
def load(builder: Any, data: Any, index: Any) -> Any:
    """Return the numbers of an array from `index` on."""
    return builder.load(_pointer(builder, data, index), align=8)


@_operation(types.void)
def store(builder: Any, data: Any, index: Any, vector: Any) -> Any:
    """Write a vector to an array from `index` on."""
    builder.store(vector, _pointer(builder, data, index), align=8)
    return ir.Constant(ir.IntType(8).as_pointer(), None)


@_operation(VECTOR)
def add(builder: Any, a: Any, b: Any) -> Any:
    """Return a + b."""
    return builder.fadd(a, b)


@_operation(VECTOR)
def subtract(builder: Any, a: Any, b: Any) -> Any:
    """Return a - b."""
    return builder.fsub(a, b)


@_operation(VECTOR)
def maximum(builder: Any, a: Any, b: Any) -> Any:
    """Return the larger of each pair of entries of a and b."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@_operation(VECTOR)
def multiply(builder: Any, a: Any, b: Any) -> Any:
    """Return a b."""
    return builder.fmul(a, b)


@_operation(VECTOR)
def divide(builder: Any, a: Any, b: Any) -> Any:
    """Return a / b."""
    return builder.fdiv(a, b)


@_operation(VECTOR)
def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c."""
    return builder.fadd(builder.fmul(a, b, flags=FUSED), c, flags=FUSED)


@_operation(VECTOR)
def exp2(builder: Any, a: Any) -> Any:
    r"""Return 2^a, which is :math:`2^m 2^{a - m}`, where m is the integer nearest to a. a must be below 1023."""
    low = _constant(LOWEST)
    a = builder.select(builder.fcmp_ordered(">", a, low), a, low)
    rounded = builder.fadd(a, _constant(ROUNDER))
    u = builder.fsub(a, builder.fsub(rounded, _constant(ROUNDER)))
    power = _constant(EXP2_COEFFICIENTS[0])
    for coefficient in EXP2_COEFFICIENTS[1:]:
        power = builder.fadd(builder.fmul(power, u, flags=FUSED), _constant(coefficient), flags=FUSED)
    exponent = builder.shl(builder.bitcast(rounded, BITS), ir.Constant(BITS, [52] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(power, BITS), exponent), NUMBERS)


@_operation(INTEGERS)
def load_integers(builder: Any, data: Any, index: Any) -> Any:
    """Return the int64 numbers of an array from `index` on."""
    return builder.load(builder.bitcast(builder.gep(data, [index]), BITS.as_pointer()), align=8)


@_operation(types.void)
def store_integers(builder: Any, data: Any, index: Any, vector: Any) -> Any:
    """Write a vector of int64 to an array from `index` on."""
    builder.store(vector, builder.bitcast(builder.gep(data, [index]), BITS.as_pointer()), align=8)
    return ir.Constant(ir.IntType(8).as_pointer(), None)


@_operation(INTEGERS)
def add_integers(builder: Any, a: Any, b: Any) -> Any:
    """Return a + b for vectors of int64."""
    return builder.add(a, b)


@_operation(INTEGERS)
def fill_integers(builder: Any, number: Any) -> Any:
    """Return a vector whose entries all equal an int64 number."""
    empty, lane = ir.Constant(BITS, ir.Undefined), ir.IntType(32)
    first = builder.insert_element(empty, number, lane(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(lane, LANES), [0] * LANES))


@_operation(VECTOR)
def absolute(builder: Any, a: Any) -> Any:
    """Return the absolute values."""
    return builder.call(_function(builder, "llvm.fabs", NUMBERS), [a])


@_operation(INTEGERS)
def round_to_integers(builder: Any, a: Any) -> Any:
    """Return the nearest integers. Of two equally near ones, the even one is returned."""
    return builder.fptosi(builder.call(_function(builder, "llvm.rint", NUMBERS), [a]), BITS)


def _function(builder: Any, name: str, kind: Any) -> Any:
    """Return a function of LLVM that maps one vector to another."""
    full = f"{name}.v{LANES}f64"
    known = builder.module.globals.get(full)
    return known or ir.Function(builder.module, ir.FunctionType(kind, [kind]), full)
