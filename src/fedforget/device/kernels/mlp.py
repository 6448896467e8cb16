"""The kernel of NCF: three hidden layers, trained one client at a time so that weights and moments stay in cache.

Matrix products go to BLAS (one thread each); the loops between them are small functions of their own, because the
compiler vectorises those reliably and one large function not at all (measured: a third of the time was lost there).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget import randomness
from fedforget.compiled import exact, fast
from fedforget.device.kernels.adam import adam, step_scales
from fedforget.device.kernels.dot import add_scaled, dot, logit_gradient
from fedforget.models.parameters import Array

_ZERO = np.float32(0)
_ONE = np.float32(1)


@fast
def gather(table: Array, left: NDArray[np.int32], order: NDArray[np.int32], out: Array) -> None:
    """The item vectors of a batch."""
    for i in range(order.size):
        row = left[order[i]]
        for j in range(out.shape[1]):
            out[i, j] = table[row, j]


@fast
def scatter_add(g_table: Array, left: NDArray[np.int32], order: NDArray[np.int32], g: Array) -> None:
    """Add the gradients of a batch to the rows they belong to."""
    for i in range(order.size):
        add_scaled(g_table[left[order[i]]], _ONE, g[i])


@fast
def user_half(user: Array, weight: Array, bias: Array, out: Array) -> None:
    """The user's half of the first layer, the same for a whole batch: bias + u · W."""
    out[:] = bias
    for k in range(user.size):
        add_scaled(out, user[k], weight[k])


@fast
def user_half_backward(user: Array, weight: Array, g_bias: Array, g_weight: Array, g_user: Array) -> None:
    """Gradients through the user's half, from the summed gradient of the first layer."""
    for k in range(user.size):
        g_user[k] = dot(g_bias, weight[k])
        for j in range(g_bias.size):
            g_weight[k, j] = user[k] * g_bias[j]


@fast
def add_bias_relu(x: Array, bias: Array) -> None:
    """x = max(x + bias, 0), row by row."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] = max(x[i, j] + bias[j], _ZERO)


@fast
def relu_backward(g: Array, x: Array, g_bias: Array) -> None:
    """Let the gradient through where the unit was on; sum it into the bias's."""
    g_bias[:] = _ZERO
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            passed = g[i, j] if x[i, j] > _ZERO else _ZERO
            g[i, j] = passed
            g_bias[j] += passed


@fast
def output_backward(g: np.float32, x: Array, weight: Array, g_weight: Array, g_x: Array) -> None:
    """One sample's gradient through the output unit."""
    for j in range(x.size):
        g_weight[j] += g * x[j]
        g_x[j] = g * weight[j]


@exact
def output_layer(
    x: Array, weight: Array, bias: Array, left: NDArray[np.int32], order: NDArray[np.int32], n_own: int,
    g_weight: Array, g_bias: Array, g_x: Array,
) -> np.float64:  # fmt: skip
    """Logits, losses and their gradients for a batch; returns the summed loss."""
    g_weight[:] = _ZERO
    g_bias[0] = _ZERO
    share = _ONE / np.float32(order.size)
    total = np.float64(0)
    for i in range(order.size):
        target = _ONE if left[order[i]] < n_own else _ZERO
        loss, g = logit_gradient(dot(x[i], weight) + bias[0], target)
        total += np.float64(loss)
        g_bias[0] += g * share
        output_backward(g * share, x[i], weight, g_weight, g_x[i])
    return total


