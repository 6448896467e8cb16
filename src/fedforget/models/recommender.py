"""Recommender: the base class of models.

A model is a frozen dataclass: its fields are its settings and go into the run's ``config.toml``. It declares the names
and shapes of its parameters and scores items with a **leading client axis**: a cohort is a batch dimension, so one
backward pass over the sum of the clients' losses gives every client its own gradient.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedforget.errors import ConfigError, unknown_choice
from fedforget.models.parameters import Array, GlobalParameters, Layout
from fedforget.runtime import randomness
from fedforget.runtime.components import Component

if TYPE_CHECKING:
    from torch import Tensor

#: Scores all items for a user, given the user's private parameters and training items.
Scorer = Callable[[Array, NDArray[np.int32]], Array]


@dataclass(frozen=True)
class LocalModel:
    """The parameters of C clients, stacked for training or scoring.

    ``private`` and ``dense`` are tensors by name with a leading axis of length C. ``items`` is (C, R, dim), the rows of
    the item table that each client uses. ``own`` is (C, R): 1 if the row is one of the client's own training items,
    else 0. ``degree`` is (C,), the number of the client's own training items.
    """

    private: Mapping[str, Tensor]
    items: Tensor
    dense: Mapping[str, Tensor]
    own: Tensor
    degree: Tensor

    @property
    def user(self) -> Tensor:
        """The user embeddings, (C, dim)."""
        return self.private["user"]

    def rows(self, index: Tensor) -> Tensor:
        """The item vectors at (C, B) positions of each client's table: (C, B, dim)."""
        return self.items.gather(1, index.unsqueeze(-1).expand(-1, -1, self.items.shape[-1]))


