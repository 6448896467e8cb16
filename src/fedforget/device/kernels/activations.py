"""The small loops between the matrix products of a perceptron, for a batch with one sample per column.

They are separate functions because the compiler vectorises small functions reliably, but not one large function
(measured: that cost a third of the time).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.device.kernels.arithmetic import add_scaled, dot, logit_gradient
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact, fast

_ZERO = np.float32(0)
_ONE = np.float32(1)


@fast
def user_half(user: Array, weight: Array, bias: Array, out: Array) -> None:
    """The user's half of the first layer, the same for a whole batch: bias + u · W."""
    out[:] = bias
    for k in range(user.size):
        add_scaled(out, user[k], weight[k])


@fast
def add_bias_relu(x: Array, bias: Array, width: int) -> None:
    """x = max(x + bias, 0), each feature with its own bias."""
    for j in range(x.shape[0]):
        row = x[j]
        for i in range(width):
            row[i] = max(row[i] + bias[j], _ZERO)


@fast
def relu_backward(g: Array, x: Array, g_bias: Array, width: int) -> None:
    """Set the gradient to zero where the unit was off; its sum is the gradient of the bias."""
    for j in range(x.shape[0]):
        total = _ZERO
        from_row, x_row = g[j], x[j]
        for i in range(width):
            passed = from_row[i] if x_row[i] > _ZERO else _ZERO
            from_row[i] = passed
            total += passed
        g_bias[j] = total


@fast
def output_logits(x: Array, weight: Array, bias: np.float32, out: Array) -> None:
    """The logit of every sample."""
    out[:] = bias
    for j in range(x.shape[0]):
        add_scaled(out, weight[j], x[j, : out.size])


@fast
def output_backward(g: Array, x: Array, weight: Array, g_weight: Array, g_x: Array) -> None:
    """From the gradients of the logits to those of the output weights and of the last hidden layer."""
    for j in range(x.shape[0]):
        g_weight[j] = dot(g, x[j, : g.size])
        for i in range(g.size):
            g_x[j, i] = g[i] * weight[j]


@exact
def losses(logits: Array, rows: NDArray[np.int32], n_own: int, g: Array) -> tuple[np.float64, np.float32]:
    """The summed loss of a batch, and the sum of ``g``: the gradient of the mean loss for each logit, 0 for padding."""
    share = _ONE / np.float32(rows.size)
    total, g_total = np.float64(0), _ZERO
    g[:] = _ZERO
    for i in range(rows.size):
        loss, slope = logit_gradient(logits[i], _ONE if rows[i] < n_own else _ZERO)
        total += np.float64(loss)
        g[i] = slope * share
        g_total += g[i]
    return total, g_total
