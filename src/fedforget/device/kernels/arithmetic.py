"""Small loops that several kernels share."""

from __future__ import annotations

import numpy as np

from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact, fast

_ZERO = np.float32(0)
_ONE = np.float32(1)


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


@exact
def logit_gradient(logit: np.float32, target: np.float32) -> tuple[np.float32, np.float32]:
    """Loss and derivative of the cross-entropy of sigmoid(logit) with a target of 0 or 1, safe for any logit."""
    e = np.exp(-abs(logit))
    probability = _ONE / (_ONE + e) if logit >= 0 else e / (_ONE + e)
    loss = max(logit, _ZERO) - logit * target + np.log(_ONE + e)
    return np.float32(loss), np.float32(probability - target)
