"""Killed at any point of a replay: the old model or the new, never a mix, and the same request completes it."""

from __future__ import annotations

import itertools
import math
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fedforget as ff
from fedforget.runtime.randomness import UserId
from tests.deadly import deadly_at
from tests.forks import processes
from tests.small_federations import Traces, assert_same_state, contents, first_in, named, privates, trained

DATA = named()
ROUNDS, FIRST = 8, 3
METHODS = {
    "fru": ff.FRU(0.4, stride=1),
    "steps": ff.FRU(0.4, stride=3),
    "anew": ff.Retrain(steps=3, fraction=0.5),
    "server": ff.FRU(0.4, calibration="server"),
    "retrain": ff.Retrain(),
    "continue": ff.Continue(0.5),
}
#: The functions through which an erasure goes, and at which of their calls to be killed: module, owner, name, calls.
PLACES = [
    ("fedforget.server.request", "ErasureRequest", "save", [1]),
    ("fedforget.server.history", "History", "branch", [1]),
    ("fedforget.device.log.packed", "PackedStore", "branch", [1]),
    ("pathlib", "Path", "rename", [1]),
    ("fedforget.device.log.packed", "PackedStore", "set_private_state", [1, 2]),
    ("fedforget.device.log.packed", "PackedStore", "append", [1, 4]),
    ("fedforget.server.snapshots", "", "write_file", [1, 3]),
    ("fedforget.server.history", "History", "commit", [1, 4, 6]),
    ("fedforget.server.metrics", "MetricsFile", "append", [1, 5, 8]),
    ("fedforget.server.history", "History", "add_receipt", [1]),
    ("fedforget.server.run_config", "RunConfig", "save", [1]),
    ("fedforget.server.run", "", "write_file", [1]),
    ("shutil", "", "rmtree", [1, 2]),
    ("os", "", "rmdir", [1, 2]),
    ("pathlib", "Path", "replace", [2, 7]),
]


@dataclass(frozen=True)
class Case:
    """A trained run to be copied, who is to be forgotten, and what comes out if nothing breaks."""

    base: Path
    forgotten: list[UserId]
    method: ff.Method
    traces: Traces
    old: ff.Federation
    unbroken: ff.Federation
    receipt: ff.Receipt

    @property
    def rounds(self) -> list[int]:
        """The rounds that an erasure goes through."""
        receipt = self.receipt
        return list(range(ROUNDS - receipt.rounds_replayed + 1, ROUNDS + receipt.rounds_added + 1))


def prepare(folder: Path, method: ff.Method, store: str = "packed", snapshot_every: int = 1) -> Case:
    encoding = "float32" if method.needs_whole_updates() else "lengths"
    settings: dict[str, Any] = {
        "train": DATA, "log": ff.Log(encoding, store=store),
        "server": ff.ServerConfig(fraction=0.25, snapshot_every=snapshot_every, optimiser=ff.Adam(lr=0.02)),
    }  # fmt: skip
    old, base = trained(rounds=ROUNDS, **settings), trained(folder / "base", rounds=0, **settings)
    forgotten = first_in(old, FIRST, 2)
    traces = Traces(forgotten)
    base.fit(rounds=ROUNDS, on_round=lambda record: traces.gather(base))
    base.close()
    unbroken = trained(rounds=ROUNDS, **settings)
    receipt = unbroken.forget(forgotten, method)
    return Case(folder / "base", forgotten, method, traces, old, unbroken, receipt)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Case]:
    made: dict[tuple[Any, ...], Case] = {}

    def make(method: str = "fru", *settings: Any) -> Case:
        if (method, *settings) not in made:
            made[method, *settings] = prepare(tmp_path_factory.mktemp(method), METHODS[method], *settings)
        return made[method, *settings]

    return make


def copied(case: Case, run: Path) -> Path:
    shutil.copytree(case.base, run)
    return run


def forget(run: Path, forgotten: list[UserId], method: ff.Method) -> None:
    ff.Federation.open(run, DATA).forget(forgotten, method)


def rehearse(folder: Path) -> None:
    """What the forks of these tests do."""
    for name, method in METHODS.items():
        case = prepare(folder / name, method)
        forget(copied(case, folder / f"{name}-again"), case.forgotten, method)


def abandon(run: Path, *_: object) -> None:
    ff.Federation.open(run, DATA).abandon_forgetting()


def dying(act: Any, args: tuple[Any, ...], module: str, owner: str, name: str, when: str, n: int) -> None:
    """Act, but be killed right before or after the n-th call of a function."""
    deadly_at(module, owner, name, when, n)
    act(*args)


def kill(run: Path, case: Case, *place: object, act: Any = forget) -> None:
    process = processes.Process(target=dying, args=(act, (run, case.forgotten, case.method), *place))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def rounds_done(run: Path, case: Case) -> int:
    """How many of the rounds of the erasure are finished in the new trajectory."""
    path = run / "trajectory-2" / "history.sqlite"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as db:
        (last,) = db.execute("SELECT MAX(round) FROM round").fetchone()
    return sum(round_ <= last for round_ in case.rounds)


