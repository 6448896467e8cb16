"""How this package compiles its inner loops, decided once.

Both decorators release the interpreter lock, so that worker threads run side by side, and cache the machine code
on disk, so that only the first run after an installation waits for the compiler. Division follows IEEE rules
(``error_model="numpy"``): a check for zero in every division would keep loops from being vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., object])

_exact: Any = njit(cache=True, nogil=True, error_model="numpy")
_fast: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})


def exact(function: F) -> F:
    """Compile with IEEE arithmetic in the order written."""
    return _exact(function)  # type: ignore[no-any-return]


def fast(function: F) -> F:
    """Compile allowing sums to be reordered, so that reductions use vector registers; NaN and infinity stay."""
    return _fast(function)  # type: ignore[no-any-return]
