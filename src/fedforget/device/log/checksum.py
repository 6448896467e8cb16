"""Checksums of log entries: CRC-32, for a whole cohort at once.

zlib is faster on long entries; on short ones, calling it once for each takes longer than the arithmetic.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.entries import Entries
from fedforget.runtime.compiled import exact

Sums = NDArray[np.uint32]
#: Entries that are longer than this on average are left to zlib.
SHORT = 2048


def _table() -> Sums:
    """What each byte does to a checksum."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> 1), table >> 1).astype(np.uint32)
    return table


TABLE = _table()


def checksums(about: Sums, entries: Entries, skip: int) -> Sums:
    """For each entry the CRC-32 of its user's key and of its bytes but the first few, going on from ``about``."""
    keys, data = entries.keys.astype("<u8"), np.ascontiguousarray(entries.data)
    if data.size > SHORT * len(entries):
        return _by_zlib(about, keys, entries.ptr, data, skip)
    return _compiled(about, keys.view(np.uint8), entries.ptr, data, skip, TABLE)


def _by_zlib(about: Sums, keys: NDArray[np.uint64], ptr: NDArray[np.int64], data: NDArray[np.uint8], skip: int) -> Sums:
    raw, names, ends = data.data, keys.data.cast("B"), ptr.tolist()
    starts = zip(about.tolist(), ends, ends[1:], strict=False)
    found = [
        zlib.crc32(raw[min(start + skip, end) : end], zlib.crc32(names[8 * i : 8 * i + 8], before))
        for i, (before, start, end) in enumerate(starts)
    ]
    return np.array(found, np.uint32)


@exact
def _compiled(about, names, ptr, data, skip, table) -> Sums:  # type: ignore[no-untyped-def]
    out = np.empty(about.size, np.uint32)
    ones, byte, low = np.uint32(0xFFFFFFFF), np.uint32(8), np.uint32(255)
    for c in range(about.size):
        value = about[c] ^ ones
        for i in range(8 * c, 8 * c + 8):
            value = table[(value ^ names[i]) & low] ^ (value >> byte)
        for i in range(ptr[c] + skip, ptr[c + 1]):
            value = table[(value ^ data[i]) & low] ^ (value >> byte)
        out[c] = value ^ ones
    return out
