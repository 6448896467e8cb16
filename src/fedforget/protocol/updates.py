"""Updates: what a cohort sends to the server, the change of the public parameters by local training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array
from fedforget.runtime.ragged import offsets

#: Selects clients or item rows.
Index = slice | NDArray[np.bool_]


@dataclass(frozen=True)
class Updates:
    """The updates of C clients, concatenated: sparse item rows and one dense vector each.

    Client c, the user ``users[c]``, changed the item rows ``items[ptr[c]:ptr[c + 1]]`` (each at most once) by the
    same rows of ``rows``, and the other public tensors by ``dense[c]``. Rows are in the order of the catalogue. It
    reports ``losses[c]``, the mean loss of its last epoch, and ``sizes[c]``, the number of interactions it trained on,
    or 0 if the aggregation rule does not need it (``LocalTraining.send_counts``).
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
        return cls(
            [],
            np.zeros(1, np.int64),
            np.empty(0, np.int32),
            np.empty((0, dim), np.float32),
            np.empty((0, dense), np.float32),
            np.empty(0, np.int64),
            np.empty(0, np.float32),
        )

    def __len__(self) -> int:
        return len(self.users)

    @property
    def nbytes(self) -> int:
        """The size of the updates on the network."""
        return int(self.items.nbytes + self.rows.nbytes + self.dense.nbytes)

    def fits(self, dim: int, dense: int) -> bool:
        """Whether all arrays have their types, and the shapes of a model with tensors of these sizes."""
        floats = all(array.dtype == np.float32 for array in (self.rows, self.dense, self.losses))
        return (
            floats
            and self.ptr.dtype == self.sizes.dtype == np.dtype(np.int64)
            and self.items.dtype == np.dtype(np.int32)
            and self.rows.shape == (self.items.size, dim)
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
        """Concatenate updates; a user may occur in several of the parts."""
        if len(parts) == 1:
            return parts[0]
        parts = [part for part in parts if len(part)] or list(parts[:1])
        return Updates(
            [user for part in parts for user in part.users],
            offsets(np.concatenate([np.diff(part.ptr) for part in parts])),
            np.concatenate([part.items for part in parts]),
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.dense for part in parts]),
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.losses for part in parts]),
        )

    @staticmethod
    def together(parts: Sequence[Updates], order: Sequence[int | str]) -> Updates | None:
        """Concatenate updates, sorted by the order of their users; None if there are none."""
        found = {user: (part, place) for part in parts for place, user in enumerate(part.users)}
        places = [found[user] for user in order if user in found]
        return Updates.end_to_end([part.between(place, place + 1) for part, place in places]) if places else None

    def between(self, start: int, stop: int) -> Updates:
        """The updates of the clients ``start`` to ``stop`` (exclusive), without copying them."""
        if start == 0 and stop == len(self):
            return self
        ptr = self.ptr[start : stop + 1] - self.ptr[start]
        return self._part(self.users[start:stop], ptr, slice(start, stop), slice(self.ptr[start], self.ptr[stop]))

    def only(self, keep: NDArray[np.bool_]) -> Updates:
        """The updates of some of the clients."""
        if keep.all():
            return self
        if not keep.any():  # updates with wrong shapes, which cannot be indexed by a mask, come here too
            return self._part([], np.zeros(1, np.int64), slice(0), slice(0))
        users = [user for user, kept in zip(self.users, keep, strict=True) if kept]
        sizes = np.diff(self.ptr)
        return self._part(users, offsets(sizes[keep]), keep, np.repeat(keep, sizes))

    def _part(self, users: Sequence[int | str], ptr: NDArray[np.int64], clients: Index, rows: Index) -> Updates:
        dense, sizes, losses = self.dense[clients], self.sizes[clients], self.losses[clients]
        return Updates(users, ptr, self.items[rows], self.rows[rows], dense, sizes, losses)


@dataclass(frozen=True)
class Total:
    """The sum of the updates of several clients: all that the server gets with secure aggregation.

    ``items`` is the sum of the clients' updates of the item table, ``dense`` that of the other tensors they send,
    ``touches`` the number of clients that sent each item row, ``loss`` the mean of their losses, if they have any.
    ``nbytes`` is the size of their messages on the network.
    """

    users: Sequence[int | str]
    items: Array
    dense: Array
    touches: NDArray[np.int64]
    loss: float | None
    nbytes: int = 0

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True)
class CohortResult:
    """The updates of a cohort, and the reason of every user without one.

    ``stored`` are the logged updates if the server asked for them; ``seconds`` is the time that the devices trained,
    for ``epochs`` epochs. With secure aggregation there are no updates but their sum, ``total``, and that of the logged
    updates, ``stored_total``.
    """

    updates: Updates
    failures: Mapping[int | str, str] = field(default_factory=dict)
    stored: Updates | None = None
    seconds: float = 0.0
    epochs: int = 0
    total: Total | None = None
    stored_total: Total | None = None

    @property
    def sent(self) -> Updates | Total:
        """The updates of the cohort, or their sum."""
        return self.updates if self.total is None else self.total
