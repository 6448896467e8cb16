"""Messages: orders, tasks, global parameters and results as Flower's records, and back.

To a device: ``order``, ``task``, ``public`` (global parameters) if the task needs them, ``factors`` of rounds that the
server calibrated. From a device: ``updates``, ``stored`` ones if asked for, ``result`` (users and rounds of the
updates, and the reason for each missing one). What is malformed or contradictory is rejected with a ``MessageError``.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, get_type_hints

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedforget.errors import MissingComponentError
from fedforget.flower.arrays import MessageError, pack, unpack
from fedforget.flower.records import (
    CONTRADICTION,
    LONGEST_VALUE,
    pairs,
    read_ids,
    read_list,
    read_record,
    read_value,
    split_bytes,
)
from fedforget.models import GlobalParameters
from fedforget.protocol import reasons
from fedforget.protocol.factors import Factors
from fedforget.protocol.notice import ItemsRequest, Notice
from fedforget.protocol.order import Order
from fedforget.protocol.tasks import TASKS, Task
from fedforget.protocol.terms import LAST_ROUND, Parameters
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime.randomness import UserId

#: Flower's message types.
RUN, EVALUATE, WIPE, KEYS, REVEAL = "train.run", "evaluate.model", "query.wipe", "query.keys", "query.reveal"
#: The size of a public key for secure sums.
KEY_SIZE = 32
#: The largest number of past rounds that one order may ask a user for.
MOST_ROUNDS = 1_000


def pack_order(order: Order, task: Task | None = None, public: GlobalParameters | None = None) -> RecordDict:
    """A message to a device; without a task it is for an evaluation."""
    record: dict[str, Any] = {
        "federation": order.federation,
        "number": order.number,
        "trajectories": [name for name, _ in order.lineage],
        "branches": [after for _, after in order.lineage],
        "in_service": order.in_service,
        "round": order.round,
        "users": list(order.users),
        "since": list(order.since),
        "served": list(order.served),
        "calibrated_on": [trajectory for trajectory, _ in order.factors],
        "calibrated": [round_ for _, round_ in order.factors],
        "rounds": [round_ for rounds in order.rounds for round_ in rounds],
        "rounds_each": [len(rounds) for rounds in order.rounds],
        "grown_in": [round_ for round_, _ in order.sizes],
        "sizes": [size for _, size in order.sizes],
        "new_items": list(order.new_items),
        "erased": list(order.erased),
        "erased_in_service": list(order.erased_in_service),
        "cohort_rounds": list(order.cohorts),
        "cohort_keys": [b"".join(keys) for keys in order.cohorts.values()],
    }
    content = RecordDict({"order": ConfigRecord(record)})
    if task is not None:
        content["task"] = ConfigRecord(task.settings())
    if public is not None:
        content["public"] = pack(items=public.items, dense=public.dense)
    if order.factors:
        arrays = {}
        for (trajectory, round_), factors in order.factors.items():
            arrays[f"items-{trajectory}-{round_}"] = factors.items
            arrays[f"dense-{trajectory}-{round_}"] = factors.dense
        content["factors"] = pack(**arrays)
    return content


def unpack_order(content: RecordDict) -> Order:
    """The order of a message."""
    record = read_record(content.config_records, "order")
    trajectories, branches = read_list(record, "trajectories", str), read_list(record, "branches", int)
    users, since, served = read_ids(record, "users"), read_list(record, "since", int), read_list(record, "served", int)
    order = Order(
        read_value(record, "federation", str),
        read_value(record, "number", int),
        tuple(pairs(trajectories, branches)),
        read_value(record, "in_service", str),
        read_value(record, "round", int),
        tuple(users),
        tuple(since),
        tuple(served),
        _unpack_factors(content, record),
        _rounds_of_each(record),
        tuple(pairs(read_list(record, "grown_in", int), read_list(record, "sizes", int))),
        tuple(read_ids(record, "new_items")),
        tuple(read_list(record, "erased", int)),
        tuple(read_list(record, "erased_in_service", int)),
        _cohorts(record),
    )
    per_user = (order.rounds, order.erased, order.erased_in_service)
    sizes = {len(users), len(since), len(served), *(len(values) or len(users) for values in per_user)}
    if len(order.new_items) > (order.sizes[-1][1] - order.sizes[0][1] if order.sizes else 0):
        raise MessageError(CONTRADICTION)
    first = min((rounds[0] for rounds in order.rounds), default=order.round)
    if len(sizes) != 1 or order.in_service not in trajectories or first != order.round:
        raise MessageError(CONTRADICTION)
    if not all(0 <= round_ <= LAST_ROUND for round_ in order.asked):
        raise MessageError(CONTRADICTION)
    return order


def _rounds_of_each(record: ConfigRecord) -> tuple[tuple[int, ...], ...]:
    """The past rounds that each user is asked for: at least one, in ascending order."""
    rounds, counts = read_list(record, "rounds", int), read_list(record, "rounds_each", int)
    if any(not 1 <= count <= MOST_ROUNDS for count in counts) or sum(counts) != len(rounds):
        raise MessageError(CONTRADICTION)
    remaining = iter(rounds)
    each = tuple(tuple(itertools.islice(remaining, count)) for count in counts)
    if any(later <= earlier for user_rounds in each for earlier, later in itertools.pairwise(user_rounds)):
        raise MessageError(CONTRADICTION)
    return each


def _cohorts(record: ConfigRecord) -> dict[int, tuple[bytes, ...]]:
    """The keys of the devices in the secure sum of each round."""
    cohorts = pairs(read_list(record, "cohort_rounds", int), read_list(record, "cohort_keys", bytes))
    return {round_: tuple(split_bytes(keys, KEY_SIZE)) for round_, keys in cohorts}


def _unpack_factors(content: RecordDict, record: ConfigRecord) -> dict[tuple[str, int], Factors]:
    """The factors of calibrated rounds by trajectory and round."""
    factors = {}
    for trajectory, round_ in pairs(read_list(record, "calibrated_on", str), read_list(record, "calibrated", int)):
        arrays = read_record(content.array_records, "factors")
        items = unpack(arrays, f"items-{trajectory}-{round_}", np.float32, 1)
        factors[trajectory, round_] = Factors(items, unpack(arrays, f"dense-{trajectory}-{round_}", np.float32, 1))
    return factors


def unpack_public(content: RecordDict) -> Parameters:
    """The item table and the other tensors of a message; whether they fit the model is checked later."""
    record = read_record(content.array_records, "public")
    return unpack(record, "items", np.float32, 2), unpack(record, "dense", np.float32, 1)


def unpack_task(content: RecordDict) -> Task:
    """The task of a message. Settings that are missing, unknown or of another type are rejected."""
    record = read_record(content.config_records, "task")
    try:
        kind = TASKS.find(read_value(record, "name", str))
    except MissingComponentError as error:
        raise MessageError(error.problem[:LONGEST_VALUE]) from error
    types = get_type_hints(kind)
    values = {field.name: read_value(record, field.name, types[field.name]) for field in fields(kind)}
    if set(record) != {"name", *values}:
        raise MessageError("the task has unknown settings")
    return kind(**values)


def unpack_wipes(content: RecordDict) -> tuple[str, int, list[tuple[str, str]]]:
    """The federation and the number of an order to wipe, and the pseudonym and salt of each user to wipe."""
    record = read_record(content.config_records, "task")
    salted = pairs(read_list(record, "pseudonyms", str), read_list(record, "salts", str))
    return read_value(record, "federation", str), read_value(record, "number", int), salted


def pack_results(results: Mapping[int, CohortResult], notice: Notice | None = None) -> RecordDict:
    """A device's results by round; stored updates go with a single round only."""
    parts = [result.updates for result in results.values()]
    failed = [(round_, *failure) for round_, result in results.items() for failure in result.failures.items()]
    record: dict[str, Any] = {
        "users": [user for part in parts for user in part.users],
        "rounds": [round_ for round_, result in results.items() for _ in result.updates.users],
        "failed": [user for _, user, _ in failed],
        "failed_rounds": [round_ for round_, _, _ in failed],
        "reasons": [reason for _, _, reason in failed],
        "seconds": float(sum(result.seconds for result in results.values())),
    }
    content = RecordDict({"updates": _pack_updates(Updates.end_to_end(parts))})
    if any(result.stored is not None for result in results.values()):
        (stored,) = (result.stored for result in results.values() if result.stored is not None)
        content["stored"] = _pack_updates(stored)
        record["stored_users"] = list(stored.users)
    content["result"] = ConfigRecord(record)
    content["notice"] = pack_notice(notice or Notice())
    return content


