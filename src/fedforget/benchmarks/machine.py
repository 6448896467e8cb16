"""What the machine can do: its cores, its memory in use, and its rate of large matrix products."""

from __future__ import annotations

import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from fedforget.workers import available_cores

SIDE = 2048


def describe() -> dict[str, Any]:
    """The machine and the versions that decide its speed."""
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
    """The rate of large float32 matrix products, one on each core at the same time, each on one thread."""
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

    threads = [threading.Thread(target=work) for _ in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return float(cores * 2 * SIDE**3 / np.median(seconds) / 1e9)


def resident_bytes() -> int:
    """The memory this process holds now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return int(peak if platform.system() == "Darwin" else peak * 1024)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
