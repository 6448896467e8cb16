"""How this package compiles its inner loops, decided once.

Both decorators release the interpreter lock, so that worker threads run side by side, and cache the machine code on
disk, so that only the first run after an installation waits for the compiler. Division follows IEEE rules
(``error_model="numpy"``): a check for zero in every division would keep loops from being vectorised.

Numba's cache notices a change of the file a function stands in, but not of what it calls elsewhere. So each version of
the package's sources gets a cache folder of its own.
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


#: Where machine code is kept. Where the usual place cannot be written, a temporary one that serves this process.
_CACHE = _cache_folder()


def compiled_before() -> bool:
    """Whether this version of the sources has left machine code in the cache."""
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
    """Compile with IEEE arithmetic in the order written."""
    return _compile(function)


def fast(function: F) -> F:
    """Compile allowing sums to be reordered, so that reductions use vector registers; NaN and infinity stay."""
    return _compile(function, fastmath=_REORDERED)


def inlined(function: F) -> F:
    """Compile as a part of whatever ``fast`` function calls it, never by itself.

    A sum that may be reordered could otherwise come out differently where its function was compiled just now and where
    the caller was loaded from the cache, each with its own copy of it.
    """
    return _compile(function, fastmath=_REORDERED, inline="always")