def pack_notice(notice: Notice) -> ConfigRecord:
    """What a device tells besides its results."""
    record: dict[str, Any] = {
        "added_items": notice.added_items,
        "users": [request.user for request in notice.requests],
        "numbers": [request.number for request in notice.requests],
        "since": [request.since for request in notice.requests],
        "counts": [request.count for request in notice.requests],
        "erased": list(notice.erased),
    }
    return ConfigRecord(record)


def unpack_notice(content: RecordDict, order: Order) -> Notice:
    """What a device tells besides its results; anything about users who were not asked is rejected."""
    record = read_record(content.config_records, "notice")
    users, numbers = read_ids(record, "users"), read_list(record, "numbers", int)
    rounds = pairs(read_list(record, "since", int), read_list(record, "counts", int))
    requests = tuple(
        ItemsRequest(user, number, since, count)
        for (user, number), (since, count) in pairs(pairs(users, numbers), rounds)
    )
    notice = Notice(read_value(record, "added_items", int), requests, tuple(read_ids(record, "erased")))
    if not set(order.users).issuperset([*users, *notice.erased]) or len(set(users)) != len(users):
        raise MessageError(reasons.NOT_ASKED)
    if notice.added_items < 0 or any(not 0 < r.number < 2**63 or r.since < 1 or r.count < 1 for r in requests):
        raise MessageError(CONTRADICTION)
    return notice


