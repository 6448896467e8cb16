"""Messages: orders, public parameters and answers as Flower's records, and back.

What goes to a device: ``order``, ``task`` (what to do), ``public`` parameters where needed, ``factors`` of rounds that
the server calibrated. What comes back: ``updates``, ``stored`` ones where asked for, ``answer`` (whose they are, and
who has none for which reason). Whatever arrives is checked here or refused with a ``MessageError``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
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
    )
    sizes = {len(users), len(since), len(served)}
    if len(names) != len(branches) or len(sizes) != 1 or order.in_service not in names:
        raise MessageError("the order contradicts itself")
    return order


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


def pack_answers(answers: Answers) -> RecordDict:
    """What a device answers."""
    record: dict[str, Any] = {
        "users": list(answers.updates.users),
        "failed": list(answers.failures),
        "reasons": list(answers.failures.values()),
        "seconds": float(answers.seconds),
    }
    content = RecordDict({"updates": _pack_updates(answers.updates), "answer": ConfigRecord(record)})
    if answers.stored is not None:
        content["stored"] = _pack_updates(answers.stored)
        record["stored_users"] = list(answers.stored.users)
        content["answer"] = ConfigRecord(record)
    return content


def _pack_updates(updates: Updates) -> ArrayRecord:
    return pack(
        ptr=updates.ptr, items=updates.items, rows=updates.rows, dense=updates.dense, sizes=updates.sizes,
        losses=updates.losses,
    )  # fmt: skip


def unpack_answers(content: RecordDict, asked: Sequence[UserId], dim: int, dense: int, stored: bool) -> Answers:
    """The answers of a device that was asked for some users; nothing about anyone else is accepted."""
    record = _config(content, "answer")
    users, failed = _users(record, "users"), _users(record, "failed")
    reasons = _list(record, "reasons", str)
    if not set(asked).issuperset([*users, *failed]) or len(reasons) != len(failed):
        raise MessageError(NOT_ASKED)
    failures = {user: reason if reason in KNOWN else UNKNOWN for user, reason in zip(failed, reasons, strict=True)}
    failures |= {user: SILENT for user in asked if user not in users and user not in failures}
    past = None
    if stored:
        past = _unpack_updates(content, "stored", _users(record, "stored_users"), asked, dim, dense)
    updates = _unpack_updates(content, "updates", users, asked, dim, dense)
    seconds = _value(record, "seconds", float)
    if not 0 <= seconds < math.inf:
        raise MessageError(f"its seconds is {seconds}")
    return Answers(updates, failures, past, seconds)


def _unpack_updates(
    content: RecordDict, name: str, users: Sequence[UserId], asked: Collection[UserId], dim: int, dense: int
) -> Updates:
    if not users:
        return Updates.none(dim, dense)
    if not set(asked).issuperset(users) or len(set(users)) != len(users):
        raise MessageError(NOT_ASKED)
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
