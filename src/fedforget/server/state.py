"""ServerState: the state that the server passes from round to round and stores in snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from fedforget.models import GlobalParameters, Layout
from fedforget.models.parameters import Array, checksum_of

#: Prefix of the optimiser's tensors in a snapshot.
PREFIX = "optimiser."


@dataclass(frozen=True)
class ServerState:
    """The public parameters, and the tensors that the server's optimiser keeps (none for plain averaging)."""

    public: GlobalParameters
    moments: Mapping[str, Array] = field(default_factory=dict)

    @property
    def checksum(self) -> str:
        """A fast checksum of the parameters, the moments and their names."""
        names = sorted(self.moments)
        named = [np.frombuffer(" ".join(names).encode("utf-32-le"), np.float32)] if names else []
        return checksum_of([self.public.items, self.public.dense, *named, *(self.moments[name] for name in names)])

    def grown(self, rows: Array) -> ServerState:
        """The state with more item rows. Moments whose name ends in ``items`` have a row per item, 0 for new ones."""
        public = replace(self.public, items=np.concatenate([self.public.items, rows]))
        zeros = np.zeros_like(rows)
        moments = {
            name: np.concatenate([value, zeros]) if name.endswith("items") else value
            for name, value in self.moments.items()
        }
        return ServerState(public, moments)

    def to_bytes(self) -> bytes:
        """The content of a safetensors file."""
        tensors = self.public.named() | {PREFIX + name: value for name, value in self.moments.items()}
        data: bytes = save({name: np.ascontiguousarray(value) for name, value in tensors.items()})
        return data

    @classmethod
    def from_file(cls, path: Path, layout: Layout) -> ServerState:
        """Read a safetensors file."""
        tensors: dict[str, Any] = load_file(path)
        moments = {
            name.removeprefix(PREFIX): value.astype(np.float32, copy=False)
            for name, value in tensors.items()
            if name.startswith(PREFIX)
        }
        return cls(GlobalParameters.from_tensors(tensors, layout), moments)