def committed(run: Path) -> bool:
    return "trajectory = 2" in (run / "config.toml").read_text()


def check_recovery(run: Path, case: Case) -> None:
    """Whatever a kill left: the old model with the request waiting, or the new one complete; then the same result."""
    done = rounds_done(run, case)
    if committed(run):
        fed = ff.Federation.open(run, DATA)
    else:
        check_old_in_service(run, case)
        fed = ff.Federation.open(run, DATA)
        gone_through: list[int] = []
        receipt = fed.forget(case.forgotten, case.method, on_round=lambda record: gone_through.append(record.round))
        assert gone_through == case.rounds[done:]
        for name in ("asked", "answered", "missing", "bytes_up", "bytes_down", "rounds_replayed", "rounds_added"):
            assert getattr(receipt, name) == getattr(case.receipt, name)
    check_complete(run, case, fed)
    fed.close()
    again = ff.Federation.open(run, DATA)
    check_complete(run, case, again)
    again.close()


def check_old_in_service(run: Path, case: Case) -> None:
    fed = ff.Federation.open(run, DATA)
    assert fed.public.digest == case.old.public.digest
    assert privates(fed) == privates(case.old)
    if (run / "request.json").exists():
        with pytest.raises(ff.RunError, match=r"A request to forget 2 users .* not finished.*\nFinish it first"):
            fed.fit(more=1)
        for users, method in ((case.forgotten[:1], case.method), (case.forgotten, ff.FRU(0.9))):
            with pytest.raises(ff.RunError, match=r"Another request .* is not finished.*\nFinish it"):
                fed.forget(users, method)
    fed.close()


def check_complete(run: Path, case: Case, fed: ff.Federation) -> None:
    assert_same_state(fed, case.unbroken)
    assert sorted(path.name for path in run.iterdir()) == ["config.toml", "lock", "receipts", "trajectory-2"]
    assert [path.stem for path in (run / "receipts").iterdir()] == [receipt.request for receipt in fed.receipts()]
    assert [line["round"] for line in fed._run.current.metrics.read()] == list(range(1, fed.rounds + 1))
    for user in case.forgotten:
        assert case.traces.left_in(run, user) == set()
    with pytest.raises(ff.ConfigError, match="There is no user"):
        fed.forget(case.forgotten, case.method)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("module", "owner", "name", "calls"), PLACES, ids=[".".join(place[1:3]).strip(".") for place in PLACES]
)
def test_killed_around_each_step(
    module: str, owner: str, name: str, calls: list[int], when: str, tmp_path: Path, cases: Callable[..., Case]
) -> None:
    case = cases()
    for n in calls:
        run = copied(case, tmp_path / str(n))
        kill(run, case, module, owner, name, when, n)
        check_recovery(run, case)


@pytest.mark.parametrize(
    "settings",
    [
        ("server",),
        ("retrain",),
        ("continue",),
        ("steps", "packed", 4),
        ("anew",),
        pytest.param(("steps", "sqlite"), marks=pytest.mark.slow),
        pytest.param(("fru", "sqlite"), marks=pytest.mark.slow),
        ("fru", "packed", 4),
    ],
    ids=["server", "retrain", "continue", "steps, thinned", "anew", "steps, sqlite", "sqlite", "thinned"],
)
def test_killed_in_the_middle_of_other_methods_and_stores(
    settings: tuple[Any, ...], tmp_path: Path, cases: Callable[..., Case]
) -> None:
    case = cases(*settings)
    for n in (1, case.receipt.communication_rounds):
        run = copied(case, tmp_path / str(n))
        kill(run, case, "fedforget.server.history", "History", "commit", "before", n)
        check_recovery(run, case)
    run = copied(case, tmp_path / "purge")
    kill(run, case, "os", "", "rmdir", "before", 1)
    assert committed(run)
    check_recovery(run, case)


@pytest.mark.parametrize(
    "place",
    [
        ("fedforget.device.log.private", "PrivateFile", "put", "after", 3),
        ("fedforget.device.log.packed", "", "write_file", "before", 2),
        ("fedforget.device.log.packed", "", "write_file", "after", 2),
        ("fedforget.device.log.packed", "", "write_file", "after", 3),
        ("fedforget.server.snapshots", "", "write_file", "after", 2),
        ("fedforget.server.history", "History", "commit", "after", 2),
        ("fedforget.server.metrics", "MetricsFile", "append", "after", 5),
    ],
    ids=["private", "before the log", "after the log", "second step's log", "snapshot", "commit", "metrics"],
)
def test_killed_inside_a_step_of_several_rounds(place: Any, tmp_path: Path, cases: Callable[..., Case]) -> None:
    """A step is there with all of its rounds or with none, and is computed again from where it started."""
    case = cases("steps")
    several = [user for user in case.unbroken.train.user_ids.tolist() if _times(case, user) > 1]
    assert several, "somebody must take part twice in a step for this to be a test"
    run = copied(case, tmp_path / "run")
    kill(run, case, *place)
    assert rounds_done(run, case) in (0, 1, 4, 6)
    check_recovery(run, case)


