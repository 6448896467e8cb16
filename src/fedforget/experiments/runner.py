"""Runner: runs the experiments that have no result yet, in worker processes."""

from __future__ import annotations

import multiprocessing
import shutil
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedforget.data import load
from fedforget.device.compute import Compute
from fedforget.errors import RunError
from fedforget.experiments import machine
from fedforget.experiments.experiment import GAMMA, Experiment, Setting
from fedforget.experiments.measures import Outcome
from fedforget.experiments.recovery import REFERENCE, Recovery, RecoverySettings
from fedforget.experiments.results import Results
from fedforget.experiments.variants import needs_whole_updates
from fedforget.runtime.worker_process import end_with_parent
from fedforget.runtime.workers import available_cores
from fedforget.version import __version__

#: Seconds between updates of the progress.
POLL_SECONDS = 0.5
#: Cost of training a model relative to LightGCN, for the estimate of the remaining time.
TRAINING_COST = {"ncf": 20.0}


@dataclass(frozen=True)
class Job:
    """The experiments on one federation, which is trained once. An interrupted job resumes in its folder."""

    setting: Setting
    experiments: tuple[Experiment, ...]
    timed: bool = False


class Runner:
    """Runs jobs and appends their results.

    ``work`` is the folder for federations, ``workers`` the number of jobs at a time and ``data`` the data folder.
    """

    def __init__(self, results: Results, work: Path, *, workers: int = 1, data: Path | None = None) -> None:
        self.results, self.work, self.workers, self.data = results, work, workers, data

    def jobs(self, experiments: Sequence[Experiment], *, timed: bool = False) -> list[Job]:
        """What is left to do. A timed job is repeated as a whole, since its times are compared with each other."""
        missing = self.results.missing(experiments, timed=timed)
        jobs: dict[Setting, list[Experiment]] = {experiment.setting: [] for experiment in missing}
        for experiment in dict.fromkeys(experiments) if timed else missing:
            if experiment.setting in jobs:
                jobs[experiment.setting].append(experiment)
        return [Job(setting, tuple(group), timed) for setting, group in jobs.items()]

    def run(self, jobs: Sequence[Job], on_poll: Callable[[], None] = lambda: None) -> None:
        """Run jobs in worker processes. ``on_poll`` is called regularly meanwhile."""
        threads = max(1, available_cores() // self.workers)
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self.workers, context, end_with_parent, max_tasks_per_child=1)
        try:
            running = [pool.submit(self.run_job, job, threads) for job in jobs]
            while True:
                done, left = wait(running, timeout=POLL_SECONDS, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                on_poll()
                if not left:
                    return
        except BrokenProcessPool as error:
            hint = "It may have run out of memory: try fewer workers. The same command resumes the work."
            raise RunError("A worker process ended unexpectedly.", hint) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def run_job(self, job: Job, threads: int | None = None) -> None:
        """Train the federation of a job, or resume its training, and run its experiments."""
        setting = job.setting
        train, test = load(setting.dataset, folder=self.data).split(test=0.2, seed=setting.seed)
        variants = {experiment.key: experiment.resolve() for experiment in job.experiments}
        settings = RecoverySettings(
            setting.rounds, setting.malicious, GAMMA, setting.seed, "paper", sampler=setting.build_sampler()
        )
        folder = self.work / f"{setting.key}-{'whole' if needs_whole_updates(variants) else 'slim'}"
        compute = Compute(workers=threads)
        recovery = Recovery(train, test, setting.build_model(), folder, settings, variants=variants, compute=compute)
        if job.timed:
            recovery.warm_up()
        recovery.fit()
        history = recovery.before.history
        training = sum(history.record(round_).seconds for round_ in range(1, history.last_round + 1))
        timing = uuid.uuid4().hex[:8] if job.timed else ""
        rows = []
        for experiment in sorted(job.experiments, key=lambda one: one.variant != REFERENCE):
            outcome = recovery.recover(experiment.key)
            rows.append(result_row(experiment, outcome, outcome.seconds or training, timing))
            if not job.timed:
                self.results.append(rows[-1:])
        if job.timed:
            self.results.append(rows)
        recovery.close()
        shutil.rmtree(recovery.folder, ignore_errors=True)


def result_row(experiment: Experiment, outcome: Outcome, seconds: float, timing: str) -> dict[str, Any]:
    """A line of the results file."""
    here, accuracy, log = machine.describe(), outcome.accuracy, outcome.log
    return {
        **experiment.columns(),
        **{f"sampled_{name}": value for name, value in accuracy.sampled.items()},
        **{f"full_{name}": value for name, value in accuracy.full.items()},
        "seconds": seconds,
        "timing": timing,
        "log_bytes": log.total,
        "log_rows_bytes": log.rows,
        "log_dense_bytes": log.dense,
        "formula_bytes": log.formula,
        "item_table_bytes": log.item_table,
        "settings": experiment.fingerprint(),
        "version": __version__,
        "software": ", ".join(f"{name} {here[name]}" for name in ("python", "torch", "numba", "numpy")),
        "machine": f"{here['processor']}, {here['cores']} cores",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


class Progress:
    """How much of some jobs is done. Each result counts with the cost of training its model."""

    def __init__(self, jobs: Sequence[Job], results: Results) -> None:
        self.results = results
        self.experiments = [experiment for job in jobs for experiment in job.experiments]
        self._before = self._finished()

    def read(self) -> tuple[int, float]:
        """The number of finished experiments, and their fraction of the total cost."""
        new = {experiment for experiment, *_ in self._finished() - self._before}
        done = [experiment for experiment in self.experiments if experiment in new]
        total = _cost(self.experiments)
        return len(done), _cost(done) / total if total else 1.0

    def _finished(self) -> set[tuple[Experiment, str, str]]:
        rows = self.results.frame().iter_rows(named=True)
        return {(Experiment.from_columns(row), row["timing"], row["finished"]) for row in rows}


def _cost(experiments: Sequence[Experiment]) -> float:
    return sum(TRAINING_COST.get(one.setting.model, 1.0) * one.setting.rounds for one in experiments)
