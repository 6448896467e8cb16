"""Negative samplers: which items a device trains against.

Once per user and round, before local training, a device forms a candidate pool of items without interactions and draws
N · β · positives negatives from it, without replacement unless the pool is too small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedforget.errors import ConfigError
from fedforget.runtime.components import Component, Registry


@dataclass(frozen=True)
class Sampler(Component):
    """Base class of negative samplers.

    ``R`` is the pool's size in percent of the items without interactions, ``beta`` in (0, 1] reduces the number of
    negatives. A sampler of your own overrides ``pool``; the built-in ones set ``near_user`` and ``near_items``.
    """

    R: float = 75.0
    beta: float = 0.5

    #: Whether the pool has the R percent of items nearest (Euclidean) to the user embedding.
    near_user: ClassVar[bool] = False
    #: Whether the pool has the R percent of items nearest to the mean embedding of the user's own items.
    near_items: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if type(self) is Sampler:
            raise ConfigError("Sampler is a base class.", "Use a subclass, such as RandomSampler or MixedSampler.")
        if not 0 < self.R <= 100:
            raise ConfigError(f"R is {self.R}.", "Give a percentage above 0, at most 100.")
        if not 0 < self.beta <= 1:
            raise ConfigError(f"beta is {self.beta}.", "Give a fraction above 0, at most 1.")

    def pool(self, items: NDArray[np.float32], user: NDArray[np.float32], own: NDArray[np.int32]) -> NDArray[Any]:
        """Indices of the candidate items, for a sampler of your own.

        ``items`` is the item table, ``user`` the user's private parameters (the embedding first), ``own`` the indices
        of the user's training items, which must not be in the pool. Pools of built-in samplers are formed in compiled
        code, see ``device.sampling``.
        """
        raise AssertionError("built-in pools are formed in compiled code")

    @property
    def compiled(self) -> bool:
        """Whether the pool is formed in compiled code."""
        return type(self).pool is Sampler.pool

    def count(self, negatives: int, positives: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of negatives for each user: N · β · positives, at least one."""
        count: NDArray[np.int64] = np.maximum(1, np.floor(negatives * self.beta * positives + 0.5)).astype(np.int64)
        return count


@dataclass(frozen=True)
class RandomSampler(Sampler):
    """Negatives from all items without interactions; R is not used."""

    name: ClassVar[str] = "random"


@dataclass(frozen=True)
class UserSampler(Sampler):
    """Negatives near the user embedding."""

    name: ClassVar[str] = "user"
    near_user: ClassVar[bool] = True


@dataclass(frozen=True)
class ItemSampler(Sampler):
    """Negatives near the user's own items."""

    name: ClassVar[str] = "item"
    near_items: ClassVar[bool] = True


@dataclass(frozen=True)
class MixedSampler(Sampler):
    """Negatives near the user embedding or the user's own items: the paper's user-item mixed semi-hard sampler."""

    name: ClassVar[str] = "mixed"
    near_user: ClassVar[bool] = True
    near_items: ClassVar[bool] = True


SAMPLERS = Registry("sampler", "fedforget.samplers", Sampler, RandomSampler, UserSampler, ItemSampler, MixedSampler)
