"""The kernel of the dot-product models: MF, and LightGCN with its propagation on the ego graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget import randomness
from fedforget.compiled import exact, fast
from fedforget.device.kernels.adam import adam, all_scales
from fedforget.models.parameters import Array

_HALF = np.float32(0.5)
_ONE = np.float32(1)
_ZERO = np.float32(0)


@fast
def dot(a: Array, b: Array) -> np.float32:
    """The dot product of two vectors."""
    total = _ZERO
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@fast
def add_scaled(out: Array, factor: np.float32, x: Array) -> None:
    """out += factor * x."""
    for j in range(out.size):
        out[j] += factor * x[j]


@fast
def propagated_user(user: Array, table: Array, n_own: int, scale: np.float32, out: Array) -> None:
    """LightGCN's user: the mean of the embedding and the scaled sum of the own items' vectors."""
    out[:] = _ZERO
    for i in range(n_own):
        add_scaled(out, _ONE, table[i])
    for j in range(out.size):
        out[j] = _HALF * (user[j] + scale * out[j])


@fast
def spread_to_own(g_table: Array, n_own: int, factor: np.float32, g_star: Array) -> None:
    """The gradient that flows from the propagated user back to every own item."""
    for i in range(n_own):
        add_scaled(g_table[i], factor, g_star)


@exact
def logit_gradient(logit: np.float32, target: np.float32) -> tuple[np.float32, np.float32]:
    """Loss and derivative of the cross-entropy of sigmoid(logit) with a target of 0 or 1, safe for any logit."""
    e = np.exp(-abs(logit))
    probability = _ONE / (_ONE + e) if logit >= 0 else e / (_ONE + e)
    loss = max(logit, _ZERO) - logit * target + np.log(_ONE + e)
    return np.float32(loss), np.float32(probability - target)


@fast
def item_score(star: Array, row: Array, user: Array, own: bool, scale: np.float32, propagate: bool) -> np.float32:
    """u · v, or with propagation u* · v* where an own item carries the scaled user."""
    if not propagate:
        return dot(star, row)
    bonus = scale * dot(star, user) if own else _ZERO
    return _HALF * (dot(star, row) + bonus)


@fast
def item_backward(
    g: np.float32, star: Array, row: Array, user: Array, own: bool, scale: np.float32, propagate: bool,
    g_row: Array, g_star: Array, g_user: Array,
) -> None:  # fmt: skip
    """Add the gradient of one score to the item's, the propagated user's and the user's own."""
    if not propagate:
        add_scaled(g_row, g, star)
        add_scaled(g_star, g, row)
        return
    half = _HALF * g
    add_scaled(g_row, half, star)
    add_scaled(g_star, half, row)
    if own:
        add_scaled(g_star, half * scale, user)
        add_scaled(g_user, half * scale, star)


@exact
def train_client(
    table: Array, user: Array, n_own: int, left: NDArray[np.int32], right: NDArray[np.int32],
    propagate: bool, epochs: int, batch: int, lr: float, state: randomness.Stream,
) -> np.float64:  # fmt: skip
    """Train one client in place; return its mean loss over the last epoch."""
    dim = user.size
    g_table, g_user = np.zeros_like(table), np.zeros_like(user)
    m_table, v_table = np.zeros_like(table), np.zeros_like(table)
    m_user, v_user = np.zeros_like(user), np.zeros_like(user)
    star, g_star = np.empty(dim, np.float32), np.zeros(dim, np.float32)
    scale = np.float32(1.0 / np.sqrt(max(n_own, 1)))
    flat = (table.reshape(-1), g_table.reshape(-1), m_table.reshape(-1), v_table.reshape(-1))
    order = np.arange(left.size).astype(np.int32)
    scales = all_scales(epochs * -(-left.size // batch), lr)
    step = 0
    last = np.float64(0)
    for _ in range(epochs):
        randomness.shuffle(state, order)
        last = np.float64(0)
        for start in range(0, order.size, batch):
            stop = min(start + batch, order.size)
            weight = _ONE / np.float32(stop - start)
            if propagate:
                propagated_user(user, table, n_own, scale, star)
            else:
                star[:] = user
            for i in range(start, stop):
                a, b = left[order[i]], right[order[i]]
                own = a < n_own
                score = item_score(star, table[a], user, own, scale, propagate)
                if b < 0:
                    loss, g = logit_gradient(score, _ONE if own else _ZERO)
                else:
                    loss, g = logit_gradient(score - item_score(star, table[b], user, False, scale, propagate), _ONE)
                    item_backward(
                        -g * weight, star, table[b], user, False, scale, propagate, g_table[b], g_star, g_user
                    )
                item_backward(g * weight, star, table[a], user, own, scale, propagate, g_table[a], g_star, g_user)
                last += np.float64(loss)
            if propagate:
                add_scaled(g_user, _HALF, g_star)
                spread_to_own(g_table, n_own, _HALF * scale, g_star)
            else:
                add_scaled(g_user, _ONE, g_star)
            step += 1
            length, root = scales[step - 1, 0], scales[step - 1, 1]
            adam(flat[0], flat[1], flat[2], flat[3], 0, table.size, 0, length, root)
            adam(user, g_user, m_user, v_user, 0, dim, 0, length, root)
            g_table[:] = _ZERO
            g_user[:] = _ZERO
            g_star[:] = _ZERO
    return last / max(order.size, 1)


@exact
def train_clients(  # type: ignore[no-untyped-def]
    clients, item_ptr, items, positives, sample_ptr, left, right, keys,
    public, private, propagate, epochs, batch, lr, out_rows, out_private, out_loss,
) -> None:  # fmt: skip
    """Train these clients of a plan one after another; write what changed."""
    state = np.empty(1, np.uint64)
    for c in clients:
        lo, hi = item_ptr[c], item_ptr[c + 1]
        used = items[lo:hi]
        table = public[used]
        user = private[c].copy()
        state[0] = keys[c]
        out_loss[c] = train_client(
            table, user, positives[c], left[sample_ptr[c] : sample_ptr[c + 1]],
            right[sample_ptr[c] : sample_ptr[c + 1]], propagate, epochs, batch, lr, state,
        )  # fmt: skip
        for i in range(used.size):
            for j in range(table.shape[1]):
                out_rows[lo + i, j] = table[i, j] - public[used[i], j]
        out_private[c] = user
