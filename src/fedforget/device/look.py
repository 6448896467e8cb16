"""Look: the users of a device and a model, side by side, for an evaluation that stays on the device."""

from __future__ import annotations

from dataclasses import dataclass

from fedforget.data import Interactions
from fedforget.device.devices import Devices
from fedforget.models import Public
from fedforget.models.parameters import Array
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

    def score(self, place: int) -> Array:
        """The scores of all items for the user at a place."""
        user = self.train.user_ids.tolist()[place]
        return self.devices.model.score(self.devices.private(user), self.public, self.train.items_of(place))
