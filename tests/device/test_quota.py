"""A device's quota: never exceeded, and what gives way is what the policy says."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedforget as ff
from fedforget.device.log import Entries, MemoryStore, PackedStore
from fedforget.device.log.device_log import DeviceLog
from fedforget.errors import RunWarning
from fedforget.protocol import reasons
from fedforget.protocol.log import POLICIES, Log
from fedforget.protocol.tasks import Replay
from tests.device.made_logs import PRIVATE, codec_of


def quota_log(quota: int, when_full: str = "oldest", store=None) -> DeviceLog:
    log = Log(quota=quota, when_full=when_full)
    return DeviceLog(log, codec_of(log), store or MemoryStore(), seed=0)


def append(log: DeviceLog, round_: int, sizes: dict[int, int]) -> None:
    """Give users entries of so many bytes."""
    keys = np.array(list(sizes), np.uint64)
    entries = Entries.of(keys, [bytes([round_ % 256]) * size for size in sizes.values()])
    log.append(round_, entries, np.full((keys.size, PRIVATE), round_, np.float32))


def held(log: DeviceLog, user: int) -> dict[int, int]:
    """The bytes of a user's entries by round."""
    return {
        round_: size
        for round_, keys, sizes in log.store.heads()
        for key, size in zip(keys.tolist(), sizes.tolist(), strict=True)
        if key == user
    }


def test_under_the_policy_oldest_the_oldest_entries_go():
    log = quota_log(10)
    for round_, size in enumerate([4, 3, 3, 2], start=1):
        append(log, round_, {7: size})
    assert held(log, 7) == {2: 3, 3: 3, 4: 2}
    append(log, 5, {7: 9})
    assert held(log, 7) == {5: 9}


def test_under_the_policy_stop_the_old_entries_stay_and_new_ones_are_empty_until_one_fits():
    log = quota_log(10, "stop")
    for round_, size in enumerate([4, 3, 4, 3, 1], start=1):
        append(log, round_, {7: size})
    assert held(log, 7) == {1: 4, 2: 3, 3: 0, 4: 3, 5: 0}


@pytest.mark.parametrize("when_full", POLICIES)
def test_an_entry_larger_than_the_quota_is_not_kept_and_pushes_nothing_out(when_full):
    log = quota_log(10, when_full)
    append(log, 1, {7: 6})
    append(log, 2, {7: 11})
    assert held(log, 7) == {1: 6, 2: 0}
    assert log.last_round() == 2


@pytest.mark.parametrize("when_full", POLICIES)
def test_each_user_has_a_quota_of_its_own(when_full):
    log = quota_log(10, when_full)
    for round_ in (1, 2):
        append(log, round_, {7: 10, 8: 5})
    assert held(log, 7) == ({2: 10} if when_full == "oldest" else {1: 10, 2: 0})
    assert held(log, 8) == {1: 5, 2: 5}


@pytest.mark.parametrize("when_full", POLICIES)
def test_a_round_written_again_counts_once(when_full):
    log = quota_log(10, when_full)
    append(log, 1, {7: 4})
    for size in (6, 5, 6):
        append(log, 2, {7: size})
    assert held(log, 7) == {1: 4, 2: 6}


@pytest.mark.parametrize("when_full", POLICIES)
def test_rounds_rolled_back_make_room(when_full):
    log = quota_log(10, when_full)
    for round_ in (1, 2, 3):
        append(log, round_, {7: 5})
    log.roll_back(1)
    append(log, 2, {7: 4})
    assert held(log, 7) == ({2: 4} if when_full == "oldest" else {1: 5, 2: 4})


def test_a_log_opened_again_goes_on_counting(tmp_path):
    log = quota_log(10, "stop", PackedStore(tmp_path, "here"))
    append(log, 1, {7: 8})
    log.close()
    again = quota_log(10, "stop", PackedStore(tmp_path, "here"))
    append(again, 2, {7: 3})
    append(again, 3, {7: 2})
    assert held(again, 7) == {1: 8, 2: 0, 3: 2}
    again.close()


