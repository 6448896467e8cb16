"""The update log: what a device stores of each round that it trains, so that rounds can be replayed quickly.

``codec`` has the format of an entry, ``row_selection`` chooses the rows to keep, and stores keep the entries.
"""

from fedforget.device.log.contract import LogStore, PrivateState
from fedforget.device.log.entries import Entries, Keys
from fedforget.device.log.memory import MemoryStore
from fedforget.device.log.packed import PackedStore
from fedforget.device.log.sqlite import SqliteStore
from fedforget.protocol.log import Log

__all__ = ["Entries", "Keys", "Log", "LogStore", "MemoryStore", "PackedStore", "PrivateState", "SqliteStore"]
