"""Decorators that compile inner loops with Numba.

They release the interpreter lock, so that worker threads run in parallel, and cache the machine code on disk, so that
only the first run after an installation waits for the compiler. Division follows IEEE rules (``error_model="numpy"``):
a check for zero in every division would prevent vectorisation.

Numba recompiles a function when its file changes, but not when a function that it calls in another file does. So each
version of the package's sources has its own cache folder.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import platformdirs

F = TypeVar("F", bound=Callable[..., object])

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
_config: Any = numba.config
_REORDERED = {"contract", "reassoc", "nsz", "arcp"}


def _cache_folder() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.parent.rglob("*.py")):
        digest.update(source.read_bytes())
    root = Path(_config.CACHE_DIR or platformdirs.user_cache_path("fedforget") / "kernels")
    folder = root / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return str(folder)
    except OSError:
        return tempfile.mkdtemp(prefix="fedforget-kernels-")


#: Folder of the machine code; a temporary one if the usual folder cannot be written.
_CACHE = _cache_folder()


def compiled_before() -> bool:
    """Whether the cache holds machine code of this version of the sources."""
    return any(Path(_CACHE).rglob("*.nbi"))


def _compile(function: F, **options: Any) -> F:
    before = _config.CACHE_DIR
    _config.CACHE_DIR = _CACHE
    try:
        compiled: F = numba.njit(**_OPTIONS, **options)(function)
    finally:
        _config.CACHE_DIR = before
    return compiled


def exact(function: F) -> F:
    """Compile with IEEE arithmetic, in the order of the source."""
    return _compile(function)


def fast(function: F) -> F:
    """Compile so that sums may be reordered for vector instructions; NaN and infinity are respected."""
    return _compile(function, fastmath=_REORDERED)


def inlined(function: F) -> F:
    """Compile as a part of the ``fast`` functions that call it, never separately.

    Otherwise a reordered sum could differ between a function compiled now and a caller loaded from the cache, which has
    its own copy.
    """
    return _compile(function, fastmath=_REORDERED, inline="always")
