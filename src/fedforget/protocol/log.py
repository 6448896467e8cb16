"""Log: what a device keeps of its updates."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fedforget.errors import ConfigError, unknown_choice
from fedforget.protocol.encoding import ENCODINGS, Encoding
from fedforget.runtime.components import ComponentField

#: Which item rows of an update are kept: those with the largest L2 norm, a random choice, or every one.
SELECTIONS = ["importance", "random", "all"]
#: What happens when a device's quota is used up: its oldest entries are dropped, or new updates are not kept.
POLICIES = ["oldest", "stop"]
#: Files of simulated devices in a run folder: one file a round for all of them, or one SQLite file a device.
STORES = ["packed", "sqlite"]


@dataclass(frozen=True)
class Log:
    """Settings of the update log.

    ``encoding`` is an ``Encoding`` or its name; ``alpha`` is the fraction of an update's item rows that ``selection``
    keeps (not used with ``"all"``). ``quota`` limits the bytes a device may use (0: no limit), ``when_full`` is the
    policy then. ``store`` is used by simulated runs in a folder. The paper's log is
    ``Log("float32", "importance", 0.5)``.
    """

    encoding: ComponentField[Encoding] = ComponentField(ENCODINGS, "lengths")
    selection: str = "all"
    alpha: float = 0.5
    quota: int = 0
    when_full: str = "oldest"
    store: str = "packed"

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("selection", self.selection, SELECTIONS),
            ("when_full", self.when_full, POLICIES),
            ("store", self.store, STORES),
        ):
            if value not in known:
                raise unknown_choice(kind, value, known)
        if not 0 < self.alpha <= 1:
            raise ConfigError(f"alpha is {self.alpha}.", "Give the fraction of item rows to keep: above 0, at most 1.")
        if self.quota < 0:
            raise ConfigError(f"quota is {self.quota}.", "Give the bytes a device may use, or 0 for no limit.")

    @property
    def whole_updates(self) -> bool:
        """Whether updates can be read back, not only their lengths."""
        return self.encoding.whole_updates

    @property
    def share(self) -> float:
        """The fraction of item rows that is kept."""
        return 1.0 if self.selection == "all" else self.alpha

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "encoding": self.encoding.spec()}