@pytest.mark.parametrize("when_full", POLICIES)
@given(
    quota=st.integers(1, 40),
    rounds=st.lists(st.dictionaries(st.integers(1, 3), st.integers(1, 25), min_size=1), max_size=12),
    back=st.integers(0, 12),
)
def test_no_device_is_ever_over_its_quota_and_none_loses_more_than_it_must(when_full, quota, rounds, back):
    log, given_sizes = quota_log(quota, when_full), {}
    for round_, sizes in enumerate(rounds, start=1):
        if round_ == back:
            log.roll_back(round_ // 2)
            given_sizes = {past: size for past, size in given_sizes.items() if past[0] <= round_ // 2}
        append(log, round_, sizes)
        given_sizes |= {(round_, user): size for user, size in sizes.items()}
        for user in (1, 2, 3):
            entries = held(log, user)
            assert sum(entries.values()) <= quota
            assert all(size in (0, given_sizes[past, user]) for past, size in entries.items())
            if user in sizes:
                assert round_ in entries
                assert entries[round_] == sizes[user] or when_full == "stop" or sizes[user] > quota


class TestReplay:
    """What devices say in a replay of rounds that their quota has cost them."""

    def test_rounds_that_gave_way_are_missing_and_rounds_without_room_were_full(self):
        data = ff.synthetic(users=12, items=40, mean_items=8, seed=1)
        said = {}
        for when_full in POLICIES:
            plain = self.trained(data, Log())
            size = max(size for _, _, sizes in plain._run.current.devices.log.store.heads() for size in sizes.tolist())
            fed = self.trained(data, Log(quota=2 * size, when_full=when_full))
            said[when_full] = [self.reasons(fed, round_) for round_ in (1, 4)]
        assert said == {
            "oldest": [Counter({reasons.NO_ENTRY: 12}), Counter()],
            "stop": [Counter(), Counter({reasons.LOG_FULL: 12})],
        }

    def trained(self, data: ff.Interactions, log: Log) -> ff.Federation:
        fed = ff.Federation(
            data, ff.MF(dim=4), log=log, training=ff.LocalTraining(epochs=1), server=ff.ServerConfig(fraction=1.0)
        )
        return fed.fit(rounds=5)

    def reasons(self, fed: ff.Federation, round_: int) -> Counter[str]:
        """Why devices cannot go through a round again."""
        users = fed.train.user_ids.tolist()
        previous = fed._run.current.devices.log
        devices = fed.devices.branch(previous.branch(None, 0, np.empty(0, np.uint64)), 0, fed.train)
        public = fed.history.snapshot(round_ - 1)
        answers = devices.replay({round_: users}, public, Replay(1, "logged"))[round_]
        assert len(answers.updates) + len(answers.failures) == len(users)
        return Counter(answers.failures.values())

    @pytest.mark.parametrize("when_full", POLICIES)
    def test_training_does_not_depend_on_the_quota(self, when_full):
        data = ff.synthetic(users=12, items=40, mean_items=8, seed=1)
        free, tight = self.trained(data, Log()), self.trained(data, Log(quota=20, when_full=when_full))
        assert tight.public.digest == free.public.digest

    def test_a_copy_of_full_devices_is_where_they_are(self):
        data = ff.synthetic(users=12, items=40, mean_items=8, seed=1)
        fed = self.trained(data, Log(quota=60, when_full="stop"))
        copy = fed.copy()
        assert copy.rounds == fed.rounds == 5
        for user in data.user_ids.tolist():
            np.testing.assert_array_equal(copy.devices.private(user), fed.devices.private(user))
        assert self.reasons(copy, 5) == Counter({reasons.LOG_FULL: 12})

    def test_private_parameters_come_from_the_last_entry_that_had_room(self):
        fed = self.trained(ff.synthetic(users=12, items=40, mean_items=8, seed=1), Log(quota=60, when_full="stop"))
        log, keys = fed._run.current.devices.log, fed.train.user_keys
        initial = fed.model.init_private(keys, fed.config.seed)
        with pytest.warns(RunWarning, match="no room"):
            found = log.private(3, keys, initial)
        for place, key in enumerate(keys.tolist()):
            with_room = max(round_ for round_, size in held(log, key).items() if size and round_ <= 3)
            _, logged, _ = log.read(with_room, keys[place : place + 1])
            np.testing.assert_array_equal(found[place], logged.private[0])
