"""Damage to any file of a network, on the server or on a device: the result is the same, or somebody is told."""

from __future__ import annotations

import random
import secrets
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import fedforget as ff

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from flwr.app import Message

from fedforget.device.device import Device
from fedforget.errors import FedForgetError, NoAnswerError, RunWarning
from fedforget.flower import messages
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.request import ErasureRequest
from tests.flower import in_process
from tests.flower.in_process import Fault
from tests.flower.worlds import TRAIN, USERS, OnFlower, node_of
from tests.mutations import mutate

MUTATIONS = 15
SEED = 0
#: Files that there are few of; others are mutated by their folder and suffix.
NAMED = ("registry.sqlite", "history.sqlite", "invitation.json", "request.json", "catalogue.json")

SERVERS = {"plain": ff.ServerConfig(fraction=0.5), "secure": ff.ServerConfig(fraction=0.8, secure=True, minimum=3)}


def open_world(path: Path, kind: str) -> OnFlower:
    return OnFlower(path, server=SERVERS.get(kind, SERVERS["plain"]), model=ff.MF(dim=4))


def build(path: Path, kind: str) -> None:
    """A network with new items, a user whose device has not confirmed the wipe, and requests that wait."""
    world = open_world(path, kind)
    world.train(2)
    world.service.add_items([1000])
    world.train(3)
    world.grid.fault = unconfirmed_by(node_of(USERS[1]))
    world.forget(USERS[:2], ff.FRU())
    device(world, USERS[2]).forget(USERS[2], TRAIN.item_ids_of(USERS[2])[:1])
    for user in ("nobody", USERS[4])[: 1 if kind == "secure" else 2]:  # each erasure leaves out more of a secure round
        ErasureQueue(world.run).add(ErasureRequest.new([user], ff.FRU().settings()))
    if kind == "interrupted":
        world.disconnect(*world.states)
        with suppress(NoAnswerError):
            world.service.serve(world.service.rounds)
    world.close()


def unconfirmed_by(node: int) -> Fault:
    """Messages to wipe do not reach one node."""

    def fault(to: int, message: Message, deliver: Callable[[Message], Message]) -> list[Message]:
        lost = to == node and message.metadata.message_type == messages.WIPE
        return [] if lost else [deliver(message)]

    return fault


def device(world: OnFlower, user: Any) -> Device:
    return Device(world.states[node_of(user)], world.service.config.id)


