"""Killed at any point, resumed, equal to the unbroken run. The kills are real: SIGKILL to a real process."""

from __future__ import annotations

import math
import random
import resource
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedforget as ff
from tests.deadly import deadly_at
from tests.forks import processes

ROUNDS = 12
#: The functions through which a run folder changes.
PLACES = [
    ("fedforget.server.snapshots", "", "write_file"),
    ("fedforget.server.history", "History", "commit"),
    ("fedforget.server.history", "History", "_thin"),
    ("fedforget.device.log.packed", "", "write_file"),
    ("fedforget.device.log.packed", "PackedStore", "append"),
    ("fedforget.device.log.private", "PrivateFile", "put"),
    ("fedforget.device.log.private", "PrivateFile", "_add"),
    ("fedforget.server.metrics", "MetricsFile", "append"),
    ("fedforget.server.run_config", "RunConfig", "save"),
    ("pathlib", "Path", "replace"),
]
#: The same where each device has a SQLite file of its own.
PLACES_OF_ONE_DEVICE = [
    ("fedforget.device.log.sqlite", "SqliteStore", "append"),
    ("fedforget.device.log.user_files", "UserFiles", "change"),
    ("fedforget.device.log.user_files", "UserFiles", "_create"),
]
#: The steps by which an interrupted run is made sound again.
REPAIRS = [
    ("fedforget.device.log.packed", "PackedStore", "roll_back"),
    ("fedforget.device.log.private", "PrivateFile", "roll_back"),
    ("fedforget.server.history", "History", "drop_after"),
    ("fedforget.server.metrics", "MetricsFile", "drop_after"),
]


def build(path: Path | None, store: str = "packed") -> ff.Federation:
    return ff.Federation(
        ff.synthetic(users=50, items=60, mean_items=12, seed=2), ff.LightGCN(dim=8), seed=3, path=path,
        training=ff.LocalTraining(epochs=2, batch=16, refit=True),
        server=ff.ServerConfig(fraction=0.2, snapshot_every=3, optimiser=ff.Adam(horizon=ROUNDS)),
        log=ff.Log(store=store),
    )  # fmt: skip


def train(run: Path, store: str = "packed") -> None:
    build(run, store).fit(rounds=ROUNDS)


def rehearse(folder: Path) -> None:
    """What the forks of these tests do."""
    for store in ("packed", "sqlite"):
        fed = build(folder / store, store)
        fed.fit(rounds=2)
        fed.close()


def train_and_die(run: Path, module: str, owner: str, name: str, when: str, n: int, store: str = "packed") -> None:
    deadly_at(module, owner, name, when, n)
    train(run, store)


def train_on_a_full_disk(run: Path, limit: int, answer: Any) -> None:
    """A real limit of the operating system on the size of files stands in for the full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        train(run)
    except ff.FedForgetError as error:
        answer.send(f"{type(error).__name__}: {error}")


@pytest.fixture(scope="module")
def unbroken() -> ff.Federation:
    return build(None).fit(rounds=ROUNDS)


def check_equal(run: Path, unbroken: ff.Federation, store: str = "packed") -> None:
    resumed = build(run, store).fit(rounds=ROUNDS)
    assert resumed.rounds == ROUNDS
    assert resumed.public.digest == unbroken.public.digest
    assert resumed.state.checksum == unbroken.state.checksum
    for user in resumed.train.user_ids.tolist():
        np.testing.assert_array_equal(resumed.devices.private(user), unbroken.devices.private(user))
    kept = sorted(path.name for path in (run / "trajectory-1" / "snapshots").iterdir())
    assert kept == [f"{round_:06d}.safetensors" for round_ in (0, 3, 6, 9, 12)]
    lines = (run / "trajectory-1" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == ROUNDS
    resumed.close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("module", "owner", "name"), PLACES, ids=[".".join(place) for place in PLACES])
def test_killed_around_each_write(
    module: str, owner: str, name: str, when: str, tmp_path: Path, unbroken: ff.Federation
) -> None:
    for n in (1,) if name == "save" else (1, 2, 7):
        run = tmp_path / str(n)
        process = processes.Process(target=train_and_die, args=(run, module, owner, name, when, n))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        check_equal(run, unbroken)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("module", "owner", "name"), PLACES_OF_ONE_DEVICE, ids=[place[2] for place in PLACES_OF_ONE_DEVICE]
)
def test_killed_around_each_write_to_the_file_of_one_device(
    module: str, owner: str, name: str, when: str, tmp_path: Path, unbroken: ff.Federation
) -> None:
    for n in (2, 7):
        run = tmp_path / str(n)
        process = processes.Process(target=train_and_die, args=(run, module, owner, name, when, n, "sqlite"))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        check_equal(run, unbroken, "sqlite")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("module", "owner", "name"), REPAIRS, ids=[".".join(place) for place in REPAIRS])
def test_killed_while_recovering_from_a_kill(
    module: str, owner: str, name: str, when: str, tmp_path: Path, unbroken: ff.Federation
) -> None:
    """The first kill leaves a log entry and a snapshot that no round accounts for."""
    run = tmp_path / "run"
    for place in (("fedforget.server.snapshots", "", "write_file", "after", 5), (module, owner, name, when, 1)):
        process = processes.Process(target=train_and_die, args=(run, *place))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    check_equal(run, unbroken)


@pytest.mark.alone
def test_killed_again_and_again_at_random_times(tmp_path: Path, unbroken: ff.Federation) -> None:
    dice, kills, usual = random.Random(0), 0, math.inf
    for attempt in range(2):  # the first one may also have to start the server of forks
        started = time.perf_counter()
        assert let_train(tmp_path / f"timed-{attempt}", None) == 0
        usual = min(usual, time.perf_counter() - started)
    for attempt in range(30):
        run, killed = tmp_path / f"run-{attempt}", True
        while killed and kills < 12:
            killed = let_train(run, dice.uniform(0.1, 1.0) * usual) == -signal.SIGKILL
            kills += killed
        check_equal(run, unbroken)
        if kills >= 12:
            break
    assert kills >= 12


def let_train(run: Path, seconds: float | None) -> int | None:
    """Train in a process that is killed after some time; its exit code."""
    process = processes.Process(target=train, args=(run,))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


@pytest.mark.parametrize("limit", [1_000, 5_000, 20_000, 60_000])
def test_disk_full_while_writing_loses_nothing(limit: int, tmp_path: Path, unbroken: ff.Federation) -> None:
    run = tmp_path / "run"
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=train_on_a_full_disk, args=(run, limit, sender))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert receiver.poll(), "training did not fail"
    assert receiver.recv().startswith(f"SystemLimitError: Cannot use {run}")
    check_equal(run, unbroken)
