"""LocalTraining: how a device trains in one round."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fedforget.errors import ConfigError

#: Settings that runs and terms of earlier versions do not have.
LATER = ("clip", "send_counts", "sum_over")
#: The smallest number of devices in a secure sum.
SMALLEST_SUM = 3


@dataclass(frozen=True)
class LocalTraining:
    """Local training in one round, with a new Adam optimiser each time.

    With ``refit`` the device first fits its user vector to the current item table by least squares, instead of
    continuing from its last round; for models that score by a dot product. With ``send_counts`` it reports the number
    of interactions it trained on, for aggregation rules that weigh by it. ``clip`` is the largest norm of an item row
    in its update (see ``protocol.bounds``), by default that of the model. If ``sum_over`` is not 0, it sends its update
    only as a part of a secure sum over at least that many devices (``ServerConfig.secure``).
    """

    epochs: int = 20
    batch: int = 64
    lr: float = 0.001
    refit: bool = False
    send_counts: bool = False
    clip: float | None = None
    sum_over: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values; those that came later only if they are set."""
        values = asdict(self)
        return {name: value for name, value in values.items() if name not in LATER or value}

    def __post_init__(self) -> None:
        for name, value in (("epochs", self.epochs), ("batch", self.batch)):
            if value < 1:
                raise ConfigError(f"{name} is {value}.", f"Give at least 1; the default is {LocalTraining()}.")
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise ConfigError(f"clip is {self.clip}.", "Give the largest norm of an item row in an update, such as 20.")
        if self.sum_over and self.sum_over < SMALLEST_SUM:
            raise ConfigError(
                f"sum_over is {self.sum_over}.",
                f"Give 0 for plain updates, or at least {SMALLEST_SUM}: a sum of two tells each device the other's.",
            )
        if not 0 < self.lr < 1:
            raise ConfigError(f"lr is {self.lr}.", "Give a learning rate between 0 and 1, such as 0.001.")