@dataclass(frozen=True)
class Recommender(Component):
    """Base class of models. A new model needs ``name`` and ``logits``; see ``examples/own_model.py``."""

    dim: int = 64
    init_std: float = 0.1
    negatives: int = 1
    loss: str = "bce"

    #: Whether the user vector is computed from the item table and the user's own items instead of trained in epochs.
    #: Such a model has no private parameters and needs no negatives.
    closed_form: ClassVar[bool] = False
    #: Whether the score of an item is the dot product of its vector with a user vector, which can then be fitted by
    #: least squares (``LocalTraining.refit``).
    dot_product: ClassVar[bool] = False
    losses: ClassVar[Sequence[str]] = ("bce", "bpr")
    #: The largest norm of an item row in an update, unless the configuration of training says otherwise.
    clip: ClassVar[float] = 20.0

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ConfigError(f"dim is {self.dim}.", "An embedding has at least one dimension; 64 is usual.")
        if self.closed_form and self.negatives != 0:
            raise ConfigError(f"negatives is {self.negatives}.", f"{self.name} learns from all items: give 0.")
        if not self.closed_form and self.negatives < 1:
            raise ConfigError(f"negatives is {self.negatives}.", "Draw at least one negative for each positive.")
        if not 0 < self.init_std < float("inf"):
            raise ConfigError(f"init_std is {self.init_std}.", "Give a positive standard deviation, such as 0.1.")
        if self.loss not in self.losses:
            raise unknown_choice("loss", self.loss, list(self.losses))

    @abstractmethod
    def logits(self, local: LocalModel, index: Tensor) -> Tensor:
        """The scores, before the sigmoid, of the items at (C, B) positions of each client's table: (C, B)."""

    def dense_shapes(self) -> dict[str, tuple[int, ...]]:
        """Global tensors other than the item table; none by default."""
        return {}

    def private_shapes(self) -> dict[str, tuple[int, ...]]:
        """Private tensors. The first must be the user embedding, with the shape of an item vector."""
        return {"user": (self.dim,)}

    def update_shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensors that a client sends besides item rows; by default the updates of the dense tensors."""
        return self.dense_shapes()

    def direction(self, public: GlobalParameters, items: Array, dense: Array, users: int) -> tuple[Array, Array]:
        """The direction in which the server moves the item table and the dense tensors.

        ``items`` and ``dense`` are the combined updates of a cohort, which are the direction by default; ``users`` is
        the number of users in the federation.
        """
        return items, dense

    def init_dense(self, name: str, out: Array, state: randomness.Stream) -> None:
        """Initialise one dense tensor; normally distributed by default."""
        randomness.fill_normal(state, out.reshape(-1), self.init_std)

    @cached_property
    def dense_layout(self) -> Layout:
        """The layout of the dense tensors."""
        if "items" in self.dense_shapes():
            raise ConfigError("A dense tensor is named 'items'.", "That is the item table; choose another name.")
        return Layout(self.dense_shapes())

    @cached_property
    def update_layout(self) -> Layout:
        """The layout of the tensors that a client sends besides item rows."""
        return Layout(self.update_shapes())

    @cached_property
    def private_layout(self) -> Layout:
        """The layout of the private tensors."""
        shapes = self.private_shapes()
        if self.closed_form and not shapes:
            return Layout({})
        if next(iter(shapes), None) != "user" or shapes["user"] != (self.dim,):
            raise ConfigError(
                f"{type(self).__name__} declares the private tensors {shapes}.",
                f"The first must be 'user' with shape ({self.dim},): samplers measure distances to it.",
            )
        return Layout(shapes)

    def init_public(self, n_items: int, seed: int) -> GlobalParameters:
        """The global parameters before the first round."""
        state = randomness.stream(seed, randomness.INIT_PUBLIC, 0, np.uint64(0))
        items = np.empty((n_items, self.dim), np.float32)
        randomness.fill_normal(state, items.reshape(-1), self.init_std)
        dense = np.empty(self.dense_layout.size, np.float32)
        for name, tensor in self.dense_layout.views(dense).items():
            self.init_dense(name, tensor, state)
        return GlobalParameters(items, dense, self.dense_layout)

    def init_items(self, item_keys: NDArray[np.uint64], seed: int) -> Array:
        """The vectors of items that are added after the first round; each depends on the item's id only."""
        rows = np.empty((item_keys.size, self.dim), np.float32)
        randomness.fill_normal_by_user(seed, randomness.INIT_ITEM, item_keys, rows, self.init_std)
        return rows

    def init_private(self, user_keys: NDArray[np.uint64], seed: int) -> Array:
        """The private parameters of users before their first round, one flat row per user."""
        private = np.empty((user_keys.size, self.private_layout.size), np.float32)
        randomness.fill_normal_by_user(seed, randomness.INIT_PRIVATE, user_keys, private, self.init_std)
        return private

    def local(self, private: Tensor, items: Tensor, dense: Tensor, own: Tensor) -> LocalModel:
        """The named parts of flat, stacked parameters. They are views, so gradients reach the stacked parameters."""
        return LocalModel(self.private_layout.views(private), items, self.dense_layout.views(dense), own, own.sum(1))

    def embeddings_for(
        self, vectors: Array, items: Array, own_ptr: NDArray[np.int64], own_items: NDArray[np.int32]
    ) -> Array:
        """The user embeddings with which the model scores items like the dot product with these vectors.

        User c has the training items ``own_items[own_ptr[c]:own_ptr[c + 1]]``.
        """
        return vectors

    def user_vectors(
        self, private: Array, items: Array, gram: Array, own_ptr: NDArray[np.int64], own_items: NDArray[np.int32]
    ) -> Array:
        """The vectors whose dot product with item vectors is the score of items that the users do not have.

        For models that score by a dot product. ``private`` are the users' private parameters, ``gram`` is VᵀV of the
        item table; user c has the training items ``own_items[own_ptr[c]:own_ptr[c + 1]]``.
        """
        return private[:, : self.dim]

    def scorer(self, public: GlobalParameters) -> Scorer:
        """A function that scores all items for one user. What all users share is computed once."""
        return lambda private, own_items: self.score(private, public, own_items)

    def score(self, private: Array, public: GlobalParameters, own_items: NDArray[np.int32]) -> Array:
        """The scores of all items for one user with these training items."""
        from fedforget.runtime.tensors import torch

        own = torch.zeros(1, public.items.shape[0])
        own[0, torch.from_numpy(own_items.astype(np.int64))] = 1
        with torch.inference_mode():
            local = self.local(
                torch.from_numpy(private)[None],
                torch.from_numpy(public.items)[None],
                torch.from_numpy(public.dense)[None],
                own,
            )
            every = torch.arange(public.items.shape[0])[None]
            scores: Array = self.logits(local, every)[0].numpy()
        return scores
