"""The kernel of NCF: three hidden layers, trained one client at a time so that weights and moments stay in cache.

Activations have one feature per row and one sample per column (``x[feature, sample]``). So every product of the forward
and backward pass reads its right factor along rows, and only the gradients need a transposed copy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.device.kernels.activations import (
    add_bias_relu,
    losses,
    output_backward,
    output_logits,
    relu_backward,
    user_half,
)
from fedforget.device.kernels.adam import adam, all_scales
from fedforget.device.kernels.arithmetic import dot
from fedforget.device.kernels.layers import Hidden, Layers, hidden, layers, pack_difference, padded_size, unpack
from fedforget.device.kernels.matrix import aligned, padded_width, product, transpose
from fedforget.device.kernels.rows import catch_up, gather, row_changes, step_rows, take_rows
from fedforget.models.parameters import Array
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact
from fedforget.runtime.workers import next_place

#: Rows of a weight matrix that are stepped at once, so that their gradient stays in the innermost cache. A multiple of
#: six, the rows of a tile.
STRIP = 24

_ZERO = np.float32(0)


@exact
def forward(table: Array, user: Array, w: Layers, x: Hidden, rows: NDArray[np.int32], turned: Array) -> None:
    """The activations of a batch."""
    w1v, w1u, b1, w2, b2, w3, b3, _, _ = w
    x0, x1, x2, x3, of_user = x
    width = padded_width(rows.size)
    gather(table, rows, turned, x0)
    user_half(user, w1u[:, : b1.size], b1, of_user[0, : b1.size])
    product(w1v, True, x0, x1, b1.size, width, user.size)
    add_bias_relu(x1[: b1.size], of_user[0], width)
    product(w2, True, x1, x2, b2.size, width, b1.size)
    add_bias_relu(x2[: b2.size], b2, width)
    product(w3, True, x2, x3, b3.size, width, b2.size)
    add_bias_relu(x3[: b3.size], b3, width)


@exact
def backward(
    user: Array,
    w: Layers,
    m: Layers,
    v: Layers,
    x: Hidden,
    d: Hidden,
    g_logits: Array,
    g_bias: np.float32,
    g_user: Array,
    turned: Array,
    strip: Array,
    n: int,
    length: np.float32,
    root: np.float32,
) -> None:
    """Step every layer, from the last to the first; the gradients of the activations are written to ``d``."""
    w1v, w1u, b1, w2, b2, w3, b3, wo, bo = w
    m1v, m1u, mb1, m2, mb2, m3, mb3, mo, mbo = m
    v1v, v1u, vb1, v2, vb2, v3, vb3, vo, vbo = v
    x0, x1, x2, x3, _ = x
    d0, d1, d2, d3, small = d
    width = g_logits.size
    gb1, gb2, gb3 = small[0, : b1.size], small[1, : b2.size], small[2, : b3.size]
    go, gbo = small[3, : b3.size], small[4, :1]

    output_backward(g_logits, x3[: b3.size], wo, go, d3)
    gbo[0] = g_bias
    adam(wo, go, mo, vo, 0, wo.size, 0, length, root)
    adam(bo, gbo, mbo, vbo, 0, 1, 0, length, root)
    for x_in, d_in, x_out, d_out, weight, m_weight, v_weight, bias, g_b, m_b, v_b in (
        (x2, d2, x3, d3, w3, m3, v3, b3, gb3, mb3, vb3),
        (x1, d1, x2, d2, w2, m2, v2, b2, gb2, mb2, vb2),
        (x0, d0, x1, d1, w1v, m1v, v1v, b1, gb1, mb1, vb1),
    ):
        relu_backward(d_out[: bias.size], x_out[: bias.size], g_b, width)
        columns = turned[: width * weight.shape[1]].reshape(width, weight.shape[1])
        transpose(d_out, columns, weight.shape[1], width)
        backward_layer(x_in, d_in, d_out, columns, weight, m_weight, v_weight, bias.size, width, n, strip, length, root)
        adam(bias, g_b, m_b, v_b, 0, bias.size, 0, length, root)
    step_user_half(user, gb1, w1u, m1u, v1u, g_user, strip[: w1u.shape[1]], length, root)


@exact
def backward_layer(
    x_in: Array,
    d_in: Array,
    d_out: Array,
    columns: Array,
    w: Array,
    m: Array,
    v: Array,
    outputs: int,
    width: int,
    n: int,
    strip: Array,
    length: np.float32,
    root: np.float32,
) -> None:
    """Pass the gradient back through a layer and step its weights, a strip of rows at a time.

    A strip's weights are read once for both. ``columns`` is ``d_out`` transposed; its first n rows are used.
    """
    flat_w, flat_m, flat_v = w.reshape(-1), m.reshape(-1), v.reshape(-1)
    for start in range(0, w.shape[0], STRIP):
        rows = min(STRIP, w.shape[0] - start)
        product(w[start:], False, d_out, d_in[start:], rows, width, outputs)
        g = strip[: rows * w.shape[1]].reshape(rows, w.shape[1])
        product(x_in[start:], False, columns, g, rows, w.shape[1], n)
        place = start * w.shape[1]
        adam(flat_w, strip, flat_m, flat_v, place, place + g.size, 0, length, root)


@exact
def step_user_half(
    user: Array,
    g_bias: Array,
    w: Array,
    m: Array,
    v: Array,
    g_user: Array,
    row: Array,
    length: np.float32,
    root: np.float32,
) -> None:
    """Step the user's half of the first layer: its gradient is the outer product of the user and ``g_bias``."""
    width = w.shape[1]
    flat_w, flat_m, flat_v = w.reshape(-1), m.reshape(-1), v.reshape(-1)
    row[:] = _ZERO
    for k in range(user.size):
        g_user[k] = dot(g_bias, w[k, : g_bias.size])
        for j in range(g_bias.size):
            row[j] = user[k] * g_bias[j]
        adam(flat_w, row, flat_m, flat_v, k * width, (k + 1) * width, 0, length, root)


