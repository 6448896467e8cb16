"""Jobs share one training, save each result as it is finished, and resume after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import fedforget as ff
from fedforget.experiments.experiment import GAMMA, Experiment, Setting
from fedforget.experiments.recovery import Recovery
from fedforget.experiments.results import Results
from fedforget.experiments.runner import Job, Progress, Runner
from tests.experiments.made import small_file

VARIANTS = ("retrain", "attacked", "fru-device", "fru-server")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small file of interactions: a data set by its path."""
    return str(small_file(tmp_path_factory.mktemp("data") / "small.csv"))


def runner(folder: Path, workers: int = 1) -> Runner:
    return Runner(Results(folder / "cells.csv"), folder / "work", workers=workers)


def experiments(data: str, *variants: str, rounds: int = 3, malicious: float = 0.2) -> list[Experiment]:
    setting = Setting(data, "lightgcn", malicious, 0, rounds)
    return [Experiment(setting, name) for name in variants or VARIANTS]


def rows(runner: Runner) -> list[dict[str, Any]]:
    return runner.results.frame().to_dicts()


def test_a_result_is_what_forgetting_gives(data: str, tmp_path: Path) -> None:
    run = runner(tmp_path)
    (job,) = run.jobs(experiments(data))
    run.run_job(job)
    found = {row["way"]: row for row in rows(run)}
    assert set(found) == set(VARIANTS)
    train, test = ff.load(data).split(test=0.2, seed=0)
    attack = ff.Attack.by(train.user_ids.tolist(), 0.2, gamma=GAMMA, seed=0)
    fed = ff.Federation(train, ff.LightGCN(), preset="paper", seed=0, attack=attack).fit(rounds=3)
    remaining = train.without(attack.users).user_ids
    attacked = fed.evaluate(test).of(remaining)
    assert found["attacked"]["sampled_hr"] == pytest.approx(attacked.sampled["hr"], abs=1e-5)
    fed.forget(attack.users, ff.FRU())
    assert found["fru-device"]["full_ndcg"] == pytest.approx(fed.evaluate(test).full["ndcg"], abs=1e-5)
    assert found["fru-server"]["log_rows_bytes"] > 50 * found["fru-device"]["log_rows_bytes"]
    assert found["fru-server"]["formula_bytes"] == pytest.approx(found["fru-server"]["log_rows_bytes"], rel=0.1)
    assert found["attacked"]["seconds"] > 0
    assert not list((tmp_path / "work").iterdir())


def test_one_training_serves_all_and_a_second_run_has_nothing_to_do(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []
    fit = Recovery.fit
    monkeypatch.setattr(Recovery, "fit", lambda self: (trained.append(1), fit(self))[1])
    run = runner(tmp_path)
    for job in run.jobs(experiments(data)):
        run.run_job(job)
    assert trained == [1]
    assert run.jobs(experiments(data)) == []
    (more,) = run.jobs(experiments(data, "retrain", "continue"))
    assert [one.variant for one in more.experiments] == ["continue"]


def test_a_timed_job_is_measured_as_a_whole(data: str, tmp_path: Path) -> None:
    run = runner(tmp_path)
    two = experiments(data, "fru-device", "retrain", rounds=2)
    run.run_job(Job(two[0].setting, (two[0],)))
    (job,) = run.jobs(two, timed=True)
    assert len(job.experiments) == 2
    run.run_job(job)
    timed = [row for row in rows(run) if row["timing"]]
    assert len(timed) == 2
    assert len({row["timing"] for row in timed}) == 1
    again = [row["full_ndcg"] for row in rows(run) if Experiment.from_columns(row) == two[0]]
    assert len(again) == 2
    assert len(set(again)) == 1, "the same experiment gave different results"
    assert run.jobs(two, timed=True) == run.jobs(two) == []


def test_without_malicious_users_it_is_plain_training(data: str, tmp_path: Path) -> None:
    run = runner(tmp_path)
    setting = Setting(data, "mf", 0.0, 1, 2, "random", 0.25)
    run.run_job(Job(setting, (Experiment(setting, "attacked"),)))
    train, test = ff.load(data).split(test=0.2, seed=1)
    fed = ff.Federation(train, ff.MF(), preset="paper", seed=1, sampler=ff.RandomSampler(beta=0.25)).fit(rounds=2)
    (row,) = rows(run)
    assert row["sampled_ndcg"] == pytest.approx(fed.evaluate(test).sampled["ndcg"], abs=1e-5)


def test_workers_run_in_parallel_and_progress_is_reported(data: str, tmp_path: Path) -> None:
    run = runner(tmp_path, workers=2)
    wanted = [*experiments(data, "retrain", "attacked", rounds=2), *experiments(data, "attacked", rounds=1)]
    jobs = run.jobs(wanted)
    progress = Progress(jobs, run.results)
    assert progress.read() == (0, 0.0)
    seen: list[tuple[int, float]] = []
    run.run(jobs, lambda: seen.append(progress.read()))
    assert seen == sorted(seen)
    assert seen[-1] == (3, pytest.approx(1.0))


def test_an_error_in_a_worker_is_raised(tmp_path: Path) -> None:
    setting = Setting("nowhere.csv", "mf", 0.2, 0, 1)
    with pytest.raises(ff.FedForgetError, match=r"nowhere\.csv"):
        runner(tmp_path).run([Job(setting, (Experiment(setting, "retrain"),))])


COMMAND = """
from pathlib import Path
from tests.experiments.test_runner import experiments, runner
if __name__ == "__main__":
    run = runner(Path({out!r}))
    run.run(run.jobs(experiments({data!r}, rounds=30)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("finished", [0, 1, 2])
def test_a_killed_reproduction_resumes(data: str, tmp_path: Path, finished: int) -> None:
    """Its children end with it, what was finished stays finished, and the rest comes out the same."""
    path = tmp_path / "cells.csv"
    script = tmp_path / "command.py"
    script.write_text(COMMAND.format(out=str(tmp_path), data=data))
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(script)]
    process = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        begun = any((tmp_path / "work").glob("*/before/trajectory-*/snapshots/*")) if not finished else True
        if begun and Results(path).frame().height >= finished:
            break
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = path.read_bytes() if finished else b""
    subprocess.run(command, env=environment, check=True, timeout=180)
    assert path.read_bytes().startswith(before)
    found = rows(runner(tmp_path))
    assert len(found) == len(path.read_text().splitlines()) - 1 == len(VARIANTS)
    clean = runner(tmp_path / "clean")
    for job in clean.jobs(experiments(data, rounds=30)):
        clean.run_job(job)
    expected = {Experiment.from_columns(row): row["full_ndcg"] for row in rows(clean)}
    assert {Experiment.from_columns(row): row["full_ndcg"] for row in found} == expected