def files_by_kind(base: Path) -> dict[str, list[Path]]:
    """All files but locks: those of users' devices, of snapshots and so on together."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(path.relative_to(base) for path in base.rglob("*") if path.is_file() and path.name != "lock"):
        place = path.parent.name if path.parent.name in ("queue", "receipts", "snapshots") else path.parts[0][:4]
        name = path.name if path.name in NAMED else path.suffix
        kinds.setdefault(f"{place}/{name}", []).append(path)
    return kinds


class Outcome:
    """What comes of a network: results on the server, what devices show, and what is said about either."""

    def __init__(self, path: Path, kind: str) -> None:
        self.results: list[Any] = []
        self.shown: list[Any] = []
        self.failures: set[tuple[int, Any, str]] = set()
        self.errors: list[FedForgetError] = []
        self.receipts: list[tuple[dict[str, int], int, int]] = []
        world = open_world(path, kind)
        try:
            self._use(world)
        finally:
            world.close()

    def _use(self, world: OnFlower) -> None:
        service = world.service
        self._recommend(world)
        self.results += [world.public.digest, service.members]
        world.train(service.rounds + 1)
        self.results += [world.public.digest, service.members]
        world.forget([USERS[3]], ff.FRU())
        self.results.append(world.public.digest)
        world.train(service.rounds + 1)
        self.results += [world.public.digest, service.members, world.measure(), service.catalogue()]
        receipts = service.receipts()
        self.receipts = [(dict(each.missing), each.wiped or 0, each.to_wipe or 0) for each in receipts]
        service.queue.refused()  # texts for people: their damage is no other result
        for round_ in range(1, service.rounds + 1):
            self.failures |= {(round_, *each) for each in world.history.record(round_).failures.items()}
        self._recommend(world)
        self.shown.append([users for state in world.states.values() for users in Device(state).users()])
        self.results.append([len(receipts), len(list((world.run / "receipts").iterdir()))])
        self.results += [world.invitation.terms.to_json(), world.invitation.items]

    def _recommend(self, world: OnFlower) -> None:
        for user in world.service.members:
            try:
                self.shown.append([device(world, user).recommend(user, 3), device(world, user).catalogue()])
            except FedForgetError as error:
                self.errors.append(error)

    def differs(self, other: Outcome) -> bool:
        return vars(self) != vars(other)

    def tells_more_than(self, other: Outcome) -> bool:
        """Whether the history or a receipt has a reason for the difference."""
        known = {pair for missing, *_ in other.receipts for pair in missing.items()}
        return bool(self.failures - other.failures) or any(
            set(missing.items()) - known or wiped < to_wipe for missing, wiped, to_wipe in self.receipts
        )


@contextmanager
def node_errors() -> Iterator[list[Exception]]:
    """The errors that nodes raise, which stop all of their users."""
    raised: list[Exception] = []
    app = in_process.app

    def watched(*given: Any) -> Any:
        try:
            return app(*given)
        except Exception as error:
            raised.append(error)
            raise

    in_process.app = watched
    try:
        yield raised
    finally:
        in_process.app = app


def names(error: FedForgetError, path: Path, file: Path) -> bool:
    text = f"{error.problem} {error.hint}"
    return file.name in text or str(path) in text


def classified(path: Path, kind: str, file: Path, expected: Outcome) -> tuple[str, str]:
    """The kind of outcome of a damaged network, and its text."""
    alone = file.parts[0] != "run" and file.suffix == ".sqlite"
    with warnings.catch_warnings(record=True) as told, node_errors() as raised:
        warnings.simplefilter("always")
        try:
            found = Outcome(path, kind)
        except FedForgetError as error:
            return "named" if names(error, path, file) else "unnamed", str(error)
        except Exception as error:
            return "raw", f"{type(error).__name__}: {error}"
    if raised:
        return "node", repr(raised[0])
    if unnamed := [error for error in found.errors if not names(error, path, file)]:
        return "unnamed", str(unnamed)
    new = found.failures - expected.failures
    if alone and len({user for _, user, _ in new}) > 1:
        return "others", str(sorted(new, key=str))
    if not found.differs(expected):
        return "same", ""
    if found.errors and found.results == expected.results:
        return "named", ""
    if any(issubclass(each.category, RunWarning) for each in told):
        return "announced", ""
    if found.tells_more_than(expected):
        return "reason", str(sorted(new, key=str))
    pairs = zip(found.results, expected.results, strict=False)
    return "silent", str([pair for pair in pairs if pair[0] != pair[1]])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "secure", "interrupted"])
def test_no_damage_changes_a_result_silently(kind, tmp_path, monkeypatch, record_property):
    names = random.Random(0)  # ids and salts are the same every time, so that the same bytes are hit
    monkeypatch.setattr(secrets, "token_hex", lambda size: names.randbytes(size).hex())
    base = tmp_path / "base"
    build(base, kind)
    shutil.copytree(base, tmp_path / "spared")
    expected = Outcome(tmp_path / "spared", kind)
    dice, counts = random.Random(f"{kind}{SEED}"), Counter[str]()
    wrong: list[str] = []
    files = files_by_kind(base)
    for number in range(MUTATIONS):
        damaged = tmp_path / "damaged"
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(base, damaged)
        file = dice.choice(files[dice.choice(list(files))])
        change = mutate(damaged / file, dice, filled=True)
        outcome, text = classified(damaged, kind, file, expected)
        if outcome == "silent" and change == "gone" and file.match("queue/*.json"):
            outcome = "withdrawn"  # a request that is not there was not made
        counts[outcome] += 1
        if outcome in ("unnamed", "raw", "node", "others", "silent"):
            wrong.append(f"{number}: {change} {file}: {outcome}: {text}")
    record_property("outcomes", dict(counts))
    print(dict(counts))
    assert not wrong, "\n".join(wrong)
