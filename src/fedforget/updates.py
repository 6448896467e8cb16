"""Updates: what a cohort sends to the server, the difference that local training made to the public parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array


@dataclass(frozen=True)
class Updates:
    """The updates of C clients, end to end: sparse item rows and one dense vector each.

    Client c, the user ``users[c]``, changed the item rows ``items[ptr[c]:ptr[c + 1]]`` (each at most once) by the
    same rows of ``rows``, and the other public tensors by ``dense[c]``. ``sizes`` is the number of interactions it
    trained on and ``losses`` the mean loss of its last epoch, as it reports them.
    """

    users: Sequence[int | str]
    ptr: NDArray[np.int64]
    items: NDArray[np.int32]
    rows: Array
    dense: Array
    sizes: NDArray[np.int64]
    losses: Array

    def __len__(self) -> int:
        return len(self.users)

    @property
    def nbytes(self) -> int:
        """What the updates weigh when they are sent."""
        return int(self.items.nbytes + self.rows.nbytes + self.dense.nbytes)

    def only(self, keep: NDArray[np.bool_]) -> Updates:
        """The updates of some of the clients."""
        if keep.all():
            return self
        if not keep.any():  # also for updates whose parts do not fit together, which nothing could index
            none = np.zeros(1, np.int64)
            return Updates([], none, self.items[:0], self.rows[:0], self.dense[:0], self.sizes[:0], self.losses[:0])
        rows = np.repeat(keep, np.diff(self.ptr))
        return Updates(
            [user for user, kept in zip(self.users, keep, strict=True) if kept],
            np.concatenate([[0], np.cumsum(np.diff(self.ptr)[keep])]),
            self.items[rows],
            self.rows[rows],
            self.dense[keep],
            self.sizes[keep],
            self.losses[keep],
        )


@dataclass(frozen=True)
class Answers:
    """What came back from a cohort: updates, and for everyone else the reason why not.

    ``stored`` are the logged updates, where the server asked for them; ``seconds`` is how long the devices trained, in
    so many ``epochs``.
    """

    updates: Updates
    failures: Mapping[int | str, str] = field(default_factory=dict)
    stored: Updates | None = None
    seconds: float = 0.0
    epochs: int = 0
