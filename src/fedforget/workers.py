"""Workers: threads that share out the clients of a cohort.

Compiled code releases the interpreter lock, so plain threads use all cores without copying anything. Linear algebra
libraries are held to one thread each: their own threads meet at barriers, which is very slow on a busy machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  (loads the BLAS that compiled code calls, so that it can be limited)
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedforget.errors import ConfigError

#: Parts a worker gets to choose from: enough to even out clients of different size, few enough to stay cheap.
PARTS_PER_WORKER = 32


@cache
def _hold_libraries_to_one_thread() -> None:
    torch.set_num_threads(1)
    threadpool_limits(limits=1)


class Workers:
    """A pool of ``count`` threads (all cores by default). Results never depend on the count."""

    def __init__(self, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise ConfigError(f"workers is {count}.", "Give at least one worker, or leave it out to use every core.")
        self.count = count or available_cores()
        _hold_libraries_to_one_thread()
        self._pool = ThreadPoolExecutor(self.count) if self.count > 1 else None

    def run(self, work: Callable[[NDArray[np.int64]], object], costs: NDArray[np.int64]) -> None:
        """Call ``work`` with parts of 0 .. len(costs)-1 until all are done, the costly ones first."""
        order = np.argsort(-costs, kind="stable")
        if self._pool is None or order.size == 1:
            work(order)
            return
        parts = min(order.size, self.count * PARTS_PER_WORKER)
        futures = [self._pool.submit(work, order[part::parts]) for part in range(parts)]
        for future in futures:
            future.result()


def available_cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
