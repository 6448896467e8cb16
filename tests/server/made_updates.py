"""Updates written down by hand or drawn by Hypothesis, for the tests of what a server does with them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from fedforget.models import MF, GlobalParameters, Layout
from fedforget.protocol.training import LocalTraining
from fedforget.protocol.updates import Updates
from fedforget.server.roster import Roster
from fedforget.server.rounds import Aggregator
from fedforget.server.run_config import RunConfig
from fedforget.server.server_config import ServerConfig

N_ITEMS, DIM, DENSE = 6, 2, 3


def public_part(fill: float = 0.0) -> GlobalParameters:
    return GlobalParameters(
        np.full((N_ITEMS, DIM), fill, np.float32), np.full(DENSE, fill, np.float32), Layout({"mlp": (DENSE,)})
    )


class Made(MF):
    """A model of the shape of ``public_part``."""

    def dense_shapes(self):
        return {"mlp": (DENSE,)}


def aggregator(server: ServerConfig | None = None, users: int = 4) -> Aggregator:
    return Aggregator(server or ServerConfig(), Made(dim=DIM), Roster(range(users)))


def config_of(server: ServerConfig, epochs: int, seed: int) -> RunConfig:
    """The configuration of a run with ``Made``."""
    return RunConfig(model=Made(dim=DIM), training=LocalTraining(epochs=epochs), server=server, seed=seed)


def updates_of(
    clients: Mapping[int | str, Mapping[int, list[float]]],
    dense: list[list[float]] | None = None,
    sizes=None,
    losses=None,
) -> Updates:
    """The updates of clients, each given as its changed rows by item."""
    rows = [row for client in clients.values() for row in client.values()]
    return Updates(
        list(clients),
        np.concatenate([[0], np.cumsum([len(client) for client in clients.values()])]).astype(np.int64),
        np.array([item for client in clients.values() for item in client], np.int32),
        np.array(rows, np.float32).reshape(len(rows), DIM),
        np.zeros((len(clients), DENSE), np.float32) if dense is None else np.array(dense, np.float32),
        np.array([max(1, len(client)) for client in clients.values()] if sizes is None else sizes, np.int64),
        np.array(np.ones(len(clients)) if losses is None else losses, np.float32),
    )


@st.composite
def any_updates(draw, min_clients: int = 1) -> Updates:
    """Sound updates of a few clients, in no particular order of items."""
    number = st.floats(-8, 8, width=32)
    row = st.lists(number, min_size=DIM, max_size=DIM)
    client = st.dictionaries(st.integers(0, N_ITEMS - 1), row, max_size=N_ITEMS)
    clients = draw(st.dictionaries(st.integers(0, 99), client, min_size=min_clients, max_size=5))
    dense = draw(
        st.lists(st.lists(number, min_size=DENSE, max_size=DENSE), min_size=len(clients), max_size=len(clients))
    )
    sizes = draw(st.lists(st.integers(1, N_ITEMS), min_size=len(clients), max_size=len(clients)))
    return updates_of(clients, dense or np.zeros((0, DENSE)), sizes)
