"""Codec: the format of a log entry, which holds what a device did in a round.

    crc        4 bytes     CRC-32 of federation, round, user and everything that follows; little endian
    encoding   1 byte      its code, plus 128 if only some rows are kept
    positives  varint      number of own items
    n_rows     varint      item rows of the update, own items first
    n_draw     varint      bytes of the negatives
    negatives              which negatives were drawn (see ``device.negative_draw``)
    kept                   one bit per row, if only some are kept
    rows                   the kept rows: numbers, or lengths only
    dense                  every other public tensor: numbers, or one byte for its length
    private                the private parameters after the round

Numbers are float32 or float16, little endian, or int8 with a float32 scale before each row or tensor. An entry of
lengths keeps its private parameters as int8.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.device.kernels.norms import row_lengths, tensor_lengths
from fedforget.device.log import body
from fedforget.device.log.body import CRC, SOME_ROWS, Ptr
from fedforget.device.log.entries import Entries, Keys
from fedforget.device.log.lengths import Bytes
from fedforget.models import Layout
from fedforget.models.parameters import Array
from fedforget.protocol.log import Log
from fedforget.runtime import ragged
from fedforget.runtime.randomness import Rounds

#: The parts of an entry, in their order; the head is everything before the negatives.
PARTS = ["head", "negatives", "kept", "rows", "dense", "private"]


@dataclass(frozen=True)
class Logged:
    """The content of a cohort's entries, client after client.

    Client c had ``positives[c]`` own items and changed the rows ``row_ptr[c]:row_ptr[c + 1]``. Its negatives are
    encoded in ``draw_bits[bit_ptr[c]:bit_ptr[c + 1]]``. ``kept`` marks the rows that are logged, ``lengths`` are their
    L2 norms (0 for other rows) and ``dense_lengths`` those of the other tensors. ``rows`` and ``dense`` are None if the
    log keeps lengths only.
    """

    keys: Keys
    positives: Ptr
    row_ptr: Ptr
    bit_ptr: Ptr
    draw_bits: Bytes
    kept: NDArray[np.bool_]
    lengths: Array
    dense_lengths: Array
    private: Array
    rows: Array | None = None
    dense: Array | None = None

    def has(self, lengths: Array, dense_lengths: Array) -> bool:
        """Whether the log keeps lengths only, and exactly these."""
        return (
            self.rows is None
            and np.array_equal(self.lengths, lengths)
            and np.array_equal(self.dense_lengths, dense_lengths)
        )

    def only(self, keep: NDArray[np.bool_]) -> Logged:
        """The content of some clients' entries."""
        rows = np.repeat(keep, np.diff(self.row_ptr))
        return Logged(
            self.keys[keep],
            self.positives[keep],
            ragged.offsets(np.diff(self.row_ptr)[keep]),
            ragged.offsets(np.diff(self.bit_ptr)[keep]),
            self.draw_bits[np.repeat(keep, np.diff(self.bit_ptr))],
            self.kept[rows],
            self.lengths[rows],
            self.dense_lengths[keep],
            self.private[keep],
            None if self.rows is None else self.rows[rows],
            None if self.dense is None else self.dense[keep],
        )