def _pack_updates(updates: Updates) -> ArrayRecord:
    return pack(**{field.name: getattr(updates, field.name) for field in fields(updates) if field.name != "users"})


def unpack_results(
    content: RecordDict, asked: Mapping[int, Sequence[UserId]], dim: int, dense: int, stored: bool
) -> dict[int, CohortResult]:
    """The results of a device by round; anything about users or rounds that it was not asked for is rejected."""
    record = read_record(content.config_records, "result")
    users, rounds = read_ids(record, "users"), read_list(record, "rounds", int)
    wanted = {(round_, user) for round_, cohort in asked.items() for user in cohort}
    sent = pairs(rounds, users)
    failures = unpack_failures(record, wanted)
    if not wanted.issuperset(sent) or len(set(sent)) != len(sent) or rounds != sorted(rounds):
        raise MessageError(reasons.NOT_ASKED)
    failures |= dict.fromkeys(wanted.difference(sent, failures), reasons.NOT_MENTIONED)
    past = None
    if stored:
        stored_users = read_ids(record, "stored_users")
        if not {user for _, user in wanted}.issuperset(stored_users) or len(set(stored_users)) != len(stored_users):
            raise MessageError(reasons.NOT_ASKED)
        past = _unpack_updates(content, "stored", stored_users, dim, dense)
    updates = _unpack_updates(content, "updates", users, dim, dense)
    seconds = read_value(record, "seconds", float)
    if not 0 <= seconds < math.inf:
        raise MessageError(f"its seconds is {seconds}")
    results = {}
    for round_, cohort in asked.items():
        start, stop = bisect_left(rounds, round_), bisect_right(rounds, round_)
        failed = {user: failures[round_, user] for user in cohort if (round_, user) in failures}
        share = seconds * ((stop - start) / len(users)) if users else seconds / len(asked)
        results[round_] = CohortResult(updates.between(start, stop), failed, past, share)
    return results


def unpack_failures(record: ConfigRecord, wanted: set[tuple[int, UserId]]) -> dict[tuple[int, UserId], str]:
    """The reason for each missing update; an unknown reason is replaced."""
    failed = pairs(read_list(record, "failed_rounds", int), read_ids(record, "failed"))
    given = [
        reason if reason in reasons.FROM_DEVICES else reasons.UNKNOWN_REASON
        for reason in read_list(record, "reasons", str)
    ]
    failures = dict(pairs(failed, given))
    if not wanted.issuperset(failed):
        raise MessageError(reasons.NOT_ASKED)
    return failures


def _unpack_updates(content: RecordDict, name: str, users: Sequence[UserId], dim: int, dense: int) -> Updates:
    if not users:
        return Updates.none(dim, dense)
    record = read_record(content.array_records, name)
    updates = Updates(
        users,
        unpack(record, "ptr", np.int64, 1),
        unpack(record, "items", np.int32, 1),
        unpack(record, "rows", np.float32, 2),
        unpack(record, "dense", np.float32, 2),
        unpack(record, "sizes", np.int64, 1),
        unpack(record, "losses", np.float32, 1),
    )
    if not updates.fits(dim, dense):
        raise MessageError(reasons.WRONG_SHAPE)
    return updates
