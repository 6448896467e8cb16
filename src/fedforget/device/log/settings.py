"""Log: what a device keeps of its updates."""

from __future__ import annotations

from dataclasses import dataclass

from fedforget.errors import ConfigError, one_of

#: How the numbers of an update are kept, from whole to smallest. ``int8`` has one scale a row (and a tensor);
#: ``lengths`` keeps no numbers but the length of each row and of each other tensor.
ENCODINGS = ["float32", "float16", "int8", "lengths"]
#: Which item rows of an update are kept: those with the largest L2 norm, a random choice, or every one.
SELECTIONS = ["importance", "random", "all"]
#: What happens when a device's quota is used up: its oldest entries go, or new updates are no longer kept.
POLICIES = ["oldest", "stop"]
#: Where a run folder keeps its devices' logs: one file a round for all of them, or one SQLite file a device.
STORES = ["packed", "sqlite"]


@dataclass(frozen=True)
class Log:
    """The update log's settings: the encoding, the selected share α of an update's item rows, and a quota.

    ``quota`` is in bytes a device, 0 for none; ``when_full`` says what gives way. ``store`` is for runs in a folder;
    the others keep their logs in memory. The paper's log is ``Log("float32", "importance", 0.5)``; with
    ``selection="all"`` α does not count.
    """

    encoding: str = "lengths"
    selection: str = "all"
    alpha: float = 0.5
    quota: int = 0
    when_full: str = "oldest"
    store: str = "packed"

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("encoding", self.encoding, ENCODINGS),
            ("selection", self.selection, SELECTIONS),
            ("when_full", self.when_full, POLICIES),
            ("store", self.store, STORES),
        ):
            if value not in known:
                raise one_of(kind, value, known)
        if not 0 < self.alpha <= 1:
            raise ConfigError(f"alpha is {self.alpha}.", "α is the share of an update's item rows that the log keeps.")
        if self.quota < 0:
            raise ConfigError(f"quota is {self.quota}.", "Give bytes a device, or 0 for no quota.")

    @property
    def whole_updates(self) -> bool:
        """Whether updates can be read back, not only their lengths."""
        return self.encoding != "lengths"

    @property
    def share(self) -> float:
        """The share of item rows that is kept."""
        return 1.0 if self.selection == "all" else self.alpha