class Codec:
    """Writes and reads the entries of one federation."""

    def __init__(self, log: Log, federation: str, layout: Layout, dim: int, private_size: int) -> None:
        self.log = log
        self.federation = federation
        self.layout = layout
        self.dim = dim
        self.private_size = private_size
        self._encoding = log.encoding
        self._private_sizes = [private_size] if private_size else []
        self._dense_sizes = [size for size in np.diff(layout.bounds).tolist() if size]
        self._private_bytes = self._encoding.row_size(self._private_sizes)
        if log.whole_updates:
            self._row_bytes, self._dense_bytes = (
                self._encoding.row_size(sizes) for sizes in ([dim], self._dense_sizes)
            )
        else:
            self._row_bytes, self._dense_bytes = 0, layout.bounds.size - 1

    def encode(self, rounds: Rounds, logged: Logged) -> Entries:
        """Entries with this content."""
        some = not bool(logged.kept.all())
        heads = body.write_heads(
            self._encoding.code | (SOME_ROWS if some else 0),
            logged.positives,
            np.diff(logged.row_ptr),
            np.diff(logged.bit_ptr),
        )
        kept = body.write_kept(logged.row_ptr, logged.kept) if some else ragged.nothing(logged.keys.size)
        kept_ptr = ragged.offsets(logged.kept)[logged.row_ptr] if some else logged.row_ptr
        chosen = logged.kept if some else slice(None)
        if self.log.whole_updates:
            assert logged.rows is not None
            assert logged.dense is not None
            rows = kept_ptr * self._row_bytes, self._encoding.pack(logged.rows[chosen], [self.dim]).reshape(-1)
            dense = self._encoding.pack(logged.dense, self._dense_sizes)
        else:
            rows = body.pack_rows(kept_ptr, logged.lengths[chosen])
            dense = body.codes_of(logged.dense_lengths)
        private = self._encoding.pack(logged.private, self._private_sizes)
        parts = [heads, (logged.bit_ptr, logged.draw_bits), kept, rows, ragged.even(dense), ragged.even(private)]
        return self._seal(rounds, Entries(logged.keys, *ragged.woven(parts)))

    def renewed(self, rounds: Rounds, entries: Entries, private: Array) -> Entries:
        """A copy of these entries with other private parameters."""
        data = entries.data.copy()
        packed = self._encoding.pack(private, self._private_sizes)
        body.overwrite(data, entries.ptr[1:] - self._private_bytes, packed)
        return self._seal(rounds, Entries(entries.keys, entries.ptr, data))

    def decode(self, rounds: Rounds, entries: Entries, *, private: bool = True) -> tuple[Logged, NDArray[np.bool_]]:
        """The content of the valid entries, with or without the private part; and which entries are valid."""
        fields, starts, sound = self._locate(rounds, entries)
        if not sound.all():
            fields, starts = fields[sound], starts[sound]
        return self._decode(entries.keys[sound], entries.data, fields, starts, private), sound

    def part_sizes(self, rounds: Rounds, entries: Entries) -> tuple[Ptr, NDArray[np.bool_]]:
        """The bytes of each of the PARTS of the valid entries; and which entries are valid."""
        _, starts, sound = self._locate(rounds, entries)
        return np.diff(starts, axis=1, prepend=entries.ptr[:-1, None])[sound], sound

    def _locate(self, rounds: Rounds, entries: Entries) -> tuple[Ptr, Ptr, NDArray[np.bool_]]:
        """The fields of each entry, where its parts begin (see ``body.locate``), and whether it is valid."""
        sizes = self._row_bytes, self._dense_bytes, self._private_bytes
        return body.locate(entries.ptr, entries.data, self._seals(rounds, entries), self._encoding.code, *sizes)

    def _decode(self, keys: Keys, data: Bytes, fields: Ptr, starts: Ptr, with_private: bool) -> Logged:
        positives, n_rows, n_kept = fields[:, 0], fields[:, 1], fields[:, 2]
        sizes = np.diff(starts, axis=1)
        bit_ptr, draw_bits = ragged.cut(data, starts[:, 0], sizes[:, 0])
        row_ptr = ragged.offsets(n_rows)
        kept = body.read_kept(data, row_ptr, starts)
        packed_ptr, packed_rows = ragged.cut(data, starts[:, 2], sizes[:, 2])
        packed_dense = ragged.cut(data, starts[:, 3], sizes[:, 3])[1].reshape(keys.size, self._dense_bytes)
        private = np.empty((keys.size, 0), np.float32)
        if with_private:
            packed_private = ragged.cut(data, starts[:, 4], sizes[:, 4])[1].reshape(keys.size, self._private_bytes)
            private = self._encoding.unpack(packed_private, self._private_sizes)
        common = (keys, positives, row_ptr, bit_ptr, draw_bits, kept)
        if not self.log.whole_updates:
            lengths = np.zeros(kept.size, np.float32)
            body.unpack_rows(packed_ptr, packed_rows, ragged.offsets(n_kept), row_ptr, kept, lengths)
            return Logged(*common, lengths, body.lengths_of(packed_dense), private)
        rows = np.zeros((kept.size, self.dim), np.float32)
        rows[kept] = self._encoding.unpack(packed_rows.reshape(-1, self._row_bytes), [self.dim])
        dense = self._encoding.unpack(packed_dense, self._dense_sizes)
        return Logged(*common, row_lengths(rows), tensor_lengths(dense, self.layout), private, rows, dense)

    def _seal(self, rounds: Rounds, entries: Entries) -> Entries:
        """Write the checksums, in place."""
        seals = self._seals(rounds, entries).astype("<u4").view(np.uint8).reshape(-1, CRC)
        body.overwrite(entries.data, entries.ptr[:-1], seals)
        return entries

    def _seals(self, rounds: Rounds, entries: Entries) -> NDArray[np.uint32]:
        """The checksum of each entry; one of another round, user or federation differs."""
        of_each = np.full(len(entries), rounds, np.int64).tolist()
        starts = {round_: zlib.crc32(f"{self.federation}:{round_}".encode()) for round_ in set(of_each)}
        data, ends = entries.data.tobytes(), entries.ptr.tolist()
        seals = [
            zlib.crc32(data[start + CRC : end], zlib.crc32(key.to_bytes(8, "little"), starts[round_]))
            for round_, key, start, end in zip(of_each, entries.keys.tolist(), ends[:-1], ends[1:], strict=True)
        ]
        return np.array(seals, np.uint32)
