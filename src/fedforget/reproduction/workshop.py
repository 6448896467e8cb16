"""Workshop: carries out the cells that are not finished yet, in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedforget.benchmarks import machine
from fedforget.data import load
from fedforget.device.compute import Compute
from fedforget.errors import RunError
from fedforget.experiments.outcome import Outcome
from fedforget.experiments.recovery import REFERENCE, Recovery
from fedforget.experiments.ways import needs_whole_updates
from fedforget.reproduction.cell import GAMMA, Cell, Setting, Treatment
from fedforget.reproduction.ledger import Ledger
from fedforget.reproduction.row import Result, Row, figures
from fedforget.version import __version__
from fedforget.workers import available_cores

#: How often, in seconds, the ledger is looked at while others work.
GLANCE = 0.5


@dataclass(frozen=True)
class Job:
    """One federation and its treatments: they share the training, in a folder that an interrupted job leaves."""

    setting: Setting
    treatments: tuple[Treatment, ...]
    timed: bool = False


def jobs(cells: Sequence[Cell], ledger: Ledger, *, timed: bool = False) -> list[Job]:
    """What is left to do of these cells. A timed job is done as a whole: its times are to be compared."""
    cells = list(dict.fromkeys(cells))
    missing = ledger.missing(cells, timed=timed)
    todo = {cell.setting for cell in missing}
    treatments: defaultdict[Setting, list[Treatment]] = defaultdict(list)
    for cell in (cell for cell in cells if cell.setting in todo) if timed else missing:
        treatments[cell.setting].append(cell.treatment)
    return [Job(setting, tuple(wanted), timed) for setting, wanted in treatments.items()]


def work_off(
    todo: Sequence[Job],
    ledger: Ledger,
    work: Path,
    *,
    workers: int = 1,
    data: Path | None = None,
    glance: Callable[[], None] = lambda: None,
) -> None:
    """Carry out jobs, so many at a time; each cell is in the ledger when it is done. ``glance`` is called meanwhile."""
    threads = max(1, available_cores() // workers)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _end_with_parent, max_tasks_per_child=1)
    try:
        running = [pool.submit(carry_out, job, ledger.path, work, data, threads) for job in todo]
        while True:
            done, left = wait(running, timeout=GLANCE, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            glance()
            if not left:
                return
    except BrokenProcessPool as error:
        raise RunError(
            "A process of the reproduction ended before it was done.",
            "It may have been killed for want of memory: try fewer workers. The same command goes on where it was.",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def carry_out(job: Job, ledger: Path, work: Path, data: Path | None = None, threads: int | None = None) -> None:
    """Train a job's federation, or go on with it, then try its treatments and write down each."""
    setting = job.setting
    train, test = load(setting.dataset, folder=data).split(test=0.2, seed=setting.seed)
    ways = {treatment.key: treatment.resolve() for treatment in job.treatments}
    folder = work / f"{setting.key}-{'whole' if needs_whole_updates(ways) else 'slim'}"
    recovery = Recovery(
        train, test, setting.build_model(), folder, rounds=setting.rounds, malicious=setting.malicious, gamma=GAMMA,
        seed=setting.seed, ways=ways, sampler=setting.build_sampler(), preset="paper",
        compute=Compute(workers=threads),
    )  # fmt: skip
    if job.timed:
        recovery.warm_up()
    recovery.fit()
    history = recovery.before.history
    training = sum(history.record(round_).seconds for round_ in range(1, history.last_round + 1))
    timing = uuid.uuid4().hex[:8] if job.timed else ""
    rows = []
    for treatment in sorted(job.treatments, key=lambda treatment: treatment.way != REFERENCE):
        outcome = recovery.recover(treatment.key)
        rows.append(_row(Cell(setting, treatment), outcome, outcome.seconds or training, timing))
        if not job.timed:
            Ledger(ledger).add(rows[-1:])
    if job.timed:
        Ledger(ledger).add(rows)
    recovery.close()
    shutil.rmtree(folder, ignore_errors=True)


def _row(cell: Cell, outcome: Outcome, seconds: float, timing: str) -> Row:
    here = machine.describe()
    result = Result(
        **figures(outcome),
        seconds=seconds,
        timing=timing,
        settings=cell.fingerprint(),
        version=__version__,
        software=", ".join(f"{name} {here[name]}" for name in ("python", "torch", "numba", "numpy")),
        machine=f"{here['processor']}, {here['cores']} cores",
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return Row(cell, result)


def _end_with_parent() -> None:
    """Do not outlive the command: who starts it again must find the folder free."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
