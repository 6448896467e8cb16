"""Jobs share one training, write down each cell as it is done, and go on where they were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedforget as ff
from fedforget.experiments.recovery import Recovery
from fedforget.reproduction.cell import GAMMA, Cell, Setting, Treatment
from fedforget.reproduction.effort import Gauge
from fedforget.reproduction.ledger import Ledger
from fedforget.reproduction.workshop import Job, carry_out, jobs, work_off
from tests.reproduction.made import small_file

WAYS = ("retrain", "attacked", "fru-device", "fru-server")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small file of interactions: a data set by its path."""
    return str(small_file(tmp_path_factory.mktemp("data") / "small.csv"))


def cells(data: str, *ways: str, rounds: int = 3, malicious: float = 0.2) -> list[Cell]:
    setting = Setting(data, "lightgcn", malicious, 0, rounds)
    return [Cell(setting, Treatment(way)) for way in ways or WAYS]


def test_a_cell_is_what_forgetting_gives(data: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "cells.csv")
    (job,) = jobs(cells(data), ledger)
    carry_out(job, ledger.path, tmp_path / "work")
    found = {row.cell.treatment.way: row.result for row in ledger.rows()}
    assert set(found) == set(WAYS)
    train, test = ff.load(data).split(test=0.2, seed=0)
    attack = ff.Attack.by(train.user_ids.tolist(), 0.2, gamma=GAMMA, seed=0)
    fed = ff.Federation(train, ff.LightGCN(), preset="paper", seed=0, attack=attack).fit(rounds=3)
    stayers = train.without(attack.users).user_ids
    attacked = fed.evaluate(test).of(stayers)
    assert found["attacked"].sampled_hr == pytest.approx(attacked.sampled["hr"], abs=1e-5)
    fed.forget(attack.users, ff.FRU())
    assert found["fru-device"].full_ndcg == pytest.approx(fed.evaluate(test).full["ndcg"], abs=1e-5)
    assert found["fru-server"].log_rows_bytes > 50 * found["fru-device"].log_rows_bytes
    assert found["fru-server"].formula_bytes == pytest.approx(found["fru-server"].log_rows_bytes, rel=0.1)
    assert found["attacked"].seconds > 0
    assert not list((tmp_path / "work").iterdir())


def test_one_training_serves_all_and_a_second_run_has_nothing_to_do(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []
    fit = Recovery.fit
    monkeypatch.setattr(Recovery, "fit", lambda self: (trained.append(1), fit(self))[1])
    ledger = Ledger(tmp_path / "cells.csv")
    for job in jobs(cells(data), ledger):
        carry_out(job, ledger.path, tmp_path / "work")
    assert trained == [1]
    assert jobs(cells(data), ledger) == []
    (more,) = jobs(cells(data, "retrain", "continue"), ledger)
    assert more.treatments == (Treatment("continue"),)


def test_a_timed_job_is_measured_as_a_whole(data: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "cells.csv")
    two = cells(data, "fru-device", "retrain", rounds=2)
    carry_out(Job(two[0].setting, (two[0].treatment,)), ledger.path, tmp_path / "work")
    (job,) = jobs(two, ledger, timed=True)
    assert len(job.treatments) == 2
    carry_out(job, ledger.path, tmp_path / "work")
    timed = [row for row in ledger.rows() if row.result.timing]
    assert len(timed) == 2
    assert len({row.result.timing for row in timed}) == 1
    again = {row.result.full_ndcg for row in ledger.rows() if row.cell == two[0]}
    assert len(again) == 1, "the same cell came out differently"
    assert jobs(two, ledger, timed=True) == jobs(two, ledger) == []


def test_without_malicious_users_it_is_plain_training(data: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "cells.csv")
    setting = Setting(data, "mf", 0.0, 1, 2, "random", 0.25)
    carry_out(Job(setting, (Treatment("attacked"),)), ledger.path, tmp_path / "work")
    train, test = ff.load(data).split(test=0.2, seed=1)
    fed = ff.Federation(train, ff.MF(), preset="paper", seed=1, sampler=ff.Sampler("random", beta=0.25)).fit(rounds=2)
    (row,) = ledger.rows()
    assert row.result.sampled_ndcg == pytest.approx(fed.evaluate(test).sampled["ndcg"], abs=1e-5)


def test_processes_work_side_by_side_and_the_gauge_sees_it(data: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "cells.csv")
    wanted = [*cells(data, "retrain", "attacked", rounds=2), *cells(data, "attacked", rounds=1)]
    todo = jobs(wanted, ledger)
    gauge = Gauge(todo, ledger)
    assert gauge.read() == (0, 0.0)
    seen: list[tuple[int, float]] = []
    work_off(todo, ledger, tmp_path / "work", workers=2, glance=lambda: seen.append(gauge.read()))
    assert seen == sorted(seen)
    assert seen[-1] == (3, pytest.approx(1.0))


def test_an_error_in_a_process_is_told(tmp_path: Path) -> None:
    job = Job(Setting("nowhere.csv", "mf", 0.2, 0, 1), (Treatment("retrain"),))
    with pytest.raises(ff.FedForgetError, match=r"nowhere\.csv"):
        work_off([job], Ledger(tmp_path / "cells.csv"), tmp_path / "work")


COMMAND = """
from pathlib import Path
from tests.reproduction.test_workshop import Ledger, cells, jobs, work_off
if __name__ == "__main__":
    ledger = Ledger(Path({out!r}) / "cells.csv")
    work_off(jobs(cells({data!r}, rounds=30), ledger), ledger, Path({out!r}) / "work")
"""


@pytest.mark.slow
@pytest.mark.parametrize("finished", [0, 1, 2])
def test_a_killed_reproduction_goes_on_where_it_was(data: str, tmp_path: Path, finished: int) -> None:
    """Its children end with it, what was finished stays finished, and the rest comes out the same."""
    path = tmp_path / "cells.csv"
    script = tmp_path / "command.py"
    script.write_text(COMMAND.format(out=str(tmp_path), data=data))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(script)]
    process = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        begun = any((tmp_path / "work").glob("*/before/trajectory-*/snapshots/*")) if not finished else True
        if begun and len(Ledger(path).rows()) >= finished:
            break
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = path.read_bytes() if finished else b""
    subprocess.run(command, env=environment, check=True, timeout=180)
    assert path.read_bytes().startswith(before)
    rows = Ledger(path).rows()
    assert len(rows) == len(path.read_text().splitlines()) - 1 == len(WAYS)
    clean = Ledger(tmp_path / "clean.csv")
    for job in jobs(cells(data, rounds=30), clean):
        carry_out(job, clean.path, tmp_path / "clean")
    assert {r.cell: r.result.full_ndcg for r in rows} == {r.cell: r.result.full_ndcg for r in clean.rows()}
