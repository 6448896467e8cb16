"""The codec: what comes back from an entry and how exactly, and that no damaged or foreign entry is believed."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.device.log.codec import Codec, Logged
from fedforget.device.log.entries import Entries
from fedforget.models import Layout
from fedforget.protocol.encoding import ENCODINGS
from fedforget.protocol.log import SELECTIONS, Log
from tests.device.made_logs import DIM, LAYOUT, PRIVATE, any_logged, codec_of, logged_of, tensors

KINDS = [Log(encoding, selection, 0.4) for encoding in ENCODINGS for selection in SELECTIONS]
WHOLE = [log for log in KINDS if log.whole_updates]
LENGTHS = [log for log in KINDS if not log.whole_updates]
ROUND = 7


def name(log: Log) -> str:
    return f"{log.encoding.name}-{log.selection}"


def through(codec: Codec, logged: Logged) -> Logged:
    """Written and read again."""
    found, sound = codec.decode(ROUND, codec.encode(ROUND, logged))
    assert sound.all()
    return found


def half_step(numbers: np.ndarray, encoding: str) -> np.ndarray:
    """How far a number may be off in rows that share a scale."""
    if encoding == "float32":
        return np.zeros_like(numbers)
    if encoding == "float16":
        return np.maximum(np.abs(numbers) * 2.0**-11, 2.0**-25)
    largest = np.abs(numbers).max(axis=1, keepdims=True, initial=0)
    return np.broadcast_to(largest * (1 + 1e-4) / 254, numbers.shape)


def check_close(found: np.ndarray, true: np.ndarray, encoding: str) -> None:
    assert found.dtype == np.float32
    assert found.shape == true.shape
    assert (np.abs(found.astype(np.float64) - true) <= half_step(true, encoding)).all()


def place(lengths: np.ndarray) -> np.ndarray:
    """Lengths on a logarithmic scale, in steps of an eighth of a power of two."""
    return 8 * np.log2(lengths.astype(np.float64))


def length_entries(*lengths: list[float]) -> Logged:
    """Clients with rows of these lengths."""
    rows = [np.array([[length, 0, 0] for length in client], np.float32).reshape(-1, DIM) for client in lengths]
    return logged_of(rows)


def same_client(a: Logged, at: int, b: Logged, place_in_b: int) -> bool:
    keep_a, keep_b = np.zeros(a.keys.size, bool), np.zeros(b.keys.size, bool)
    keep_a[at] = keep_b[place_in_b] = True
    one, other = a.only(keep_a), b.only(keep_b)
    return all(
        np.array_equal(getattr(one, field), getattr(other, field))
        for field in ("keys", "positives", "draw_bits", "kept", "lengths", "dense_lengths", "private")
    )


@pytest.mark.parametrize("log", KINDS, ids=name)
@settings(max_examples=30)
@given(st.data())
def test_who_what_and_where_come_back_exactly(log, data):
    logged = data.draw(any_logged(log))
    found = through(codec_of(log), logged)
    for field in ("keys", "positives", "row_ptr", "bit_ptr", "draw_bits", "kept"):
        np.testing.assert_array_equal(getattr(found, field), getattr(logged, field), err_msg=field)
    check_close(found.private, logged.private, log.encoding.name if log.whole_updates else "int8")


@pytest.mark.parametrize("log", WHOLE, ids=name)
@settings(max_examples=30)
@given(st.data())
def test_whole_updates_come_back_as_exactly_as_their_encoding_says(log, data):
    logged = data.draw(any_logged(log))
    found = through(codec_of(log), logged)
    check_close(found.rows[logged.kept], logged.rows[logged.kept], log.encoding.name)
    assert not found.rows[~logged.kept].any()
    assert not found.lengths[~logged.kept].any()
    for part, true in zip(tensors(found.dense), tensors(logged.dense), strict=True):
        check_close(part, true, log.encoding.name)
    np.testing.assert_allclose(found.lengths, np.linalg.norm(found.rows, axis=1), rtol=1e-6)


@pytest.mark.parametrize("log", LENGTHS, ids=name)
@settings(max_examples=100)
@given(st.data())
def test_lengths_come_back_as_exactly_as_their_scale_says(log, data):
    """Of a tensor: half a step. Of rows: half of the distance between two of the five levels, or half a step."""
    logged = data.draw(any_logged(log))
    found = through(codec_of(log), logged)
    assert found.rows is None
    assert found.dense is None
    true, known = logged.dense_lengths, found.dense_lengths
    assert not known[true == 0].any()
    inside = true >= 2.0**-24
    assert (np.abs(place(known[inside]) - place(true[inside])) <= 0.5 + 1e-3).all()
    assert not found.lengths[~logged.kept].any()
    for c in range(logged.keys.size):
        rows = slice(logged.row_ptr[c], logged.row_ptr[c + 1])
        kept = logged.kept[rows]
        true, known = logged.lengths[rows][kept], found.lengths[rows][kept]
        assert not known[true == 0].any()
        moved = np.maximum(true[true > 0], 2.0**-24)
        if moved.size:
            ends = np.floor(place(moved) + 0.5)
            allowed = max(0.5, (ends.max() - ends.min()) / 8)
            assert (np.abs(place(known[true > 0]) - place(moved)) <= allowed + 1e-3).all()


def test_a_length_alone_is_known_within_half_of_nine_percent():
    lengths = np.geomspace(1e-7, 200, 1000, dtype=np.float32)
    found = through(codec_of(Log()), length_entries(*[[length] for length in lengths])).lengths
    assert (np.abs(found / lengths - 1) < 0.045).all()
    assert len(set(found.tolist())) < 260


def test_five_levels_lie_between_the_smallest_and_the_largest_length_and_none_stays_none():
    client = [1.0, 2.0, 4.0, 8.0, 16.0, 0.0, 2.2, 7.0]
    found = through(codec_of(Log()), length_entries(client)).lengths
    np.testing.assert_allclose(found, [1, 2, 4, 8, 16, 0, 2, 8], rtol=1e-6)


@pytest.mark.parametrize(("length", "kept"), [(1e-12, 2.0**-24), (1e-9, 2.0**-24), (1e6, 2.0**7.75)])
def test_lengths_beyond_the_scale_take_its_end_and_never_vanish(length, kept):
    found = through(codec_of(Log()), length_entries([length]))
    np.testing.assert_allclose(found.lengths, [kept], rtol=1e-6)


@pytest.mark.parametrize("log", LENGTHS, ids=name)
@settings(max_examples=100)
@given(st.data())
def test_an_entry_of_lengths_that_is_read_and_written_again_is_the_same(log, data):
    """Or lengths would wander off with every replay and every copy."""
    codec = codec_of(log)
    entries = codec.encode(ROUND, data.draw(any_logged(log)))
    again = codec.encode(ROUND, codec.decode(ROUND, entries)[0])
    assert again.ptr.tolist() == entries.ptr.tolist()
    assert again.data.tobytes() == entries.data.tobytes()


def test_what_does_not_fit_into_float16_becomes_its_largest_number():
    logged = logged_of([np.array([[1e6, -1e6, 3]], np.float32)])
    assert through(codec_of(Log("float16")), logged).rows.tolist() == [[65504, -65504, 3]]


@pytest.mark.parametrize("largest", [1e-45, 1.9e-43, 1e-40, 1e-38, 3e38])
def test_int8_keeps_the_sign_of_the_largest_number_whatever_its_size(largest):
    row = np.array([[largest, -largest, 0]], np.float32)
    found = through(codec_of(Log("int8")), logged_of([row])).rows
    assert found[0, 0] >= 0 >= found[0, 1]
    np.testing.assert_allclose(found, row, atol=1e-43, rtol=1e-2)


@pytest.mark.parametrize("log", KINDS, ids=name)
@settings(max_examples=50)
@given(st.data())
def test_a_damaged_entry_is_refused_and_only_that_one(log, data):
    codec = codec_of(log)
    logged = data.draw(any_logged(log, min_clients=1))
    entries = codec.encode(ROUND, logged)
    bodies = list(entries)
    at = data.draw(st.integers(0, len(bodies) - 1))
    body = bytearray(bodies[at])
    if data.draw(st.booleans()):
        bit = data.draw(st.integers(0, 8 * len(body) - 1))
        body[bit // 8] ^= 1 << (bit % 8)
    else:
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    bodies[at] = bytes(body)
    found, sound = codec.decode(ROUND, Entries.of(entries.keys, bodies))
    assert sound.tolist() == [place != at for place in range(len(bodies))]
    whole = codec.decode(ROUND, entries)[0]
    for place_in_found, place_before in enumerate(np.flatnonzero(sound)):
        assert same_client(found, place_in_found, whole, int(place_before))


@pytest.mark.parametrize("log", KINDS, ids=name)
def test_every_single_bit_of_an_entry_counts(log):
    codec = codec_of(log)
    entries = codec.encode(ROUND, logged_of([np.eye(DIM)], log, draw_bits=[b"ab"], private=np.ones((1, PRIVATE), "f4")))
    body = next(iter(entries))
    turned = [bytearray(body) for _ in range(8 * len(body))]
    for bit, copy in enumerate(turned):
        copy[bit // 8] ^= 1 << (bit % 8)
    keys = np.full(len(turned), entries.keys[0])
    _, sound = codec.decode(ROUND, Entries.of(keys, [bytes(copy) for copy in turned]))
    assert not sound.any()
    _, sound = codec.decode(ROUND, Entries.of(keys[: len(body)], [body[:end] for end in range(len(body))]))
    assert not sound.any()


@pytest.mark.parametrize("log", KINDS, ids=name)
def test_the_entry_of_another_round_user_or_federation_is_refused(log):
    codec = codec_of(log)
    entries = codec.encode(ROUND, logged_of([np.eye(DIM), np.eye(DIM)], log, keys=[5, 6]))
    assert codec.decode(ROUND, entries)[1].tolist() == [True, True]
    assert codec.decode(np.array([ROUND, ROUND + 1]), entries)[1].tolist() == [True, False]
    assert codec.decode(ROUND + 1, entries)[1].tolist() == [False, False]
    swapped = Entries(np.array([6, 6], np.uint64), entries.ptr, entries.data)
    assert codec.decode(ROUND, swapped)[1].tolist() == [False, True]
    assert codec_of(log, "elsewhere").decode(ROUND, entries)[1].tolist() == [False, False]


@pytest.mark.parametrize("log", KINDS, ids=name)
def test_the_entry_of_another_encoding_or_model_is_refused(log):
    entries = codec_of(log).encode(ROUND, logged_of([np.eye(DIM)], log))
    for other in KINDS:
        if other.encoding != log.encoding:
            assert not codec_of(other).decode(ROUND, entries)[1].any()
    assert not Codec(log, "here", LAYOUT, DIM, PRIVATE + 1).decode(ROUND, entries)[1].any()
    assert not codec_of(log, layout=Layout({"mlp.weight": (2, 3)})).decode(ROUND, entries)[1].any()


@pytest.mark.parametrize("log", KINDS, ids=name)
@settings(max_examples=100)
@given(garbage=st.binary(max_size=60), first=st.integers(0, 255))
def test_nonsense_under_a_right_checksum_is_refused_or_makes_sense(log, garbage, first):
    codec = codec_of(log)
    body = bytes([first]) + garbage
    crc = zlib.crc32(body, zlib.crc32(np.uint64(5).tobytes(), zlib.crc32(f"here:{ROUND}".encode())))
    entries = Entries.of(np.array([5], np.uint64), [crc.to_bytes(4, "little") + body])
    found, sound = codec.decode(ROUND, entries)
    if sound[0]:
        assert first % 128 == list(ENCODINGS).index(log.encoding.name)
        assert 0 <= found.positives[0] <= found.row_ptr[-1] == found.lengths.size
    else:
        assert found.keys.size == 0


@pytest.mark.parametrize("log", KINDS, ids=name)
@settings(max_examples=30)
@given(st.data())
def test_an_entry_starts_with_the_crc_32_of_federation_round_user_and_its_other_bytes(log, data):
    """As zlib computes it, whether the entries are of one round or of several, and also for renewed entries."""
    codec, logged = codec_of(log), data.draw(any_logged(log))
    n = logged.keys.size
    rounds = np.array(data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)), np.int64)
    entries = codec.encode(rounds, logged)
    for written in (entries, codec.renewed(rounds, entries, logged.private + 1)):
        for key, round_, body in zip(written.keys, rounds.tolist(), written, strict=True):
            about = zlib.crc32(key.tobytes(), zlib.crc32(f"here:{round_}".encode()))
            assert int.from_bytes(body[:4], "little") == zlib.crc32(body[4:], about)


@pytest.mark.parametrize("log", KINDS, ids=name)
def test_an_entry_of_no_bytes_is_not_sound_and_leaves_the_others_so(log):
    codec = codec_of(log)
    entries = codec.encode(ROUND, logged_of([np.eye(DIM), 2 * np.eye(DIM)], log, keys=[5, 6]))
    bodies = list(entries)
    found, sound = codec.decode(ROUND, Entries.of(np.array([5, 9, 6], np.uint64), [bodies[0], b"", bodies[1]]))
    assert sound.tolist() == [True, False, True]
    assert found.keys.tolist() == [5, 6]
    assert same_client(found, 1, codec.decode(ROUND, entries)[0], 1)


@pytest.mark.parametrize("log", KINDS, ids=name)
@pytest.mark.parametrize("bodies", [[], [b""], [b"", b"\0\0\0\0"]], ids=len)
def test_where_no_entry_is_sound_nothing_is_said(log, bodies):
    entries = Entries.of(np.arange(len(bodies), dtype=np.uint64), bodies)
    found, sound = codec_of(log).decode(ROUND, entries)
    assert sound.tolist() == [False] * len(bodies)
    assert found.keys.size == found.lengths.size == found.draw_bits.size == 0
    assert found.private.shape == (0, PRIVATE)
    assert found.row_ptr.tolist() == [0]


def test_lengths_take_a_third_of_a_byte_a_row_and_one_a_tensor():
    entry = codec_of(Log()).encode(ROUND, logged_of([np.ones((30, DIM))], draw_bits=[b"abcd"]))
    head, ends, tensors_, scale = 4 + 1 + 3, 2, 2, 4
    assert entry.data.size == head + 4 + ends + 30 // 3 + tensors_ + scale + PRIVATE
