"""FactorsFolder: the factors of replayed rounds, kept for devices that have not received them yet."""

from __future__ import annotations

from pathlib import Path

from safetensors.numpy import load_file, save

from fedforget.errors import RunError
from fedforget.protocol.factors import Factors
from fedforget.runtime.files import link_file, make_folder, write_file


class FactorsFolder:
    """``factors/NNNNNN.safetensors`` for the rounds of one trajectory; in memory when there is no folder."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = None if folder is None else folder / "factors"
        self._in_memory: dict[int, Factors] = {}

    def put(self, round_: int, factors: Factors) -> None:
        if self.folder is None:
            self._in_memory[round_] = factors
        else:
            make_folder(self.folder)
            write_file(self._path(round_), save({"items": factors.items.copy(), "dense": factors.dense.copy()}))

    def get(self, round_: int) -> Factors | None:
        """A round's factors; None if the server did not calibrate in it."""
        if self.folder is None or not self._path(round_).exists():
            return self._in_memory.get(round_)
        try:
            parts = load_file(self._path(round_))
            return Factors(parts["items"], parts["dense"])
        except Exception as error:  # safetensors raises its own type for a damaged file
            raise RunError(
                f"The factors {self._path(round_)} are damaged: {error}.",
                "Remove the file: devices that still need it then have no log entry for that round.",
            ) from error

    def link_to(self, other: FactorsFolder, until: int) -> None:
        """Link the factors up to a round into the folder of another trajectory, whose devices may still need them."""
        if self.folder is None or other.folder is None or not self.folder.is_dir():
            return
        make_folder(other.folder)
        for path in self.folder.glob("*.safetensors"):
            if int(path.stem) <= until:
                link_file(path, other.folder / path.name)

    def _path(self, round_: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{round_:06d}.safetensors"
