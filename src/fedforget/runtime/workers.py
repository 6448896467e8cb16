"""Workers: threads that share out independent pieces of work, such as the clients of a cohort.

Compiled code releases the interpreter lock, so plain threads use all cores without copying anything. Each worker gets
one call and takes piece after piece by drawing tickets from a counter, also inside compiled code: nothing waits for
Python, and no worker is idle while another has pieces left. Linear algebra libraries are held to one thread each: their
own threads meet at barriers, which is very slow on a busy machine.
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
#: Does pieces of work: gets all pieces in the order to take them, and the counter to take tickets from.
Work = Callable[[Places, Places], object]


@intrinsic
def _fetch_and_add(_context: Any, _address: Any) -> Any:
    """Add one to the integer at an address and return what it was, as one indivisible step."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        integer = ir.IntType(64)
        return builder.atomic_rmw("add", builder.inttoptr(args[0], integer.as_pointer()), integer(1), "monotonic")

    return types.int64(types.int64), codegen


@exact
def take(counter: Places) -> int:
    """The next ticket. No two threads ever get the same."""
    return _fetch_and_add(counter.ctypes.data)  # type: ignore[call-arg]


@exact
def next_place(order: Places, counter: Places) -> int:
    """The next piece that falls to the worker who asks; -1 when none is left."""
    ticket = take(counter)
    return order[ticket] if ticket < order.size else -1


def taken(order: Places, counter: Places) -> Iterator[int]:
    """The pieces that fall to the worker who iterates, for work done in Python."""
    while (place := next_place(order, counter)) >= 0:
        yield place


@cache
def _hold_libraries_to_one_thread() -> None:
    threadpool_limits(limits=1)


class Workers:
    """A pool of ``count`` threads (all cores by default). Results never depend on the count."""

    def __init__(self, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise ConfigError(f"workers is {count}.", "Give at least one worker, or leave it out to use every core.")
        self.count = count or available_cores()
        _hold_libraries_to_one_thread()
        self._pool = ThreadPoolExecutor(self.count - 1) if self.count > 1 else None

    def run(self, work: Work, costs: NDArray[np.int64], *, worth_sharing: bool = True) -> None:
        """Let every worker take pieces 0 .. len(costs)-1, the costly ones first, until all are done.

        Waking another thread takes about as long as 0.1 ms of work: what is shorter is not ``worth_sharing``.
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
            counter[0] = order.size  # after an error, nobody starts another piece
            wait(futures)
        for future in futures:
            future.result()


def available_cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
