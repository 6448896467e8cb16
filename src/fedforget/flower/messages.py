"""Messages: orders, tasks, global parameters and results as Flower's records, and back.

To a device: ``order``, ``task``, ``public`` (global parameters) if the task needs them, ``factors`` of rounds that the
server calibrated. From a device: ``updates``, ``stored`` ones if asked for, ``result`` (users and rounds of the
updates, and the reason for each missing one). Everything that arrives is checked here or
rejected with a ``MessageError``.
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
from fedforget.models import GlobalParameters
from fedforget.protocol import reasons
from fedforget.protocol.factors import Factors
from fedforget.protocol.order import Order
from fedforget.protocol.tasks import TASKS, Task
from fedforget.protocol.terms import Parameters
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime.randomness import UserId

#: Flower's message types.
RUN, EVALUATE, WIPE = "train.run", "evaluate.model", "query.wipe"
CONTRADICTION = "the message contradicts itself"
LONGEST_VALUE = 200
#: The most past rounds that one order may ask a user for.
MOST_ROUNDS = 1_000


def pack_order(order: Order, task: Task | None = None, public: GlobalParameters | None = None) -> RecordDict:
    """A message to a device; without a task it is for an evaluation."""
    content = RecordDict({"order": _order(order)})
    if task is not None:
        content["task"] = ConfigRecord(task.settings())
    if public is not None:
        content["public"] = pack(items=public.items, dense=public.dense)
    if order.factors:
        arrays = {}
        for (trajectory, round_), factors in order.factors.items():
            arrays[f"items-{trajectory}-{round_}"], arrays[f"dense-{trajectory}-{round_}"] = (
                factors.items,
                factors.dense,
            )
        content["factors"] = pack(**arrays)
    return content


def _order(order: Order) -> ConfigRecord:
    return ConfigRecord(
        {
            "federation": order.federation,
            "number": order.number,
            "trajectories": [name for name, _ in order.lineage],
            "branches": [after for _, after in order.lineage],
            "in_service": order.in_service,
            "round": order.round,
            "users": list(order.users),  # type: ignore[dict-item]
            "since": list(order.since),
            "served": list(order.served),
            "calibrated_on": [trajectory for trajectory, _ in order.factors],
            "calibrated": [round_ for _, round_ in order.factors],
            "rounds": [round_ for rounds in order.rounds for round_ in rounds],
            "rounds_each": [len(rounds) for rounds in order.rounds],
        }
    )


def unpack_order(content: RecordDict) -> Order:
    """The order of a message."""
    record = _config(content, "order")
    names, branches = _list(record, "trajectories", str), _list(record, "branches", int)
    users, since, served = _users(record, "users"), _list(record, "since", int), _list(record, "served", int)
    trajectories, rounds = _list(record, "calibrated_on", str), _list(record, "calibrated", int)
    if len(trajectories) != len(rounds):
        raise MessageError(CONTRADICTION)
    order = Order(
        _value(record, "federation", str),
        _value(record, "number", int),
        tuple(zip(names, branches, strict=False)),
        _value(record, "in_service", str),
        _value(record, "round", int),
        tuple(users),
        tuple(since),
        tuple(served),
        {where: _factors(content, *where) for where in zip(trajectories, rounds, strict=True)},
        _rounds_of_each(record),
    )
    sizes = {len(users), len(since), len(served), len(order.rounds) or len(users)}
    starts = min((own[0] for own in order.rounds), default=order.round)
    if len(names) != len(branches) or len(sizes) != 1 or order.in_service not in names or starts != order.round:
        raise MessageError(CONTRADICTION)
    return order


def _rounds_of_each(record: ConfigRecord) -> tuple[tuple[int, ...], ...]:
    """The past rounds that each user is asked for: some, each once, in ascending order."""
    rounds, counts = _list(record, "rounds", int), _list(record, "rounds_each", int)
    if any(not 1 <= count <= MOST_ROUNDS for count in counts) or sum(counts) != len(rounds):
        raise MessageError(CONTRADICTION)
    ends = np.cumsum([0, *counts]).tolist()
    each = tuple(tuple(rounds[start:end]) for start, end in itertools.pairwise(ends))
    if any(later <= earlier for own in each for earlier, later in itertools.pairwise(own)):
        raise MessageError(CONTRADICTION)
    return each


def _factors(content: RecordDict, trajectory: str, round_: int) -> Factors:
    record = _arrays(content, "factors")
    items, dense = (unpack(record, f"{kind}-{trajectory}-{round_}", np.float32, 1) for kind in ("items", "dense"))
    return Factors(items, dense)


def unpack_public(content: RecordDict) -> Parameters:
    """The item table and the other tensors of a message; whether they fit the model is checked later."""
    record = _arrays(content, "public")
    return unpack(record, "items", np.float32, 2), unpack(record, "dense", np.float32, 1)


def unpack_task(content: RecordDict) -> Task:
    """The task of a message. Settings that are missing, unknown or of another type are rejected."""
    record = _config(content, "task")
    try:
        kind = TASKS.find(_value(record, "name", str))
    except MissingComponentError as error:
        raise MessageError(error.problem[:LONGEST_VALUE]) from error
    kinds = get_type_hints(kind)
    values = {field.name: _value(record, field.name, kinds[field.name]) for field in fields(kind)}
    if set(record) != {"name", *values}:
        raise MessageError("the task has unknown settings")
    return kind(**values)


def unpack_federation(content: RecordDict) -> str:
    """The federation that an order to wipe is about."""
    federation: str = _value(_config(content, "task"), "federation", str)
    return federation


def unpack_wipes(content: RecordDict) -> tuple[list[str], list[str]]:
    """The pseudonyms of users to wipe, and the salt of each."""
    record = _config(content, "task")
    pseudonyms, salts = _list(record, "pseudonyms", str), _list(record, "salts", str)
    if len(pseudonyms) != len(salts):
        raise MessageError(CONTRADICTION)
    return pseudonyms, salts


def pack_results(results: Mapping[int, CohortResult]) -> RecordDict:
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
    stored = [result.stored for result in results.values() if result.stored is not None]
    if stored:
        (past,) = stored
        content["stored"] = _pack_updates(past)
        record["stored_users"] = list(past.users)
    content["result"] = ConfigRecord(record)
    return content


def _pack_updates(updates: Updates) -> ArrayRecord:
    return pack(**{field.name: getattr(updates, field.name) for field in fields(updates) if field.name != "users"})


def unpack_results(
    content: RecordDict, asked: Mapping[int, Sequence[UserId]], dim: int, dense: int, stored: bool
) -> dict[int, CohortResult]:
    """The results of a device by round; anything about users or rounds that it was not asked for is rejected."""
    record = _config(content, "result")
    users, rounds = _users(record, "users"), _list(record, "rounds", int)
    if len(rounds) != len(users):
        raise MessageError(CONTRADICTION)
    wanted = {(round_, user) for round_, those in asked.items() for user in those}
    sent = list(zip(rounds, users, strict=True))
    failures = _unpack_failures(record, wanted)
    if not wanted.issuperset(sent) or len(set(sent)) != len(sent) or rounds != sorted(rounds):
        raise MessageError(reasons.NOT_ASKED)
    failures |= dict.fromkeys(wanted.difference(sent, failures), reasons.NOT_MENTIONED)
    past = _unpack_stored(content, record, {user for _, user in wanted}, dim, dense) if stored else None
    updates = _unpack_updates(content, "updates", users, dim, dense)
    seconds = _value(record, "seconds", float)
    if not 0 <= seconds < math.inf:
        raise MessageError(f"its seconds is {seconds}")
    results = {}
    for round_, those in asked.items():
        start, stop = bisect_left(rounds, round_), bisect_right(rounds, round_)
        failed = {user: failures[round_, user] for user in those if (round_, user) in failures}
        share = seconds * ((stop - start) / len(users)) if users else seconds / len(asked)
        results[round_] = CohortResult(updates.between(start, stop), failed, past, share)
    return results


def _unpack_failures(record: ConfigRecord, wanted: set[tuple[int, UserId]]) -> dict[tuple[int, UserId], str]:
    """The reason for each missing update; one that is not known is replaced."""
    failed, rounds, given = _users(record, "failed"), _list(record, "failed_rounds", int), _list(record, "reasons", str)
    if not len(given) == len(rounds) == len(failed):
        raise MessageError(CONTRADICTION)
    lacking = list(zip(rounds, failed, strict=True))
    if not wanted.issuperset(lacking):
        raise MessageError(reasons.NOT_ASKED)
    known = (reason if reason in reasons.FROM_DEVICES else reasons.UNKNOWN_REASON for reason in given)
    return dict(zip(lacking, known, strict=True))


def _unpack_stored(content: RecordDict, record: ConfigRecord, wanted: set[UserId], dim: int, dense: int) -> Updates:
    users = _users(record, "stored_users")
    if not wanted.issuperset(users) or len(set(users)) != len(users):
        raise MessageError(reasons.NOT_ASKED)
    return _unpack_updates(content, "stored", users, dim, dense)


def _unpack_updates(content: RecordDict, name: str, users: Sequence[UserId], dim: int, dense: int) -> Updates:
    if not users:
        return Updates.none(dim, dense)
    record = _arrays(content, name)
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


def _config(content: RecordDict, name: str) -> ConfigRecord:
    if name not in content.config_records:
        raise MessageError(f"the message has no {name}")
    return content.config_records[name]


def _arrays(content: RecordDict, name: str) -> ArrayRecord:
    if name not in content.array_records:
        raise MessageError(f"the message has no {name}")
    return content.array_records[name]


def _value(record: ConfigRecord, name: str, kind: type) -> Any:
    value = record.get(name)
    if type(value) is not kind:
        raise MessageError(f"its {name} is {value!r}"[:LONGEST_VALUE])
    return value


def _list(record: ConfigRecord, name: str, kind: type) -> list[Any]:
    values = record.get(name)
    if not isinstance(values, list) or any(type(value) is not kind for value in values):
        raise MessageError(f"its {name} is {values!r}"[:LONGEST_VALUE])
    return values


def _users(record: ConfigRecord, name: str) -> list[UserId]:
    values = record.get(name)
    kind = str if isinstance(values, list) and values and isinstance(values[0], str) else int
    return _list(record, name, kind)
