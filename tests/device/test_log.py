"""The contract of every device log, in memory and in SQLite, and what the file holds once a round is dropped."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedforget.device.log import DeviceLog, MemoryLog, SqliteLog
from fedforget.errors import RunError

KINDS = ["memory", "sqlite"]
USER_IDS = st.integers(0, 2**63 - 1) | st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


@contextmanager
def opened(kind: str) -> Iterator[DeviceLog]:
    if kind == "memory":
        yield MemoryLog()
        return
    with tempfile.TemporaryDirectory() as folder:
        log = SqliteLog(Path(folder) / "devices" / "log.sqlite")
        yield log
        log.close()


@pytest.fixture(params=KINDS)
def log(request) -> Iterator[DeviceLog]:
    with opened(request.param) as log:
        yield log


def rows(*values: float) -> np.ndarray:
    """One private vector for each value, filled with it."""
    return np.repeat(np.array(values, np.float32)[:, None], 3, axis=1)


def held(log: DeviceLog) -> dict[int | str, float]:
    return {user: float(row[0]) for user, row in log.latest().items()}


def test_an_empty_log_knows_nobody(log):
    assert log.latest() == {}
    assert log.last_round() == 0
    log.roll_back(0)
    assert log.latest() == {}


def test_the_latest_entry_of_each_user_counts_whatever_the_order_of_writing(log):
    log.append(1, [10, 20], rows(1, 2))
    log.append(4, [10], rows(7))
    log.append(3, [10, 30], rows(5, 6))
    assert held(log) == {10: 7, 20: 2, 30: 6}
    assert log.last_round() == 4


def test_an_entry_of_the_same_round_is_replaced_and_the_others_stay(log):
    log.append(2, [10, 20], rows(1, 2))
    log.append(2, [20], rows(8))
    assert held(log) == {10: 1, 20: 8}
    log.roll_back(1)
    assert held(log) == {}


def test_rolling_back_uncovers_what_was_before(log):
    for round_ in (1, 2, 3, 5):
        log.append(round_, [10, 10 + round_], rows(round_, round_))
    log.roll_back(3)
    assert log.last_round() == 3
    assert held(log) == {10: 3, 11: 1, 12: 2, 13: 3}
    log.roll_back(2)
    assert held(log) == {10: 2, 11: 1, 12: 2}
    log.append(3, [10], rows(9))
    assert held(log) == {10: 9, 11: 1, 12: 2}
    log.roll_back(0)
    assert held(log) == {}
    assert log.last_round() == 0


def test_a_number_and_its_digits_are_different_users(log):
    log.append(1, [1, "1", "Zoë"], rows(1, 2, 3))
    assert held(log) == {1: 1, "1": 2, "Zoë": 3}
    assert {type(user) for user in log.latest()} == {int, str}


def test_a_round_without_clients_leaves_no_trace(log):
    log.append(1, [10], rows(1))
    log.append(2, [], np.empty((0, 3), np.float32))
    assert log.last_round() == 1
    assert held(log) == {10: 1}


def test_neither_what_was_given_nor_what_is_returned_is_shared(log):
    given_rows = rows(1, 2)
    log.append(1, [10, 20], given_rows)
    given_rows[:] = 99
    returned = log.latest()
    assert held(log) == {10: 1, 20: 2}
    returned[10][:] = 77
    assert held(log) == {10: 1, 20: 2}
    assert returned[20][0] == 2


def test_a_row_too_many_is_refused(log):
    with pytest.raises(ValueError, match="zip"):
        log.append(1, [10], rows(1, 2))


@pytest.mark.parametrize("kind", KINDS)
@given(users=st.lists(USER_IDS, unique=True, max_size=4), data=st.data())
def test_every_bit_of_every_number_comes_back(kind, users, data):
    dim = data.draw(st.integers(1, 5))
    private = data.draw(arrays.arrays(np.uint32, (len(users), dim))).view(np.float32)
    with opened(kind) as log:
        log.append(1, users, private)
        found = log.latest()
    assert {user: row.tobytes() for user, row in found.items()} == dict(
        zip(users, (row.tobytes() for row in private), strict=True)
    )
    assert all(row.dtype == np.float32 and row.shape == (dim,) for row in found.values())


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.lists(st.integers(0, 4), unique=True, min_size=1)) | st.integers(0, 6),
        max_size=12,
    )
)
def test_both_logs_always_agree(steps):
    with opened("memory") as memory, opened("sqlite") as sqlite:
        for number, step in enumerate(steps):
            for log in (memory, sqlite):
                if isinstance(step, int):
                    log.roll_back(step)
                else:
                    round_, users = step
                    log.append(round_, users, rows(*(number + user / 8 for user in users)))
            assert held(memory) == held(sqlite)
            assert memory.last_round() == sqlite.last_round()


def test_a_file_opened_again_holds_the_same(tmp_path):
    path = tmp_path / "log.sqlite"
    log = SqliteLog(path)
    log.append(1, [1, "1"], rows(1, 2))
    log.append(2, [1], rows(3))
    log.close()
    again = SqliteLog(path)
    assert held(again) == {1: 3, "1": 2}
    assert again.last_round() == 2
    again.close()


def test_what_was_appended_is_there_for_another_reader_without_closing(tmp_path):
    log, reader = (SqliteLog(tmp_path / "log.sqlite") for _ in range(2))
    log.append(1, [1], rows(4))
    assert held(reader) == {1: 4}
    log.close()
    reader.close()


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path):
    path = tmp_path / "log.sqlite"
    path.write_bytes(b"these are not the pages you are looking for" * 100)
    with pytest.raises(RunError, match=r"log\.sqlite"):
        SqliteLog(path)


def pieces(row: np.ndarray) -> list[bytes]:
    """Some runs of four numbers from a row, its ends among them: a long row is spread over pages of the file."""
    raw = row.astype("<f4").tobytes()
    starts = range(0, len(raw) - 15, 16)
    return [raw[start : start + 16] for start in {*starts[:: max(1, len(starts) // 8)], starts[-1]}]


@pytest.mark.parametrize("finish", ["close", "checkpoint"])
@pytest.mark.parametrize("dim", [8, 64, 1500])
def test_no_number_of_a_dropped_or_replaced_entry_stays_on_disk(tmp_path, dim, finish):
    path = tmp_path / "log.sqlite"
    log = SqliteLog(path)
    rng = np.random.default_rng(0)
    kept, gone = {}, []
    for round_ in range(1, 9):
        users = rng.choice(30, 15, replace=False).tolist()
        private = rng.normal(size=(15, dim)).astype(np.float32)
        log.append(round_, users, private)
        kept |= {(user, round_): row for user, row in zip(users, private, strict=True)}
    user, round_ = next(entry for entry in kept if entry[1] == 2)
    gone.append(kept[user, round_])
    kept[user, round_] = rng.normal(size=dim).astype(np.float32)
    log.append(round_, [user], kept[user, round_][None])
    log.roll_back(4)
    gone += [kept.pop(entry) for entry in list(kept) if entry[1] > 4]

    if finish == "close":
        log.close()
    else:
        other = sqlite3.connect(path)
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
    on_disk = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    log.close()
    assert not any(piece in on_disk for row in gone for piece in pieces(row))
    there = [piece in on_disk for row in kept.values() for piece in pieces(row)]
    assert np.mean(there) > 0.95
