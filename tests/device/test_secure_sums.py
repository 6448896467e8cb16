"""What a device contributes to secure sums, what it reveals, and what it refuses."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedforget as ff

pytest.importorskip("shamirs", reason="secure aggregation is part of the extra fedforget[flower]")

from fedforget.device.host import Host
from fedforget.device.log.user_files import UserFiles
from fedforget.device.secure_sums import MaskedResults
from fedforget.protocol import masking, reasons
from fedforget.protocol.masking import KeyPair, RevealOrder, ring_of
from fedforget.protocol.order import Order
from fedforget.protocol.tasks import Train
from tests.deadly import deadly_at
from tests.device.made_hosts import EPOCHS, FEDERATION, USERS, copied, household, order, sent, terms_of, train
from tests.forks import processes

TASK = Train(EPOCHS)
STRANGERS = tuple(KeyPair.new() for _ in range(3))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    training = ff.LocalTraining(epochs=EPOCHS, batch=4, lr=0.05, sum_over=4)
    return household(tmp_path / "device", terms_of(training=training))


def secure(host: Host, number: int, round_: int, since: int = 0, strangers: int = 3) -> Order:
    """An order whose cohort is the household and strangers."""
    own = host.public_keys(FEDERATION, USERS)
    keys = (*own.values(), *(pair.public for pair in STRANGERS[:strangers]))
    return replace(order(number, round_, since), cohorts={round_: keys})


def contribute(host: Host, given: Order) -> MaskedResults:
    return host.run_masked(TASK, given, sent(given.round))


def why(results: MaskedResults) -> set[str]:
    assert not results.contributions
    return set(results.failures.values())


def second(host: Host, given: Order, results: MaskedResults, user: str, absent: int = 0) -> RevealOrder:
    """The second message to a user: the last ``absent`` of its neighbours have not answered."""
    round_ = given.round
    own = host.public_keys(FEDERATION, [user])[user]
    context = masking.context_of(given, round_, TASK.settings(), _digest(round_))
    neighbours = ring_of(context, given.cohorts[round_]).neighbours(own)
    answered = len(neighbours) - absent
    sealed = bytes([1]) * masking.sealed_size(len(neighbours))
    shares = tuple(sealed if place < answered else b"" for place in range(len(neighbours)))
    return RevealOrder(user, round_, context, answered + 1, shares, frozenset(neighbours[answered:]))


def _digest(round_: int) -> str:
    return ff.MF(dim=4).init_public(12, seed=round_).digest


def test_asked_twice_for_the_same_sum_the_vector_is_the_same(host: Host) -> None:
    given = secure(host, 1, 1)
    first, again = contribute(host, given), contribute(host, given)
    assert set(first.contributions) == {(1, user) for user in USERS}
    for place, sent_ in first.contributions.items():
        np.testing.assert_array_equal(sent_.words, again.contributions[place].words)


def test_another_attempt_has_other_masks(host: Host) -> None:
    first, again = contribute(host, secure(host, 1, 1)), contribute(host, secure(host, 2, 1))
    assert (first.contributions[1, "ann"].words != again.contributions[1, "ann"].words).mean() > 0.99


def test_plain_updates_are_refused(host: Host) -> None:
    result = train(host, order(1, 1, 0), sent(1))
    assert set(result.failures.values()) == {reasons.NOT_SECURE}
    assert not len(result.updates)
    assert host.evaluate(order(2, 1, 0), sent(1))[0] == 0


def test_sums_over_too_few_devices_are_refused(host: Host) -> None:
    assert why(contribute(host, secure(host, 1, 1, strangers=0))) == {reasons.TOO_FEW}
    given = secure(host, 2, 1, strangers=1)
    repeated = replace(given, cohorts={1: (*given.cohorts[1][:3], given.cohorts[1][0])})
    assert why(contribute(host, repeated)) == {reasons.TOO_FEW}


def test_sums_without_the_own_key_are_refused(host: Host) -> None:
    given = secure(host, 1, 1)
    others = tuple(KeyPair.new().public for _ in range(5))
    assert why(contribute(host, replace(given, cohorts={1: others}))) == {reasons.OTHER_KEY}


def test_a_second_sum_for_the_same_order_is_refused(host: Host) -> None:
    contribute(host, secure(host, 1, 1))
    assert why(contribute(host, secure(host, 1, 1, strangers=2))) == {reasons.SECOND_SUM}


def test_both_secrets_of_a_neighbour_are_never_revealed(host: Host) -> None:
    given = secure(host, 1, 1)
    results = contribute(host, given)
    first = second(host, given, results, "ann")
    revealed = host.reveal(FEDERATION, 1, [first])
    assert [len(each) for each in revealed[1, "ann"]] == [masking.SHARE] * 5
    assert host.reveal(FEDERATION, 1, [first]) == revealed
    other = second(host, given, results, "ann", absent=1)
    assert host.reveal(FEDERATION, 1, [other]) == {}
    fresh = second(host, given, results, "bob", absent=1)
    sizes = [len(each) for each in host.reveal(FEDERATION, 1, [fresh])[1, "bob"]]
    assert sizes == [2 * masking.SHARE] * 4 + [masking.SEED]  # of the self seed, and of the mask with the absent one
    assert host.reveal(FEDERATION, 1, [second(host, given, results, "bob")]) == {}


def test_nothing_is_revealed_if_too_few_have_answered(host: Host) -> None:
    given = secure(host, 1, 1)
    results = contribute(host, given)
    few = second(host, given, results, "ann", absent=3)
    assert host.reveal(FEDERATION, 1, [few]) == {}
    all_ = second(host, given, results, "ann")
    lies = [replace(all_, answered=3), replace(few, answered=6), replace(all_, absent=few.absent)]
    lies.append(replace(all_, absent=frozenset(host.public_keys(FEDERATION, ["ann"]).values())))
    for lie in lies:
        assert host.reveal(FEDERATION, 1, [lie]) == {}


def test_nothing_is_revealed_about_unknown_or_earlier_sums(host: Host) -> None:
    given = secure(host, 1, 1)
    results = contribute(host, given)
    first = second(host, given, results, "ann")
    assert host.reveal(FEDERATION, 1, [replace(first, context=bytes(32))]) == {}
    assert host.reveal(FEDERATION, 1, [replace(first, user="nobody")]) == {}
    contribute(host, secure(host, 2, 1))
    assert host.reveal(FEDERATION, 1, [first]) == {}


def test_keys_survive_a_restart_and_are_wiped_with_the_user(host: Host) -> None:
    keys = host.public_keys(FEDERATION, USERS)
    assert Host(host.folder).public_keys(FEDERATION, [*USERS, "nobody"]) == keys
    host.remove(FEDERATION, "ann")
    assert set(host.public_keys(FEDERATION, USERS)) == {"bob", "cid"}


def both_messages(folder: Path, given: Order) -> tuple[dict[str, bytes], dict[str, list[bytes]]]:
    """What a device sends in both messages of a sum."""
    host = Host(folder)
    results = contribute(host, given)
    users = [user for _, user in results.contributions]
    words = {user: results.contributions[1, user].words.tobytes() for user in users}
    orders = [second(host, given, results, user) for user in users]
    return words, {user: revealed for (_, user), revealed in host.reveal(FEDERATION, 1, orders).items()}


def die(folder: Path, given: Order, when: str, n: int) -> None:
    deadly_at("fedforget.device.log.user_files", "UserFiles", "change", when, n)
    both_messages(folder, given)


@pytest.mark.slow
def test_killed_around_any_write_a_device_sends_the_same_and_never_both_secrets(host, tmp_path, monkeypatch):
    given = secure(host, 1, 1)
    writes, original = [], UserFiles.change

    def noted(self: UserFiles, *args: object, **kwargs: object) -> None:
        writes.append(args)
        original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(UserFiles, "change", noted)
        words, _ = both_messages(copied(host, tmp_path / "unbroken").folder, given)
    assert len(writes) > 10
    for when, n in [*(("before", n) for n in range(1, len(writes) + 1)), ("after", len(writes))]:
        dead = copied(host, tmp_path / f"{when}-{n}")
        process = processes.Process(target=die, args=(dead.folder, given, when, n))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        again, revealed = both_messages(dead.folder, given)
        assert again == words
        assert set(revealed) == set(USERS)
        other = second(dead, given, contribute(dead, given), "ann", absent=1)
        assert dead.reveal(FEDERATION, 1, [other]) == {}
