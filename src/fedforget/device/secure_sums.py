"""Secure sums on a device: what a member contributes and reveals, and what it refuses.

A member keeps, for the newest order, the sums that it contributed to. It contributes to one sum for
each round of an order, and reveals once for each sum: asked again it gives the same answer, and any other is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedforget.device.masked import contribute, reveal
from fedforget.device.member import Member
from fedforget.protocol import masking, reasons
from fedforget.protocol.fixed_point import MOST_DEVICES, SumFormat, Words
from fedforget.protocol.masking import Contribution, MaskingError, RevealOrder, Ring
from fedforget.protocol.order import Order
from fedforget.protocol.terms import RefusedError
from fedforget.protocol.updates import CohortResult
from fedforget.runtime.randomness import UserId


@dataclass(frozen=True)
class MaskedResults:
    """The contributions of users, by round, and the reason for every missing one."""

    contributions: Mapping[tuple[int, UserId], Contribution] = field(default_factory=dict)
    failures: Mapping[tuple[int, UserId], str] = field(default_factory=dict)
    seconds: float = 0.0


def check_cohorts(member: Member, order: Order, rounds: Sequence[int]) -> None:
    """Refuse sums over too few devices, and sums without this member's key."""
    least = member.terms.training.sum_over
    for round_ in rounds:
        keys = order.cohorts.get(round_, ())
        if not max(least, 2) <= len(set(keys)) == len(keys) <= MOST_DEVICES:
            raise RefusedError(reasons.TOO_FEW)
        if member.key_pair.public not in keys:
            raise RefusedError(reasons.OTHER_KEY)


def masked_updates(
    members: Sequence[Member],
    order: Order,
    task: Mapping[str, object],
    parameters: str,
    results: Mapping[int, CohortResult],
    n_items: Mapping[int, int],
) -> MaskedResults:
    """The results of a task, masked; ``n_items`` is the size of the item table in each round."""
    by_user = {member.user: member for member in members}
    contributions: dict[tuple[int, UserId], Contribution] = {}
    failures: dict[tuple[int, UserId], str] = {}
    for round_, result in results.items():
        failures |= {(round_, user): reason for user, reason in result.failures.items()}
        context = masking.context_of(order, round_, task, parameters)
        ring = masking.ring_of(context, order.cohorts[round_])
        stored = {user: place for place, user in enumerate(result.stored.users)} if result.stored is not None else None
        for place, user in enumerate(result.updates.users):
            member = by_user[user]
            model, seed = member.terms.model, member.terms.seed
            devices = len(order.cohorts[round_])
            sums = SumFormat(n_items[round_], model.dim, model.update_layout.size, member.terms.bounds, devices)
            parts = [result.updates.between(place, place + 1)]
            if result.stored is not None and stored is not None:
                if user not in stored:
                    failures[round_, user] = reasons.NO_ENTRY
                    continue
                parts.append(result.stored.between(stored[user], stored[user] + 1))
            words = np.zeros(len(parts) * sums.size, np.uint32)
            key = np.array([member.draw_key], np.uint64)
            for part, out in zip(parts, np.split(words, len(parts)), strict=True):
                sums.encode(part, key, round_, seed, out)
            try:
                contributions[round_, user] = _contribute(member, order.number, round_, context, ring, words)
            except RefusedError as error:
                failures[round_, user] = error.reason
    return MaskedResults(contributions, failures, sum(result.seconds for result in results.values()))


def masked_vector(member: Member, order: Order, round_: int, parameters: str, words: Words) -> Contribution:
    """Mask the vector of a member's evaluation."""
    context = masking.context_of(order, round_, {}, parameters)
    return _contribute(member, order.number, round_, context, masking.ring_of(context, order.cohorts[round_]), words)


def _contribute(member: Member, number: int, round_: int, context: bytes, ring: Ring, words: Words) -> Contribution:
    """Mask a vector, and store the sum that it is for: a device contributes to one sum for each round of an order."""
    known = _open_sums(member, number)
    if round_ in known and known[round_].context != context:
        raise RefusedError(reasons.SECOND_SUM)
    if round_ not in known:
        _keep(member, number, {**known, round_: OpenSum(context, ring.around(member.key_pair.public))})
    try:
        return contribute(member.key_pair, context, ring, words)
    except MaskingError as error:
        raise RefusedError(reasons.OTHER_KEY) from error


def revealed(member: Member, number: int, order: RevealOrder) -> list[bytes]:
    """What a member reveals about its neighbours in a sum of the newest order."""
    known = _open_sums(member, number)
    found = known.get(order.round)
    own = member.key_pair.public
    if found is None or found.context != order.context:
        raise RefusedError(reasons.SECOND_SUM)
    neighbours = found.ring.neighbours(own)
    if [not share for share in order.shares] != [key in order.absent for key in neighbours]:
        raise RefusedError(reasons.SECOND_SUM)
    if found.absent not in (None, order.absent):  # it would reveal both secrets of a device
        raise RefusedError(reasons.SECOND_SUM)
    answered = [key for key in found.ring.keys if key not in order.absent]
    if order.answered < max(member.terms.training.sum_over, len(answered)) or own in order.absent:
        raise RefusedError(reasons.TOO_FEW)
    for key in (own, *(key for key in neighbours if key not in order.absent)):
        theirs = found.ring.neighbours(key)
        if sum(other not in order.absent for other in theirs) < masking.threshold(len(theirs)):
            raise RefusedError(reasons.TOO_FEW)
    if found.absent is None:
        _keep(member, number, {**known, order.round: replace(found, absent=order.absent)})
    try:
        return reveal(member.key_pair, found.ring, order)
    except MaskingError as error:
        raise RefusedError(reasons.OTHER_KEY) from error


@dataclass(frozen=True)
class OpenSum:
    """A sum that a member contributed to: its context, the devices around the member, and those it was told are absent.

    ``absent`` is None before the second message.
    """

    context: bytes
    ring: Ring
    absent: frozenset[bytes] | None = None


def _open_sums(member: Member, number: int) -> dict[int, OpenSum]:
    """The sums of an order that a member contributed to, by round; none if there was another order since."""
    stored = member.open_sums()
    if stored.get("number") != number:
        return {}
    return {
        int(round_): OpenSum(
            bytes.fromhex(context),
            Ring(_keys(ring), closed),
            None if absent is None else frozenset(_keys(absent)),
        )
        for round_, (context, ring, closed, absent) in stored["sums"].items()
    }


def _keep(member: Member, number: int, sums: Mapping[int, OpenSum]) -> None:
    lines = {
        str(round_): [
            each.context.hex(),
            b"".join(each.ring.keys).hex(),
            each.ring.closed,
            None if each.absent is None else b"".join(sorted(each.absent)).hex(),
        ]
        for round_, each in sums.items()
    }
    member.keep_open_sums({"number": number, "sums": lines})


def _keys(joined: str) -> tuple[bytes, ...]:
    keys = bytes.fromhex(joined)
    return tuple(keys[start : start + masking.KEY] for start in range(0, len(keys), masking.KEY))
