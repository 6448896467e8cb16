"""The order of the rows in an update: that of the catalogue, which does not show which items are the user's own."""

from __future__ import annotations

import numpy as np

from fedforget.device.sampling import Items, Pointers
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact
from fedforget.runtime.workers import Places, Workers, next_place


def in_catalogue_order(ptr: Pointers, items: Items, rows: Array, n_items: int, workers: Workers) -> tuple[Items, Array]:
    """The item rows of each client, sorted by item. An item occurs at most once in the rows of a client."""
    sorted_items, sorted_rows = np.empty_like(items), np.empty_like(rows)

    def run(order: Places, counter: Places) -> None:
        _sort(order, counter, ptr, items, rows, n_items, sorted_items, sorted_rows)

    workers.run(run, costs=np.diff(ptr))
    return sorted_items, sorted_rows


@exact
def _sort(  # type: ignore[no-untyped-def]
    order, counter, ptr, items, rows, n_items, sorted_items, sorted_rows
) -> None:
    place = np.full(n_items, -1, np.int64)
    c = next_place(order, counter)
    while c >= 0:
        for i in range(ptr[c], ptr[c + 1]):
            place[items[i]] = i
        at = ptr[c]
        for item in range(n_items):
            i = place[item]
            if i >= 0:
                sorted_items[at] = item
                for j in range(rows.shape[1]):
                    sorted_rows[at, j] = rows[i, j]
                place[item] = -1
                at += 1
        c = next_place(order, counter)
