"""Estimate: the expected cost of an erasure, from the history."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedforget.models import GlobalParameters
from fedforget.server.history import History, RoundRecord
from fedforget.server.unlearning.method import Method, Past

#: Cost of a replayed round beside training, as a multiple of that of a trained round (measured: 1.8 to 2).
OVERHEAD = 1.9
#: The same if several rounds are replayed in one step (measured: 0.5 to 0.9).
OVERHEAD_IN_STEPS = 0.8
#: Cost of training before its first epoch, in epochs (measured: 0.15 for NCF, 0.3 for LightGCN).
SETUP = 0.3
#: Seconds that a replay takes however short it is: opening files, restoring devices (measured: 0.02 to 0.03).
BEGINNING = 0.02
#: With fewer steps a condensed replay was up to 12% less accurate than Retrain (docs/decisions/0010).
FEW_STEPS = 10


@dataclass(frozen=True)
class Estimate:
    """Rounds to replay, devices needed, and the approximate cost.

    ``rounds`` counts past and added rounds, ``communication_rounds`` how often devices are asked. ``devices`` counts
    users, ``messages`` the messages to them, ``requests`` the updates asked for. The replay starts from the snapshot of
    round ``start``.
    """

    method: dict[str, Any]
    chosen: str
    first_round: int | None
    start: int
    rounds: int
    communication_rounds: int
    devices: int
    messages: int
    requests: int
    bytes_down: int
    bytes_up: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        if self.first_round is None:
            since, back = "no round: nothing to replay", ""
        else:
            since = f"round {self.first_round}"
            early = self.rounds and self.start < self.first_round - 1 and self.method["name"] != "retrain"
            back = f", from the snapshot of round {self.start}, the last one before it" if early else ""
        return (
            f"The users to forget took part since {since}\n"
            f"  method     {self.method['name']}: {self.chosen}\n"
            f"  rounds     {self.rounds} to train or replay, in {self.communication_rounds} communication rounds"
            f"{back}\n"
            f"  devices    {self.devices:,} needed, {self.messages:,} messages for {self.requests:,} updates\n"
            f"  to move    {self.bytes_down / 1e6:,.1f} MB to devices, {self.bytes_up / 1e6:,.1f} MB back\n"
            f"  time       about {self.seconds:.1f} s{self._advice()}"
        )

    def _advice(self) -> str:
        """A warning if few steps reduce the accuracy."""
        stride = self.method.get("stride") or 1
        few = 1 < self.communication_rounds < FEW_STEPS and self.start < self.rounds
        if self.method["name"] != "fru" or stride < 4 or not few:
            return ""
        return (
            f"\n  accuracy   {self.communication_rounds} steps are few: --set stride={stride // 2} takes about twice "
            "as many and comes closer to retraining"
        )


def estimate(
    history: History,
    public: GlobalParameters,
    method: Method,
    past: Past,
    epochs: int,
    first: int | None,
    start: int,
    waiting: bool,
    chosen: str,
) -> Estimate:
    """Estimate an erasure that replays ``past``, from round ``start`` on.

    The cost of an update is estimated from past rounds: training for the number of epochs of the replay, and
    ``OVERHEAD`` times the rest, since a replay also reads logs, and the history's seconds do not include the commit.
    On a network (``waiting``) each communication round is assumed to wait as long as past rounds did.
    """
    last = history.last_round
    records = [record for record in map(history.record, range(1, last + 1)) if record.participants]
    updates = max(sum(len(r.participants) for r in records), 1)
    overhead = statistics.median([(r.seconds - r.training) / len(r.participants) for r in records] or [0.0])
    wait = statistics.median(_waits(history, records) or [0.0])
    trained = [r for r in records if r.epochs]
    per_epoch = statistics.median([r.training / len(r.participants) / r.epochs for r in trained] or [0.0])
    sent = sum(r.sent for r in records) / updates
    share = method.training_share(epochs)
    steps = [step for step in method.schedule(past) if step.asked]
    replayed = sum(len(users) for step in steps for users in step.asked.values())
    messages = sum(len(step.devices) for step in steps)
    devices = {user for step in steps for user in step.devices}
    extra = method.more_rounds(last) if first is not None else 0
    in_extra = round(extra * updates / max(last, 1))
    if extra:
        devices |= set(past.draw(last + 1, 1.0))
    in_full = sum(len(users) for step in steps if step.in_full for users in step.asked.values())
    short = in_full + (replayed - in_full) * (share + SETUP / epochs if 0 < share < 1 else share)
    factor = OVERHEAD_IN_STEPS if len(past.remaining) >= 2 * len(steps) else OVERHEAD
    fixed = (len(steps) + extra) * wait if waiting else (replayed * factor + in_extra) * overhead
    beginning = BEGINNING if steps or extra else 0.0
    return Estimate(
        method.settings(),
        chosen,
        first,
        start,
        len(past.remaining) + extra,
        len(steps) + extra,
        len(devices),
        messages + in_extra,
        replayed + in_extra,
        (messages + in_extra) * (public.items.nbytes + public.dense.nbytes),
        round(replayed * sent * method.updates_sent() + in_extra * sent),
        beginning + fixed + (short + in_extra) * per_epoch * epochs,
    )


def _waits(history: History, records: Sequence[RoundRecord]) -> list[float]:
    """The duration of each communication round without training; the rounds of a replay step count as one."""
    waits: dict[int, float] = {}
    ends = history.steps_after(0)
    for record in records:
        end = ends[bisect_left(ends, record.round)]
        waits[end] = waits.get(end, 0.0) + record.seconds - record.training
    return list(waits.values())
