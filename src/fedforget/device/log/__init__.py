"""The log that a device keeps of its own training, round by round: what makes forgetting fast.

``settings`` says what is kept, ``select`` which rows, ``codec`` how it is written, a store where.
"""

from fedforget.device.log.contract import LogStore, PrivateState
from fedforget.device.log.entries import Entries, Keys
from fedforget.device.log.memory import MemoryStore
from fedforget.device.log.packed import PackedStore
from fedforget.device.log.sqlite import SqliteStore
from fedforget.protocol.log import Log

__all__ = ["Entries", "Keys", "Log", "LogStore", "MemoryStore", "PackedStore", "PrivateState", "SqliteStore"]
