"""The result of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedforget.protocol.metrics import FULL, SAMPLED


@dataclass(frozen=True)
class Evaluation:
    """Metrics at k per user, in both protocols; the columns are those of ``protocol.metrics``."""

    k: int
    users: NDArray[Any]
    per_user_sampled: NDArray[np.float64]
    per_user_full: NDArray[np.float64]

    @property
    def sampled(self) -> dict[str, float]:
        """Means over users in the sampled protocol."""
        return dict(zip(SAMPLED, self.per_user_sampled.mean(0).tolist(), strict=True))

    @property
    def full(self) -> dict[str, float]:
        """Means over users in the full protocol."""
        return dict(zip(FULL, self.per_user_full.mean(0).tolist(), strict=True))

    def of(self, users: NDArray[Any]) -> Evaluation:
        """The evaluation of some of the users only."""
        wanted = set(np.asarray(users).tolist())
        keep = np.array([user in wanted for user in self.users.tolist()], bool)
        return Evaluation(self.k, self.users[keep], self.per_user_sampled[keep], self.per_user_full[keep])

    def to_frame(self) -> pl.DataFrame:
        """A frame with one row per user and the columns ``user``, ``sampled_hr``, … ``full_recall``."""
        columns: dict[str, Any] = {"user": self.users.tolist()}
        columns |= {f"sampled_{name}": self.per_user_sampled[:, i] for i, name in enumerate(SAMPLED)}
        columns |= {f"full_{name}": self.per_user_full[:, i] for i, name in enumerate(FULL)}
        return pl.DataFrame(columns)

    def to_dict(self) -> dict[str, Any]:
        """The means, for JSON."""
        return {"k": self.k, "users": int(self.users.size), "sampled": self.sampled, "full": self.full}

    def __str__(self) -> str:
        sampled = ", ".join(f"{name.upper()}@{self.k} {value:.4f}" for name, value in self.sampled.items())
        full = ", ".join(f"{name.upper()}@{self.k} {value:.4f}" for name, value in self.full.items())
        return f"sampled: {sampled}\nfull:    {full}\n({self.users.size:,} users)"
