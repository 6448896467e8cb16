"""The layers of a perceptron in aligned memory: matrices padded to whole vectors, each starting on a cache line."""

from __future__ import annotations

from fedforget.device.kernels.matrix import aligned, padded_width
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact

#: The weights and biases of the four layers, and likewise their moments.
Layers = tuple[Array, Array, Array, Array, Array, Array, Array, Array, Array]
#: A matrix for the input and each hidden layer, and one for small vectors.
Hidden = tuple[Array, Array, Array, Array, Array]


@exact
def hidden(dim: int, widths: tuple[int, int, int], columns: int) -> Hidden:
    """Memory for the activations of a batch, or their gradients: a matrix per layer, and one for small vectors."""
    h1, h2, h3 = widths
    return (
        aligned(padded_width(dim), columns),
        aligned(padded_width(h1), columns),
        aligned(padded_width(h2), columns),
        aligned(padded_width(h3), columns),
        aligned(5, padded_width(max(h1, h2, h3))),
    )


@exact
def layers(flat: Array, dim: int, widths: tuple[int, int, int]) -> Layers:
    """The layers inside a flat aligned vector, matrices padded to whole vectors, each starting on a cache line."""
    h1, h2, h3 = widths
    p1, p2, p3 = padded_width(h1), padded_width(h2), padded_width(h3)
    c1 = dim * p1
    c2 = c1 + dim * p1
    c3 = c2 + p1
    c4 = c3 + h1 * p2
    c5 = c4 + p2
    c6 = c5 + h2 * p3
    c7 = c6 + p3
    c8 = c7 + p3
    return (
        flat[:c1].reshape(dim, p1),
        flat[c1:c2].reshape(dim, p1),
        flat[c2 : c2 + h1],
        flat[c3:c4].reshape(h1, p2),
        flat[c4 : c4 + h2],
        flat[c5:c6].reshape(h2, p3),
        flat[c6 : c6 + h3],
        flat[c7 : c7 + h3],
        flat[c8 : c8 + 1],
    )


@exact
def padded_size(dim: int, widths: tuple[int, int, int]) -> int:
    """The length of the flat vector that ``layers`` divides."""
    h1, h2, h3 = widths
    p1, p2, p3 = padded_width(h1), padded_width(h2), padded_width(h3)
    return 2 * dim * p1 + p1 + h1 * p2 + p2 + h2 * p3 + p3 + p3 + 16


@exact
def unpack(dense: Array, w: Layers) -> None:
    """Copy the model's flat vector into the padded layers."""
    w1v, w1u, b1, w2, b2, w3, b3, wo, bo = w
    at = 0
    for matrix, width, bias in ((w1v, b1.size, b1[:0]), (w1u, b1.size, b1), (w2, b2.size, b2), (w3, b3.size, b3)):
        for i in range(matrix.shape[0]):
            matrix[i, :width] = dense[at : at + width]
            at += width
        bias[:] = dense[at : at + bias.size]
        at += bias.size
    wo[:] = dense[at : at + wo.size]
    bo[0] = dense[at + wo.size]


@exact
def pack_difference(w: Layers, dense: Array, out: Array) -> None:
    """The changes by training: the padded layers minus the model's flat vector, in the order of that vector."""
    w1v, w1u, b1, w2, b2, w3, b3, wo, bo = w
    at = 0
    for matrix, width, bias in ((w1v, b1.size, b1[:0]), (w1u, b1.size, b1), (w2, b2.size, b2), (w3, b3.size, b3)):
        for i in range(matrix.shape[0]):
            out[at : at + width] = matrix[i, :width] - dense[at : at + width]
            at += width
        out[at : at + bias.size] = bias - dense[at : at + bias.size]
        at += bias.size
    out[at : at + wo.size] = wo - dense[at : at + wo.size]
    out[at + wo.size] = bo[0] - dense[at + wo.size]
