"""The log of some devices: private parameters as exactly as they are known, why entries are missing, and copies."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.device.kernels.norms import row_lengths
from fedforget.device.log import Entries, MemoryStore, PackedStore, SqliteStore
from fedforget.device.log.device_log import DeviceLog
from fedforget.errors import RunWarning
from fedforget.protocol import reasons
from fedforget.protocol.log import Log
from tests.device.made_logs import DIM, LAYOUT, PRIVATE, codec_of, logged_of

ANN, BOB, CID = 11, 22, 33
INITIAL = np.zeros((3, PRIVATE), np.float32)
KEYS = np.array([ANN, BOB, CID], np.uint64)


@pytest.fixture(params=["memory", "packed", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryStore()
    return (PackedStore if request.param == "packed" else SqliteStore)(tmp_path / "devices", "here")


def log_of(log: Log | None = None, store=None, seed: int = 0) -> DeviceLog:
    log = log or Log()
    return DeviceLog(log, codec_of(log), store or MemoryStore(), seed=seed)


def private_of(user: int, round_: int) -> np.ndarray:
    """Numbers that int8 cannot hold exactly."""
    return np.array([user + round_, np.pi * round_, -user / 7, round_ / 3], np.float32)


def rows_of(user: int, round_: int) -> np.ndarray:
    return np.random.default_rng([user, round_]).normal(size=(7, DIM)).astype(np.float32)


def write(log: DeviceLog, round_: int, users: list[int], damaged: tuple[int, ...] = (), full: tuple[int, ...] = ()):
    """Let users take part in a round; some entries come out damaged, some have no room."""
    private = np.stack([private_of(user, round_) for user in users])
    dense = np.stack([np.full(LAYOUT.size, user / round_, np.float32) for user in users])
    rows = [rows_of(user, round_) for user in users]
    logged = logged_of(rows, log.config, keys=users, dense=dense, private=private, round_=round_)
    bodies = list(log.codec.encode(round_, logged))
    for place, user in enumerate(users):
        if user in damaged:
            bodies[place] = bodies[place][:-1] + bytes([bodies[place][-1] ^ 1])
        if user in full:
            bodies[place] = b""
    log.append(round_, Entries.of(logged.keys, bodies), private)


def check_near(found: np.ndarray, true: np.ndarray) -> None:
    """As int8 holds it: within half a step, but not exactly."""
    assert not np.array_equal(found, true)
    assert (np.abs(found - true) <= np.abs(true).max() / 250).all()


def test_before_anything_happened_everyone_has_what_they_began_with(store):
    initial = np.arange(12, dtype=np.float32).reshape(3, PRIVATE)
    np.testing.assert_array_equal(log_of(store=store).private(5, KEYS, initial), initial)


def test_the_two_newest_rounds_of_a_user_are_exact_and_older_ones_come_from_entries(store):
    log = log_of(store=store)
    for round_ in (1, 2, 4):
        write(log, round_, [ANN] if round_ == 2 else [ANN, BOB])
    for until, ann, bob in [(4, 4, 4), (3, 2, 1), (2, 2, 1)]:
        found = log.private(until, KEYS, INITIAL)
        np.testing.assert_array_equal(found[0], private_of(ANN, ann))
        np.testing.assert_array_equal(found[1], private_of(BOB, bob))
        np.testing.assert_array_equal(found[2], INITIAL[2])
    found = log.private(1, KEYS, INITIAL)
    check_near(found[0], private_of(ANN, 1))
    np.testing.assert_array_equal(found[1], private_of(BOB, 1))
    np.testing.assert_array_equal(log.private(0, KEYS, INITIAL), INITIAL)


def test_a_float32_log_has_every_round_exactly(store):
    log = log_of(Log("float32"), store)
    for round_ in range(1, 7):
        write(log, round_, [ANN, CID])
    for until in range(1, 7):
        found = log.private(until, KEYS, INITIAL)
        np.testing.assert_array_equal(found[0], private_of(ANN, until))
        np.testing.assert_array_equal(found[1], INITIAL[1])
        np.testing.assert_array_equal(found[2], private_of(CID, until))


def test_only_those_asked_for_in_the_order_asked(store):
    log = log_of(Log("float32"), store)
    for round_ in range(1, 5):
        write(log, round_, [ANN, BOB, CID])
    found = log.private(1, np.array([CID, ANN], np.uint64), INITIAL[:2])
    np.testing.assert_array_equal(found, [private_of(CID, 1), private_of(ANN, 1)])


def test_past_damaged_entries_the_ones_before_tell(store):
    log = log_of(store=store)
    damaged = {2: (ANN,), 3: (ANN, BOB), 4: (CID,)}
    for round_ in range(1, 8):
        write(log, round_, [ANN, BOB, CID], damaged.get(round_, ()))
    with pytest.warns(RunWarning, match="damaged"):
        found = log.private(4, KEYS, INITIAL)
    for place, round_ in enumerate([4, 4, 3]):
        check_near(found[place], private_of(int(KEYS[place]), round_))
    with pytest.warns(RunWarning, match="damaged"):
        found = log.private(3, KEYS, INITIAL)
    for place, round_ in enumerate([1, 2, 3]):
        check_near(found[place], private_of(int(KEYS[place]), round_))


def test_where_every_entry_is_damaged_the_beginning_is_left(store):
    log = log_of(store=store)
    for round_ in range(1, 5):
        write(log, round_, [ANN, BOB], damaged=(ANN,))
    with pytest.warns(RunWarning, match="damaged"):
        found = log.private(2, KEYS, INITIAL)
    np.testing.assert_array_equal(found[0], INITIAL[0])
    check_near(found[1], private_of(BOB, 2))
    np.testing.assert_array_equal(log.private(4, KEYS, INITIAL)[0], private_of(ANN, 4))


def test_a_settled_round_is_exact_and_nothing_before_it_is(store):
    log = log_of(store=store)
    for round_ in range(1, 4):
        write(log, round_, [ANN])
    exact = np.stack([private_of(user, 99) for user in (ANN, BOB, CID)])
    log.set_private(3, KEYS, exact)
    np.testing.assert_array_equal(log.private(3, KEYS, INITIAL), exact)
    before = log.private(2, KEYS, INITIAL)
    check_near(before[0], private_of(ANN, 2))
    np.testing.assert_array_equal(before[1:], INITIAL[1:])


def test_rolled_back_it_is_as_if_the_later_rounds_had_not_been(store):
    log = log_of(store=store)
    for round_ in range(1, 6):
        write(log, round_, [ANN, BOB])
    log.roll_back(4)
    np.testing.assert_array_equal(log.private(9, KEYS, INITIAL)[0], private_of(ANN, 4))
    log.roll_back(2)
    assert log.last_round() == 2
    check_near(log.private(9, KEYS, INITIAL)[0], private_of(ANN, 2))
    assert log.read(3, KEYS)[2] == dict.fromkeys(range(3), reasons.NO_ENTRY)


def test_each_missing_entry_has_its_reason(store):
    log = log_of(store=store)
    dee = 44
    write(log, 1, [ANN, BOB, dee], damaged=(BOB,), full=(dee,))
    entries, logged, missing = log.read(1, np.array([CID, dee, ANN, BOB], np.uint64))
    assert missing == {0: reasons.NO_ENTRY, 1: reasons.LOG_FULL, 3: reasons.ENTRY_DAMAGED}
    assert entries.keys.tolist() == logged.keys.tolist() == [ANN]
    np.testing.assert_allclose(logged.lengths, row_lengths(rows_of(ANN, 1)), rtol=0.5)


def test_a_round_of_which_nothing_is_left_has_no_entries_and_names_everyone(store):
    log = log_of(store=store)
    write(log, 1, [ANN, BOB], damaged=(ANN, BOB))
    for round_, expected in [
        (1, {0: reasons.ENTRY_DAMAGED, 1: reasons.ENTRY_DAMAGED, 2: reasons.NO_ENTRY}),
        (2, dict.fromkeys(range(3), reasons.NO_ENTRY)),
    ]:
        entries, logged, missing = log.read(round_, KEYS)
        assert len(entries) == logged.keys.size == 0
        assert missing == expected


def test_a_file_that_cannot_be_read_counts_as_missing_and_says_so(tmp_path):
    log = log_of(store=PackedStore(tmp_path, "here"))
    for round_ in (1, 2):
        write(log, round_, [ANN])
    (path,) = tmp_path.glob("rounds/*1.log")
    path.write_bytes(b"nothing like it")
    with pytest.warns(RunWarning, match=r"1\.log(.|\n)*counts as missing"):
        assert log.read(1, KEYS)[2] == dict.fromkeys(range(3), reasons.NO_ENTRY)
    assert log.read(2, KEYS)[1].keys.tolist() == [ANN]


class TestCopy:
    """A copy holds what it would if its settings had been those from the start."""

    @pytest.mark.parametrize(
        "other",
        [
            Log("float32"),
            Log("float32", "importance", 0.5),
            Log("float32", "random", 0.3),
            Log("float16"),
            Log("int8"),
            Log(),
            Log("lengths", "importance", 0.5),
        ],
        ids=lambda log: f"{log.encoding.name}-{log.selection}",
    )
    def test_from_a_whole_log_every_other_can_be_made(self, other):
        whole, made, expected = log_of(Log("float32")), log_of(other), log_of(other)
        for log in (whole, expected):
            for round_ in (1, 2, 3):
                write(log, round_, [ANN, BOB] if round_ == 2 else [ANN, BOB, CID])
        whole.copy_to(made)
        assert made.last_round() == 3
        for round_ in (1, 2, 3):
            found, wanted = made.store.read(round_, KEYS), expected.store.read(round_, KEYS)
            assert found.keys.tolist() == wanted.keys.tolist()
            assert list(found) == list(wanted)
        np.testing.assert_array_equal(made.private(3, KEYS, INITIAL), whole.private(3, KEYS, INITIAL))

    def test_a_log_of_lengths_is_copied_byte_by_byte(self):
        log, copy = log_of(), log_of()
        for round_ in (1, 2, 3):
            write(log, round_, [ANN, BOB, CID])
        log.copy_to(copy)
        for round_ in (1, 2, 3):
            assert list(copy.store.read(round_, KEYS)) == list(log.store.read(round_, KEYS))

    def test_entries_that_are_damaged_or_had_no_room_are_so_in_the_copy(self):
        log, copy = log_of(Log("float32")), log_of()
        write(log, 1, [ANN, BOB, CID], damaged=(BOB,))
        write(log, 2, [ANN, BOB], full=(ANN, BOB))
        log.copy_to(copy)
        assert copy.last_round() == 2
        assert copy.read(1, KEYS)[2] == {1: reasons.ENTRY_DAMAGED}
        assert copy.read(2, KEYS)[2] == {0: reasons.LOG_FULL, 1: reasons.LOG_FULL, 2: reasons.NO_ENTRY}
        np.testing.assert_array_equal(copy.private(2, KEYS, INITIAL), log.private(2, KEYS, INITIAL))

    def test_the_two_do_not_share_anything(self):
        log, copy = log_of(), log_of()
        write(log, 1, [ANN])
        log.copy_to(copy)
        write(copy, 2, [ANN])
        copy.roll_back(0)
        assert (log.last_round(), copy.last_round()) == (1, 0)
        np.testing.assert_array_equal(log.private(1, KEYS, INITIAL)[0], private_of(ANN, 1))


def test_a_branch_begins_as_the_log_up_to_a_round_without_some_users(store, tmp_path):
    log = log_of(store=store)
    for round_ in (1, 2, 3):
        write(log, round_, [ANN, BOB])
    branch = log.branch(tmp_path / "branch", 2, np.array([BOB], np.uint64))
    assert branch.last_round() == 2
    assert list(branch.store.read(1, KEYS)) == list(log.store.read(1, np.array([ANN], np.uint64)))
    np.testing.assert_array_equal(branch.private(9, KEYS, INITIAL)[0], private_of(ANN, 2))
    np.testing.assert_array_equal(branch.private(9, KEYS, INITIAL)[1], INITIAL[1])
    write(branch, 3, [CID])
    assert log.read(3, KEYS)[1].keys.tolist() == [ANN, BOB]
    branch.close()
    log.close()


def test_rolled_back_into_rounds_that_were_logged_together_the_newest_entry_tells(store):
    """A server may take one round of a user's step and refuse a later one."""
    log = log_of(store=store)
    write(log, 2, [ANN, BOB])
    parts = [(3, ANN), (4, ANN), (4, BOB)]
    private = np.stack([private_of(user, round_) for round_, user in parts])
    rounds = np.array([round_ for round_, _ in parts])
    logged = logged_of(
        [rows_of(user, round_) for round_, user in parts], log.config, keys=[user for _, user in parts],
        dense=np.zeros((3, LAYOUT.size), np.float32), private=private, round_=3,
    )  # fmt: skip
    log.append(rounds, log.codec.encode(rounds, logged), private)
    found = log.private(4, KEYS, INITIAL)
    assert np.array_equal(found[:2], private[1:])
    log.roll_back(3)
    found = log.private(3, KEYS, INITIAL)
    check_near(found[0], private_of(ANN, 3))
    assert np.array_equal(found[1], private_of(BOB, 2))
