"""The log that a device keeps of its own training, round by round: what makes forgetting fast.

``settings`` says what is kept, ``select`` which rows, ``codec`` how it is written, a store where.
"""

from fedforget.device.log.contract import Exact, LogStore
from fedforget.device.log.entries import Entries, Keys
from fedforget.device.log.memory import MemoryStore
from fedforget.device.log.packed import PackedStore
from fedforget.device.log.settings import Log
from fedforget.device.log.sqlite import SqliteStore

__all__ = ["Entries", "Exact", "Keys", "Log", "LogStore", "MemoryStore", "PackedStore", "SqliteStore"]
