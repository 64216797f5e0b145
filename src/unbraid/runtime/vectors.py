"""Operations on vectors of float64, float32 or int64 numbers in compiled code.

A vector fills a register of 512 or 256 bits. Its type follows from the array or the number from which it is made.

LLVM also vectorises loops over single numbers. But in products of matrices it does not keep a tile of the product in
registers, and it uses only half of a register of 512 bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

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
REGISTER = 64 if "+avx512f" in FEATURES else 32  # bytes per vector
LANES = REGISTER // 8  # numbers per vector of float64 or int64
CACHE_LINE = 64  # bytes; vectors are loaded faster if they do not lie in two cache lines
FUSED = ("contract",)  # a product and a sum may become one instruction


class Exp2(NamedTuple):
    """Constants of the function 2^a for one type of numbers.

    Attributes:
        rounder: Adding this number to a float rounds it to an integer, which is then in the lowest bits.
        lowest: Powers with smaller exponents are computed as 2^lowest.
        coefficients: Coefficients, highest first, of a polynomial that interpolates 2^u on [-1/2, 1/2].
        fraction: The number of bits of the fraction of a float.
    """

    rounder: float
    lowest: float
    coefficients: tuple[float, ...]
    fraction: int

    @classmethod
    def of_degree(cls, degree: int, lowest: float, fraction: int) -> Exp2:
        """Return the constants for a polynomial of a degree."""
        fitted = Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
        coefficients = tuple(float(a) for a in fitted.convert(kind=Polynomial).coef[::-1])
        return cls(1.5 * 2.0**fraction, lowest, coefficients, fraction)


# By the number of bits. The relative errors are 2e-14 and 1e-7.
EXP2 = {64: Exp2.of_degree(9, -600.0, 52), 32: Exp2.of_degree(6, -120.0, 23)}


class VectorType(types.Type):
    """The numba type of a vector of numbers of the type `number`."""

    def __init__(self, number: Any) -> None:
        self.number = number
        super().__init__(name=f"{number}x{8 * REGISTER // number.bitwidth}")


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    """The machine representation of a vector."""

    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, _vector_of(manager[kind.number].get_value_type()))  # type: ignore[no-untyped-call]


def _bits(number: Any) -> int:
    """Return the number of bits of an LLVM type of numbers."""
    return number.width if isinstance(number, ir.IntType) else 64 if isinstance(number, ir.DoubleType) else 32


def _vector_of(number: Any) -> Any:
    """Return the LLVM type of a vector of numbers of an LLVM type."""
    return ir.VectorType(number, 8 * REGISTER // _bits(number))


def _of_array(data: Any, *others: Any) -> VectorType:
    """Return the type of a vector of the numbers of an array."""
    return VectorType(data.dtype)


def _as_first(a: VectorType, *others: Any) -> VectorType:
    """Return the type of the first argument."""
    return a


def _operation(result: Callable[..., Any]) -> Callable[[Operation], Operation]:
    """Return a decorator for operations of compiled code.

    `result` maps the numba types of the arguments to the type of the result. The decorated function emits instructions.
    Its arguments are an LLVM builder and the arguments of the operation. Contiguous arrays become pointers.
    """

    def decorate(emit: Operation) -> Operation:
        bare = inspect.unwrap(emit)  # because tests wrap every function in a type check
        result_type = inspect.unwrap(result)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            pairs = zip(signature.args, values, strict=True)
            plain = [
                context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
                for kind, value in pairs
            ]
            return bare(builder, *plain)

        def cast(typing: Any, *arguments: Any) -> tuple[Any, Operation]:
            return result_type(*arguments)(*arguments), inspect.unwrap(generate)

        bare_cast = inspect.unwrap(cast)
        bare_cast.__signature__ = inspect.signature(bare)
        bare_cast.__name__, bare_cast.__doc__ = bare.__name__, bare.__doc__
        operation: Operation = intrinsic(bare_cast)
        return operation

    return decorate


def _constant(vector: Any, number: float) -> Any:
    """Return a constant vector of the LLVM type `vector`, all of whose entries equal a number."""
    return ir.Constant(vector, [number] * vector.count)


def _pointer(builder: Any, data: Any, index: Any) -> Any:
    """Return a pointer to the vector that begins at `index` of an array."""
    return builder.bitcast(builder.gep(data, [index]), _vector_of(data.type.pointee).as_pointer())


@kernel()
def round_up(n: Any, multiple: int) -> Any:
    """Return the smallest multiple of `multiple` that is not below n."""
    return -(-n // multiple) * multiple


@kernel()
def lanes(numbers: Array) -> int:
    """Return how many numbers of an array a vector has."""
    return REGISTER // numbers.itemsize


@kernel()
def aligned(size: int, number: Any) -> Array:
    """Return an array of `size` numbers that all equal `number`. It begins at the beginning of a cache line."""
    numbers = np.full(size + CACHE_LINE, number)
    start = -(numbers.ctypes.data // numbers.itemsize) % (CACHE_LINE // numbers.itemsize)
    return numbers[start : start + size]


@_operation(VectorType)
def fill(builder: Any, number: Any) -> Any:
    """Return a vector whose entries all equal a number."""
    vector, lane = _vector_of(number.type), ir.IntType(32)
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, number, lane(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(lane, vector.count), [0] * vector.count))


@_operation(_of_array)
def load(builder: Any, data: Any, index: Any) -> Any:
    """Return the numbers of an array from `index` on."""
    return builder.load(_pointer(builder, data, index), align=_bits(data.type.pointee) // 8)


@_operation(lambda *arguments: types.void)
def store(builder: Any, data: Any, index: Any, vector: Any) -> Any:
    """Write a vector to an array from `index` on."""
    builder.store(vector, _pointer(builder, data, index), align=_bits(data.type.pointee) // 8)
    return ir.Constant(ir.IntType(8).as_pointer(), None)


@_operation(_as_first)
def add(builder: Any, a: Any, b: Any) -> Any:
    """Return a + b."""
    return builder.add(a, b) if isinstance(a.type.element, ir.IntType) else builder.fadd(a, b)


@_operation(_as_first)
def subtract(builder: Any, a: Any, b: Any) -> Any:
    """Return a - b."""
    return builder.fsub(a, b)


@_operation(_as_first)
def maximum(builder: Any, a: Any, b: Any) -> Any:
    """Return the larger of each pair of entries of a and b."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@_operation(_as_first)
