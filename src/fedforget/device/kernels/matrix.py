"""Small matrix products at the speed of the machine, without packing.

A client's products are small (64 to 256 per side) and stay in cache. There the packing and dispatch of a general BLAS
cost a third of the time, and on wide vector units the compiler's own vectorisation uses only half their width. So the
innermost tile is written as LLVM instructions on vectors of 16 floats: a block of C stays in registers while the sum is
computed. Where the processor's vectors are narrower, LLVM splits them. Rows of B and C must start on cache lines (see
``aligned``): loads across lines run at half speed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from fedforget.device.kernels import vectors
from fedforget.device.kernels.vectors import FLOAT, INT64, LANES
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact


@exact
def padded_width(n: int) -> int:
    """The next multiple of the vector width."""
    return -(-n // LANES) * LANES


@exact
def aligned(rows: int, columns: int) -> Array:
    """A zeroed matrix whose rows start on cache lines; columns must be a multiple of ``LANES``."""
    memory = np.zeros(rows * columns + LANES, np.float32)
    skip = (-memory.ctypes.data % 64) // 4
    return memory[skip : skip + rows * columns].reshape(rows, columns)


def _tile(rows: int, across: int) -> Any:
    """An intrinsic that computes ``rows`` × (16 · ``across``) elements of C = A · B in registers.

    Its arguments are addresses and strides in elements: A's element (i, k) lies at a + i · a_row + k · a_column, so a
    transposed A costs nothing; B and C are row by row.
    """

    @intrinsic
    def tile(
        _context: Any, _a: Any, _a_row: Any, _a_column: Any, _b: Any, _b_row: Any, _c: Any, _c_row: Any, _n: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            a, a_row, a_column, b, b_row, c, c_row, n = args
            a_row, a_column, b_row, c_row = (builder.mul(x, INT64(4)) for x in (a_row, a_column, b_row, c_row))
            offsets = [builder.mul(a_row, INT64(i)) for i in range(rows)]
            zero = vectors.constant(0.0)
            loop = vectors.Loop(builder, n, [a, b] + [zero] * (rows * across))
            a_at, b_at, *sums = loop.values
            b_now = [vectors.load(builder, builder.add(b_at, INT64(64 * j))) for j in range(across)]
            for i in range(rows):
                factor = vectors.spread(builder, vectors.load(builder, builder.add(a_at, offsets[i]), FLOAT))
                for j in range(across):
                    at = i * across + j
                    sums[at] = vectors.multiply_add(builder, factor, b_now[j], sums[at])
            loop.close([builder.add(a_at, a_column), builder.add(b_at, b_row), *sums])
            for i in range(rows):
                start = builder.add(c, builder.mul(c_row, INT64(i)))
                for j in range(across):
                    vectors.store(builder, sums[i * across + j], builder.add(start, INT64(64 * j)))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), codegen

    return tile


# Six rows by four vectors keep 24 sums in the 32 registers, with room for a row of B: the fastest of those tried.
_6x4, _4x4, _2x4, _1x4 = _tile(6, 4), _tile(4, 4), _tile(2, 4), _tile(1, 4)
_6x1, _4x1, _2x1, _1x1 = _tile(6, 1), _tile(4, 1), _tile(2, 1), _tile(1, 1)


@exact
def _strip(
    a: int, a_row: int, a_column: int, b: int, b_row: int, c: int, c_row: int, m: int, n: int, wide: bool
) -> None:
    """All m rows of a strip of C that is four vectors wide, or one."""
    i = 0
    while i < m:
        left = m - i
        at, out = a + 4 * a_row * i, c + 4 * c_row * i
        if left >= 6:
            if wide:
                _6x4(at, a_row, a_column, b, b_row, out, c_row, n)
            else:
                _6x1(at, a_row, a_column, b, b_row, out, c_row, n)
            i += 6
        elif left >= 4:
            if wide:
                _4x4(at, a_row, a_column, b, b_row, out, c_row, n)
            else:
                _4x1(at, a_row, a_column, b, b_row, out, c_row, n)
            i += 4
        elif left >= 2:
            if wide:
                _2x4(at, a_row, a_column, b, b_row, out, c_row, n)
            else:
                _2x1(at, a_row, a_column, b, b_row, out, c_row, n)
            i += 2
        else:
            if wide:
                _1x4(at, a_row, a_column, b, b_row, out, c_row, n)
            else:
                _1x1(at, a_row, a_column, b, b_row, out, c_row, n)
            i += 1


@exact
def product(a: Array, transposed: bool, b: Array, out: Array, m: int, width: int, n: int) -> None:
    """out[:m, :width] = A · B, summing over n, where A is ``a``, or its transpose.

    ``width`` is a multiple of ``LANES``; ``b`` and ``out`` may be wider. Nothing happens for n = 0.
    """
    if n == 0:
        return
    a_row, a_column = (1, a.shape[1]) if transposed else (a.shape[1], 1)
    j = 0
    while j < width:
        wide = width - j >= 4 * LANES
        _strip(
            a.ctypes.data,
            a_row,
            a_column,
            b.ctypes.data + 4 * j,
            b.shape[1],
            out.ctypes.data + 4 * j,
            out.shape[1],
            m,
            n,
            wide,
        )
        j += 4 * LANES if wide else LANES


def _block(_context: Any, _a: Any, _a_row: Any, _out: Any, _out_row: Any) -> Any:
    """Transpose 16 × 16 floats in registers. In four stages, rows that are 1, 2, 4, 8 apart exchange halves."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        a, a_row, out, out_row = args
        rows = [vectors.load(builder, builder.add(a, builder.mul(a_row, INT64(4 * i)))) for i in range(LANES)]
        for apart in (1, 2, 4, 8):
            low = [i if i & apart == 0 else LANES + i - apart for i in range(LANES)]
            high = [i + apart if i & apart == 0 else LANES + i for i in range(LANES)]
            swapped = list(rows)
            for i in range(LANES):
                if i & apart == 0:
                    swapped[i] = vectors.shuffle(builder, rows[i], rows[i + apart], low)
                    swapped[i + apart] = vectors.shuffle(builder, rows[i], rows[i + apart], high)
            rows = swapped
        for i in range(LANES):
            vectors.store(builder, rows[i], builder.add(out, builder.mul(out_row, INT64(4 * i))))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


_transpose_block: Any = intrinsic(_block)


@exact
def transpose(a: Array, out: Array, m: int, n: int) -> None:
    """out[j, i] = a[i, j] for i < m, j < n, rounded up to whole blocks, which must fit into both."""
    for i in range(0, m, LANES):
        for j in range(0, n, LANES):
            _transpose_block(
                a.ctypes.data + 4 * (i * a.shape[1] + j),
                a.shape[1],
                out.ctypes.data + 4 * (j * out.shape[1] + i),
                out.shape[1],
            )
