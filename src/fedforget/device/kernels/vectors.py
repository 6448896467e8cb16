"""Building blocks for LLVM instructions on vectors of 16 floats, used where the compiler's own choice is too slow.

Where the processor's vectors are narrower than 16 floats, LLVM splits them.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir

#: Floats in a vector. Widths are padded to a multiple of it.
LANES = 16
FLOAT = ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
INT64 = ir.IntType(64)
#: Lets a product and the sum it goes into be one instruction.
FUSED = ("contract",)


class Loop:
    """A loop of ``n`` iterations, at least one, that carries values from one iteration to the next."""

    def __init__(self, builder: Any, n: Any, starts: list[Any]) -> None:
        self._builder, self._n, entry = builder, n, builder.block
        self._block = builder.append_basic_block("turn")
        builder.branch(self._block)
        builder.position_at_end(self._block)
        self._carried = [builder.phi(start.type) for start in (INT64(0), *starts)]
        for value, start in zip(self._carried, (INT64(0), *starts), strict=True):
            value.add_incoming(start, entry)
        #: The carried values at the start of an iteration.
        self.values = self._carried[1:]

    def close(self, values: list[Any]) -> None:
        """End the iteration with the next carried values; code that follows runs after the last iteration."""
        after = self._builder.add(self._carried[0], INT64(1))
        for carried, value in zip(self._carried, (after, *values), strict=True):
            carried.add_incoming(value, self._block)
        done = self._builder.append_basic_block("done")
        self._builder.cbranch(self._builder.icmp_signed("<", after, self._n), self._block, done)
        self._builder.position_at_end(done)


def load(builder: Any, address: Any, kind: Any = VECTOR) -> Any:
    """The float or vector at an address."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)


def store(builder: Any, value: Any, address: Any) -> None:
    """Store a vector at an address."""
    builder.store(value, builder.inttoptr(address, VECTOR.as_pointer()), align=4)


def constant(value: float | np.float32) -> Any:
    """A vector with the same float in every lane."""
    return VECTOR([float(value)] * LANES)


def spread(builder: Any, value: Any) -> Any:
    """A vector with a float that is known at run time in every lane."""
    nothing = VECTOR(ir.Undefined)
    return shuffle(builder, builder.insert_element(nothing, value, ir.IntType(32)(0)), nothing, [0] * LANES)


def shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """Pick lanes from two vectors: 0 to 15 from the first, 16 to 31 from the second."""
    return builder.shuffle_vector(a, b, ir.VectorType(ir.IntType(32), LANES)(lanes))


def multiply(builder: Any, a: Any, b: Any) -> Any:
    """a · b, which may be fused with a sum."""
    return builder.fmul(a, b, flags=FUSED)


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a · b + c."""
    return builder.fadd(multiply(builder, a, b), c, flags=FUSED)


def square_root(builder: Any, x: Any) -> Any:
    """The square root of a vector of numbers that are not negative.

    Where the processor estimates reciprocal roots, the estimate and one step of Newton's method are three times as
    fast as its square root and wrong by less than one part in 10^8.
    """
    if not _estimates():
        return _call(builder, "llvm.sqrt.v16f32", [x])
    x = builder.fadd(x, constant(1e-37))  # an estimate for 0 would be infinite
    rough = _estimate(builder, "rsqrt14", x)
    half = multiply(builder, multiply(builder, x, rough), constant(-0.5))
    better = multiply(builder, rough, multiply_add(builder, half, rough, constant(1.5)))
    return multiply(builder, x, better)


def quotient(builder: Any, a: Any, b: Any) -> Any:
    """a / b for b > 0, estimated like ``square_root`` where that is faster."""
    if not _estimates():
        return builder.fdiv(a, b)
    rough = _estimate(builder, "rcp14", b)
    correction = builder.fsub(constant(2.0), multiply(builder, b, rough), flags=FUSED)
    return multiply(builder, a, multiply(builder, rough, correction))


def _estimates() -> bool:
    return bool(llvmlite.binding.get_host_cpu_features().get("avx512f", False))


def _estimate(builder: Any, name: str, x: Any) -> Any:
    everything = ir.IntType(16)(-1)
    return _call(builder, f"llvm.x86.avx512.{name}.ps.512", [x, constant(0.0), everything])


def _call(builder: Any, name: str, args: list[Any]) -> Any:
    known = builder.module.globals.get(name)
    function = known or ir.Function(builder.module, ir.FunctionType(VECTOR, [arg.type for arg in args]), name)
    return builder.call(function, args)
