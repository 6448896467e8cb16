"""Hosts with a small household, orders to them, and what can be seen of them: shared by the tests of hosts."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fedforget as ff
from fedforget.device.compute import Compute
from fedforget.device.devices import Devices
from fedforget.device.host import Host
from fedforget.device.log.device_log import open_log
from fedforget.device.log.memory import MemoryStore
from fedforget.models import GlobalParameters, Recommender
from fedforget.protocol.factors import Factors
from fedforget.protocol.order import ORIGIN, Lineage, Order
from fedforget.protocol.pseudonym import pseudonym
from fedforget.protocol.tasks import Recall, Replay, Train
from fedforget.protocol.terms import Parameters, Terms
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime.randomness import UserId, user_key
from tests.samplers import make_sampler

FEDERATION = "0123456789abcdef"
N_ITEMS = 12
EPOCHS = 3
#: What each of the household trains on, and what it keeps back.
HOUSEHOLD: dict[str, tuple[list[int], list[int]]] = {
    "ann": ([0, 1, 2], [3]),
    "bob": ([4, 5, 6], [7, 8]),
    "cid": ([0, 8, 9, 10], []),
}
USERS = tuple(HOUSEHOLD)
SALT = "00ff" * 8
PLAIN = Replay(epochs=2, parts="none")
WAITS = Replay(epochs=2, items="logged", parts="none", stored=True)
#: The federation forgets somebody, and goes through its rounds again from the third on.
FORK: Lineage = (*ORIGIN, ("a", 2))


def terms_of(model: Recommender | None = None, log: ff.Log | None = None, **changes: Any) -> Terms:
    training = ff.LocalTraining(epochs=EPOCHS, batch=4, lr=0.05)
    terms = Terms(
        federation=FEDERATION, n_items=N_ITEMS, model=model or ff.MF(dim=4), sampler=make_sampler(), training=training,
        log=log or ff.Log("float32"), seed=5,
    )  # fmt: skip
    return replace(terms, **changes)


def household(folder: Path, terms: Terms | None = None, users: Sequence[str] = USERS) -> Host:
    host = Host(folder)
    for user in users:
        host.enrol(terms or terms_of(), user, *HOUSEHOLD[user], secret="")  # draws as in a simulation
    return host


def public_of(round_: int, model: Recommender | None = None) -> GlobalParameters:
    """What the server sends in a round."""
    return (model or ff.MF(dim=4)).init_public(N_ITEMS, seed=round_)


def sent(round_: int, model: Recommender | None = None) -> tuple[np.ndarray, np.ndarray]:
    public = public_of(round_, model)
    return public.items, public.dense


def order(
    number: int,
    round_: int,
    since: int,
    *,
    users: Sequence[UserId] = USERS,
    lineage: Lineage = ORIGIN,
    in_service: str | None = None,
    served: int | None = None,
    factors: Mapping[tuple[str, int], Factors] | None = None,
) -> Order:
    """An order to users who all have the same past."""
    counted = since if served is None else served
    return Order(
        FEDERATION, number, lineage, in_service or lineage[-1][0], round_, tuple(users), (since,) * len(users),
        (counted,) * len(users), factors or {},
    )  # fmt: skip


def trained(host: Host, rounds: int, users: Sequence[UserId] = USERS) -> Host:
    """A host whose users took part in so many rounds, all of which counted."""
    for round_ in range(1, rounds + 1):
        train(host, order(round_, round_, round_ - 1, users=users), sent(round_))
    return host


def train(host: Host, given: Order, received: Parameters, epochs: int = EPOCHS) -> CohortResult:
    """What a device answers to an order to train."""
    return only(host.run(Train(epochs), given, received))


def recall(host: Host, given: Order) -> CohortResult:
    """What a device answers to an order to send its logged updates."""
    return only(host.run(Recall(), given))


def factors_of(round_: int, model: Recommender) -> Factors:
    """A server that scaled each item and each other tensor by another factor."""
    n_tensors = len(model.dense_layout.shapes)
    return Factors(
        (0.5 + np.arange(N_ITEMS) / round_).astype(np.float32), (0.25 + np.arange(n_tensors)).astype(np.float32)
    )


def replayed(number: int, round_: int, since: int, **changes: Any) -> Order:
    """An order to replay a round on the new trajectory, after four rounds on the old one."""
    return order(number, round_, since, lineage=FORK, in_service="origin", served=4, **changes)


def copied(host: Host, folder: Path) -> Host:
    """A device in the same state."""
    shutil.copytree(host.folder, folder)
    return Host(folder)


def look(host: Host, given: Order) -> None:
    """Have an order followed without any training."""
    host.evaluate(given, sent(given.round))


# What can be seen of a device


def bits_of(updates: Updates | None) -> list[Any]:
    if updates is None:
        return []
    parts = (updates.ptr, updates.items, updates.rows, updates.dense, updates.sizes, updates.losses)
    return [list(updates.users), *(part.tobytes() for part in parts)]


def only(answers: Mapping[int, CohortResult]) -> CohortResult:
    """What a device answered to an order about a single round."""
    (answer,) = answers.values()
    return answer


def bits(answers: CohortResult | Mapping[int, CohortResult], *users: UserId) -> list[Any]:
    """All that a device answered for a round, to the bit; or what it answered for some of its users."""
    answers = answers if isinstance(answers, CohortResult) else only(answers)
    if users:
        return bits_of(Updates.together([answers.updates], users))
    return [bits_of(answers.updates), dict(answers.failures), bits_of(answers.stored)]


def path_of(host: Host, user: UserId) -> Path:
    return host.folder / FEDERATION / f"{user_key(user):016x}.sqlite"


def rows(host: Host, user: UserId, query: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path_of(host, user))) as db:
        return db.execute(query, values).fetchall()


def entries(host: Host, user: UserId, trajectory: str = "origin") -> dict[int, bytes]:
    return dict(rows(host, user, "SELECT round, body FROM entry WHERE trajectory = ?", trajectory))


def private(host: Host, user: UserId, trajectory: str = "origin") -> bytes:
    query = "SELECT row FROM private WHERE trajectory = ? ORDER BY round DESC LIMIT 1"
    return rows(host, user, query, trajectory)[0][0]


def tables(host: Host, user: UserId, *, but: str = "") -> dict[str, list[tuple[Any, ...]]]:
    """Everything in a user's file but for one value of ``meta``."""
    names = ("interaction", "entry", "private", "pending")
    found = {name: rows(host, user, f"SELECT * FROM {name} ORDER BY 1, 2") for name in names}
    return found | {"meta": [pair for pair in rows(host, user, "SELECT * FROM meta ORDER BY 1") if pair[0] != but]}


