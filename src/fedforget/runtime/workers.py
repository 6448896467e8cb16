"""Workers: threads that share independent pieces of work, such as the clients of a cohort.

Compiled code releases the interpreter lock, so threads use all cores without copying data. Each worker gets one call
and takes piece after piece from a shared counter, also inside compiled code, so that no worker is idle while pieces are
left. Linear algebra libraries are limited to one thread, since their own threads are very slow on a busy machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedforget.errors import ConfigError
from fedforget.runtime.compiled import exact

Places = NDArray[np.int64]
#: Work on pieces: gets all pieces in order, and the counter from which the next one is taken.
Work = Callable[[Places, Places], object]


@intrinsic
def _fetch_and_add(_context: Any, _address: Any) -> Any:
    """Add one to the integer at an address and return its old value, atomically."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        integer = ir.IntType(64)
        return builder.atomic_rmw("add", builder.inttoptr(args[0], integer.as_pointer()), integer(1), "monotonic")

    return types.int64(types.int64), codegen


@exact
def take(counter: Places) -> int:
    """The next number of the counter. No two threads get the same."""
    return _fetch_and_add(counter.ctypes.data)  # type: ignore[call-arg]


@exact
def next_place(order: Places, counter: Places) -> int:
    """The next piece for this worker; -1 if none is left."""
    ticket = take(counter)
    return order[ticket] if ticket < order.size else -1


def taken(order: Places, counter: Places) -> Iterator[int]:
    """The pieces for this worker, for work in Python."""
    while (place := next_place(order, counter)) >= 0:
        yield place


@cache
def _limit_libraries_to_one_thread() -> None:
    threadpool_limits(limits=1)


class Workers:
    """A pool of ``count`` threads (all cores by default). The count does not affect results."""

    def __init__(self, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise ConfigError(f"workers is {count}.", "Give at least one worker, or leave it out to use every core.")
        self.count = count or available_cores()
        _limit_libraries_to_one_thread()
        self._pool = ThreadPoolExecutor(self.count - 1) if self.count > 1 else None

    def run(self, work: Work, costs: NDArray[np.int64], *, worth_sharing: bool = True) -> None:
        """Run the pieces 0 .. len(costs)-1 on all workers, the most costly first.

        Waking a thread takes about 0.1 ms, so shorter work is not ``worth_sharing``.
        """
        counter = np.zeros(1, np.int64)
        if not worth_sharing:
            work(np.arange(costs.size), counter)
            return
        order = np.argsort(-costs, kind="stable")
        helpers = min(self.count, order.size) - 1
        futures = [self._pool.submit(work, order, counter) for _ in range(helpers)] if self._pool else []
        try:
            work(order, counter)
        finally:
            counter[0] = order.size  # after an error, no worker starts another piece
            wait(futures)
        for future in futures:
            future.result()


def available_cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