@exact
def train_client(
    table: Array,
    user: Array,
    w: Layers,
    m: Layers,
    v: Layers,
    widths: tuple[int, int, int],
    n_own: int,
    left: NDArray[np.int32],
    epochs: int,
    batch: int,
    lr: float,
    state: randomness.Stream,
) -> np.float64:
    """Train one client in place, with moments that start at zero; return its mean loss over the last epoch."""
    columns = padded_width(batch)
    x, d = hidden(user.size, widths, columns), hidden(user.size, widths, columns)
    turned = aligned(1, columns * padded_width(max(user.size, max(widths))))[0]
    strip = aligned(1, STRIP * padded_width(max(widths)))[0]
    logits, g_logits = np.empty(columns, np.float32), np.empty(columns, np.float32)
    dim = user.size
    learned = (table.reshape(-1), np.zeros(table.size, np.float32), np.zeros(table.size, np.float32))
    done, first = np.zeros(table.shape[0], np.int64), np.empty(table.shape[0], np.int64)
    scales = all_scales(epochs * -(-left.size // batch), lr)
    g_user, m_user, v_user = np.zeros_like(user), np.zeros_like(user), np.zeros_like(user)
    order = np.arange(left.size).astype(np.int32)
    step = 0
    last = np.float64(0)
    for _ in range(epochs):
        randomness.shuffle(state, order)
        last = np.float64(0)
        for start in range(0, order.size, batch):
            rows = left[order[start : start + batch]]
            width = padded_width(rows.size)
            catch_up(learned, dim, rows, done, step, scales)
            length, root = scales[step, 0], scales[step, 1]
            step += 1
            forward(table, user, w, x, rows, turned)
            output_logits(x[3][: widths[2]], w[7], w[8][0], logits[:width])
            loss, g_bias = losses(logits, rows, n_own, g_logits[:width])
            last += loss
            backward(user, w, m, v, x, d, g_logits[:width], g_bias, g_user, turned, strip, rows.size, length, root)
            step_rows(learned, dim, rows, d[0], turned, done, first, step, length, root)
            adam(user, g_user, m_user, v_user, 0, dim, 0, length, root)
    catch_up(learned, dim, np.arange(table.shape[0]).astype(np.int32), done, step, scales)
    return last / max(order.size, 1)


@exact
def train_clients(  # type: ignore[no-untyped-def]
    order, counter, data, public, dense, private, widths, epochs, batch, lr, out
) -> None:
    """Train the clients that this worker takes and write what changed.

    ``data`` are item_ptr, items, positives, sample_ptr, left, right and batch_keys of a plan; ``out`` are the rows,
    dense tensors, private parameters and losses to write.
    """
    item_ptr, items, positives, sample_ptr, left, _, keys = data
    out_rows, out_dense, out_private, out_loss = out
    dim = public.shape[1]
    state = np.empty(1, np.uint64)
    memory = aligned(3, padded_size(dim, widths))
    memory[0] = 0  # the padding of the weights stays zero, because its gradient is zero
    w, m, v = layers(memory[0], dim, widths), layers(memory[1], dim, widths), layers(memory[2], dim, widths)
    c = next_place(order, counter)
    while c >= 0:
        lo, hi = item_ptr[c], item_ptr[c + 1]
        used = items[lo:hi]
        table = np.empty((used.size, dim), np.float32)
        take_rows(public, used, table)
        user = private[c].copy()
        memory[1:] = 0
        unpack(dense, w)
        state[0] = keys[c]
        samples = left[sample_ptr[c] : sample_ptr[c + 1]]
        out_loss[c] = train_client(table, user, w, m, v, widths, positives[c], samples, epochs, batch, lr, state)
        row_changes(table, public, used, out_rows[lo:hi])
        pack_difference(w, dense, out_dense[c])
        out_private[c] = user
        c = next_place(order, counter)
