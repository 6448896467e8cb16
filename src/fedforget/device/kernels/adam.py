"""Adam, as in torch.optim.Adam with its default betas and epsilon."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from fedforget.device.kernels import vectors
from fedforget.device.kernels.vectors import LANES
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-8

_B1, _C1 = np.float32(BETA_1), np.float32(1 - BETA_1)
_B2, _C2 = np.float32(BETA_2), np.float32(1 - BETA_2)
_ROOT_B2 = np.float32(np.sqrt(BETA_2))
_LOG_BETA_2 = np.log(BETA_2)
_EPSILON = np.float32(EPSILON)


@exact
def all_scales(steps: int, lr: float) -> Array:
    """The bias corrections of the steps 1 .. ``steps``, one row each: the step's length, and its factor on sqrt(v)."""
    scales = np.empty((steps, 2), np.float32)
    for step in range(steps):
        scales[step, 0] = lr / (1.0 - BETA_1 ** (step + 1))
        scales[step, 1] = 1.0 / np.sqrt(1.0 - BETA_2 ** (step + 1))
    return scales


@exact
def adam(
    w: Array, g: Array, m: Array, v: Array, start: int, stop: int, g_start: int, length: np.float32, scale: np.float32
) -> None:
    """Step the flat parameters ``start`` to ``stop`` along the gradients that begin at ``g_start``."""
    whole = start + (stop - start) // LANES * LANES
    shift = g_start - start
    for i in range(start, whole, LANES):
        _step_vector(
            w.ctypes.data + 4 * i,
            g.ctypes.data + 4 * (i + shift),
            m.ctypes.data + 4 * i,
            v.ctypes.data + 4 * i,
            length,
            scale,
        )
    for i in range(whole, stop):
        gradient = g[i + shift]
        m[i] = _B1 * m[i] + _C1 * gradient
        v[i] = _B2 * v[i] + _C2 * gradient * gradient
        w[i] -= length * m[i] / (np.sqrt(v[i]) * scale + _EPSILON)


def _step(_context: Any, _w: Any, _g: Any, _m: Any, _v: Any, _length: Any, _scale: Any) -> Any:
    """One step of 16 parameters at these addresses."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        w, g, m, v, length, scale = args
        gradient = vectors.load(builder, g)
        weighted = vectors.multiply(builder, gradient, vectors.constant(_C1))
        mean = vectors.multiply_add(builder, vectors.load(builder, m), vectors.constant(_B1), weighted)
        weighted = vectors.multiply(builder, vectors.multiply(builder, gradient, gradient), vectors.constant(_C2))
        square = vectors.multiply_add(builder, vectors.load(builder, v), vectors.constant(_B2), weighted)
        vectors.store(builder, mean, m)
        vectors.store(builder, square, v)
        root = vectors.square_root(builder, square)
        below = vectors.multiply_add(builder, root, vectors.spread(builder, scale), vectors.constant(_EPSILON))
        move = vectors.quotient(builder, vectors.multiply(builder, mean, vectors.spread(builder, length)), below)
        vectors.store(builder, builder.fsub(vectors.load(builder, w), move), w)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4, types.float32, types.float32), codegen


_step_vector: Any = intrinsic(_step)


def _idle(across: int) -> Any:
    """An intrinsic for steps without a gradient (at least one) of 16 · ``across`` parameters, in registers.

    With several vectors at once, one is computed while another waits for its quotient.
    """

    @intrinsic
    def idle(_context: Any, _w: Any, _m: Any, _v: Any, _scales: Any, _steps: Any, _left: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            w, m, v, scales, steps, left = args
            places = [vectors.INT64(4 * LANES * j) for j in range(across)]
            squares = [vectors.load(builder, builder.add(v, place)) for place in places]
            for place, square in zip(places, squares, strict=True):
                shrunk = vectors.multiply(builder, square, vectors.spread(builder, left))
                vectors.store(builder, shrunk, builder.add(v, place))
            values = [vectors.load(builder, builder.add(w, place)) for place in places]
            means = [vectors.load(builder, builder.add(m, place)) for place in places]
            roots = [vectors.square_root(builder, square) for square in squares]
            loop = vectors.Loop(builder, steps, [scales, *values, *means, *roots])
            at, *carried = loop.values
            length = vectors.spread(builder, vectors.load(builder, at, vectors.FLOAT))
            scale = vectors.spread(builder, vectors.load(builder, builder.add(at, vectors.INT64(4)), vectors.FLOAT))
            for j in range(across):
                means[j] = vectors.multiply(builder, carried[across + j], vectors.constant(_B1))
                roots[j] = vectors.multiply(builder, carried[2 * across + j], vectors.constant(_ROOT_B2))
                below = vectors.multiply_add(builder, roots[j], scale, vectors.constant(_EPSILON))
                move = vectors.quotient(builder, vectors.multiply(builder, means[j], length), below)
                values[j] = builder.fsub(carried[j], move)
            loop.close([builder.add(at, vectors.INT64(8)), *values, *means, *roots])
            for place, value, mean in zip(places, values, means, strict=True):
                vectors.store(builder, value, builder.add(w, place))
                vectors.store(builder, mean, builder.add(m, place))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5, types.float32), codegen

    return idle


_idle_1, _idle_4 = _idle(1), _idle(4)


@exact
def adam_idle(w: Array, m: Array, v: Array, start: int, stop: int, since: int, until: int, scales: Array) -> None:
    """Apply the steps ``since`` + 1 to ``until``, without a gradient, to the flat parameters ``start`` to ``stop``.

    Without a gradient the moments only shrink, so sqrt(v) is computed once and then shrunk too. A row is updated when
    it is next needed, not at every step, so that rows that are not used are not read.
    """
    left = np.float32(np.exp((until - since) * _LOG_BETA_2))
    first, steps = scales.ctypes.data + 8 * since, until - since
    i = start
    while stop - i >= LANES:
        place = 4 * i
        if stop - i >= 4 * LANES:
            _idle_4(w.ctypes.data + place, m.ctypes.data + place, v.ctypes.data + place, first, steps, left)
            i += 4 * LANES
        else:
            _idle_1(w.ctypes.data + place, m.ctypes.data + place, v.ctypes.data + place, first, steps, left)
            i += LANES
    for rest in range(i, stop):
        root = np.sqrt(v[rest])
        for step in range(since, until):
            m[rest] *= _B1
            root *= _ROOT_B2
            w[rest] -= scales[step, 0] * m[rest] / (root * scales[step, 1] + _EPSILON)
        v[rest] *= left
