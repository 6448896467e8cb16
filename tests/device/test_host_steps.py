"""Hosts: several past rounds in one order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedforget.device.host import Host
from fedforget.protocol import reasons
from fedforget.protocol.order import Order
from fedforget.protocol.tasks import Replay
from tests.device.made_hosts import (
    USERS,
    WAITS,
    bits,
    branched,
    copied,
    entries,
    everything,
    in_memory,
    path_of,
    public_of,
    replayed,
    sent,
    terms_of,
    train_in_memory,
    trained,
)


def step(number: int, rounds: dict[str, tuple[int, ...]], since: int, **changes: Any) -> Order:
    """An order to replay several rounds on the new trajectory."""
    first = min(min(own) for own in rounds.values())
    asked = replayed(number, first, since, users=tuple(rounds), **changes)
    return replace(asked, rounds=tuple(rounds.values()))


def test_a_step_of_several_rounds_is_what_devices_in_memory_do(host):
    trained(host, 4)
    devices = in_memory(terms_of())
    for round_ in range(1, 5):
        train_in_memory(devices, round_, public_of(round_))
    asked = step(5, {"ann": (3, 4), "bob": (4,), "cid": (3,)}, 2)
    mine = host.run(Replay(2), asked, sent(30))
    theirs = branched(devices, 2).replay({3: ["ann", "cid"], 4: ["ann", "bob"]}, public_of(30), Replay(2))
    assert {round_: bits(answer) for round_, answer in mine.items()} == {r: bits(a) for r, a in theirs.items()}
    assert [set(entries(host, user, "a")) for user in USERS] == [{1, 2, 3, 4}, {1, 2, 4}, {1, 2, 3}]


def test_a_step_that_is_asked_for_again_gives_the_same_answer_and_one_that_came_too_late_is_undone(host, tmp_path):
    trained(host, 4)
    spared = copied(host, tmp_path / "spared")
    asked = step(5, dict.fromkeys(USERS, (3, 4)), 2)
    first = host.run(Replay(2), asked, sent(30))
    before = everything(host)
    again = Host(host.folder).run(Replay(2), asked, sent(30))
    assert {r: bits(a) for r, a in again.items()} == {r: bits(a) for r, a in first.items()}
    assert everything(host) == before
    other = step(6, dict.fromkeys(USERS, (3, 4)), 2)
    late, fresh = (each.run(Replay(2), other, sent(40)) for each in (host, spared))
    assert {r: bits(a) for r, a in late.items()} == {r: bits(a) for r, a in fresh.items()}
    assert everything(host) == everything(spared)


def test_who_cannot_take_part_is_named_for_each_of_its_rounds(host):
    trained(host, 4)
    path_of(host, "bob").unlink()
    answers = host.run(Replay(2), step(5, {"ann": (3,), "bob": (3, 4)}, 2), sent(30))
    assert answers[3].failures == answers[4].failures == {"bob": reasons.NOT_ENROLLED}
    assert (list(answers[3].updates.users), len(answers[4].updates)) == (["ann"], 0)


def test_stored_updates_of_several_rounds_are_refused(host):
    trained(host, 4)
    answers = host.run(WAITS, step(5, {"ann": (3, 4)}, 2), sent(30))
    assert answers[3].failures == answers[4].failures == {"ann": reasons.ONE_ROUND_ONLY}
