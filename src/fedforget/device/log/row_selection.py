"""Row selection: which item rows of an update the log keeps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array
from fedforget.protocol.log import Log
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact
from fedforget.runtime.randomness import Rounds


def select(
    log: Log, ptr: NDArray[np.int64], lengths: Array, keys: NDArray[np.uint64], seed: int, rounds: Rounds
) -> NDArray[np.bool_]:
    """Whether each row of a cohort's updates is kept: the fraction α of each update, at least one row."""
    if log.share == 1.0:
        return np.ones(lengths.size, np.bool_)
    streams = randomness.priorities(seed, randomness.SELECTION, rounds, keys)
    kept = np.zeros(lengths.size, np.bool_)
    _select(ptr, lengths, streams, log.share, log.selection == "importance", kept)
    return kept


@exact
def _select(ptr, lengths, streams, share, by_length, kept) -> None:  # type: ignore[no-untyped-def]
    state = np.empty(1, np.uint64)
    for c in range(ptr.size - 1):
        n = ptr[c + 1] - ptr[c]
        wanted = min(n, max(1, int(share * n + 0.5)))
        if by_length:
            rows = np.argsort(-lengths[ptr[c] : ptr[c + 1]], kind="mergesort").astype(np.int32)
        else:
            rows = np.arange(n).astype(np.int32)
            state[0] = streams[c]
            randomness.choose(state, rows, wanted)
        for i in rows[:wanted]:
            kept[ptr[c] + i] = True
