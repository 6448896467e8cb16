"""Hosts: replays that wait for the server's factors."""

from __future__ import annotations

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.host import Host
from fedforget.protocol import reasons
from fedforget.protocol.factors import Factors
from fedforget.protocol.order import Lineage
from tests.device.made_hosts import (
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
    train,
    train_in_memory,
    trained,
)


@pytest.mark.parametrize("model", [ff.MF(dim=4), ff.NCF(dim=4)], ids=["mf", "ncf"])
@pytest.mark.parametrize("log", [ff.Log("float32"), ff.Log("float16", "importance", 0.5)], ids=["whole", "half"])
def test_a_replay_waits_and_is_settled_as_devices_in_memory_log_it(tmp_path, model, log):
    terms = terms_of(model, log)
    host, devices = household(tmp_path, terms), in_memory(terms)
    for round_ in range(1, 5):
        train(host, order(round_, round_, round_ - 1), sent(round_, model))
        train_in_memory(devices, round_, public_of(round_, model))
    new, known = branched(devices, 2), {}
    for round_ in (3, 4):
        asked = replayed(round_ + 2, round_, round_ - 1, factors=known)
        mine = only(host.run(WAITS, asked, sent(round_ * 10, model)))
        assert bits(mine) == bits(new.replay({round_: list(USERS)}, public_of(round_ * 10, model), WAITS)[round_])
        assert mine.stored is not None
        assert len(mine.stored) == 3
        new.apply_factors(round_, factors_of(round_, model))
        known = {("a", round_): factors_of(round_, model)}
        for user in USERS:
            assert rows(host, user, "SELECT trajectory, round FROM pending") == [("a", round_)]
            assert entries(host, user, "a")[round_] == b""
            assert private(host, user, "a") == new.private(user).tobytes()
    on = train(host, order(7, 5, 4, lineage=FORK, factors=known), sent(5, model))
    assert bits(on) == bits(train_in_memory(new, 5, public_of(5, model)))
    for user in USERS:
        assert rows(host, user, "SELECT * FROM pending") == []
        assert entries(host, user, "a") == logged(new, user)
        assert private(host, user, "a") == new.private(user).tobytes()


def test_what_waits_is_settled_once_and_the_same_by_a_repeated_order(host):
    trained(host, 4)
    host.run(WAITS, replayed(5, 3, 2), sent(30))
    asked = replayed(6, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))})
    first = bits(host.run(WAITS, asked, sent(40)))
    state = everything(host)
    assert bits(Host(host.folder).run(WAITS, asked, sent(40))) == first
    assert everything(host) == state


def test_what_waits_on_the_trajectory_in_service_is_settled_before_a_new_one_begins(host):
    trained(host, 4)
    host.run(WAITS, replayed(5, 3, 2), sent(30))
    host.run(WAITS, replayed(6, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))}), sent(40))
    lineage: Lineage = (*FORK, ("b", 4))
    known = {("a", 4): factors_of(4, ff.MF(dim=4))}
    look(host, order(7, 5, 4, lineage=lineage, in_service="a", served=4, factors=known))
    for user in USERS:
        assert entries(host, user, "a")[4] != b""
        assert entries(host, user, "b") == entries(host, user, "a")
        assert rows(host, user, "SELECT * FROM pending") == []


def test_factors_of_another_round_or_trajectory_settle_nothing(host):
    trained(host, 4)
    host.run(WAITS, replayed(5, 3, 2), sent(30))
    known = {("origin", 3): factors_of(3, ff.MF(dim=4)), ("a", 2): factors_of(2, ff.MF(dim=4))}
    look(host, replayed(6, 4, 3, factors=known))
    assert entries(host, "ann", "a")[3] == b""
    look(host, replayed(7, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))}))
    assert entries(host, "ann", "a")[3] != b""


@pytest.mark.parametrize("shape", [(N_ITEMS - 1, 0), (N_ITEMS, 1), (0, 0)])
def test_factors_of_another_shape_are_refused_and_the_replay_still_waits(host, shape):
    trained(host, 4)
    host.run(WAITS, replayed(5, 3, 2), sent(30))
    wrong = Factors(np.ones(shape[0], np.float32), np.ones(shape[1], np.float32))
    answers = only(host.run(WAITS, replayed(6, 4, 3, factors={("a", 3): wrong}), sent(40)))
    assert answers.failures == dict.fromkeys(USERS, reasons.OTHER_MODEL)
    look(host, replayed(7, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))}))
    assert entries(host, "ann", "a")[3] != b""
