"""DeviceFiles: what the simulated devices of a trajectory store: their update logs and their interactions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedforget.data import Interactions
from fedforget.device.log import LogStore, MemoryStore, PackedStore, SqliteStore
from fedforget.device.log.device_log import DeviceLog, open_log
from fedforget.runtime.fallbacks import announce
from fedforget.runtime.randomness import UserId, user_key
from fedforget.server.history import History
from fedforget.server.request import ItemsOf
from fedforget.server.run_config import RunConfig
from fedforget.simulation.stored_data import StoredData


class DeviceFiles:
    """The logs and the data of all devices, in a folder or in memory."""

    def __init__(self, log: DeviceLog, data: StoredData, folder: Path | None = None) -> None:
        self.folder = folder or Path()
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
        return cls(open_log(config, config.id, store), StoredData(None if folder is None else folder / "data"), folder)

    def announce_losses(self, history: History, until: int, users: Interactions, *, quota: bool) -> None:
        """Announce what devices have lost that took part in rounds up to this one.

        Update logs in one file per user are missed with their users. With a ``quota`` logs may end early.
        """
        store = self.log.store
        took_part = users.user_keys[[users.user_index(user) for user in history.took_part(until)]]
        lost = took_part[~np.isin(took_part, store.private_state(until).keys)]
        if lost.size:
            damage = "are missing or damaged. Those in their update logs, or initial ones, are used instead"
            who = f"the private parameters of {lost.size:,} of {took_part.size:,} users who took part"
            announce(f"{self.folder}: {who} {damage}.", self.folder, f"private parameters {damage}", lost.tolist())
        if isinstance(store, PackedStore) and not quota and (missing := store.missing(history.active_rounds(until))):
            text = "update logs of rounds are missing; an erasure that needs them leaves them out"
            warning = (
                f"{self.folder}: the update logs of {len(missing):,} rounds are missing, such as round {missing[0]}. "
                "An erasure that needs them leaves them out."
            )
            announce(warning, self.folder, text)

    def last_round(self) -> int:
        return self.log.last_round()

    def branch(
        self, folder: Path | None, until: int, without: Sequence[UserId], items: ItemsOf, additions: int
    ) -> DeviceFiles:
        keys = np.array([user_key(user) for user in without], np.uint64)
        log = self.log.branch(folder, until, keys)
        data = self.data.branch(None if folder is None else folder / "data", without, items, additions)
        return DeviceFiles(log, data, folder)

    def copy_to(self, other: DeviceFiles) -> None:
        self.log.copy_to(other.log)

    def close(self) -> None:
        self.log.close()
