"""Server optimisers: how the combined update of a cohort moves the public parameters.

The combined update is taken as a (negative) gradient, as in Reddi et al., *Adaptive Federated Optimization*, ICLR 2021.
Plain averaging is ``SGD()`` with a learning rate of 1. An optimiser's state is part of the ``ServerState``: it goes
into every snapshot and is rolled back with it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedforget.errors import ConfigError
from fedforget.models import GlobalParameters
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import fast
from fedforget.runtime.components import Component, Registry
from fedforget.server.aggregation import Step
from fedforget.server.state import ServerState

#: The name under which the number of steps so far is kept.
STEPS = "steps"
#: Rules by which a squared update changes the second moment.
ADAM, YOGI, ADAGRAD = 0, 1, 2


@dataclass(frozen=True)
class Optimiser(Component):
    """Base class of server optimisers: a learning rate ``lr`` and its schedule.

    With a ``horizon`` the learning rate falls linearly from ``lr`` to ``lr * final`` over that many rounds and then
    stays constant; with 0 it is always constant.
    """

    lr: float = 1.0
    horizon: int = 0
    final: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.lr < float("inf"):
            raise ConfigError(f"The server's lr is {self.lr}.", "Give a positive learning rate.")
        if self.horizon < 0:
            raise ConfigError(f"horizon is {self.horizon}.", "Give the rounds over which lr falls, or 0 for none.")
        if not 0 < self.final <= 1:
            raise ConfigError(f"final is {self.final}.", "Give a fraction of lr: above 0, at most 1.")

    def lr_at(self, round_: int) -> float:
        """The learning rate in a round, the first being 1."""
        if not self.horizon:
            return self.lr
        return self.lr * (1 - (1 - self.final) * min((round_ - 1) / max(self.horizon - 1, 1), 1.0))

    @abstractmethod
    def apply(self, state: ServerState, step: Step, round_: int) -> ServerState:
        """The state after the combined update of a round; the arguments are not changed."""


@dataclass(frozen=True)
class SGD(Optimiser):
    """Add the combined update, times ``lr``; with ``momentum``, a decaying sum of the updates so far (FedAvgM)."""

    momentum: float = 0.0

    name: ClassVar[str] = "sgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_decay("momentum", self.momentum)

    def apply(self, state: ServerState, step: Step, round_: int) -> ServerState:
        if not self.momentum:
            return ServerState(_moved(state.public, step.items, step.dense, self.lr_at(round_)))
        items = step.items + np.float32(self.momentum) * state.moments.get("first.items", np.zeros_like(step.items))
        dense = step.dense + np.float32(self.momentum) * state.moments.get("first.dense", np.zeros_like(step.dense))
        moments = {"first.items": items, "first.dense": dense}
        return ServerState(_moved(state.public, items, dense, self.lr_at(round_)), moments)


@dataclass(frozen=True)
class Adaptive(Optimiser):
    """Divide each coordinate's step by the root of its second moment, so that rare rows move as far as common ones.

    Rows that no client of the cohort touched do not change, nor do their moments.
    """

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99

    #: One of ADAM, YOGI and ADAGRAD.
    rule: ClassVar[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_decay("beta1", self.beta1)
        _check_decay("beta2", self.beta2)

    def apply(self, state: ServerState, step: Step, round_: int) -> ServerState:
        steps = int(state.moments[STEPS][0]) if STEPS in state.moments else 0
        first, second = 1 - self.beta1 ** (steps + 1), 1 - self.beta2 ** (steps + 1)
        correction = np.sqrt(second) / first if self.rule == ADAM else 1.0
        lr = np.float32(self.lr_at(round_) * correction)
        moments = {STEPS: np.array([steps + 1], np.float32)}
        public = state.public.copy()
        for part, values in (("items", public.items), ("dense", public.dense[None])):
            update = getattr(step, part).reshape(values.shape)
            m = state.moments.get(f"first.{part}", np.zeros_like(values)).reshape(values.shape).copy()
            v = state.moments.get(f"second.{part}", np.zeros_like(values)).reshape(values.shape).copy()
            _adapt(values, update, m, v, lr, np.float32(self.beta1), np.float32(self.beta2), self.rule)
            moments |= {f"first.{part}": m, f"second.{part}": v}
        return ServerState(public, moments)


@dataclass(frozen=True)
class Adam(Adaptive):
    """FedAdam."""

    name: ClassVar[str] = "adam"
    rule: ClassVar[int] = ADAM


@dataclass(frozen=True)
class Yogi(Adaptive):
    """FedYogi: as Adam, but the second moment grows and shrinks by the squared update alone."""

    name: ClassVar[str] = "yogi"
    rule: ClassVar[int] = YOGI


@dataclass(frozen=True)
class Adagrad(Adaptive):
    """FedAdagrad: the second moment is the sum of all squared updates so far."""

    lr: float = 0.1
    beta1: float = 0.0

    name: ClassVar[str] = "adagrad"
    rule: ClassVar[int] = ADAGRAD


OPTIMISERS = Registry("optimiser", "fedforget.optimisers", Optimiser, SGD, Adam, Yogi, Adagrad)


def _check_decay(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ConfigError(f"{name} is {value}.", "Give a decay of at least 0 and below 1.")


def _moved(public: GlobalParameters, items: Array, dense: Array, lr: float) -> GlobalParameters:
    if lr == 1:
        return GlobalParameters(public.items + items, public.dense + dense, public.layout)
    scale = np.float32(lr)
    return GlobalParameters(public.items + scale * items, public.dense + scale * dense, public.layout)


@fast
def _adapt(  # type: ignore[no-untyped-def]
    values, update, first, second, lr, beta1, beta2, rule
) -> None:
    """Move the rows that have an update, in place, and their moments."""
    tiny = np.float32(1e-12)
    one = np.float32(1)
    for i in range(values.shape[0]):
        touched = False
        for j in range(values.shape[1]):
            touched |= update[i, j] != 0
        if not touched:
            continue
        for j in range(values.shape[1]):
            g = update[i, j]
            m = beta1 * first[i, j] + (one - beta1) * g
            v = second[i, j]
            if rule == ADAM:
                v = beta2 * v + (one - beta2) * g * g
            elif rule == YOGI:
                v -= (one - beta2) * g * g * np.sign(v - g * g)
            else:
                v += g * g
            first[i, j], second[i, j] = m, v
            values[i, j] += lr * m / (np.sqrt(v) + tiny)