@exact
def train_client(
    table: Array, user: Array, dense: Array, widths: tuple[int, int, int], n_own: int, left: NDArray[np.int32],
    epochs: int, batch: int, lr: float, state: randomness.Stream,
) -> np.float64:  # fmt: skip
    """Train one client in place; return its mean loss over the last epoch."""
    dim = user.size
    h1, h2, h3 = widths
    g = np.zeros_like(dense)
    c0, c1 = dim * h1, 2 * dim * h1
    c2, c3 = c1 + h1, c1 + h1 + h1 * h2
    c4, c5 = c3 + h2, c3 + h2 + h2 * h3
    c6, c7 = c5 + h3, c5 + 2 * h3
    w1v, w1u, b1 = dense[:c0].reshape(dim, h1), dense[c0:c1].reshape(dim, h1), dense[c1:c2]
    g1v, g1u, gb1 = g[:c0].reshape(dim, h1), g[c0:c1].reshape(dim, h1), g[c1:c2]
    w2, b2, w3, b3 = dense[c2:c3].reshape(h1, h2), dense[c3:c4], dense[c4:c5].reshape(h2, h3), dense[c5:c6]
    g2, gb2, g3, gb3 = g[c2:c3].reshape(h1, h2), g[c3:c4], g[c4:c5].reshape(h2, h3), g[c5:c6]
    wo, bo, go, gbo = dense[c6:c7], dense[c7:], g[c6:c7], g[c7:]
    m_dense, v_dense = np.zeros_like(dense), np.zeros_like(dense)
    g_table, m_table, v_table = np.zeros_like(table), np.zeros_like(table), np.zeros_like(table)
    g_user, m_user, v_user = np.zeros_like(user), np.zeros_like(user), np.zeros_like(user)
    of_user = np.empty(h1, np.float32)
    x0, d0 = np.empty((batch, dim), np.float32), np.empty((batch, dim), np.float32)
    x1, d1 = np.empty((batch, h1), np.float32), np.empty((batch, h1), np.float32)
    x2, d2 = np.empty((batch, h2), np.float32), np.empty((batch, h2), np.float32)
    x3, d3 = np.empty((batch, h3), np.float32), np.empty((batch, h3), np.float32)
    order = np.arange(left.size).astype(np.int32)
    step = 0
    last = np.float64(0)
    for _ in range(epochs):
        randomness.shuffle(state, order)
        last = np.float64(0)
        for start in range(0, order.size, batch):
            chosen = order[start : start + batch]
            n = chosen.size
            a0, a1, a2, a3 = x0[:n], x1[:n], x2[:n], x3[:n]
            e0, e1, e2, e3 = d0[:n], d1[:n], d2[:n], d3[:n]

            gather(table, left, chosen, a0)
            user_half(user, w1u, b1, of_user)
            np.dot(a0, w1v, a1)
            add_bias_relu(a1, of_user)
            np.dot(a1, w2, a2)
            add_bias_relu(a2, b2)
            np.dot(a2, w3, a3)
            add_bias_relu(a3, b3)
            last += output_layer(a3, wo, bo, left, chosen, n_own, go, gbo, e3)

            relu_backward(e3, a3, gb3)
            np.dot(a2.T, e3, g3)
            np.dot(e3, w3.T, e2)
            relu_backward(e2, a2, gb2)
            np.dot(a1.T, e2, g2)
            np.dot(e2, w2.T, e1)
            relu_backward(e1, a1, gb1)
            np.dot(a0.T, e1, g1v)
            np.dot(e1, w1v.T, e0)
            user_half_backward(user, w1u, gb1, g1u, g_user)
            scatter_add(g_table, left, chosen, e0)

            step += 1
            length, root = step_scales(step, lr)
            adam(dense, g, m_dense, v_dense, length, root)
            adam(table.reshape(-1), g_table.reshape(-1), m_table.reshape(-1), v_table.reshape(-1), length, root)
            adam(user, g_user, m_user, v_user, length, root)
    return last / max(order.size, 1)


@exact
def train_clients(  # type: ignore[no-untyped-def]
    clients, item_ptr, items, positives, sample_ptr, left, keys,
    public, dense, private, widths, epochs, batch, lr, out_rows, out_dense, out_private, out_loss,
) -> None:  # fmt: skip
    """Train these clients of a plan one after another; write what changed."""
    state = np.empty(1, np.uint64)
    for c in clients:
        lo, hi = item_ptr[c], item_ptr[c + 1]
        used = items[lo:hi]
        table = public[used]
        user = private[c].copy()
        weights = dense.copy()
        state[0] = keys[c]
        out_loss[c] = train_client(
            table, user, weights, widths, positives[c], left[sample_ptr[c] : sample_ptr[c + 1]],
            epochs, batch, lr, state,
        )  # fmt: skip
        for i in range(used.size):
            for j in range(table.shape[1]):
                out_rows[lo + i, j] = table[i, j] - public[used[i], j]
        out_dense[c] = weights - dense
        out_private[c] = user
