"""Holds: how long a batch counts as busy and as unfinished, so that its times do not tell who is a member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: The replay hold is this many times the estimate, at least; both are longer than what was measured by this factor.
ESTIMATES, MARGIN = 2.0, 1.25
#: Seconds by which the replay hold is longer: times are seen between two looks at the files of the run.
SPARE_SECONDS = 1.0


@dataclass(frozen=True)
class Holds:
    """Seconds from the turn of a batch: until the next batch may start, and until its requests may be completed."""

    replay: float
    completion: float

    @classmethod
    def of(cls, estimate: float, replays: Sequence[float], confirmations: Sequence[float]) -> Holds:
        """From the estimate of an erasure, and the seconds that earlier ones took to be replayed and confirmed."""
        replay = max([ESTIMATES * estimate, *(MARGIN * seconds for seconds in replays)]) + SPARE_SECONDS
        return cls(replay, max([replay, *(MARGIN * seconds for seconds in confirmations)]))

    def grown(self) -> Holds:
        """The holds after a batch that took as long as these allow."""
        return Holds(MARGIN * self.replay + SPARE_SECONDS, MARGIN * self.completion + SPARE_SECONDS)
