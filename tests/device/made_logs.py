"""What devices might log, written down by hand or drawn by Hypothesis, for the tests of logs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedforget.device.kernels.norms import row_lengths, tensor_lengths
from fedforget.device.log.codec import Codec, Logged
from fedforget.device.log.row_selection import select
from fedforget.models import Layout
from fedforget.protocol.log import Log

DIM, PRIVATE = 3, 4
LAYOUT = Layout({"mlp.weight": (2, 3), "mlp.bias": (2,)})
#: From far below to far above what a round of training changes, and nothing at all.
NUMBERS = (st.floats(-8, 8) | st.floats(-1e-3, 1e-3) | st.just(0.0)).map(lambda x: x if abs(x) > 1e-15 else 0.0)


def codec_of(log: Log, federation: str = "here", layout: Layout = LAYOUT) -> Codec:
    return Codec(log, federation, layout, DIM, PRIVATE)


def numbers(shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(np.float64, shape, elements=NUMBERS).map(np.float32)


def logged_of(
    rows: list[np.ndarray],
    log: Log | None = None,
    *,
    keys: list[int] | None = None,
    positives: list[int] | None = None,
    draw_bits: list[bytes] | None = None,
    dense: np.ndarray | None = None,
    private: np.ndarray | None = None,
    round_: int = 1,
) -> Logged:
    """What the clients whose updates have these rows hand to the codec."""
    n = len(rows)
    ptr = np.concatenate([[0], np.cumsum([len(part) for part in rows])]).astype(np.int64)
    together = np.concatenate([np.empty((0, DIM)), *rows]).astype(np.float32)
    own_keys = np.array(range(1, n + 1) if keys is None else keys, np.uint64)
    bits = draw_bits or [b""] * n
    dense = np.zeros((n, LAYOUT.size), np.float32) if dense is None else dense
    lengths = row_lengths(together)
    return Logged(
        own_keys,
        np.array([len(part) for part in rows] if positives is None else positives, np.int64),
        ptr,
        np.concatenate([[0], np.cumsum([len(walk) for walk in bits])]).astype(np.int64),
        np.frombuffer(b"".join(bits), np.uint8),
        select(log or Log(), ptr, lengths, own_keys, 0, round_),
        lengths,
        tensor_lengths(dense, LAYOUT),
        np.zeros((n, PRIVATE), np.float32) if private is None else private,
        together,
        dense,
    )


@st.composite
def any_logged(draw: st.DrawFn, log: Log, min_clients: int = 0) -> Logged:
    """What a few clients did in a round, some of whom touched nothing."""
    keys = draw(st.lists(st.integers(0, 2**64 - 1), min_size=min_clients, max_size=4, unique=True))
    counts = [draw(st.integers(0, 11)) for _ in keys]
    return logged_of(
        [draw(numbers((count, DIM))) for count in counts],
        log,
        keys=keys,
        positives=[draw(st.integers(0, count)) for count in counts],
        draw_bits=[draw(st.binary(max_size=4)) for _ in keys],
        dense=draw(numbers((len(keys), LAYOUT.size))),
        private=draw(numbers((len(keys), PRIVATE))),
    )


def tensors(dense: np.ndarray) -> list[np.ndarray]:
    """The tensors of dense updates, each as one row a client."""
    return [dense[:, start:end] for start, end in pairwise(LAYOUT.bounds.tolist())]
