"""The contract of every log store, and what the files of two of them hold after damage, a crash, or a drop."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.device.log import packed, private, user_files
from fedforget.device.log.contract import LogStore, PrivateState
from fedforget.device.log.entries import Entries, Keys
from fedforget.device.log.memory import MemoryStore
from fedforget.device.log.packed import PackedStore
from fedforget.device.log.sqlite import SqliteStore
from fedforget.device.log.user_files import UserFiles
from fedforget.errors import RunError, RunWarning
from fedforget.runtime.files import cannot_write

RUN = "0123456789abcdef" * 2
DISK = ["packed", "sqlite"]
KEYS = [0, 1, 7, 2**63, 2**64 - 1]
LAST = 2**31


def opened(kind: str, folder: Path, run: str = RUN) -> LogStore:
    return MemoryStore() if kind == "memory" else {"packed": PackedStore, "sqlite": SqliteStore}[kind](folder, run)


@pytest.fixture(params=["memory", *DISK])
def store(request, tmp_path) -> Iterator[LogStore]:
    store = opened(request.param, tmp_path / "log")
    yield store
    store.close()


@pytest.fixture(params=DISK)
def kind(request) -> str:
    return request.param


def keys_of(*keys: int) -> Keys:
    return np.array(keys, np.uint64)


def rows(*values: float) -> np.ndarray:
    """One private vector for each value, filled with it."""
    return np.repeat(np.array(values, np.float32)[:, None], 3, axis=1)


def add(store: LogStore, round_: int, entries: Mapping[int, bytes], *values: float) -> None:
    """Append entries, with private vectors of these values (or of the round)."""
    private = rows(*(values or [round_] * len(entries)))
    store.append(round_, Entries.of(keys_of(*entries), list(entries.values())), private.reshape(-1, 3))


def read(store: LogStore, round_: int, *keys: int) -> list[tuple[int, bytes]]:
    entries = store.read(round_, keys_of(*(keys or KEYS)))
    return list(zip(entries.keys.tolist(), entries, strict=True))


def newest(store: LogStore, until: int, *keys: int) -> list[tuple[int, int, bytes]]:
    entries, rounds = store.newest(until, keys_of(*(keys or KEYS)))
    return list(zip(entries.keys.tolist(), rounds.tolist(), entries, strict=True))


def bits(store: LogStore, until: int = LAST) -> dict[int, tuple[int, bytes]]:
    found = store.private_state(until)
    assert found.rows.dtype == np.float32
    lines = zip(found.keys.tolist(), found.rounds.tolist(), found.rows, strict=True)
    return {key: (round_, row.tobytes()) for key, round_, row in lines}


def exact(store: LogStore, until: int = LAST) -> dict[int, tuple[int, float]]:
    return {
        key: (round_, float(np.frombuffer(row, np.float32)[0])) for key, (round_, row) in bits(store, until).items()
    }


def everything(store: LogStore, rounds: int = 8) -> list[object]:
    """All that a store can be asked."""
    heads = [(round_, dict(zip(keys.tolist(), sizes.tolist(), strict=True))) for round_, keys, sizes in store.heads()]
    each = [(read(store, r), newest(store, r), bits(store, r)) for r in range(rounds + 1)]
    return [heads, each, store.last_round()]


def on_disk(folder: Path) -> bytes:
    """Every byte of a folder, and the names of its files."""
    return b"".join(path.name.encode() + path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


# The contract


def test_an_empty_store_knows_nobody(store):
    store.roll_back(0)
    store.drop(1, keys_of(7))
    assert everything(store) == [[], [([], [], {})] * 9, 0]


def test_rounds_that_belong_together_are_added_at_once_and_what_was_before_them_stays_known(store):
    add(store, 2, {0: b"a", 1: b"b"}, 20, 21)
    add(store, 3, {0: b"c"}, 30)
    rounds = np.array([4, 4, 6, 7])
    store.append(rounds, Entries.of(keys_of(0, 1, 0, 7), [b"d", b"e", b"f", b"g"]), rows(40, 41, 60, 77))
    assert [read(store, round_) for round_ in (4, 5, 6, 7)] == [[(0, b"d"), (1, b"e")], [], [(0, b"f")], [(7, b"g")]]
    assert exact(store) == {0: (6, 60), 1: (4, 41), 7: (7, 77)}
    assert exact(store, 3) == {0: (3, 30), 1: (2, 21)}
    assert newest(store, 5) == [(0, 4, b"d"), (1, 4, b"e")]
    assert store.last_round() == 7
    store.roll_back(3)
    assert exact(store) == {0: (3, 30), 1: (2, 21)}
    assert store.last_round() == 3
    with pytest.raises(ValueError, match="two entries for one round"):
        store.append(np.array([4, 5, 4]), Entries.of(keys_of(0, 0, 0), [b"", b"", b""]), rows(1, 2, 3))


def test_entries_come_in_the_order_asked_and_only_of_those_who_have_one(store):
    add(store, 1, {7: b"seven", 0: b"", 1: b"one"})
    assert read(store, 1, 7, 0, 1) == [(7, b"seven"), (0, b""), (1, b"one")]
    assert read(store, 1, 1, 2**64 - 1, 7) == [(1, b"one"), (7, b"seven")]
    assert read(store, 2) == []
    assert [(r, k.tolist(), s.tolist()) for r, k, s in store.heads()] in (
        [(1, [7, 0, 1], [5, 0, 3])],
        [(1, [0, 1, 7], [0, 3, 5])],
    )


def test_an_entry_of_the_same_round_is_replaced_and_the_others_stay(store):
    add(store, 1, {0: b"a", 1: b"b"}, 1, 2)
    add(store, 2, {0: b"c", 1: b"d"}, 3, 4)
    add(store, 2, {1: b"longer", 7: b"new"}, 5, 6)
    assert read(store, 2, 0, 1, 7) == [(0, b"c"), (1, b"longer"), (7, b"new")]
    assert exact(store) == {0: (2, 3), 1: (2, 5), 7: (2, 6)}
    assert exact(store, 1) == {0: (1, 1), 1: (1, 2)}


def test_private_parameters_are_known_after_the_newest_round_and_before_it(store):
    for round_ in (2, 4, 6):
        add(store, round_, {0: b"x"}, round_ / 2)
    assert exact(store, 6) == exact(store, 99) == {0: (6, 3)}
    assert exact(store, 5) == exact(store, 4) == {0: (4, 2)}
    assert exact(store, 3) == exact(store, 1) == {}


def test_the_two_newest_rounds_count_whatever_the_order_of_writing(store):
    for round_ in (5, 3, 4, 2):
        add(store, round_, {0: b"x"})
    assert exact(store) == {0: (5, 5)}
    assert exact(store, 4) == {0: (4, 4)}
    assert exact(store, 3) == {}
    assert newest(store, 3) == [(0, 3, b"x")]


def test_the_newest_entry_of_each_is_found_in_its_own_round(store):
    add(store, 1, {0: b"a1", 1: b"b1", 7: b"c1"})
    add(store, 2, {1: b"b2"})
    add(store, 4, {0: b"a4"})
    assert newest(store, 4, 7, 1, 0) == [(7, 1, b"c1"), (1, 2, b"b2"), (0, 4, b"a4")]
    assert newest(store, 3, 0, 1) == [(0, 1, b"a1"), (1, 2, b"b2")]
    assert newest(store, 0, 0, 1) == []


def test_exact_parameters_can_be_set_and_hide_what_was_before(store):
    add(store, 1, {0: b"a", 1: b"b"}, 1, 2)
    add(store, 3, {0: b"c"}, 3)
    store.set_private_state(PrivateState(keys_of(7, 0), np.array([0, 2]), rows(8, 9)))
    assert exact(store) == {0: (2, 9), 1: (1, 2), 7: (0, 8)}
    assert exact(store, 1) == {1: (1, 2), 7: (0, 8)}
    assert read(store, 3) == [(0, b"c")]


def test_rolling_back_uncovers_what_was_before(store):
    for round_ in (1, 2, 3, 5):
        add(store, round_, {0: b"%d" % round_, 7: b"x"} if round_ == 5 else {0: b"%d" % round_})
    store.roll_back(3)
    assert store.last_round() == 3
    assert newest(store, 9) == [(0, 3, b"3")]
    assert exact(store) == {0: (3, 3)}
    store.roll_back(2)
    assert exact(store) == {}
    add(store, 3, {0: b"again"}, 9)
    assert exact(store) == {0: (3, 9)}
    store.roll_back(0)
    assert everything(store) == [[], [([], [], {})] * 9, 0]


def test_dropping_takes_entries_and_leaves_private_parameters(store):
    add(store, 1, {0: b"a", 1: b"b"})
    add(store, 2, {0: b"c", 1: b"d"})
    store.drop(2, keys_of(1, 7))
    assert read(store, 2) == [(0, b"c")]
    assert newest(store, 2) == [(0, 2, b"c"), (1, 1, b"b")]
    assert exact(store) == {0: (2, 2), 1: (2, 2)}
    store.drop(2, keys_of(0))
    assert store.last_round() == 1


def test_a_round_without_clients_leaves_no_trace(store):
    add(store, 1, {0: b"a"})
    add(store, 2, {})
    store.set_private_state(PrivateState(keys_of(), np.empty(0, np.int64), rows()))
    assert store.last_round() == 1
    assert exact(store) == {0: (1, 1)}


def test_neither_what_was_given_nor_what_is_returned_is_shared(store):
    keys, private, body = keys_of(0, 1), rows(1, 2), np.frombuffer(b"firstsecond", np.uint8).copy()
    ptr = np.array([0, 5, 11])
    store.append(1, Entries(keys, ptr, body), private)
    for array in (keys, private, body, ptr):
        array[:] = 1
    before = everything(store)
    assert read(store, 1) == [(0, b"first"), (1, b"second")]
    whole, part, found = store.read(1, keys_of(0, 1)), store.newest(1, keys_of(1))[0], store.private_state(1)
    for array in (whole.keys, whole.ptr, whole.data, part.data, found.keys, found.rounds, found.rows):
        if array.flags.writeable:
            array[:] = 1
    for _, head_keys, sizes in store.heads():
        head_keys[:], sizes[:] = 1, 1
    assert everything(store) == before
    given_exact = PrivateState(keys_of(7), np.array([1]), rows(5))
    store.set_private_state(given_exact)
    given_exact.rows[:] = 0
    assert exact(store)[7] == (1, 5)


def test_entries_may_be_a_part_of_longer_data(store):
    store.append(1, Entries(keys_of(0, 1), np.array([2, 3, 5]), np.frombuffer(b"..abb..", np.uint8)), rows(1, 2))
    assert read(store, 1) == [(0, b"a"), (1, b"bb")]


def test_rows_too_many_and_users_twice_are_refused(store):
    with pytest.raises(ValueError, match="1 users need as many"):
        add(store, 1, {0: b"a"}, 1, 2)
    with pytest.raises(ValueError, match="two entries"):
        store.append(1, Entries.of(keys_of(7, 0, 7), [b"a", b"b", b"c"]), rows(1, 2, 3))
    assert store.last_round() == 0


def test_a_branch_begins_as_the_store_was_and_goes_its_own_way(store, tmp_path):
    for round_ in (1, 2, 3, 4):
        add(store, round_, {round_ % 2: b"%d" % round_, 7: b"leaver"}, round_, -round_)
    add(store, 2, {2**63: b"only 2"})
    before = everything(store)
    branch = store.branch(tmp_path / "branch", 3, keys_of(7, 12345))
    assert type(branch) is type(store)
    assert everything(store) == before
    assert [read(branch, round_) for round_ in (1, 2, 3, 4)] == [
        [(1, b"1")],
        [(0, b"2"), (2**63, b"only 2")],
        [(1, b"3")],
        [],
    ]
    assert exact(branch) == {0: (2, 2), 1: (3, 3), 2**63: (2, 2)}
    assert exact(branch, 2) == {0: (2, 2), 2**63: (2, 2)}
    add(branch, 2, {0: b"other"}, 50)
    branch.roll_back(2)
    branch.drop(1, keys_of(1))
    branch.close()
    assert everything(store) == before


BITS = st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=3)
USERS = st.dictionaries(st.sampled_from(KEYS), st.tuples(st.binary(max_size=6), BITS), max_size=4)
ROUNDS = st.integers(1, 7)
STEPS = st.one_of(
    st.tuples(st.just("append"), ROUNDS, USERS),
    st.tuples(st.just("append several"), ROUNDS, USERS),
    st.tuples(st.just("set_private_state"), ROUNDS, USERS),
    st.tuples(st.just("drop"), ROUNDS, st.lists(st.sampled_from(KEYS), unique=True)),
    st.tuples(st.just("roll_back"), st.integers(0, 7), st.none()),
    st.tuples(st.just("reopen"), st.none(), st.none()),
    st.tuples(st.just("branch"), st.integers(0, 7), st.lists(st.sampled_from(KEYS), unique=True, max_size=2)),
)


def follow(store: LogStore, folder: Path, action: str, round_: int, what) -> LogStore:
    """Take one step, and return the store to go on with."""
    if action in ("append", "set_private_state"):
        private = np.array([bits for _, bits in what.values()], np.uint32).reshape(-1, 3).view(np.float32)
        if action == "append":
            store.append(round_, Entries.of(keys_of(*what), [body for body, _ in what.values()]), private)
        else:
            store.set_private_state(PrivateState(keys_of(*what), np.full(len(what), round_), private))
    elif action == "append several":  # each user in two rounds that belong together
        private = np.array([bits for _, bits in what.values()], np.uint32).reshape(-1, 3).view(np.float32)
        bodies = [body for body, _ in what.values()]
        together = Entries.of(keys_of(*what, *what), [*bodies, *(body + b"!" for body in bodies)])
        store.append(np.repeat([round_, round_ + 2], len(what)), together, np.concatenate([private, private + 1]))
    elif action == "drop":
        store.drop(round_, keys_of(*what))
    elif action == "roll_back":
        store.roll_back(round_)
    elif action == "branch":
        before, store = store, store.branch(folder, round_, keys_of(*what))
        before.close()
    elif not isinstance(store, MemoryStore):
        store.close()
        store = type(store)(store.folder, RUN)
    return store


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=9))
def test_all_stores_always_agree_bit_for_bit(steps):
    with tempfile.TemporaryDirectory() as folder:
        stores = [opened(kind, Path(folder) / kind) for kind in ("memory", *DISK)]
        for number, step in enumerate(steps):
            places = [Path(folder) / f"{number}-{each}" for each in range(3)]
            stores = [follow(store, place, *step) for store, place in zip(stores, places, strict=True)]
        told = [everything(store) for store in stores]
        for store in stores:
            store.close()
    assert told[0] == told[1] == told[2]


def test_a_kill_between_two_files_about_the_same_rounds_leaves_nothing_double(tmp_path):
    store = opened("packed", tmp_path)
    keys = keys_of(0, 1, 0)
    store.append(np.array([2, 3, 5]), Entries.of(keys, [b"a", b"b", b"c"]), rows(1, 2, 3))
    shutil.copy(tmp_path / "rounds" / "000002-000005.log", tmp_path / "kept")
    before = everything(store)
    store.append(4, Entries.of(keys_of(7), [b"d"]), rows(4))
    add(store, 9, {7: b"late"})
    after = everything(store, 9)
    (tmp_path / "kept").rename(tmp_path / "rounds" / "000003-000005.log")
    assert everything(opened("packed", tmp_path), 9) == after
    store.roll_back(3)
    assert store.last_round() == 3
    assert before != after


def test_a_step_that_loses_its_outer_rounds_keeps_its_file_and_knows_its_last_round(tmp_path):
    store = opened("packed", tmp_path)
    store.append(np.array([2, 3, 5]), Entries.of(keys_of(0, 1, 0), [b"a", b"b", b"c"]), rows(1, 2, 3))
    store.drop(2, keys_of(0))
    store.drop(5, keys_of(0))
    assert [path.name for path in (tmp_path / "rounds").iterdir()] == ["000002-000005.log"]
    assert store.last_round() == 3
    assert [read(store, round_) for round_ in (2, 3, 5)] == [[], [(1, b"b")], []]
    store.drop(3, keys_of(1))
    assert list((tmp_path / "rounds").iterdir()) == []


# Files


def test_another_process_sees_what_was_written_without_closing(kind, tmp_path):
    writer, reader = (opened(kind, tmp_path) for _ in range(2))
    assert everything(reader)[-1] == 0
    for round_, users in enumerate([{7: b"a"}, {0: b"b", 7: b"c"}, {2**63: b"d", 1: b"e"}], start=1):
        add(writer, round_, users)
        assert everything(reader) == everything(writer)
    writer.roll_back(1)
    assert everything(reader) == everything(writer)
    add(reader, 2, {1: b"taken over", 0: b"f"})
    assert everything(reader) == everything(writer)
    writer.close()
    reader.close()


def test_opening_and_reading_write_nothing(kind, tmp_path):
    store = opened(kind, tmp_path / "log")
    everything(store)
    store.close()
    assert not (tmp_path / "log").exists()


def busy(store: LogStore) -> dict[tuple[int, int], tuple[bytes, np.ndarray]]:
    """A store with a history of 6 rounds of 12 of 20 users; what was written, by round and key."""
    rng, written = np.random.default_rng(0), {}
    users = rng.integers(2**56, 2**64, 20, dtype=np.uint64)
    for round_ in range(1, 7):
        keys = rng.choice(users, 12, replace=False)
        bodies, private = [rng.bytes(150) for _ in keys], rng.normal(size=(12, 64)).astype(np.float32)
        store.append(round_, Entries.of(keys, bodies), private)
        written |= {(round_, key): each for key, *each in zip(keys.tolist(), bodies, private, strict=True)}
    return written


def pieces(body: bytes, row: np.ndarray) -> list[bytes]:
    """Runs of 16 bytes by which an entry and a private vector would be recognised."""
    return [body[:16], body[64:80], body[-16:], row.tobytes()[:16], row.tobytes()[128:144], row.tobytes()[-16:]]


def test_a_branch_has_no_trace_of_those_who_left(kind, tmp_path):
    store = opened(kind, tmp_path / "log")
    written = busy(store)
    forgotten = sorted({key for _, key in written})[:3]
    branch = store.branch(tmp_path / "branch", 5, keys_of(*forgotten))
    add_again = Entries.of(keys_of(1), [b"x"])
    branch.append(6, add_again, np.ones((1, 64), np.float32))
    for state in ("open", "closed"):
        held = on_disk(tmp_path / "branch")
        for (round_, key), each in written.items():
            if key in forgotten or round_ == 6:
                assert not any(piece in held for piece in pieces(*each)), state
        for key in forgotten:
            assert int(key).to_bytes(8, "little") not in held
            assert b"%016x" % key not in held
        branch.close()
    assert pieces(*written[5, next(key for r, key in written if r == 5 and key not in forgotten)])[0] in held
    store.close()


def test_what_is_dropped_or_rolled_back_is_not_on_disk(kind, tmp_path):
    store = opened(kind, tmp_path)
    written = busy(store)
    dropped = [key for round_, key in written if round_ == 2][:5]
    store.drop(2, keys_of(*dropped))
    store.roll_back(4)
    exact = [key for round_, key in written if round_ == 4][:5]
    store.set_private_state(PrivateState(keys_of(*exact), np.full(5, 4), np.zeros((5, 64), np.float32)))
    held = on_disk(tmp_path)
    for (round_, key), (body, row) in written.items():
        gone = round_ > 4 or (round_ == 2 and key in dropped)
        assert [piece in held for piece in pieces(body, row)[:3]] == [not gone] * 3
        if round_ > 4 or key in exact:
            assert not any(piece in held for piece in pieces(body, row)[3:])
    store.close()


def test_a_branch_needs_a_folder_of_its_own(kind, tmp_path):
    store = opened(kind, tmp_path / "log")
    add(store, 1, {0: b"a"})
    with pytest.raises(ValueError, match="folder"):
        store.branch(None, 1, keys_of())
    with pytest.raises(RunError, match=r"log is not empty\.\nA log branches into a new folder"):
        store.branch(tmp_path / "log", 1, keys_of())
    store.close()


def test_a_log_of_another_run_is_refused(kind, tmp_path):
    store = opened(kind, tmp_path)
    add(store, 1, {7: b"a"})
    store.close()
    other = opened(kind, tmp_path, "another")
    for ask in (read, newest):
        with pytest.raises(RunError, match=r"(000001\.log|0007\.sqlite) is a log of another run"):
            ask(other, 1, 7)
    with pytest.raises(RunError, match=r"(private\.bin|0007\.sqlite) is a log of another run"):
        exact(other)
    other.close()


# Packed files


@pytest.fixture
def pack(tmp_path) -> PackedStore:
    """Three rounds; users 0 and 7 take part in each, user 1 in the second."""
    store = PackedStore(tmp_path, RUN)
    for round_ in (1, 2, 3):
        add(store, round_, {0: b"zero", 7: b"seven!"} | ({1: b"one"} if round_ == 2 else {}))
    return store


@pytest.mark.parametrize("damage", ["empty", "cut in the head", "garbage", "a flipped key", "renamed"])
def test_a_round_whose_head_is_damaged_is_named(pack, damage):
    path = pack.folder / "rounds" / "000002.log"
    raw = path.read_bytes()
    changed = {
        "empty": b"",
        "cut in the head": raw[:90],
        "garbage": bytes(range(256)) * 2,
        "a flipped key": raw[:60] + b"\xff" + raw[61:],
        "renamed": (pack.folder / "rounds" / "000001.log").read_bytes(),
    }
    path.write_bytes(changed[damage])
    for ask in (lambda: read(pack, 2), lambda: newest(pack, 3), lambda: list(pack.heads())):
        with pytest.raises(RunError, match=r"Cannot read .*000002\.log: .*\n.*delete it"):
            ask()
    assert read(pack, 3) == [(0, b"zero"), (7, b"seven!")]
    pack.roll_back(1)
    assert newest(pack, 3) == [(0, 1, b"zero"), (7, 1, b"seven!")]


@pytest.mark.parametrize(("lost", "left"), [(0, [b"zero", b"seven!"]), (1, [b"zero", b"seven"]), (8, [b"ze", b""])])
def test_a_round_cut_short_in_its_entries_yields_what_is_left(pack, lost, left):
    path = pack.folder / "rounds" / "000003.log"
    path.write_bytes(path.read_bytes()[: path.stat().st_size - lost])
    assert [body for _, body in read(pack, 3, 0, 7)] == left
    assert [body for _, body in read(pack, 3, 7, 0)] == left[::-1]
    assert [sizes.tolist() for round_, _, sizes in pack.heads() if round_ == 3] == [[4, 6]]


def test_a_torn_slot_is_ignored_in_favour_of_the_older_one(pack):
    path = pack.folder / "private.bin"
    whole = path.read_bytes()
    width = 8 + 2 * (12 + 12)
    found = []
    for place in range(56, 56 + width):  # the first record is user 0's
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found.append(exact(pack))
    assert {each.get(7, ())[:1] for each in found} == {(3,)}
    assert [each.get(0) for each in found[:8]] == [None] * 8
    older_first = [found[8].get(0), found[8 + 24].get(0)]
    assert sorted(older_first) == [(2, 2), (3, 3)]
    assert [each.get(0) for each in found[8:]] == [older_first[0]] * 24 + [older_first[1]] * 24
    path.write_bytes(whole[:70] + b"\xff" + whole[71:])
    pack.roll_back(3)
    assert path.read_bytes()[56 + 8 : 56 + 32] == bytes(24)
    path.write_bytes(whole[:-1])
    assert set(exact(pack)) == {0, 7}


@pytest.mark.parametrize("damage", [b"", b"garbage" * 20])
def test_private_parameters_with_a_damaged_head_are_named(pack, damage):
    (pack.folder / "private.bin").write_bytes(damage)
    with pytest.raises(RunError, match=r"Cannot read .*private\.bin: its head .*\n.*delete it"):
        exact(PackedStore(pack.folder, RUN))
    (pack.folder / "private.bin").unlink()
    assert exact(pack) == {}
    add(pack, 4, {7: b"x"})
    assert exact(pack) == {7: (4, 4)}


def test_a_round_that_cannot_be_written_changes_nothing(pack, monkeypatch):
    before, files = everything(pack), on_disk(pack.folder)

    def full(path: Path, data: bytes) -> None:
        raise cannot_write(path, OSError(28, "No space left on device"))

    monkeypatch.setattr(packed, "write_file", full)
    monkeypatch.setattr(private, "write_file", full)
    for round_, users in ((3, {7: b"again"}), (4, {0: b"next", 2**63: b"new"}), (4, {2**64 - 1: b"new"})):
        with pytest.raises(RunError, match=r"Cannot write .*00000[34]\.log: No space left"):
            add(pack, round_, users, *(99 for _ in users))
        assert everything(pack) == everything(PackedStore(pack.folder, RUN)) == before
    assert on_disk(pack.folder) == files
    with pytest.raises(RunError, match=r"private\.bin"):
        add(PackedStore(pack.folder / "new", RUN), 1, {0: b"a"})
    monkeypatch.undo()
    add(pack, 4, {0: b"next", 2**63: b"new"})
    assert exact(pack) == {0: (4, 4), 1: (2, 2), 7: (3, 3), 2**63: (4, 4)}


def test_a_kill_before_the_round_is_written_leaves_the_round_before(pack, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(path: Path, data: bytes) -> None:
        path.with_name(f".{path.name}.part").write_bytes(data[:50])
        raise Killed

    monkeypatch.setattr(packed, "write_file", killed)
    monkeypatch.setattr(private, "write_file", killed)
    with pytest.raises(Killed):
        add(pack, 4, {0: b"next", 2**63: b"new"})
    monkeypatch.undo()
    again = PackedStore(pack.folder, RUN)
    assert again.last_round() == 3
    assert exact(again, 3) == {0: (3, 3), 1: (2, 2), 7: (3, 3)}
    again.roll_back(3)
    assert exact(again) == {0: (3, 3), 1: (2, 2), 7: (3, 3)}
    assert not list(pack.folder.rglob("*.part"))


def test_a_branch_shares_the_files_of_rounds_without_leavers(pack, tmp_path):
    branch = pack.branch(tmp_path / "branch", 3, keys_of(1))
    same = [path.samefile(branch.folder / "rounds" / path.name) for path in sorted((tmp_path / "rounds").iterdir())]
    assert same == [True, False, True]
    add(branch, 3, {0: b"other"})
    assert read(pack, 3, 0) == [(0, b"zero")]


def test_private_vectors_of_another_length_are_refused(pack):
    with pytest.raises(ValueError, match=r"private\.bin holds private vectors of 3 numbers, not 5"):
        pack.append(4, Entries.of(keys_of(0), [b"x"]), np.ones((1, 5), np.float32))
    with pytest.raises(ValueError, match="at most 32 characters"):
        PackedStore(pack.folder, RUN + "0")


# One SQLite file a user


@pytest.fixture
def device(tmp_path) -> Iterator[SqliteStore]:
    """Two users of two rounds."""
    store = SqliteStore(tmp_path, RUN)
    for round_ in (1, 2):
        add(store, round_, {0: b"zero" * 500, 7: b"seven" * 500})
    store.close()
    yield store
    store.close()


@pytest.mark.parametrize("damage", ["empty", "garbage", "cut short", "garbage within"])
def test_a_damaged_file_is_named_and_the_other_users_go_on(device, tmp_path, damage):
    path = tmp_path / "0000000000000007.sqlite"
    raw = path.read_bytes()
    changed = {
        "empty": b"",
        "garbage": b"these are not the pages you are looking for" * 100,
        "cut short": raw[:5000],
        "garbage within": raw[:4096] + b"\xa5" * (len(raw) - 4096),
    }
    path.write_bytes(changed[damage])
    named = pytest.warns(RunWarning, match=r"0000000000000007\.sqlite is damaged: .* left out\. Restore it from a copy")
    for ask, answer in ((read, [(0, b"zero" * 500)]), (newest, [(0, 2, b"zero" * 500)]), (exact, {0: (2, 2)})):
        with named:
            assert ask(device, 2) == answer
    with named:
        assert [keys.tolist() for _, keys, _ in device.heads()] == [[0], [0]]
    with named:
        branch = device.branch(tmp_path / "branch", 1, keys_of())
    assert (read(branch, 1), exact(branch)) == ([(0, b"zero" * 500)], {0: (1, 1)})
    branch.close()
    with named:
        device.roll_back(1)
    with pytest.raises(RunError, match=r"0000000000000007\.sqlite is damaged"):
        add(device, 2, {0: b"x", 7: b"y"})
    assert read(device, 2, 0) == []
    device.close()
    path.unlink()
    add(device, 2, {0: b"x", 7: b"y"})
    assert read(device, 2) == [(0, b"x"), (7, b"y")]


def test_a_kill_while_a_file_is_made_leaves_nothing_in_the_way(tmp_path, monkeypatch):
    def killed(part: Path, path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        add(SqliteStore(tmp_path, RUN), 1, {7: b"a"})
    monkeypatch.undo()
    store = SqliteStore(tmp_path, RUN)
    assert everything(store)[-1] == 0
    add(store, 1, {7: b"a"})
    assert read(store, 1) == [(7, b"a")]
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["0000000000000007.sqlite"]


def test_a_private_vector_that_changed_on_disk_is_not_used(device, tmp_path):
    path = tmp_path / "0000000000000007.sqlite"
    row = rows(2).tobytes()
    assert path.read_bytes().count(row) == 1
    path.write_bytes(path.read_bytes().replace(row, b"\1" + row[1:]))
    assert exact(device) == {0: (2, 2), 7: (1, 1)}


def test_when_one_device_cannot_write_none_has_the_round(device, monkeypatch):
    before, change = everything(device), UserFiles.change

    def full(self, key, statements, scrubbed=False):
        if key == 7:
            raise cannot_write(self.path(key), OSError(28, "No space left on device"))
        change(self, key, statements, scrubbed)

    monkeypatch.setattr(UserFiles, "change", full)
    for round_ in (2, 3):
        with pytest.raises(RunError, match="No space left"):
            add(device, round_, {0: b"a", 1: b"b", 7: b"c"}, 5, 6, 7)
        assert everything(device) == before


def test_only_so_many_files_are_open_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(user_files, "OPEN_FILES", 3)
    store = SqliteStore(tmp_path, RUN)
    add(store, 1, {key: b"%d" % key for key in range(10)})
    assert read(store, 1, *range(10)) == [(key, b"%d" % key) for key in range(10)]
    assert len(list(tmp_path.glob("*-wal"))) == 3
    store.close()
    assert len(list(tmp_path.iterdir())) == 10
