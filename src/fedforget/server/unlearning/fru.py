"""FRU: federated recommendation unlearning, the paper's method and what goes beyond it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedforget.errors import ConfigError, unknown_choice
from fedforget.models import Recommender
from fedforget.protocol.factors import Factors
from fedforget.protocol.tasks import ITEMS, PARTS, Replay
from fedforget.protocol.updates import CohortResult
from fedforget.runtime.randomness import UserId
from fedforget.server.aggregation import Step as Combined
from fedforget.server.server_config import ServerConfig
from fedforget.server.state import ServerState
from fedforget.server.unlearning.baselines import check_stride
from fedforget.server.unlearning.calibrate import GRANULARITIES, calibrate
from fedforget.server.unlearning.method import Method, Past, PastStep, Result, Step, strides

#: Default number of past rounds in a step, and default limit of its length (docs/decisions/0010).
STRIDE, LIMIT = 10, 0.7
#: Default stride if devices train tensors that all users share, such as a perceptron; there is no limit then.
SHARED_STRIDE = 2
#: Where lengths are set: at the server, for the aggregate of the cohort (the paper), or on each device.
CALIBRATIONS = ["server", "device"]
#: A device's private update, whose length is not logged, is applied as trained (the paper), or scaled by the ratio of
#: full to replayed epochs.
PRIVATE_UPDATES = ["fresh", "scaled"]


@dataclass(frozen=True)
class FRU(Method):
    """Replay the rounds since the first forgotten user took part, in fewer epochs, with the lengths of the old updates.

    ``replay_fraction`` is the paper's λ: a replayed round has ⌈λL⌉ of L epochs. ``stride`` past rounds are replayed
    from the same parameters in one communication round; such a step moves the item table at most ``limit`` times as far
    as the old model moved in the same rounds (0: no limit). The defaults of both depend on the model and the server's
    configuration.

    ``calibration="device"``: each device gives its update the lengths in its log. ``"server"``: the server gives the
    cohort's aggregate the length of the stored one (the paper; logs must hold whole updates), for each item row or for
    the whole table (``granularity``). ``replay="logged"`` trains on the items that the log names instead of newly drawn
    negatives.

    ``parts="rows"`` sets the lengths of item rows and leaves other tensors (a perceptron) as trained; ``"all"`` sets
    those of every tensor (the paper). ``private="fresh"`` applies the private update as trained (the paper);
    ``"scaled"`` multiplies it by L / ⌈λL⌉.
    """

    replay_fraction: float = 0.1
    calibration: str = "device"
    granularity: str = "row"
    replay: str = "fresh"
    parts: str = "rows"
    private: str = "scaled"
    stride: int | None = None
    limit: float | None = None

    name: ClassVar[str] = "fru"

    def __post_init__(self) -> None:
        if not 0 < self.replay_fraction <= 1:
            raise ConfigError(
                f"replay_fraction is {self.replay_fraction}.",
                "Give a fraction of the local epochs: above 0, at most 1.",
            )
        for kind, value, known in (
            ("calibration", self.calibration, CALIBRATIONS),
            ("granularity", self.granularity, GRANULARITIES),
            ("replay", self.replay, ITEMS),
            ("parts", self.parts, PARTS[:2]),
            ("private", self.private, PRIVATE_UPDATES),
        ):
            if value not in known:
                raise unknown_choice(kind, value, known)
        if self.stride is not None:
            check_stride(self.stride)
        if not (self.limit or 0) >= 0:
            raise ConfigError(
                f"limit is {self.limit}.", "Give the length of a step relative to the old one, or 0 for no limit."
            )
        if self.calibration == "server" and (self.stride or 1) > 1:
            raise ConfigError(
                f"stride is {self.stride} with calibration 'server'.",
                "The server calibrates one round at a time; use stride 1, or calibration 'device'.",
            )
        if self.calibration == "device" and self.granularity != "row":
            raise ConfigError(
                f"granularity is {self.granularity!r} with calibration 'device'.",
                "On the device every row has its own length; use granularity 'row', or calibration 'server'.",
            )

    def for_model(self, model: Recommender) -> FRU:
        stride = 1 if self.calibration == "server" else default_stride(model)
        method = self if self.stride is not None else replace(self, stride=stride)
        return replace(method, limit=0.0) if self.limit is None and model.update_layout.size else method

    def for_server(self, server: ServerConfig) -> FRU:
        if self.limit is not None:
            return self
        return replace(self, limit=0.0 if server.aggregation.averages else LIMIT)

    def schedule(self, past: Past) -> list[Step]:
        """The rounds up to the first of a forgotten user one by one, if they were trained in full; then strides."""
        head = range(min(past.remaining, default=1), past.first + 1)
        if not set(head).issubset(past.whole):
            return strides(past, self.stride or 1)
        before = [step for step in strides(past, 1) if step.last <= past.first]
        return [replace(step, in_full=True) for step in before] + strides(past, self.stride or 1, after=past.first)

    def step(self, past: PastStep) -> Result:
        if self.calibration == "server":
            ((round_, users),) = past.asked.items()
            if round_ >= past.of.first:
                return past.recall() if round_ == past.of.first else self._calibrated_here(past, round_, users)
        if past.step.in_full or self.calibration == "server":
            return past.train()
        state, taken = past.run(self._task(past.epochs))
        return (self._limited(past, state, self.limit) if self.limit and len(past.asked) > 1 else state), taken

    def _limited(self, past: PastStep, state: ServerState, limit: float) -> ServerState:
        """Shorten a step that moved the item table further than the limit: all its rounds start from the same point.

        If an earlier erasure has replayed these rounds, their length is limited already.
        """
        first, last = past.step.first, past.step.last
        replayed_before = not past.of.whole >= set(range(first, last + 1))
        step = state.public.items - past.public.items
        length = float(np.linalg.norm(step))
        longest = (1.0 if replayed_before else limit) * past.of.moved(first, last)
        if length <= longest:
            return state
        items = past.public.items + np.float32(longest / length) * step
        return replace(state, public=replace(state.public, items=items))

    def _calibrated_here(self, past: PastStep, round_: int, users: Sequence[UserId]) -> Result:
        """The paper's round: the server scales the aggregate of new updates to the length of the stored one."""

        def combine(result: CohortResult) -> tuple[Combined | None, CohortResult]:
            return past.aggregator.combine(result, past.public, users)

        task = replace(self._task(past.epochs), parts="none", stored=True)
        result = past.clients.run(task, past.asked, past.public)[round_]
        old, stored = combine(_stored(result))
        fresh, result = combine(result)
        if result.total is None and list(result.updates.users) != list(stored.updates.users):
            result, stored = _both(result, stored)
            (fresh, result), (old, stored) = combine(result), combine(stored)
        layout = past.public.layout
        taken = {round_: replace(result, stored=stored.updates, stored_total=stored.total)}
        if fresh is None or old is None:
            past.clients.apply_factors(round_, Factors.zero(past.public.items.shape[0], len(layout.shapes)))
            return past.state, taken
        step, factors = calibrate(old, fresh, layout, self.granularity, self.parts)
        past.clients.apply_factors(round_, factors)
        return past.aggregator.apply(past.state, step, round_), taken

    def shortens_training(self) -> bool:
        return True

    def training_share(self, epochs: int) -> float:
        return self._epochs(epochs) / epochs

    def updates_sent(self) -> int:
        return 2 if self.calibration == "server" else 1

    def needs_whole_updates(self) -> bool:
        return self.calibration == "server"

    def _task(self, epochs: int) -> Replay:
        short = self._epochs(epochs)
        scale = epochs / short if self.private == "scaled" else 1.0
        return Replay(short, self.replay, self.parts, private_scale=scale)

    def _epochs(self, epochs: int) -> int:
        return math.ceil(self.replay_fraction * epochs - 1e-9)


def default_stride(model: Recommender) -> int:
    """The default number of past rounds in a step."""
    return SHARED_STRIDE if model.update_layout.size else STRIDE


def _stored(result: CohortResult) -> CohortResult:
    """The logged updates of a result, or their sum, as a result of their own."""
    if result.total is not None:
        return CohortResult(result.updates, result.failures, total=result.stored_total)
    assert result.stored is not None
    return CohortResult(result.stored)


def _both(fresh: CohortResult, stored: CohortResult) -> tuple[CohortResult, CohortResult]:
    """The results of the users whose new and stored updates are both accepted."""
    users = set(fresh.updates.users) & set(stored.updates.users)
    keep, kept = (np.array([user in users for user in part.updates.users], bool) for part in (fresh, stored))
    failures = {**stored.failures, **fresh.failures}
    return replace(fresh, updates=fresh.updates.only(keep), failures=failures), CohortResult(stored.updates.only(kept))