def everything(host: Host, users: Sequence[UserId] = USERS, *, but: str = "") -> dict[UserId, Any]:
    return {user: tables(host, user, but=but) for user in users}


def on_disk(host: Host) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((host.folder / FEDERATION).iterdir())}


def trajectories(host: Host, user: UserId) -> set[str]:
    """Those that anything in a user's file belongs to."""
    query = " UNION ".join(f"SELECT trajectory FROM {table}" for table in ("entry", "private", "pending"))
    return {name for (name,) in rows(host, user, query)}


# The same without a network


def in_memory(terms: Terms, users: Sequence[str] = USERS) -> Devices:
    """The devices of the same users as a simulation has them."""
    pairs = [(user, item) for user in users for item in HOUSEHOLD[user][0]]
    data = ff.Interactions.from_pairs(*map(list, zip(*pairs, strict=True))).with_items(np.arange(N_ITEMS))
    devices = Devices(data, terms, open_log(terms, terms.federation, MemoryStore()), Compute(workers=1))
    devices.restore(0)
    return devices


def train_in_memory(
    devices: Devices, round_: int, public: GlobalParameters, users: Sequence[UserId] = USERS
) -> CohortResult:
    return only(devices.train({round_: list(users)}, public, Train(EPOCHS)))


def branched(devices: Devices, until: int) -> Devices:
    new = devices.branch(devices.log.branch(None, until, np.empty(0, np.uint64)), until, devices.interactions)
    new.set_private(until)
    return new


def logged(devices: Devices, user: UserId) -> dict[int, bytes]:
    """The entries of a user in memory."""
    key = np.array([user_key(user)], np.uint64)
    found = {round_: list(devices.log.store.read(round_, key)) for round_ in range(1, 9)}
    return {round_: bytes(bodies[0]) for round_, bodies in found.items() if bodies}


# Users who leave


def wiped(host: Host, user: UserId) -> bool:
    return host.wipe(FEDERATION, SALT, pseudonym(user, SALT))


def files_of(host: Host, user: UserId) -> list[str]:
    return [name for name in on_disk(host) if f"{user_key(user):016x}" in name]
