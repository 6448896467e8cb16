"""Messages: orders, public parameters and answers as Flower's records, and back.

What goes to a device: ``order``, ``task`` (what to do), ``public`` parameters where needed, ``factors`` of rounds that
the server calibrated. What comes back: ``updates``, ``stored`` ones where asked for, ``answer`` (whose they are and of
which rounds, and who has none for which reason). Whatever arrives is checked here or refused with a ``MessageError``.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedforget.device import devices, host, member, terms
from fedforget.device.log import device_log
from fedforget.device.terms import Parameters
from fedforget.engines.flower.arrays import MessageError, pack, unpack
from fedforget.models import Public
from fedforget.orders import Order
from fedforget.randomness import UserId
from fedforget.replay import Factors, Replay
from fedforget.server.aggregate import MISSHAPEN
from fedforget.updates import Answers, Updates

#: What a device can be asked, as Flower's message types.
TRAIN, REPLAY, RECALL = "train.round", "train.replay", "train.recall"
MEASURE, WIPE = "evaluate.model", "query.wipe"

NOT_ASKED = "its device spoke for a user that is not its own"
SILENT = "its device said nothing of it"
#: The reasons that a device may give: nothing that one has written itself goes into a history, a receipt or a log.
KNOWN = frozenset({*host.REASONS, *member.REASONS, *terms.REASONS, *devices.REASONS, *device_log.REASONS})
UNKNOWN = "its device gave a reason that is not known here"
LONGEST_VALUE = 200
#: The most past rounds that one order may ask a user for.
MOST_ROUNDS = 1_000


def pack_order(order: Order, task: Mapping[str, Any], public: Public | None = None) -> RecordDict:
    """A message to a device."""
    content = RecordDict({"order": _order(order), "task": ConfigRecord(dict(task))})
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
        raise MessageError("the order contradicts itself")
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
        raise MessageError("the order contradicts itself")
    return order


def unpack_single_order(content: RecordDict) -> Order:
    """The order of a message about one round."""
    order = unpack_order(content)
    if list(order.asked) != [order.round]:
        raise MessageError("the order is about several rounds")
    return order


def _rounds_of_each(record: ConfigRecord) -> tuple[tuple[int, ...], ...]:
    """The past rounds that each user is asked for: some, each once, in ascending order."""
    rounds, counts = _list(record, "rounds", int), _list(record, "rounds_each", int)
    if any(not 1 <= count <= MOST_ROUNDS for count in counts) or sum(counts) != len(rounds):
        raise MessageError("the order contradicts itself")
    ends = np.cumsum([0, *counts]).tolist()
    each = tuple(tuple(rounds[start:end]) for start, end in itertools.pairwise(ends))
    if any(later <= earlier for own in each for earlier, later in itertools.pairwise(own)):
        raise MessageError("the order contradicts itself")
    return each


def _factors(content: RecordDict, trajectory: str, round_: int) -> Factors:
    record = _arrays(content, "factors")
    items, dense = (unpack(record, f"{kind}-{trajectory}-{round_}", np.float32, 1) for kind in ("items", "dense"))
    return Factors(items, dense)


def unpack_public(content: RecordDict) -> Parameters:
    """The item table and the other tensors of a message; whether they fit the model is for the device to say."""
    record = _arrays(content, "public")
    return unpack(record, "items", np.float32, 2), unpack(record, "dense", np.float32, 1)


def pack_replay(how: Replay) -> dict[str, Any]:
    """How a round is to be replayed, as a task."""
    return {**asdict(how), "parts": how.parts or ""}


def unpack_task(content: RecordDict, name: str, kind: type) -> Any:
    """One setting of a task."""
    return _value(_config(content, "task"), name, kind)


def unpack_replay(content: RecordDict) -> Replay:
    """How a round is to be replayed."""
    kinds = {"epochs": int, "items": str, "parts": str, "stored": bool, "stretch": float}
    values = {name: unpack_task(content, name, kind) for name, kind in kinds.items()}
    return Replay(**{**values, "parts": values["parts"] or None})


def unpack_wipes(content: RecordDict) -> tuple[list[str], list[str]]:
    """The pseudonyms of users to wipe, and the salt of each."""
    record = _config(content, "task")
    pseudonyms, salts = _list(record, "pseudonyms", str), _list(record, "salts", str)
    if len(pseudonyms) != len(salts):
        raise MessageError("the order contradicts itself")
    return pseudonyms, salts


def pack_answers(answers: Mapping[int, Answers]) -> RecordDict:
    """What a device answers, for each round; stored updates go with a single round only."""
    parts = [answer.updates for answer in answers.values()]
    failed = [(round_, *failure) for round_, answer in answers.items() for failure in answer.failures.items()]
    record: dict[str, Any] = {
        "users": [user for part in parts for user in part.users],
        "rounds": [round_ for round_, answer in answers.items() for _ in answer.updates.users],
        "failed": [user for _, user, _ in failed],
        "failed_rounds": [round_ for round_, _, _ in failed],
        "reasons": [reason for _, _, reason in failed],
        "seconds": float(sum(answer.seconds for answer in answers.values())),
    }
    content = RecordDict({"updates": _pack_updates(Updates.end_to_end(parts))})
    stored = [answer.stored for answer in answers.values() if answer.stored is not None]
    if stored:
        (past,) = stored
        content["stored"] = _pack_updates(past)
        record["stored_users"] = list(past.users)
    content["answer"] = ConfigRecord(record)
    return content


def _pack_updates(updates: Updates) -> ArrayRecord:
    return pack(
        ptr=updates.ptr, items=updates.items, rows=updates.rows, dense=updates.dense, sizes=updates.sizes,
        losses=updates.losses,
    )  # fmt: skip


def unpack_answers(
    content: RecordDict, asked: Mapping[int, Sequence[UserId]], dim: int, dense: int, stored: bool
) -> dict[int, Answers]:
    """The answers of a device that was asked for some users and rounds; nothing about any other is accepted."""
    record = _config(content, "answer")
    users, failed = _users(record, "users"), _users(record, "failed")
    rounds, failed_rounds = _list(record, "rounds", int), _list(record, "failed_rounds", int)
    reasons = _list(record, "reasons", str)
    if len(rounds) != len(users) or not len(reasons) == len(failed_rounds) == len(failed):
        raise MessageError("the answer contradicts itself")
    wanted = {(round_, user) for round_, those in asked.items() for user in those}
    sent, lacking = list(zip(rounds, users, strict=True)), list(zip(failed_rounds, failed, strict=True))
    if not wanted.issuperset([*sent, *lacking]) or len(set(sent)) != len(sent) or rounds != sorted(rounds):
        raise MessageError(NOT_ASKED)
    given = dict(zip(lacking, (reason if reason in KNOWN else UNKNOWN for reason in reasons), strict=True))
    given |= dict.fromkeys(wanted.difference(sent, given), SILENT)
    past = None
    if stored:
        named = _users(record, "stored_users")
        if not {user for _, user in wanted}.issuperset(named) or len(set(named)) != len(named):
            raise MessageError(NOT_ASKED)
        past = _unpack_updates(content, "stored", named, dim, dense)
    updates = _unpack_updates(content, "updates", users, dim, dense)
    seconds = _value(record, "seconds", float)
    if not 0 <= seconds < math.inf:
        raise MessageError(f"its seconds is {seconds}")
    answers = {}
    for round_, those in asked.items():
        start, stop = bisect_left(rounds, round_), bisect_right(rounds, round_)
        failures = {user: given[round_, user] for user in those if (round_, user) in given}
        share = seconds * ((stop - start) / len(users)) if users else seconds / len(asked)
        answers[round_] = Answers(updates.between(start, stop), failures, past, share)
    return answers


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
        raise MessageError(MISSHAPEN)
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
