"""What an update shows besides its numbers: no order, no count, and no draw that the server could repeat."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.host import Host
from fedforget.device.log.user_files import UserFiles
from fedforget.device.member import Member
from fedforget.device.update_order import in_catalogue_order
from fedforget.protocol.tasks import Train
from fedforget.runtime.randomness import secret_key, user_key
from fedforget.runtime.workers import Workers
from tests.device.made_hosts import FEDERATION, HOUSEHOLD, USERS, order, private, sent, terms_of, train

DATA = ff.synthetic(users=20, items=50, mean_items=8, seed=0)


@pytest.mark.parametrize(
    "model", [ff.MF(dim=4), ff.LightGCN(dim=4), ff.NCF(dim=4), ff.IALS(dim=4)], ids=lambda m: m.name
)
def test_rows_are_in_the_order_of_the_catalogue_and_nothing_is_counted(model):
    fed = ff.Federation(DATA, model, log=ff.Log("float32"))
    users = fed.members
    updates = fed.clients().run(Train(1), {1: users}, fed.public)[1].updates
    for place in range(len(users)):
        items = updates.items[updates.ptr[place] : updates.ptr[place + 1]]
        assert (np.diff(items) > 0).all()
        assert set(DATA.items_of(place).tolist()) <= set(items.tolist())
    assert not updates.sizes.any()


def test_stored_updates_are_in_that_order_too():
    fed = ff.Federation(DATA, ff.MF(dim=4), log=ff.Log("float32"), server=ff.ServerConfig(fraction=1.0))
    fed.fit(2)
    reader = fed.devices.branch(fed.devices.log.branch(None, 0, np.empty(0, np.uint64)), 0, fed.train)
    updates = reader.recall(2, fed.members).updates
    for place in range(len(updates)):
        assert (np.diff(updates.items[updates.ptr[place] : updates.ptr[place + 1]]) > 0).all()


def test_a_rule_that_weighs_by_counts_gets_them():
    server = ff.ServerConfig(aggregation="weighted", fraction=1.0)
    fed = ff.Federation(DATA, ff.MF(dim=4), server=server)
    assert fed.config.training.send_counts
    updates = fed.clients().run(Train(1), {1: fed.members}, fed.public)[1].updates
    np.testing.assert_array_equal(updates.sizes, DATA.counts)
    assert not ff.Federation(DATA, ff.MF(dim=4)).config.training.send_counts


@pytest.mark.parametrize("workers", [1, 2])
def test_sorting_moves_rows_with_their_items(workers):
    rng = np.random.default_rng(0)
    sizes = [0, 5, 30, 1, 0]
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    items = np.concatenate([rng.permutation(40)[:size] for size in sizes]).astype(np.int32)
    rows = np.stack([items, items * 2, items * 3], axis=1).astype(np.float32)
    found, moved = in_catalogue_order(ptr, items, rows, 40, Workers(workers))
    for start, stop in itertools.pairwise(ptr):
        np.testing.assert_array_equal(found[start:stop], np.sort(items[start:stop]))
    np.testing.assert_array_equal(moved, np.stack([found, found * 2, found * 3], axis=1))


def test_every_device_makes_a_secret_of_its_own(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        for user in USERS:
            Host(folder).enrol(terms_of(), user, *HOUSEHOLD[user])
    keys = [Member(UserFiles(folder / FEDERATION, FEDERATION), user).draw_key for folder in folders for user in USERS]
    assert len({*keys, *(user_key(user) for user in USERS)}) == 3 * len(USERS)
    answers = [train(Host(folder), order(1, 1, 0), sent(1)) for folder in folders]
    assert not np.array_equal(answers[0].updates.items, answers[1].updates.items)
    assert private(Host(folders[0]), "ann") != private(Host(folders[1]), "ann")
    repeated = [train(Host(folder), order(2, 2, 1), sent(2)) for folder in folders]
    assert repeated[0].updates.items.size


def test_the_server_cannot_repeat_the_draws_of_a_device(tmp_path):
    """With the seed and the interactions, but without the secret, a shadow of the device draws something else."""
    device, shadow = Host(tmp_path / "device"), Host(tmp_path / "shadow")
    device.enrol(terms_of(), "ann", *HOUSEHOLD["ann"])
    shadow.enrol(terms_of(), "ann", *HOUSEHOLD["ann"], secret="")
    mine, theirs = (train(host, order(1, 1, 0, users=["ann"]), sent(1)) for host in (device, shadow))
    assert private(device, "ann") != private(shadow, "ann")
    assert mine.updates.rows.tobytes() != theirs.updates.rows.tobytes()


def test_the_secret_and_the_user_both_count():
    keys = {secret_key(user, secret) for user in ("ann", "bob", 7) for secret in ("", "00" * 16, "01" * 16)}
    assert len(keys) == 9
    assert secret_key("ann", "") == user_key("ann")
