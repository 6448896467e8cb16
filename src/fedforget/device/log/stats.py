"""The size of devices' logs, part by part, and what the paper's log would take for the same rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.codec import PARTS
from fedforget.device.log.device_log import DeviceLog
from fedforget.device.log.entries import Keys, find
from fedforget.errors import RunError
from fedforget.models import Recommender
from fedforget.protocol.sampler import Sampler

#: What a device's bytes are used for: the parts of its valid entries, damaged entries, and the exact private parameters
#: from before its last round, with which that round can be repeated.
PLACES = [*PARTS, "damaged", "copy"]
#: Bytes of the round number stored with the private parameters.
ROUND_NUMBER = 8
#: The fraction of an update's item rows that the paper's log keeps.
PAPER_ALPHA = 0.5
FLOAT = 4

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class LogStats:
    """The logs of some devices: device ``keys[i]`` uses ``bytes[i, j]`` bytes for ``PLACES[j]``.

    ``entries`` is the number of each device's entries. Over all devices, ``damaged`` entries cannot be read, and
    ``full`` entries are empty because a device had no room.
    """

    keys: Keys
    entries: Counts
    bytes: Counts
    damaged: int
    full: int

    @property
    def per_device(self) -> Counts:
        """The bytes of each device."""
        total: Counts = self.bytes.sum(axis=1)
        return total

    def of(self, place: str) -> Counts:
        """The bytes that each device uses for one of the PLACES."""
        return self.bytes[:, PLACES.index(place)]


def log_stats(log: DeviceLog, keys: Keys) -> LogStats:
    """Measure the logs of these users, who must be all users in the log. One round is in memory at a time."""
    entries = np.zeros(keys.size, np.int64)
    sizes = np.zeros((keys.size, len(PLACES)), np.int64)
    sizes[:, PLACES.index("copy")] = log.codec.private_size * FLOAT + ROUND_NUMBER
    damaged = full = 0
    for round_, users, _ in log.store.heads():
        found = log.store.read(round_, users)
        which, places = find(keys, found.keys)
        if which.size < len(found):
            raise RunError(
                f"The log of round {round_} has entries of {len(found) - which.size} devices outside the federation.",
                "The log belongs to another run, or users were forgotten in the meantime: open the run again.",
            )
        parts, sound = log.codec.part_sizes(round_, found)
        total = np.diff(found.ptr)
        entries[places] += total > 0
        sizes[places[sound], : len(PARTS)] += parts
        sizes[places[~sound], PLACES.index("damaged")] += total[~sound]
        full += int(np.count_nonzero(total == 0))
        damaged += int(np.count_nonzero(~sound & (total > 0)))
    return LogStats(keys, entries, sizes, damaged, full)


@dataclass(frozen=True)
class PaperLog:
    """The bytes of each device in the paper's log: float32, and the half of the item rows with the largest norm.

    ``rows`` is the paper's count, item rows only: α(1 + βN) · own items · participations rows. ``with_dense`` adds
    every other public tensor (an MLP) once per participation.
    """

    rows: NDArray[np.float64]
    with_dense: NDArray[np.float64]

    @classmethod
    def of(cls, model: Recommender, sampler: Sampler, own_items: Counts, participations: Counts) -> PaperLog:
        """For devices with these numbers of own items and participations."""
        per_item = PAPER_ALPHA * (1 + sampler.beta * model.negatives)
        rows = (per_item * own_items * participations * model.dim * FLOAT).astype(np.float64)
        return cls(rows, rows + float(model.update_layout.size * FLOAT) * participations)
