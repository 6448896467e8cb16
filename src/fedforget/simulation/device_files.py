"""DeviceFiles: what the simulated devices of a trajectory store: their update logs and their interactions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedforget.device.log import LogStore, MemoryStore, PackedStore, SqliteStore
from fedforget.device.log.device_log import DeviceLog, open_log
from fedforget.runtime.randomness import UserId, user_key
from fedforget.server.request import ItemsOf
from fedforget.server.run_config import RunConfig
from fedforget.simulation.stored_data import StoredData


class DeviceFiles:
    """The logs and the data of all devices, in a folder or in memory."""

    def __init__(self, log: DeviceLog, data: StoredData) -> None:
        self.log = log
        self.data = data

    @classmethod
    def open(cls, folder: Path | None, config: RunConfig) -> DeviceFiles:
        """Open the files of a trajectory."""
        store: LogStore
        if folder is None:
            store = MemoryStore()
        else:
            store = (PackedStore if config.log.store == "packed" else SqliteStore)(folder, config.id)
        return cls(open_log(config, config.id, store), StoredData(None if folder is None else folder / "data"))

    def missing_rounds(self, rounds: Sequence[int]) -> list[int]:
        """Those of these rounds whose update logs are gone; logs in a file per user are missed with their users."""
        store = self.log.store
        return store.missing(rounds) if isinstance(store, PackedStore) else []

    def last_round(self) -> int:
        return self.log.last_round()

    def branch(
        self, folder: Path | None, until: int, without: Sequence[UserId], items: ItemsOf, additions: int
    ) -> DeviceFiles:
        keys = np.array([user_key(user) for user in without], np.uint64)
        log = self.log.branch(folder, until, keys)
        data = self.data.branch(None if folder is None else folder / "data", without, items, additions)
        return DeviceFiles(log, data)

    def copy_to(self, other: DeviceFiles) -> None:
        self.log.copy_to(other.log)

    def close(self) -> None:
        self.log.close()
