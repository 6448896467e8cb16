"""Updates: what a cohort sends to the server, the difference that local training made to the public parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array
from fedforget.runtime.ragged import offsets


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

    @classmethod
    def none(cls, dim: int = 0, dense: int = 0) -> Updates:
        """No updates."""
        nothing, numbers = np.empty(0, np.int64), np.empty((0, dim), np.float32)
        ptr, items = np.zeros(1, np.int64), nothing.astype(np.int32)
        return cls([], ptr, items, numbers, np.empty((0, dense), np.float32), nothing, np.empty(0, np.float32))

    def __len__(self) -> int:
        return len(self.users)

    @property
    def nbytes(self) -> int:
        """What the updates weigh when they are sent."""
        return int(self.items.nbytes + self.rows.nbytes + self.dense.nbytes)

    def fits(self, dim: int, dense: int) -> bool:
        """Whether the parts fit together, and to a model with item vectors and other tensors of these sizes."""
        return (
            self.rows.shape == (self.items.size, dim)
            and self.dense.shape == (len(self), dense)
            and self.sizes.shape == (len(self),)
            and self.losses.shape == (len(self),)
            and self.ptr.shape == (len(self) + 1,)
            and self.ptr[0] == 0
            and self.ptr[-1] == self.items.size
            and not (np.diff(self.ptr) < 0).any()
        )

    @staticmethod
    def end_to_end(parts: Sequence[Updates]) -> Updates:
        """The updates of several parts, one part after the other; a user may be in several of them."""
        if len(parts) == 1:
            return parts[0]
        parts = [part for part in parts if len(part)] or list(parts[:1])
        counts = np.concatenate([np.diff(part.ptr) for part in parts])
        return Updates(
            [user for part in parts for user in part.users],
            offsets(counts),
            np.concatenate([part.items for part in parts]),
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.dense for part in parts]),
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.losses for part in parts]),
        )

    @staticmethod
    def together(parts: Sequence[Updates], order: Sequence[int | str]) -> Updates | None:
        """The updates of several parts, their clients in this order; None if there are none."""
        found = {user: (part, place) for part in parts for place, user in enumerate(part.users)}
        users = [user for user in order if user in found]
        if not users:
            return None
        places = [found[user] for user in users]
        spans = [(part, slice(part.ptr[place], part.ptr[place + 1])) for part, place in places]
        return Updates(
            users,
            offsets([part.ptr[place + 1] - part.ptr[place] for part, place in places]),
            np.concatenate([part.items[span] for part, span in spans]),
            np.concatenate([part.rows[span] for part, span in spans]),
            np.stack([part.dense[place] for part, place in places]),
            np.array([part.sizes[place] for part, place in places], np.int64),
            np.array([part.losses[place] for part, place in places], np.float32),
        )

    def between(self, start: int, stop: int) -> Updates:
        """The updates of the clients from one place to another, without copying them."""
        if start == 0 and stop == len(self):
            return self
        rows = slice(self.ptr[start], self.ptr[stop])
        return Updates(
            self.users[start:stop],
            self.ptr[start : stop + 1] - self.ptr[start],
            self.items[rows],
            self.rows[rows],
            self.dense[start:stop],
            self.sizes[start:stop],
            self.losses[start:stop],
        )

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
            offsets(np.diff(self.ptr)[keep]),
            self.items[rows],
            self.rows[rows],
            self.dense[keep],
            self.sizes[keep],
            self.losses[keep],
        )


@dataclass(frozen=True)
class CohortResult:
    """What came back from a cohort: updates, and for everyone else the reason why not.

    ``stored`` are the logged updates, where the server asked for them; ``seconds`` is how long the devices trained, in
    so many ``epochs``.
    """

    updates: Updates
    failures: Mapping[int | str, str] = field(default_factory=dict)
    stored: Updates | None = None
    seconds: float = 0.0
    epochs: int = 0
