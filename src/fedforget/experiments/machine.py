"""The machine: its description, its memory in use, and its rate of matrix products."""

from __future__ import annotations

import gc
import os
import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from fedforget.runtime.workers import available_cores

SIDE = 2048


def describe() -> dict[str, Any]:
    """The machine and the versions that affect its speed."""
    return {
        "processor": _processor(),
        "cores": available_cores(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "numpy": np.__version__,
    }


def peak_gflops(cores: int, repeats: int = 5) -> float:
    """The rate of large float32 matrix products, one on each core at the same time."""
    torch.set_num_threads(1)
    seconds: list[float] = []
    start = threading.Barrier(cores)

    def work() -> None:
        a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
        for _ in range(repeats):
            start.wait()
            begun = time.perf_counter()
            torch.mm(a, b)
            seconds.append(time.perf_counter() - begun)

    with ThreadPoolExecutor(cores) as pool:
        for done in [pool.submit(work) for _ in range(cores)]:
            done.result()
    return float(cores * 2 * SIDE**3 / np.median(seconds) / 1e9)


def resident_bytes() -> int:
    """The memory that this process holds; its peak on systems other than Linux."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def memory() -> dict[str, Any]:
    """Memory held now, and the peak since the last call (since the start on systems other than Linux)."""
    peak = _status("VmHWM")
    gc.collect()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    held = resident_bytes()
    return {"resident_bytes": held, "allocated_bytes": _status("RssAnon"), "peak_bytes": max(peak, held)}


def _status(name: str) -> int:
    """A value of /proc/self/status; the resident memory if there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
    except (OSError, StopIteration):
        return resident_bytes()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
