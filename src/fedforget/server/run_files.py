"""RunFiles: the files that a run folder may have, and those in it that nothing refers to."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from fedforget.server.history import History

#: What is not known is looked at again after so many seconds, since a server may be writing.
SETTLE_SECONDS = 1.0
_DATABASE = r"sqlite(-wal|-shm)?"
_RUN = [
    rf"config\.toml|lock|request\.json|invitation\.json|registry\.{_DATABASE}",
    r"queue/(lock|\d+-[\w-]+\.json|[\w-]+\.refused)",
    r"receipts/[\w-]+(\.audit)?\.json",
    r"receipts/signed/(lock|\d{6,}-[\w-]+\.json)",
    rf"service/(lock|service\.{_DATABASE}|calls/calls-[\d-]+\.jsonl)",
    r"service/signing/(lock|(key|certificate|next)\.pem|retired/\d+\.pem)",
]
_TRAJECTORY = [
    rf"history\.{_DATABASE}|metrics\.jsonl|(snapshots|factors)/\d{{6,}}\.safetensors",
    rf"devices/(lock|private\.bin|rounds/\d+(-\d+)?\.log|[0-9a-f]{{16}}\.{_DATABASE})",
    r"devices/data/(items\.json|\d{6,}\.safetensors)",
]


class RunFiles:
    """The files of a run folder whose trajectory in service has a history."""

    def __init__(self, folder: Path, trajectory: str, history: History) -> None:
        self.folder, self.trajectory, self.history = folder, trajectory, history
        own = rf"{re.escape(trajectory)}/({'|'.join(_TRAJECTORY)})"
        self._known = re.compile("|".join([*_RUN, own]))

    def unexpected(self) -> list[str]:
        """Files that are not part of a run, but those of other trajectories."""
        return self._settled(lambda: [name for name in self._names() if not self._known.fullmatch(name)])

    def unreferenced(self) -> list[str]:
        """Models and data that the history does not know, wherever they are."""
        return self._settled(lambda: [name for name in self._names() if self._is_unreferenced(name)])

    def _is_unreferenced(self, name: str) -> bool:
        path = Path(name)
        if path.suffix != ".safetensors":
            return False
        place, number = path.parent.as_posix(), int(path.stem) if path.stem.isdecimal() else -1
        known: dict[str, Callable[[], bool]] = {
            "snapshots": lambda: number in self.history.steps_after(-1),
            "factors": lambda: 0 < number <= self.history.last_round,
            "devices/data": lambda: 0 <= number <= self.history.membership.additions(),
        }
        check = known.get(place.removeprefix(f"{self.trajectory}/"))
        return check is None or not check()

    def _names(self) -> list[str]:
        names = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if not path.is_dir())
        other = re.compile(rf"trajectory-(?!{re.escape(self.trajectory.removeprefix('trajectory-'))}/).*")
        return sorted(name for name in names if not other.fullmatch(name))

    def _settled(self, find: Callable[[], list[str]]) -> list[str]:
        """What is found twice."""
        found = find()
        if found:
            time.sleep(SETTLE_SECONDS)
            again = set(find())
            found = [name for name in found if name in again]
        return found
