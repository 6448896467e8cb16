"""Hosts: real kills around every write, and the order asked again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import fedforget as ff
from fedforget.device.host import Host
from fedforget.device.log.user_files import UserFiles
from fedforget.protocol.updates import CohortResult, Updates
from tests.deadly import deadly_at
from tests.device.made_hosts import (
    FORK,
    WAITS,
    bits,
    copied,
    entries,
    everything,
    factors_of,
    files_of,
    on_disk,
    only,
    order,
    private,
    replayed,
    sent,
    tables,
    train,
    trained,
    trajectories,
    wiped,
)
from tests.forks import processes

COUPLE = ("ann", "bob")


def train_late(host: Host) -> CohortResult:
    """A round after one that came too late."""
    return train(host, order(11, 4, 2, users=COUPLE), sent(4))


def begin_again(host: Host) -> CohortResult:
    """The first round on a new trajectory, which waits for the server's factors."""
    return only(host.run(WAITS, replayed(11, 3, 2, users=COUPLE), sent(30)))


def go_on(host: Host) -> CohortResult:
    """The first round of training on a new trajectory: the round before it gets its factors, the old one is dropped."""
    known = {("a", 3): factors_of(3, ff.MF(dim=4))}
    return train(host, order(12, 4, 3, users=COUPLE, lineage=FORK, factors=known), sent(4))


def wipe_bob(host: Host) -> CohortResult:
    """Nothing to answer, but a file to remove."""
    assert wiped(host, "bob")
    return CohortResult(Updates.none())


DEEDS = {deed.__name__: deed for deed in (train_late, begin_again, go_on, wipe_bob)}
CHANGE = ("fedforget.device.log.user_files", "UserFiles", "change")
SWEEP = ("fedforget.device.member", "", "sweep")
Kill = tuple[str, int]


def die_at_each(deed: str, spare: Path, place: tuple[str, str, str], kills: dict[Kill, Path], answer: Any) -> None:
    """For each kill, fork a process that does the deed in a folder and dies there; tell how each ended.

    The deed is done once before, elsewhere: compiled code is loaded then, and each fork has it at once.
    """
    DEEDS[deed](Host(spare))
    ends = {}
    for (when, n), folder in kills.items():
        child = os.fork()
        if child == 0:
            deadly_at(*place, when, n)
            DEEDS[deed](Host(folder))
            os._exit(0)
        ends[when, n] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    answer.send(ends)


def killed(host: Host, folder: Path, deed: str, place: tuple[str, str, str], calls: Sequence[int]) -> list[Host]:
    """Devices that were killed during the same deed, before each of these calls of a function, or after the last."""
    kills = {("before", n): folder / f"before-{n}" for n in calls}
    kills["after", calls[-1]] = folder / "after"
    for target in (folder / "spare", *kills.values()):
        copied(host, target)
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=die_at_each, args=(deed, folder / "spare", place, kills, sender))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert receiver.recv() == dict.fromkeys(kills, -signal.SIGKILL)
    return [Host(target) for target in kills.values()]


def writes_of(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], CohortResult]) -> tuple[list[str], CohortResult]:
    """Every change to a file that a deed makes, as the values of its last statement, and what comes of the deed."""
    writes, original = [], UserFiles.change

    def noted(self: UserFiles, key: int, statements: list[Any], *rest: Any, **options: Any) -> None:
        writes.append(str(statements[-1][1]))
        original(self, key, statements, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(UserFiles, "change", noted)
        answers = ask()
    return writes, answers


@pytest.mark.parametrize("deed", ["train_late", "begin_again", "go_on"])
def test_killed_around_any_write_a_device_asked_again_answers_as_if_unbroken(host, tmp_path, monkeypatch, deed):
    trained(host, 3 if deed == "train_late" else 4)
    if deed == "go_on":
        begin_again(host)
    unbroken = copied(host, tmp_path / "unbroken")
    writes, answers = writes_of(monkeypatch, lambda: DEEDS[deed](unbroken))
    assert len(writes) >= 8
    for dead in killed(host, tmp_path, deed, CHANGE, range(1, len(writes) + 1)):
        assert bits(DEEDS[deed](dead)) == bits(answers)
        for user in COUPLE:
            assert trajectories(dead, user) == trajectories(unbroken, user)
            for trajectory in trajectories(dead, user):
                assert entries(dead, user, trajectory) == entries(unbroken, user, trajectory)
                assert private(dead, user, trajectory) == private(unbroken, user, trajectory)
            for table in ("meta", "pending"):
                assert tables(dead, user)[table] == tables(unbroken, user)[table]


def test_killed_while_it_begins_a_trajectory_a_device_still_settles_its_private_parameters(host, tmp_path, monkeypatch):
    trained(host, 4)
    unbroken = copied(host, tmp_path / "unbroken")
    writes, _ = writes_of(monkeypatch, lambda: begin_again(unbroken))
    begun = [n for n, values in enumerate(writes, start=1) if "trajectories" in values]
    assert len(begun) == 2
    for dead in killed(host, tmp_path, "begin_again", CHANGE, begun):
        begin_again(dead)
        assert everything(dead) == everything(unbroken)


def test_killed_around_a_wipe_the_file_goes_with_the_next_and_the_others_are_as_they_were(host, tmp_path):
    trained(host, 2)
    rest = everything(host, ["ann", "cid"])
    for dead in killed(host, tmp_path, "wipe_bob", SWEEP, [1]):
        assert wiped(dead, "bob")
        assert files_of(dead, "bob") == []
        assert not [name for name in on_disk(dead) if name.endswith(".gone")]
        assert everything(dead, ["ann", "cid"]) == rest
