"""Messages of secure sums: contributions of devices, what they are asked to reveal, what they reveal, and keys."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from fedforget.flower.arrays import MessageError, pack, unpack
from fedforget.flower.messages import unpack_failures
from fedforget.flower.records import CONTRADICTION, pairs, read_ids, read_list, read_record, read_value, split_bytes
from fedforget.protocol import masking, reasons
from fedforget.protocol.masking import Contribution, RevealOrder
from fedforget.runtime.randomness import UserId

#: A round and a user.
Place = tuple[int, UserId]


def pack_contributions(
    contributions: Mapping[Place, Contribution], failures: Mapping[Place, str], seconds: float
) -> RecordDict:
    """What the users of a device contribute to the sums of an order."""
    sent = list(contributions.values())
    words = np.stack([each.words for each in sent]) if sent else np.zeros((0, 0), np.uint32)
    result: dict[str, Any] = {
        "users": [user for _, user in contributions],
        "rounds": [round_ for round_, _ in contributions],
        "shares": [b"".join(each.shares) for each in sent],
        "checks": [b"".join(each.checks) for each in sent],
        "failed": [user for _, user in failures],
        "failed_rounds": [round_ for round_, _ in failures],
        "reasons": list(failures.values()),
        "seconds": float(seconds),
    }
    return RecordDict({"masked": pack(words=words), "result": ConfigRecord(result)})


def unpack_contributions(
    content: RecordDict, wanted: set[Place]
) -> tuple[dict[Place, Contribution], dict[Place, str], float]:
    """The contributions of a device, the reason for each missing one, and the seconds that it trained."""
    record = read_record(content.config_records, "result")
    places = pairs(read_list(record, "rounds", int), read_ids(record, "users"))
    if not wanted.issuperset(places) or len(set(places)) != len(places):
        raise MessageError(reasons.NOT_ASKED)
    failures = unpack_failures(record, wanted)
    seconds = read_value(record, "seconds", float)
    if not 0 <= seconds < math.inf:
        raise MessageError(f"its seconds is {seconds}")
    words = unpack(read_record(content.array_records, "masked"), "words", np.uint32, 2)
    hashes = pairs(read_list(record, "shares", bytes), read_list(record, "checks", bytes))
    if not len(words) == len(hashes) == len(places):
        raise MessageError(CONTRADICTION)
    contributions = {
        place: Contribution(row, _split_shares(shares, checks), split_bytes(checks, masking.CHECK))
        for place, row, (shares, checks) in zip(places, words, hashes, strict=True)
    }
    missing = wanted.difference(contributions, failures)
    return contributions, {**failures, **dict.fromkeys(missing, reasons.NOT_MENTIONED)}, seconds


def pack_reveals(federation: str, number: int, orders: Sequence[RevealOrder]) -> RecordDict:
    """What the users of a device are asked to reveal about the sums of an order."""
    record: dict[str, Any] = {
        "federation": federation,
        "number": number,
        "users": [order.user for order in orders],
        "rounds": [order.round for order in orders],
        "contexts": [order.context for order in orders],
        "answered": [order.answered for order in orders],
        "present": [bytes(bool(share) for share in order.shares) for order in orders],
        "shares": [b"".join(order.shares) for order in orders],
        "absent": [b"".join(sorted(order.absent)) for order in orders],
    }
    return RecordDict({"reveal": ConfigRecord(record)})


def unpack_reveals(content: RecordDict) -> tuple[str, int, list[RevealOrder]]:
    """The federation, the number of the order, and what each user is asked to reveal."""
    record = read_record(content.config_records, "reveal")
    places = pairs(read_ids(record, "users"), read_list(record, "rounds", int))
    sums = pairs(read_list(record, "contexts", bytes), read_list(record, "answered", int))
    given = pairs(read_list(record, "present", bytes), read_list(record, "shares", bytes))
    absent = [frozenset(split_bytes(keys, masking.KEY)) for keys in read_list(record, "absent", bytes)]
    orders = [
        RevealOrder(user, round_, context, answered, _shares(present, shares), keys)
        for (((user, round_), (context, answered)), (present, shares)), keys in pairs(
            pairs(pairs(places, sums), given), absent
        )
    ]
    return read_value(record, "federation", str), read_value(record, "number", int), orders


def _split_shares(shares: bytes, checks: bytes) -> list[bytes]:
    """The encrypted shares for each neighbour; the number of checks is the square of one more than there are."""
    neighbours = math.isqrt(len(checks) // masking.CHECK) - 1
    if len(shares) != neighbours * masking.sealed_size(neighbours):
        raise MessageError(reasons.WRONG_MASKS)
    return split_bytes(shares, masking.sealed_size(neighbours)) if shares else []


def _shares(present: bytes, joined: bytes) -> tuple[bytes, ...]:
    """The encrypted shares of each neighbour; empty for those that are absent."""
    count = sum(map(bool, present))
    size = len(joined) // count if count else 0
    if size * count != len(joined) or (count and size <= masking.SEALING):
        raise MessageError(CONTRADICTION)
    parts = iter([joined[start : start + size] for start in range(0, len(joined), size)] if count else [])
    return tuple(next(parts) if each else b"" for each in present)


def pack_revealed(revealed: Mapping[Place, Sequence[bytes]]) -> RecordDict:
    """What the users of a device reveal."""
    record: dict[str, Any] = {
        "users": [user for _, user in revealed],
        "rounds": [round_ for round_, _ in revealed],
        "revealed": [b"".join(each) for each in revealed.values()],
    }
    return RecordDict({"revealed": ConfigRecord(record)})


def unpack_revealed(content: RecordDict, sizes: Mapping[Place, Sequence[int]]) -> dict[Place, list[bytes]]:
    """What users revealed about each neighbour; ``sizes`` are those that are expected."""
    record = read_record(content.config_records, "revealed")
    places = pairs(read_list(record, "rounds", int), read_ids(record, "users"))
    revealed = {}
    for place, joined in pairs(places, read_list(record, "revealed", bytes)):
        if place not in sizes or len(joined) != sum(sizes[place]):
            raise MessageError(reasons.WRONG_MASKS)
        ends = np.cumsum([0, *sizes[place]]).tolist()
        revealed[place] = [joined[start:stop] for start, stop in itertools.pairwise(ends)]
    return revealed


def pack_key_request(federation: str, users: Sequence[UserId]) -> RecordDict:
    """Ask for the public keys of users."""
    record: dict[str, Any] = {"federation": federation, "users": list(users)}
    return RecordDict({"keys": ConfigRecord(record)})


def unpack_key_request(content: RecordDict) -> tuple[str, list[UserId]]:
    """The federation and the users whose keys are asked for."""
    record = read_record(content.config_records, "keys")
    return read_value(record, "federation", str), read_ids(record, "users")


def pack_keys(keys: Mapping[UserId, bytes]) -> RecordDict:
    """The public keys of a device's users."""
    record: dict[str, Any] = {"users": list(keys), "keys": list(keys.values())}
    return RecordDict({"keys": ConfigRecord(record)})


def unpack_keys(content: RecordDict, wanted: Sequence[UserId]) -> dict[UserId, bytes]:
    """The public keys of those users who were asked for."""
    record = read_record(content.config_records, "keys")
    keys = dict(pairs(read_ids(record, "users"), read_list(record, "keys", bytes)))
    if not set(wanted).issuperset(keys) or any(len(key) != masking.KEY for key in keys.values()):
        raise MessageError(reasons.NOT_ASKED)
    return keys
