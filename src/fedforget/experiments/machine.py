"""The machine: its description, its memory in use, and its rate of matrix products."""

from __future__ import annotations

import gc
import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import numpy as np

from fedforget.runtime.workers import available_cores

SIDE = 2048


def describe() -> dict[str, Any]:
    """The machine and the versions that affect its speed."""
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": available_cores(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "numba": numba.__version__,
        "numpy": np.__version__,
    }


def peak_gflops(cores: int, repeats: int = 5) -> float:
    """The rate of large float32 matrix products, one on each core at the same time."""
    import torch

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
    return _memory_field("VmRSS")


def memory() -> dict[str, Any]:
    """Memory held now, and the peak since the last call (since the start on systems other than Linux)."""
    peak = _memory_field("VmHWM")
    gc.collect()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    held = resident_bytes()
    return {"resident_bytes": held, "allocated_bytes": _memory_field("RssAnon"), "peak_bytes": max(peak, held)}


def _memory_field(name: str) -> int:
    """A value of /proc/self/status in bytes; the peak of the resident memory on systems without that file."""
    if value := _field("/proc/self/status", name):
        return 1024 * int(value.split()[0])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def _field(path: str, name: str) -> str:
    """The value after ``name:`` in a file of the kernel; empty if there is none."""
    with suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return ""