def multiply(builder: Any, a: Any, b: Any) -> Any:
    """Return a b."""
    return builder.fmul(a, b)


@_operation(_as_first)
def divide(builder: Any, a: Any, b: Any) -> Any:
    """Return a / b."""
    return builder.fdiv(a, b)


@_operation(_as_first)
def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c."""
    return builder.fadd(builder.fmul(a, b, flags=FUSED), c, flags=FUSED)


@_operation(_as_first)
def exp2(builder: Any, a: Any) -> Any:
    r"""Return 2^a, which is :math:`2^m 2^{a - m}`, where m is the integer nearest to a. a must be at most 0."""
    vector, bits = a.type, _bits(a.type.element)
    constants, integers = EXP2[bits], ir.VectorType(ir.IntType(bits), a.type.count)
    low, rounder = _constant(vector, constants.lowest), _constant(vector, constants.rounder)
    a = builder.select(builder.fcmp_ordered(">", a, low), a, low)
    rounded = builder.fadd(a, rounder)
    u = builder.fsub(a, builder.fsub(rounded, rounder))
    power = _constant(vector, constants.coefficients[0])
    for coefficient in constants.coefficients[1:]:
        power = builder.fadd(builder.fmul(power, u, flags=FUSED), _constant(vector, coefficient), flags=FUSED)
    exponent = builder.shl(builder.bitcast(rounded, integers), _constant(integers, constants.fraction))
    return builder.bitcast(builder.add(builder.bitcast(power, integers), exponent), vector)


@_operation(_as_first)
def absolute(builder: Any, a: Any) -> Any:
    """Return the absolute values."""
    return builder.call(_function(builder, "llvm.fabs", a.type), [a])


@_operation(lambda a: VectorType(types.int64))
def round_to_integers(builder: Any, a: Any) -> Any:
    """Return the nearest integers to float64 numbers. Of two equally near ones, the even one is returned."""
    rounded = builder.call(_function(builder, "llvm.rint", a.type), [a])
    return builder.fptosi(rounded, _vector_of(ir.IntType(64)))


def _function(builder: Any, name: str, kind: Any) -> Any:
    """Return a function of LLVM that maps one vector to another."""
    full = f"{name}.v{kind.count}f{_bits(kind.element)}"
    known = builder.module.globals.get(full)
    return known or ir.Function(builder.module, ir.FunctionType(kind, [kind]), full)
