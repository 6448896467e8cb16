"""Estimate: what an erasure will take, from what the history knows, before anything happens."""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from fedforget.models import Public
from fedforget.randomness import UserId
from fedforget.server.history import History
from fedforget.server.unlearning.method import Method

#: What a replayed round costs beside training, as a multiple of what a trained one did (measured: 1.8 to 2).
BESIDE = 1.9
#: What training costs before its first epoch, in epochs (measured: 0.15 for NCF, 0.3 for LightGCN).
SETUP = 0.3


@dataclass(frozen=True)
class Estimate:
    """How many rounds will be gone through again, by how many devices, and roughly what it costs.

    ``devices`` are different users; ``requests`` counts each round in which one is asked.
    """

    first_round: int | None
    rounds: int
    devices: int
    requests: int
    bytes_down: int
    bytes_up: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def __str__(self) -> str:
        since = "no round: nothing to replay" if self.first_round is None else f"round {self.first_round}"
        return (
            f"Leavers took part since {since}\n"
            f"  rounds     {self.rounds} to train or replay\n"
            f"  devices    {self.devices:,} needed, {self.requests:,} requests\n"
            f"  to move    {self.bytes_down / 1e6:,.1f} MB to devices, {self.bytes_up / 1e6:,.1f} MB back\n"
            f"  time       about {self.seconds:.1f} s"
        )


def estimate(
    history: History, public: Public, leavers: Collection[UserId], method: Method, epochs: int, start: int
) -> Estimate:
    """Estimate an erasure whose replay begins after round ``start``.

    A round is taken to cost what rounds cost so far: the training for as many stayers and as many epochs as there will
    be, and ``BESIDE`` times what came beside it, since a replay also reads logs, and committing a round is not in the
    seconds that the history knows.
    """
    last, first = history.last_round, history.first_round_of(list(leavers))
    past = [history.record(round_) for round_ in range(1, last + 1)]
    fixed = statistics.median([r.seconds - r.training for r in past]) if past else 0.0
    clients = max(sum(len(r.participants) for r in past), 1)
    trained = [r for r in past if r.participants and r.epochs]
    per_epoch = statistics.median([r.training / len(r.participants) / r.epochs for r in trained] or [0.0])
    sent = sum(r.sent for r in past) / clients
    share = method.training_share(epochs)
    seen: set[UserId] = set()
    rounds = requests = 0
    full = short = 0
    for record in past[start:]:
        stayers = [user for user in record.participants if user not in leavers]
        seen.update(stayers)
        rounds += 1
        requests += len(stayers)
        if first is None or record.round < first or (record.round == first and share):
            full += len(stayers)
        else:
            short += len(stayers)
    extra = method.more_rounds(last) if first is not None else 0
    in_extra = round(extra * clients / max(last, 1))
    work = full + in_extra + short * (share + SETUP / epochs if share else 0.0)
    if extra:
        seen.update(user for record in past for user in record.participants if user not in leavers)
    requests += in_extra
    return Estimate(
        first,
        rounds + extra,
        len(seen),
        requests,
        requests * (public.items.nbytes + public.dense.nbytes),
        round((requests - in_extra) * sent * method.updates_sent() + in_extra * sent),
        (rounds + extra) * fixed * BESIDE + work * per_epoch * epochs,
    )
