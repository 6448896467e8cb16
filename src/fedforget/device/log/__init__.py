"""The log that a device keeps of its own training, round by round.

So far an entry holds the private parameters after a round: enough to resume, and to return to an earlier round. The
update itself joins it with unlearning.
"""

from fedforget.device.log.contract import DeviceLog
from fedforget.device.log.memory import MemoryLog
from fedforget.device.log.sqlite import SqliteLog

__all__ = ["DeviceLog", "MemoryLog", "SqliteLog"]
