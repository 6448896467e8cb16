"""Hosts: replays that wait for the server's factors."""

from __future__ import annotations

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.host import Host
from fedforget.device.terms import OTHER_MODEL
from fedforget.orders import Lineage
from fedforget.replay import Factors
from tests.device.made_hosts import (
    EPOCHS,
    FORK,
    N_ITEMS,
    USERS,
    WAITS,
    bits,
    branched,
    entries,
    everything,
    factors_of,
    household,
    in_memory,
    logged,
    look,
    only,
    order,
    private,
    public_of,
    replayed,
    rows,
    sent,
    terms_of,
    trained,
)


@pytest.mark.parametrize("model", [ff.MF(dim=4), ff.NCF(dim=4)], ids=["mf", "ncf"])
@pytest.mark.parametrize("log", [ff.Log("float32"), ff.Log("float16", "importance", 0.5)], ids=["whole", "half"])
def test_a_replay_waits_and_is_settled_as_devices_in_memory_log_it(tmp_path, model, log):
    terms = terms_of(model, log)
    host, devices = household(tmp_path, terms), in_memory(terms)
    for round_ in range(1, 5):
        host.train(order(round_, round_, round_ - 1), sent(round_, model), EPOCHS)
        devices.train(round_, public_of(round_, model), list(USERS), EPOCHS)
    new, known = branched(devices, 2), {}
    for round_ in (3, 4):
        asked = replayed(round_ + 2, round_, round_ - 1, factors=known)
        mine = only(host.replay(asked, sent(round_ * 10, model), WAITS))
        assert bits(mine) == bits(new.replay({round_: list(USERS)}, public_of(round_ * 10, model), WAITS)[round_])
        assert mine.stored is not None
        assert len(mine.stored) == 3
        new.settle(round_, factors_of(round_, model))
        known = {("a", round_): factors_of(round_, model)}
        for user in USERS:
            assert rows(host, user, "SELECT trajectory, round FROM pending") == [("a", round_)]
            assert entries(host, user, "a")[round_] == b""
            assert private(host, user, "a") == new.private(user).tobytes()
    on = host.train(order(7, 5, 4, lineage=FORK, factors=known), sent(5, model), EPOCHS)
    assert bits(on) == bits(new.train(5, public_of(5, model), list(USERS), EPOCHS))
    for user in USERS:
        assert rows(host, user, "SELECT * FROM pending") == []
        assert entries(host, user, "a") == logged(new, user)
        assert private(host, user, "a") == new.private(user).tobytes()


def test_what_waits_is_settled_once_and_the_same_by_a_repeated_order(host):
    trained(host, 4)
    host.replay(replayed(5, 3, 2), sent(30), WAITS)
    asked = replayed(6, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))})
    first = bits(host.replay(asked, sent(40), WAITS))
    state = everything(host)
    assert bits(Host(host.folder).replay(asked, sent(40), WAITS)) == first
    assert everything(host) == state


def test_what_waits_on_the_trajectory_in_service_is_settled_before_a_new_one_begins(host):
    trained(host, 4)
    host.replay(replayed(5, 3, 2), sent(30), WAITS)
    host.replay(replayed(6, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))}), sent(40), WAITS)
    lineage: Lineage = (*FORK, ("b", 4))
    known = {("a", 4): factors_of(4, ff.MF(dim=4))}
    look(host, order(7, 5, 4, lineage=lineage, in_service="a", served=4, factors=known))
    for user in USERS:
        assert entries(host, user, "a")[4] != b""
        assert entries(host, user, "b") == entries(host, user, "a")
        assert rows(host, user, "SELECT * FROM pending") == []


def test_factors_of_another_round_or_trajectory_settle_nothing(host):
    trained(host, 4)
    host.replay(replayed(5, 3, 2), sent(30), WAITS)
    known = {("origin", 3): factors_of(3, ff.MF(dim=4)), ("a", 2): factors_of(2, ff.MF(dim=4))}
    look(host, replayed(6, 4, 3, factors=known))
    assert entries(host, "ann", "a")[3] == b""
    look(host, replayed(7, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))}))
    assert entries(host, "ann", "a")[3] != b""


@pytest.mark.parametrize("shape", [(N_ITEMS - 1, 0), (N_ITEMS, 1), (0, 0)])
def test_factors_of_another_shape_are_refused_and_the_replay_still_waits(host, shape):
    trained(host, 4)
    host.replay(replayed(5, 3, 2), sent(30), WAITS)
    wrong = Factors(np.ones(shape[0], np.float32), np.ones(shape[1], np.float32))
    answers = only(host.replay(replayed(6, 4, 3, factors={("a", 3): wrong}), sent(40), WAITS))
    assert answers.failures == dict.fromkeys(USERS, OTHER_MODEL)
    look(host, replayed(7, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))}))
    assert entries(host, "ann", "a")[3] != b""
