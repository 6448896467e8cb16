"""Tasks: what a server can ask devices to do in a round.

A new task is one class here and one operation in ``device.devices``. Messages, the simulation and Flower's apps need no
change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedforget.runtime.components import Component, Registry
from fedforget.runtime.randomness import UserId

#: Which users are asked for which round.
Asked = Mapping[int, Sequence[UserId]]

#: Items that a device replays a round on: newly drawn negatives, or the items that its log names for the round.
ITEMS = ["fresh", "logged"]
#: Parts of a new update that get their logged lengths: item rows only, or every tensor (the paper), or none.
PARTS = ["rows", "all", "none"]


@dataclass(frozen=True)
class Task(Component):
    """Base class of tasks."""

    #: Whether the global parameters are sent with the task.
    needs_parameters: ClassVar[bool] = True


@dataclass(frozen=True)
class Train(Task):
    """Train from the global parameters for ``epochs`` epochs.

    Devices train on the interactions that count in the round or, if it is not 0, in the round ``counted_in``.
    """

    epochs: int
    counted_in: int = 0

    name: ClassVar[str] = "train"


@dataclass(frozen=True)
class Replay(Task):
    """Replay past rounds: train for ``epochs`` epochs on ``items``, then give ``parts`` their logged lengths.

    The private update is multiplied by ``private_scale``. With ``stored`` the device sends its logged update too and
    waits for the server's ``Factors`` before it logs the round.
    """

    epochs: int
    items: str = "fresh"
    parts: str = "rows"
    stored: bool = False
    private_scale: float = 1.0

    name: ClassVar[str] = "replay"


@dataclass(frozen=True)
class Recall(Task):
    """Send the logged update of a past round and restore the logged private parameters."""

    name: ClassVar[str] = "recall"
    needs_parameters: ClassVar[bool] = False


@dataclass(frozen=True)
class RemoveItems(Task):
    """Go to the trajectory in service and remove what was erased, without any training; the new model comes with it."""

    name: ClassVar[str] = "remove-items"


TASKS = Registry("task", "fedforget.tasks", Task, Train, Replay, Recall, RemoveItems)