def _times(case: Case, user: UserId) -> int:
    """In how many rounds of one step a user took part, at most."""
    ends = case.unbroken.history.steps_after(0)
    return max(
        sum(user in case.unbroken.cohort(round_) for round_ in range(before + 1, end + 1))
        for before, end in itertools.pairwise([0, *ends])
    )


@pytest.mark.parametrize(
    "second",
    [
        ("fedforget.device.log.packed", "PackedStore", "roll_back", "before", 1),
        ("fedforget.device.log.packed", "PackedStore", "roll_back", "after", 1),
        ("fedforget.server.history", "History", "drop_after", "after", 2),
        ("fedforget.server.history", "History", "commit", "after", 1),
        ("fedforget.server.run_config", "RunConfig", "save", "after", 1),
    ],
    ids=["before roll_back", "after roll_back", "drop_after", "commit", "save"],
)
def test_killed_while_recovering_from_a_kill(second: Any, tmp_path: Path, cases: Callable[..., Case]) -> None:
    """The first kill leaves a log entry and a snapshot that no round of the new trajectory accounts for."""
    case = cases()
    run = copied(case, tmp_path / "run")
    kill(run, case, "fedforget.server.snapshots", "", "write_file", "after", 3)
    done = rounds_done(run, case)
    assert done == 2
    kill(run, case, *second)
    assert rounds_done(run, case) >= done
    check_recovery(run, case)


@pytest.mark.alone
def test_killed_again_and_again_at_random_times(tmp_path: Path, cases: Callable[..., Case]) -> None:
    case, dice, kills, usual = cases(), random.Random(0), 0, math.inf
    for attempt in range(2):  # the first one may also have to start the server of forks
        run, started = copied(case, tmp_path / f"timed-{attempt}"), time.perf_counter()
        assert let_forget(run, case, None) == 0
        usual = min(usual, time.perf_counter() - started)
    for attempt in range(30):
        if kills >= 6:
            break
        run = copied(case, tmp_path / f"run-{attempt}")
        while not committed(run):
            killed = let_forget(run, case, dice.uniform(0.3, 1.0) * usual) == -signal.SIGKILL
            kills += killed
            if kills >= 6:
                break
        check_recovery(run, case)
    assert kills >= 6


def let_forget(run: Path, case: Case, seconds: float | None) -> int | None:
    """Forget in a process that is killed after some time; its exit code."""
    process = processes.Process(target=forget, args=(run, case.forgotten, case.method))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


@pytest.mark.parametrize(
    "place",
    [
        ("fedforget.server.request", "ErasureRequest", "save", "after", 1),
        ("fedforget.server.history", "History", "branch", "after", 1),
        ("fedforget.server.history", "History", "commit", "after", 3),
    ],
    ids=["asked", "branching", "replaying"],
)
@pytest.mark.parametrize("dies_too", [None, ("pathlib", "Path", "unlink", "after", 1), ("os", "", "rmdir", "after", 1)],
                         ids=["at once", "killed after the request", "killed in between"])  # fmt: skip
def test_an_erasure_can_be_given_up_and_leaves_nothing_behind(
    place: Any, dies_too: Any, tmp_path: Path, cases: Callable[..., Case]
) -> None:
    case = cases()
    run = copied(case, tmp_path / "run")
    before = contents(run)
    kill(run, case, *place)
    if dies_too is not None and not (place[2] == "save" and dies_too[2] == "rmdir"):
        kill(run, case, *dies_too, act=abandon)
    fed = ff.Federation.open(run, DATA)
    fed.abandon_forgetting()
    assert contents(run) == before
    assert_same_state(fed, case.old)
    fed.fit(rounds=ROUNDS)
    receipt = fed.forget(case.forgotten[:1], case.method)
    assert receipt.first_round == FIRST
    fed.close()


def test_opening_a_committed_run_in_a_reader_brings_the_purge_to_its_end(
    tmp_path: Path, cases: Callable[..., Case]
) -> None:
    case = cases()
    run = copied(case, tmp_path / "run")
    kill(run, case, "fedforget.server.run_config", "RunConfig", "save", "after", 1)
    assert (run / "trajectory-1").exists()
    assert any(case.traces.left_in(run, user) for user in case.forgotten)
    fed = ff.Federation.open(run, DATA)
    assert fed.recommend(fed.train.user_ids.tolist()[0], 3)
    check_complete(run, case, fed)
    fed.close()


def test_a_damaged_request_is_named_and_does_not_touch_the_model(tmp_path: Path, cases: Callable[..., Case]) -> None:
    case = cases()
    run = copied(case, tmp_path / "run")
    kill(run, case, "fedforget.server.history", "History", "commit", "after", 2)
    (run / "request.json").write_text("{")
    with pytest.raises(ff.RunError, match=r"request\.json cannot be read.*\n.*ask again"):
        ff.Federation.open(run, DATA)
    (run / "request.json").unlink()
    fed = ff.Federation.open(run, DATA)
    assert_same_state(fed, case.old)
    fed.forget(case.forgotten, case.method)
    check_complete(run, case, fed)
    fed.close()
