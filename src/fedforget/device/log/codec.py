"""Codec: how a log entry says what a device did in a round, in bytes.

    crc        4 bytes     of all that follows, and of federation, round and user
    encoding   1 byte      its code, plus 128 if only some rows are kept
    positives  varint      own items when the entry was made
    n_rows     varint      item rows of the update, own items first
    n_draw     varint      bytes of the draw
    negatives              which negatives were drawn (see ``device.negative_draw``)
    kept                   one bit a row, if only some are kept
    rows                   of the kept rows: numbers, or lengths only
    dense                  of every other public tensor: numbers, or one byte for its length
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
from fedforget.device.log.checksum import checksums
from fedforget.device.log.entries import Entries, Keys
from fedforget.device.log.lengths import Bytes
from fedforget.device.log.number_format import NumberFormat
from fedforget.models import Layout
from fedforget.models.parameters import Array
from fedforget.protocol.encoding import ENCODINGS
from fedforget.protocol.log import Log
from fedforget.runtime import ragged
from fedforget.runtime.randomness import Rounds

#: The parts of an entry, in their order; the head is everything before the negatives.
PARTS = ["head", "negatives", "kept", "rows", "dense", "private"]


@dataclass(frozen=True)
class Logged:
    """What the entries of a cohort say, client after client.

    Client c had ``positives[c]`` own items and changed the rows ``row_ptr[c]:row_ptr[c + 1]``; the bytes
    ``draw_bits[bit_ptr[c]:bit_ptr[c + 1]]`` tell its negatives. ``kept`` marks the rows that the log knows, ``lengths``
    are their L2 norms (0 where unknown) and ``dense_lengths`` those of the other tensors. ``rows`` and ``dense`` are
    there where the log keeps whole updates.
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
        """Whether these are the lengths, and the log keeps nothing but lengths: then an entry can be written again."""
        return (
            self.rows is None
            and np.array_equal(self.lengths, lengths)
            and np.array_equal(self.dense_lengths, dense_lengths)
        )

    def only(self, keep: NDArray[np.bool_]) -> Logged:
        """What the entries of some of the clients say."""
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
        tensors = [places.stop - places.start for places in layout.places.values()]
        self._encoding = ENCODINGS.build(log.encoding)
        self.row_format = NumberFormat(self._encoding, [dim])
        self.dense_format = NumberFormat(self._encoding, tensors)
        self.private_format = NumberFormat(self._encoding, [private_size])
        self._dense_size = self.dense_format.size if log.whole_updates else len(tensors)

    def encode(self, rounds: Rounds, logged: Logged) -> Entries:
        """The entries that say this."""
        n = logged.keys.size
        some = not bool(logged.kept.all())
        heads = body.write_heads(
            self._encoding.code | (SOME_ROWS if some else 0),
            logged.positives,
            np.diff(logged.row_ptr),
            np.diff(logged.bit_ptr),
        )
        kept = body.write_kept(logged.row_ptr, logged.kept) if some else ragged.nothing(n)
        parts = [heads, (logged.bit_ptr, logged.draw_bits), kept, *self._update(logged)]
        private = self.private_format.pack(logged.private)
        ptr, data = ragged.woven([*parts, ragged.even(private)])
        entries = Entries(logged.keys, ptr, data)
        body.write_seals(ptr, data, self._seals(rounds, entries))
        return entries

    def renewed(self, rounds: Rounds, entries: Entries, private: Array) -> Entries:
        """These entries with other private parameters, all else as it is."""
        data = entries.data.copy()
        body.write_ends(entries.ptr, data, self.private_format.pack(private))
        new = Entries(entries.keys, entries.ptr, data)
        body.write_seals(new.ptr, data, self._seals(rounds, new))
        return new

    def _update(self, logged: Logged) -> list[ragged.Part]:
        kept_ptr = body.kept_pointers(logged.row_ptr, logged.kept)
        if not self.log.whole_updates:
            lengths = logged.lengths if logged.kept.all() else logged.lengths[logged.kept]
            rows = body.pack_rows(kept_ptr, lengths)
            return [rows, ragged.even(body.codes_of(logged.dense_lengths))]
        assert logged.rows is not None
        assert logged.dense is not None
        packed = self.row_format.pack(logged.rows if logged.kept.all() else logged.rows[logged.kept])
        rows = (kept_ptr * self.row_format.size, packed.reshape(-1))
        return [rows, ragged.even(self.dense_format.pack(logged.dense))]

    def decode(self, rounds: Rounds, entries: Entries, *, private: bool = True) -> tuple[Logged, NDArray[np.bool_]]:
        """What the sound ones among these entries say, and which are sound; without the private part, if so wished."""
        fields, starts, sound = self._locate(rounds, entries)
        if not sound.all():
            fields, starts = fields[sound], starts[sound]
        return self._decode(entries.keys[sound], entries.data, fields, starts, private), sound

    def part_sizes(self, rounds: Rounds, entries: Entries) -> tuple[Ptr, NDArray[np.bool_]]:
        """The bytes of each of the PARTS of the sound ones among these entries, and which are sound."""
        _, starts, sound = self._locate(rounds, entries)
        return np.diff(starts, axis=1, prepend=entries.ptr[:-1, None])[sound], sound

    def _locate(self, rounds: Rounds, entries: Entries) -> tuple[Ptr, Ptr, NDArray[np.bool_]]:
        """The fields of each entry, where its parts begin (see ``body.locate``), and whether it is sound."""
        sound = body.check_seals(entries.ptr, entries.data, self._seals(rounds, entries))
        row_size = self.row_format.size if self.log.whole_updates else 0
        fields, starts = body.locate(
            entries.ptr,
            entries.data,
            self._encoding.code,
            row_size,
            self._dense_size,
            self.private_format.size,
            sound,
        )
        return fields, starts, sound

    def _decode(self, keys: Keys, data: Bytes, fields: Ptr, starts: Ptr, with_private: bool) -> Logged:
        positives, n_rows, n_kept = fields[:, 0], fields[:, 1], fields[:, 2]
        bit_ptr, draw_bits = ragged.cut(data, starts[:, 0], starts[:, 1] - starts[:, 0])
        row_ptr = ragged.offsets(n_rows)
        kept = body.read_kept(data, row_ptr, starts)
        kept_ptr = ragged.offsets(n_kept)
        sizes = np.diff(starts, axis=1)
        packed_rows = ragged.cut(data, starts[:, 2], sizes[:, 2])
        packed_dense = ragged.cut(data, starts[:, 3], sizes[:, 3])[1].reshape(keys.size, self._dense_size)
        private = np.empty((keys.size, 0), np.float32)
        if with_private:
            packed_private = ragged.cut(data, starts[:, 4], sizes[:, 4])[1]
            private = self.private_format.unpack(packed_private.reshape(keys.size, self.private_format.size))
        common = (keys, positives, row_ptr, bit_ptr, draw_bits, kept)
        if not self.log.whole_updates:
            lengths = np.zeros(kept.size, np.float32)
            body.unpack_rows(*packed_rows, kept_ptr, row_ptr, kept, lengths)
            return Logged(*common, lengths, body.lengths_of(packed_dense), private)
        rows = np.zeros((kept.size, self.dim), np.float32)
        rows[kept] = self.row_format.unpack(packed_rows[1].reshape(-1, self.row_format.size))
        dense = self.dense_format.unpack(packed_dense)
        return Logged(*common, row_lengths(rows), tensor_lengths(dense, self.layout), private, rows, dense)

    def _seals(self, rounds: Rounds, entries: Entries) -> NDArray[np.uint32]:
        """The checksum that each entry should carry: one of another round, user or federation does not fit."""
        numbers, places = np.unique(np.full(len(entries), rounds, np.int64), return_inverse=True)
        about = [zlib.crc32(f"{self.federation}:{number}".encode()) for number in numbers.tolist()]
        return checksums(np.array(about, np.uint32)[places], entries, CRC)
