"""The kernel of the dot-product models: MF, and LightGCN with its propagation on the ego graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.device.kernels.adam import adam, all_scales
from fedforget.device.kernels.arithmetic import add_scaled, dot, logit_gradient
from fedforget.device.kernels.rows import row_changes, take_rows
from fedforget.models.parameters import Array
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact, fast
from fedforget.runtime.workers import next_place

_HALF = np.float32(0.5)
_ONE = np.float32(1)
_ZERO = np.float32(0)


@fast
def propagated_user(user: Array, table: Array, n_own: int, scale: np.float32, out: Array) -> None:
    """LightGCN's user: the mean of the embedding and the scaled sum of the own items' vectors."""
    out[:] = _ZERO
    for i in range(n_own):
        for j in range(out.size):
            out[j] += table[i, j]
    for j in range(out.size):
        out[j] = _HALF * (user[j] + scale * out[j])


@fast
def score_rows(table: Array, rows: NDArray[np.int32], star: Array, out: Array) -> None:
    """The dot product of each of these rows with the user."""
    for i in range(rows.size):
        row = rows[i]
        total = _ZERO
        for j in range(star.size):
            total += table[row, j] * star[j]
        out[i] = total


@fast
def add_gradients(
    table: Array, rows: NDArray[np.int32], star: Array, g: Array, sign: np.float32, g_table: Array, g_star: Array
) -> None:
    """Add the gradients of these rows' dot products to the rows' and to the user's."""
    for i in range(rows.size):
        row = rows[i]
        slope = sign * g[i]
        for j in range(star.size):
            g_table[row, j] += slope * star[j]
        for j in range(star.size):
            g_star[j] += slope * table[row, j]


@fast
def spread_to_own(g_table: Array, n_own: int, factor: np.float32, g_star: Array) -> None:
    """Add the gradient of the propagated user to every own item's."""
    for i in range(n_own):
        for j in range(g_star.size):
            g_table[i, j] += factor * g_star[j]


@exact
def batch_gradients(
    table: Array,
    user: Array,
    n_own: int,
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    propagate: bool,
    star: Array,
    scores: Array,
    g: Array,
    g_table: Array,
    g_star: Array,
    g_user: Array,
) -> np.float64:
    """Add the gradients of a batch's mean loss to ``g_table``, ``g_star`` and ``g_user``; return the summed loss.

    With propagation a score is ½ (u* · v + u* · u / sqrt(|N_u|)). The second part is for own items only. It is the same
    for all of them, so its gradient needs only the sum of their slopes.
    """
    n = left.size
    scale = np.float32(1.0 / np.sqrt(max(n_own, 1)))
    factor = _HALF if propagate else _ONE
    if propagate:
        propagated_user(user, table, n_own, scale, star)
    else:
        star[:] = user
    bonus = scale * dot(star, user) if propagate else _ZERO
    pairwise = right[0] >= 0
    score_rows(table, left, star, scores[0, :n])
    if pairwise:
        score_rows(table, right, star, scores[1, :n])
    total, own_slopes = np.float64(0), _ZERO
    for i in range(n):
        own = left[i] < n_own
        score = factor * (scores[0, i] + (bonus if own else _ZERO))
        if pairwise:
            score -= factor * scores[1, i]
        loss, slope = logit_gradient(score, _ONE if own else _ZERO)
        total += np.float64(loss)
        g[i] = factor * slope / np.float32(n)
        own_slopes += g[i] if own else _ZERO
    add_gradients(table, left, star, g, _ONE, g_table, g_star)
    if pairwise:
        add_gradients(table, right, star, g, -_ONE, g_table, g_star)
    if propagate:
        add_scaled(g_star, scale * own_slopes, user)
        add_scaled(g_user, scale * own_slopes, star)
        spread_to_own(g_table, n_own, _HALF * scale, g_star)
    add_scaled(g_user, factor, g_star)
    return total


@exact
def train_client(
    table: Array,
    user: Array,
    n_own: int,
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    propagate: bool,
    epochs: int,
    batch: int,
    lr: float,
    state: randomness.Stream,
    memory: tuple[Array, Array, Array],
) -> np.float64:
    """Train one client in place; return its mean loss over the last epoch.

    ``memory`` is scratch space for the table's gradient and Adam's two moments.
    """
    dim, size = user.size, table.size
    flat = table.reshape(-1)
    g_flat, m, v = memory
    g_flat[:] = _ZERO
    m[:] = _ZERO
    v[:] = _ZERO
    g_table = g_flat.reshape(table.shape)
    small = np.zeros((5, dim), np.float32)
    g_user, m_user, v_user, star, g_star = small[0], small[1], small[2], small[3], small[4]
    scores, g = np.empty((2, batch), np.float32), np.empty(batch, np.float32)
    order = np.arange(left.size).astype(np.int32)
    scales = all_scales(epochs * -(-left.size // batch), lr)
    step, last = 0, np.float64(0)
    for _ in range(epochs):
        randomness.shuffle(state, order)
        last = np.float64(0)
        for start in range(0, order.size, batch):
            chosen = order[start : start + batch]
            last += batch_gradients(
                table, user, n_own, left[chosen], right[chosen], propagate, star, scores, g, g_table, g_star, g_user
            )
            adam(flat, g_flat, m, v, 0, size, 0, scales[step, 0], scales[step, 1])
            adam(user, g_user, m_user, v_user, 0, dim, 0, scales[step, 0], scales[step, 1])
            g_flat[:] = _ZERO
            g_user[:] = _ZERO
            g_star[:] = _ZERO
            step += 1
    return last / max(order.size, 1)


@exact
def train_clients(  # type: ignore[no-untyped-def]
    order, counter, data, public, private, propagate, epochs, batch, lr, out
) -> None:
    """Train the clients that this worker takes and write what changed; ``data`` and ``out`` are as for NCF."""
    item_ptr, items, positives, sample_ptr, left, right, keys = data
    out_rows, _, out_private, out_loss = out
    dim = public.shape[1]
    state = np.empty(1, np.uint64)
    room = np.empty((4, np.max(np.diff(item_ptr)) * dim if positives.size else 0), np.float32)
    c = next_place(order, counter)
    while c >= 0:
        lo, hi = item_ptr[c], item_ptr[c + 1]
        used = items[lo:hi]
        size = used.size * dim
        memory = room[0, :size], room[1, :size], room[2, :size]
        table = room[3, :size].reshape(used.size, dim)
        take_rows(public, used, table)
        user = private[c].copy()
        samples = left[sample_ptr[c] : sample_ptr[c + 1]], right[sample_ptr[c] : sample_ptr[c + 1]]
        state[0] = keys[c]
        out_loss[c] = train_client(table, user, positives[c], *samples, propagate, epochs, batch, lr, state, memory)
        row_changes(table, public, used, out_rows[lo:hi])
        out_private[c] = user
        c = next_place(order, counter)
