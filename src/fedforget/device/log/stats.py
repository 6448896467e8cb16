"""How much a log takes on a device, part by part, and what the paper's log would take for the same rounds."""

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

#: Where a device's bytes go: the parts of its sound entries, whole entries that are damaged, and the exact copy of the
#: private parameters from before its last round, with which that round can be repeated.
PLACES = [*PARTS, "damaged", "copy"]
#: Beside private parameters, the number of the round they belong to.
ROUND_NUMBER = 8
#: The share of an update's item rows that the paper's log keeps.
PAPER_ALPHA = 0.5
FLOAT = 4

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class LogStats:
    """The logs of some devices: ``bytes[i, j]`` bytes of device ``keys[i]`` go into ``PLACES[j]``.

    ``entries`` counts each device's entries, ``damaged`` those of all devices that cannot be read, and ``full`` the
    rounds for which a device had no room left.
    """

    keys: Keys
    entries: Counts
    bytes: Counts
    damaged: int
    full: int

    @property
    def per_device(self) -> Counts:
        """All that each device keeps."""
        total: Counts = self.bytes.sum(axis=1)
        return total

    def of(self, place: str) -> Counts:
        """What each device keeps in one of the PLACES."""
        return self.bytes[:, PLACES.index(place)]


def log_stats(log: DeviceLog, keys: Keys) -> LogStats:
    """Measure the logs of these users, who must be all that the log knows. Only one round is in memory at a time."""
    entries = np.zeros(keys.size, np.int64)
    sizes = np.zeros((keys.size, len(PLACES)), np.int64)
    sizes[:, PLACES.index("copy")] = sum(log.codec.private_format.sizes) * FLOAT + ROUND_NUMBER
    damaged = full = 0
    for round_, whose, _ in log.store.heads():
        found = log.store.read(round_, whose)
        places = _places(keys, found.keys, round_)
        parts, sound = log.codec.part_sizes(round_, found)
        total = np.diff(found.ptr)
        entries[places] += total > 0
        sizes[places[sound], : len(PARTS)] += parts
        sizes[places[~sound], PLACES.index("damaged")] += total[~sound]
        full += int(np.count_nonzero(total == 0))
        damaged += int(np.count_nonzero(~sound & (total > 0)))
    return LogStats(keys, entries, sizes, damaged, full)


def _places(keys: Keys, wanted: Keys, round_: int) -> Counts:
    which, places = find(keys, wanted)
    if which.size < wanted.size:
        raise RunError(
            f"The log of round {round_} has entries of {wanted.size - which.size} devices outside the federation.",
            "It belongs to another run, or users were forgotten meanwhile: open the run again.",
        )
    return places


@dataclass(frozen=True)
class PaperLog:
    """What each device would keep in the paper's log: float32, and the half of the item rows with the largest norm.

    ``rows`` is the paper's own count, item rows only: α(1 + βN) · own items · participations rows. ``with_dense`` adds
    what it leaves out, every other public tensor (an MLP) once a participation.
    """

    rows: NDArray[np.float64]
    with_dense: NDArray[np.float64]

    @classmethod
    def of(cls, model: Recommender, sampler: Sampler, own_items: Counts, participations: Counts) -> PaperLog:
        """For devices with so many items of their own that took part so often."""
        per_item = PAPER_ALPHA * (1 + sampler.beta * model.negatives)
        rows = (per_item * own_items * participations * model.dim * FLOAT).astype(np.float64)
        return cls(rows, rows + float(model.update_layout.size * FLOAT) * participations)
