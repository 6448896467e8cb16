"""LocalTraining: how a device trains in one round."""

from __future__ import annotations

from dataclasses import dataclass

from fedforget.errors import ConfigError


@dataclass(frozen=True)
class LocalTraining:
    """Local training in one round, with a new Adam optimiser each time.

    With ``refit`` the device first fits its user vector to the current item table by least squares, instead of
    continuing from its last round; for models that score by a dot product. With ``send_counts`` it reports the number
    of interactions it trained on, for aggregation rules that weigh by it.
    """

    epochs: int = 20
    batch: int = 64
    lr: float = 0.001
    refit: bool = False
    send_counts: bool = False

    def __post_init__(self) -> None:
        for name, value in (("epochs", self.epochs), ("batch", self.batch)):
            if value < 1:
                raise ConfigError(f"{name} is {value}.", f"Give at least 1; the default is {LocalTraining()}.")
        if not 0 < self.lr < 1:
            raise ConfigError(f"lr is {self.lr}.", "Give a learning rate between 0 and 1, such as 0.001.")
