"""Checksums are CRC-32 as zlib has it, whichever way they are computed."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.device.log import checksum
from fedforget.device.log.checksum import checksums
from fedforget.device.log.entries import Entries


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=300), st.integers(0, 2**32 - 1)), max_size=8),
    st.sampled_from([0, 4]),
)
def test_both_ways_are_zlibs(made: list[tuple[int, bytes, int]], skip: int) -> None:
    entries = Entries.of(np.array([key for key, _, _ in made], np.uint64), [body for _, body, _ in made])
    about = np.array([before for _, _, before in made], np.uint32)
    wanted = [zlib.crc32(body[skip:], zlib.crc32(key.to_bytes(8, "little"), before)) for key, body, before in made]
    for limit in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checksum, "SHORT", limit)
            assert checksums(about, entries, skip).tolist() == wanted


def test_the_check_value_of_the_standard() -> None:
    """CRC-32 of "123456789" is 0xCBF43926; here the nine digits are the end of the key and the body."""
    entries = Entries.of(np.frombuffer(b"12345678", np.uint64), [b"9"])
    assert checksums(np.zeros(1, np.uint32), entries, 0).tolist() == [0xCBF43926]
