"""Look: the users of a device and a model, side by side, for an evaluation that stays on the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fedforget.data import Interactions
from fedforget.device.devices import Devices
from fedforget.device.scoring import PlaceScorer
from fedforget.models import Public
from fedforget.workers import Workers


@dataclass(frozen=True)
class Look:
    """A device's users, what they train on and what is kept back, and a model to look at them with."""

    devices: Devices
    test: Interactions
    public: Public

    @property
    def train(self) -> Interactions:
        """What the users train on."""
        return self.devices.interactions

    @property
    def workers(self) -> Workers:
        """The threads of the device."""
        return self.devices.workers

    @cached_property
    def score(self) -> PlaceScorer:
        """The scores of all items for the user at a place."""
        return self.devices.scorer(self.public)
