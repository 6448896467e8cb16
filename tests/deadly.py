"""Real kills at chosen places: a process that dies around the n-th call of a function."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from typing import Any


def deadly_at(module: str, owner: str, name: str, when: str, n: int) -> None:
    """From now on, kill this process right before or after the n-th call of a function."""
    holder: Any = importlib.import_module(module)
    holder = getattr(holder, owner) if owner else holder
    original: Callable[..., object] = getattr(holder, name)
    calls = 0

    def deadly(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == n and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if calls == n:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, name, deadly)
