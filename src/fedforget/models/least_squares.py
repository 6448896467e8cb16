"""Weighted least squares: the user vector that best fits an item table, in closed form (Hu, Koren, Volinsky 2008).

p minimises Σ c_i (r_i − p·v_i)² + reg |p|² over all items, where c = 1 + α and r = 1 for the user's own items, and
c = 1 and r = 0 for all others: p = (VᵀV + α V_uᵀV_u + reg I)⁻¹ (1 + α) Σ v over own items.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact, fast, inlined
from fedforget.runtime.workers import next_place

#: The weight of own items and the regularisation for refitting the user vectors of a trained model.
CONFIDENCE, REGULARISATION = 1.0, 20.0


@exact
def confidence(alpha: float, n_items: int, n_own: int) -> float:
    """The weight α of each own item, larger for users with fewer items."""
    return alpha * math.sqrt(n_items / max(n_own, 1))


@inlined
def _solve(matrix: Array, vector: Array) -> None:
    """Solve a positive definite system in place by Cholesky decomposition; only the lower half is read."""
    dim = vector.size
    for a in range(dim):
        for b in range(a):
            total = matrix[a, b]
            for k in range(b):
                total -= matrix[a, k] * matrix[b, k]
            matrix[a, b] = total / matrix[b, b]
        total = matrix[a, a]
        for k in range(a):
            total -= matrix[a, k] * matrix[a, k]
        matrix[a, a] = np.sqrt(total)
    for a in range(dim):
        total = vector[a]
        for k in range(a):
            total -= matrix[a, k] * vector[k]
        vector[a] = total / matrix[a, a]
    for a in range(dim - 1, -1, -1):
        vector[a] /= matrix[a, a]
        for k in range(a):
            vector[k] -= matrix[a, k] * vector[a]


@inlined
def fit_user(
    items: Array, gram: Array, own: NDArray[np.int32], weight: float, reg: float, work: Array, user: Array
) -> None:
    """Write the best-fitting vector to ``user``; ``gram`` is VᵀV, ``work`` a buffer of the same shape."""
    dim = items.shape[1]
    alpha = np.float32(weight)
    user[:] = 0
    for a in range(dim):
        work[a, : a + 1] = gram[a, : a + 1]
        work[a, a] += np.float32(reg)
    whole = own.size // 4 * 4
    for i in range(0, whole, 4):  # four at a time: a quarter of the passes over the matrix
        first, second, third, fourth = items[own[i]], items[own[i + 1]], items[own[i + 2]], items[own[i + 3]]
        for a in range(dim):
            user[a] += first[a] + second[a] + third[a] + fourth[a]
            s, t, u, v = alpha * first[a], alpha * second[a], alpha * third[a], alpha * fourth[a]
            for b in range(a + 1):
                work[a, b] += s * first[b] + t * second[b] + u * third[b] + v * fourth[b]
    for i in range(whole, own.size):
        row = items[own[i]]
        for a in range(dim):
            user[a] += row[a]
            scaled = alpha * row[a]
            for b in range(a + 1):
                work[a, b] += scaled * row[b]
    for a in range(dim):
        user[a] *= np.float32(1) + alpha
    _solve(work, user)


@fast
def fit_users(  # type: ignore[no-untyped-def]
    order, counter, ptr, own_items, items, gram, alpha, reg, users
) -> None:
    """Write the best-fitting vector of each user to its row of ``users``."""
    work = np.empty_like(gram)
    c = next_place(order, counter)
    while c >= 0:
        own = own_items[ptr[c] : ptr[c + 1]]
        weight = confidence(alpha, items.shape[0], own.size)
        fit_user(items, gram, own, weight, reg, work, users[c])
        c = next_place(order, counter)


def fitted_users(
    items: Array, gram: Array, ptr: NDArray[np.int64], own_items: NDArray[np.int32], alpha: float, reg: float
) -> Array:
    """The best-fitting vectors of users, one row each; ``gram`` is VᵀV."""
    users = np.empty((ptr.size - 1, items.shape[1]), np.float32)
    order, counter = np.arange(ptr.size - 1), np.zeros(1, np.int64)
    fit_users(order, counter, ptr, own_items, items, gram, alpha, reg, users)
    return users


@fast
def sums_of(ptr: NDArray[np.int64], own_items: NDArray[np.int32], items: Array) -> Array:
    """The sum of the vectors of each user's own items."""
    sums = np.zeros((ptr.size - 1, items.shape[1]), np.float32)
    for c in range(ptr.size - 1):
        for i in range(ptr[c], ptr[c + 1]):
            row = items[own_items[i]]
            for j in range(row.size):
                sums[c, j] += row[j]
    return sums


@fast
def fitted_user(items: Array, gram: Array, own: NDArray[np.int32], weight: float, reg: float) -> Array:
    """The best-fitting vector of one user."""
    work, user = np.empty_like(gram), np.empty(items.shape[1], np.float32)
    fit_user(items, gram, own, weight, reg, work, user)
    return user
