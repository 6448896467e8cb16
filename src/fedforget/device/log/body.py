"""The parts of log entries, written and read for a whole cohort at once; ``codec`` has the format."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.lengths import Bytes, code_of, length_of, pack_lengths, packed_size, unpack_lengths
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact

Ptr = NDArray[np.int64]
#: Bytes of the checksum at the start of an entry.
CRC = 4
#: Added to the encoding's code if only some rows are kept.
SOME_ROWS = 128


@exact
def _write_varint(out: Bytes, at: int, value: int) -> int:
    while value >= 128:
        out[at] = (value & 127) | 128
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@exact
def _read_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The number at ``at`` and the position after it; the number is -1 if it does not end before ``end``."""
    value, shift = 0, 0
    while at < end and shift < 42:
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
        shift += 7
    return -1, end


@exact
def overwrite(data: Bytes, starts: Ptr, values: Bytes) -> None:
    """Overwrite bytes of each entry; row c of ``values`` goes to ``starts[c]``."""
    for c in range(starts.size):
        data[starts[c] : starts[c] + values.shape[1]] = values[c]


@exact
def write_heads(encoding: int, positives: Ptr, n_rows: Ptr, n_draw: Ptr) -> tuple[Ptr, Bytes]:
    """The part of each entry before its negatives, with zeros for the checksum."""
    ptr = np.zeros(positives.size + 1, np.int64)
    out = np.zeros(positives.size * (CRC + 1 + 3 * 6), np.uint8)
    for c in range(positives.size):
        at = ptr[c] + CRC
        out[at] = encoding
        at = _write_varint(out, at + 1, positives[c])
        at = _write_varint(out, at, n_rows[c])
        ptr[c + 1] = _write_varint(out, at, n_draw[c])
    return ptr, out[: ptr[-1]].copy()


@exact
def locate(  # type: ignore[no-untyped-def]
    ptr, data, seals, encoding, row_size, dense_size, private_size
) -> tuple[Ptr, Ptr, NDArray[np.bool_]]:
    """For each entry: (positives, n_rows, kept rows); the starts of its five parts and the end; whether it is valid.

    A valid entry has the right checksum and encoding, and its parts fill it exactly.
    """
    fields = np.zeros((seals.size, 3), np.int64)
    starts = np.zeros((seals.size, 6), np.int64)
    sound = np.zeros(seals.size, np.bool_)
    for c in range(seals.size):
        at, end = ptr[c] + CRC + 1, ptr[c + 1]
        if at > end or _read_seal(data, ptr[c]) != seals[c] or (data[at - 1] & 127) != encoding:
            continue
        positives, at = _read_varint(data, at, end)
        n_rows, at = _read_varint(data, at, end)
        n_draw, at = _read_varint(data, at, end)
        some = data[ptr[c] + CRC] >= SOME_ROWS
        n_bits = (n_rows + 7) // 8 if some else 0
        if min(positives, n_rows, n_draw) < 0 or at + n_draw + n_bits > end:
            continue
        n_kept = n_rows
        if some:
            n_kept = 0
            for i in range(n_rows):
                n_kept += (data[at + n_draw + i // 8] >> (i % 8)) & 1
        fields[c, 0], fields[c, 1], fields[c, 2] = positives, n_rows, n_kept
        starts[c, 0] = at
        starts[c, 1] = at + n_draw
        starts[c, 2] = starts[c, 1] + n_bits
        starts[c, 3] = starts[c, 2] + (n_kept * row_size if row_size else packed_size(n_kept))
        starts[c, 4] = starts[c, 3] + dense_size
        starts[c, 5] = starts[c, 4] + private_size
        sound[c] = starts[c, 5] == end and positives <= n_rows
    return fields, starts, sound


@exact
def _read_seal(data: Bytes, at: int) -> np.uint32:
    seal = np.uint32(0)
    for i in range(CRC):
        seal |= np.uint32(data[at + i]) << np.uint32(8 * i)
    return seal


@exact
def write_kept(row_ptr: Ptr, kept: NDArray[np.bool_]) -> tuple[Ptr, Bytes]:
    """One bit per row: whether it is kept."""
    ptr = np.zeros(row_ptr.size, np.int64)
    ptr[1:] = np.cumsum((np.diff(row_ptr) + 7) // 8)
    out = np.zeros(ptr[-1], np.uint8)
    for c in range(row_ptr.size - 1):
        for i in range(row_ptr[c + 1] - row_ptr[c]):
            out[ptr[c] + i // 8] |= np.uint8(kept[row_ptr[c] + i]) << np.uint8(i % 8)
    return ptr, out


@exact
def read_kept(data: Bytes, row_ptr: Ptr, starts: Ptr) -> NDArray[np.bool_]:
    """Whether each row is kept."""
    kept = np.ones(row_ptr[-1], np.bool_)
    for c in range(row_ptr.size - 1):
        if starts[c, 2] > starts[c, 1]:
            for i in range(row_ptr[c + 1] - row_ptr[c]):
                kept[row_ptr[c] + i] = (data[starts[c, 1] + i // 8] >> (i % 8)) & 1
    return kept


@exact
def pack_rows(ptr: Ptr, lengths: Array) -> tuple[Ptr, Bytes]:
    """The lengths of each client's kept rows."""
    out_ptr = np.zeros(ptr.size, np.int64)
    for c in range(ptr.size - 1):
        out_ptr[c + 1] = out_ptr[c] + packed_size(ptr[c + 1] - ptr[c])
    out = np.empty(out_ptr[-1], np.uint8)
    for c in range(ptr.size - 1):
        pack_lengths(lengths[ptr[c] : ptr[c + 1]], out[out_ptr[c] : out_ptr[c + 1]])
    return out_ptr, out


@exact
def unpack_rows(  # type: ignore[no-untyped-def]
    packed_ptr, packed, kept_ptr, row_ptr, kept, lengths
) -> None:
    """Read the lengths of each client's kept rows; those of other rows do not change."""
    for c in range(kept_ptr.size - 1):
        kept_lengths = np.empty(kept_ptr[c + 1] - kept_ptr[c], np.float32)
        unpack_lengths(packed[packed_ptr[c] : packed_ptr[c + 1]], kept_lengths)
        place = 0
        for i in range(row_ptr[c], row_ptr[c + 1]):
            if kept[i]:
                lengths[i] = kept_lengths[place]
                place += 1


@exact
def codes_of(lengths: Array) -> Bytes:
    """Lengths as one byte each."""
    out = np.empty(lengths.shape, np.uint8)
    for place, length in np.ndenumerate(lengths):
        out[place] = code_of(length)
    return out


@exact
def lengths_of(codes: Bytes) -> Array:
    """The lengths that these bytes encode."""
    out = np.empty(codes.shape, np.float32)
    for place, code in np.ndenumerate(codes):
        out[place] = length_of(int(code))
    return out
