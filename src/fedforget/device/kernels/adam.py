"""Adam, as in torch.optim.Adam with its default betas and epsilon."""

from __future__ import annotations

import numpy as np

from fedforget.compiled import exact, fast
from fedforget.models.parameters import Array

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-8

_B1, _C1 = np.float32(BETA_1), np.float32(1 - BETA_1)
_B2, _C2 = np.float32(BETA_2), np.float32(1 - BETA_2)
_EPSILON = np.float32(EPSILON)
_ZERO = np.float32(0)


@exact
def step_scales(step: int, lr: float) -> tuple[np.float32, np.float32]:
    """The bias corrections of a step (counted from 1): the step length, and the factor on sqrt(v)."""
    return np.float32(lr / (1.0 - BETA_1**step)), np.float32(1.0 / np.sqrt(1.0 - BETA_2**step))


@fast
def adam(w: Array, g: Array, m: Array, v: Array, length: np.float32, scale: np.float32) -> None:
    """Step flat parameters along their gradients, and clear the gradients for the next step."""
    for i in range(w.size):
        gradient = g[i]
        mean = _B1 * m[i] + _C1 * gradient
        square = _B2 * v[i] + _C2 * gradient * gradient
        m[i] = mean
        v[i] = square
        g[i] = _ZERO
        w[i] -= length * mean / (np.sqrt(square) * scale + _EPSILON)
