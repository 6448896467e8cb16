"""Host: the users of one device on a network, one or a household, and what a federation may ask of them.

Orders may come late, twice or not at all. A device goes on from what the order says has counted (``Order.since``) and
undoes whatever it did after that, so that asking again gives the same answer, and an answer that got lost leaves
nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedforget.data import Interactions
from fedforget.device.compute import Compute
from fedforget.device.devices import Devices
from fedforget.device.log.device_log import DeviceLog
from fedforget.device.log.entries import Entries
from fedforget.device.log.sqlite import SqliteStore
from fedforget.device.log.user_files import DamagedError, UserFiles
from fedforget.device.look import Look
from fedforget.device.member import TEST, TRAIN, Member, sweep, user_of
from fedforget.device.pending import Pending
from fedforget.device.terms import Parameters, RefusedError, Terms
from fedforget.errors import ConfigError, RunError
from fedforget.files import make_folder, only_writer
from fedforget.orders import Order
from fedforget.pseudonym import pseudonym
from fedforget.randomness import UserId
from fedforget.replay import Replay
from fedforget.updates import Answers, Updates

DAMAGED = "its file is damaged"
UNUSABLE = "its device cannot read or write its file"
NO_PAST = "its device has no past round to go through again"
NO_UPDATES = "its device keeps no whole updates"
DIFFERENT = "its terms are not those of the others on its device"
SEVERAL = "its device sends stored updates of one round at a time"
REASONS = (DAMAGED, UNUSABLE, NO_PAST, NO_UPDATES, DIFFERENT, SEVERAL)

#: What users are asked to do, by round, once their devices are where the order says they are; what each round brings.
Ask = Callable[[Devices, Terms, Mapping[int, Sequence[UserId]]], dict[int, Answers]]


class Host:
    """The files of a device's users, in a folder for each federation."""

    def __init__(self, folder: Path, compute: Compute | None = None) -> None:
        self.folder = folder
        self.compute = compute or Compute(workers=1)

    def enrol(self, terms: Terms, user: UserId, train: Sequence[int], test: Sequence[int] = ()) -> None:
        """Let a user of this device join a federation."""
        with self._files(terms.federation) as files:
            Member.enrol(files, terms, user, train, test)

    def train(self, order: Order, sent: Parameters, epochs: int) -> Answers:
        """Let the users of an order train from the public parameters that were sent."""
        return self.replay(order, sent, Replay(epochs, parts=None))[order.round]

    def replay(self, order: Order, sent: Parameters, how: Replay) -> dict[int, Answers]:
        """Let them go through past rounds again, or through a new one: what each round brings."""

        def ask(devices: Devices, terms: Terms, asked: Mapping[int, Sequence[UserId]]) -> dict[int, Answers]:
            terms.check_epochs(how.epochs)
            if how.stored and len(asked) > 1:
                raise RefusedError(SEVERAL)
            if how.uses_log:
                _check_past(devices, terms, stored=how.stored)
            return devices.replay(asked, terms.public(sent), how)

        return self._carry_out(order, ask)

    def recall(self, order: Order, n_items: int) -> Answers:
        """Let them return, and take up again, what their logs have for a past round."""

        def ask(devices: Devices, terms: Terms, asked: Mapping[int, Sequence[UserId]]) -> dict[int, Answers]:
            terms.check_items(n_items)
            _check_past(devices, terms, stored=True)
            return {order.round: devices.recall(order.round, asked[order.round], n_items)}

        return self._carry_out(order, ask)[order.round]

    @contextmanager
    def looking(self, order: Order, sent: Parameters) -> Iterator[Look | None]:
        """The users of an order with the model that was sent; None if there are none."""
        with self._files(order.federation) as files:
            members, _ = self._take_up(files, order)
            if not members:
                yield None
                return
            devices = self._devices(members, order)
            yield Look(devices, _interactions(members, TEST), members[0].terms.public(sent))

    def wipe(self, federation: str, salt: str, name: str) -> bool:
        """Remove everything of the user with this pseudonym, and confirm that nothing is here (any more).

        Nothing can be confirmed while there is a file that cannot be read: it may be this user's.
        """
        if not (self.folder / _safe(federation)).is_dir():
            return True
        with self._files(federation) as files:
            sweep(files.folder)
            readable = True
            for key in files.users():
                try:
                    user = user_of(files, key)
                except DamagedError:
                    readable = False
                    continue
                if user is not None and pseudonym(user, salt) == name:
                    Member(files, user).wipe()
        return readable

    def remove(self, federation: str, name: str) -> bool:
        """Remove everything of a user by hand; whether there was anything. Ids are compared as they are written."""
        if not (self.folder / _safe(federation)).is_dir():
            return False
        with self._files(federation) as files:
            members = [member for member in _readable(files) if str(member.user) == name]
            for member in members:
                member.wipe()
        return bool(members)

    def _carry_out(self, order: Order, ask: Ask) -> dict[int, Answers]:
        with self._files(order.federation) as files:
            members, refused = self._take_up(files, order)
            there = {member.user for member in members}
            asked = {round_: [user for user in users if user in there] for round_, users in order.asked.items()}
            answers = {round_: Answers(Updates.none()) for round_ in asked}
            if members:
                devices = self._devices(members, order)
                try:
                    answers = ask(devices, members[0].terms, asked)
                except RefusedError as error:
                    refused |= dict.fromkeys(there, error.reason)
                if devices.pending is not None:
                    _keep(devices.pending, devices.log, members, order)
            return {
                round_: replace(answers[round_], failures={**_those(refused, users), **answers[round_].failures})
                for round_, users in order.asked.items()
            }

    def _take_up(self, files: UserFiles, order: Order) -> tuple[list[Member], dict[UserId, str]]:
        """Bring the users of an order to where it says they are; those who cannot are named with the reason."""
        members: list[Member] = []
        refused: dict[UserId, str] = {}
        for user, since, served in zip(order.users, order.since, order.served, strict=True):
            try:
                member = Member(files, user)
                member.check()
                if members and member.terms != members[0].terms:
                    raise RefusedError(DIFFERENT)
                member.accept(order.number)
                self._bring(member, order, since, served)
                members.append(member)
            except RefusedError as error:
                refused[user] = error.reason
            except RunError as error:
                refused[user] = DAMAGED if isinstance(error, DamagedError) else UNUSABLE
            except (ConfigError, ValueError, KeyError, TypeError):  # what it holds cannot be understood
                refused[user] = DAMAGED
        return members, refused

    def _bring(self, member: Member, order: Order, since: int, served: int) -> None:
        """Put one user on the order's trajectory, after the last of its rounds that counted.

        First on the one in service: a new one must not branch off what came too late there.
        """
        names = [name for name, _ in order.lineage]
        in_service = order.lineage[: names.index(order.in_service) + 1]
        for lineage, counted in dict.fromkeys(((in_service, served), (order.lineage, since))):
            until = member.follow(lineage, counted)
            if until is not None:
                self._settle_private(member, lineage[-1][0], until)
                member.followed(lineage[-1][0])
            self._go_back(member, order, lineage[-1][0], counted)
        member.drop_all_but([order.in_service, order.trajectory])

    def _go_back(self, member: Member, order: Order, trajectory: str, counted: int) -> None:
        """Undo what came after the last round that counted, and log that one if it waits to be scaled."""
        store = member.store(trajectory)
        member.terms.open_log(store).roll_back(counted)
        pending, factors = member.take_pending(trajectory, counted), order.factors.get((trajectory, counted))
        if pending is not None and factors is not None:
            member.terms.check_factors(factors)
            pending.settle(factors, member.terms.open_log(store), member.terms.model.update_layout)
            member.settled(trajectory)

    def _settle_private(self, member: Member, trajectory: str, until: int) -> None:
        """On a new trajectory, let the log know exactly what the private parameters were when it branched off."""
        log = member.terms.open_log(member.store(trajectory))
        devices = _build([member], log, None, self.compute)
        devices.restore(until)
        devices.settle_private(until)

    def _devices(self, members: list[Member], order: Order) -> Devices:
        terms, files = members[0].terms, members[0].files
        keys = [member.key for member in members]

        def log(trajectory: str) -> DeviceLog:
            return terms.open_log(SqliteStore(files.folder, terms.federation, trajectory, keys, files))

        previous = log(order.in_service) if order.in_service != order.trajectory else None
        devices = _build(members, log(order.trajectory), previous, self.compute)
        devices.restore(order.round - 1)
        return devices

    @contextmanager
    def _files(self, federation: str) -> Iterator[UserFiles]:
        """The files of one federation, held against another message that is being answered."""
        folder = make_folder(self.folder / _safe(federation))
        files = UserFiles(folder, federation)
        with only_writer(folder, wait=True):
            try:
                yield files
            finally:
                files.close()


def _check_past(devices: Devices, terms: Terms, *, stored: bool) -> None:
    """Refuse to go through a past round again where there is none, or to send updates that are not kept."""
    if devices.previous is None:
        raise RefusedError(NO_PAST)
    if stored and not terms.log.whole_updates:
        raise RefusedError(NO_UPDATES)


def _build(members: list[Member], log: DeviceLog, previous: DeviceLog | None, compute: Compute) -> Devices:
    terms = members[0].terms
    return Devices(
        _interactions(members, TRAIN), terms.model, terms.sampler, terms.training, log,
        seed=terms.seed, compute=compute, previous=previous,
    )  # fmt: skip


def _interactions(members: list[Member], part: str) -> Interactions:
    """The members' items, as places in the catalogue."""
    items = [member.items(part) for member in members]
    indptr = np.concatenate([[0], np.cumsum([own.size for own in items])]).astype(np.int64)
    users = np.empty(len(members), object)
    users[:] = [member.user for member in members]
    if all(isinstance(member.user, int) for member in members):
        users = users.astype(np.int64)
    return Interactions(users, np.arange(members[0].terms.n_items), indptr, np.concatenate(items).astype(np.int32))


def _keep(pending: Pending, log: DeviceLog, members: list[Member], order: Order) -> None:
    """Keep a replayed round until the server says how it scaled it; until then its entry is there, but empty."""
    sound = np.flatnonzero(pending.sound)
    places = {int(key): place for place, key in enumerate(pending.keys.tolist())}
    log.store.append(order.round, Entries.of(pending.keys[sound], [b""] * sound.size), pending.trained.private[sound])
    for member in members:
        place = places.get(member.key)
        if place is not None and pending.sound[place]:
            member.keep_pending(order.trajectory, order.round, pending.to_bytes(place))


def _those(reasons: Mapping[UserId, str], users: Sequence[UserId]) -> dict[UserId, str]:
    return {user: reasons[user] for user in users if user in reasons}


def _readable(files: UserFiles) -> Iterator[Member]:
    for key in files.users():
        with suppress(DamagedError):
            user = user_of(files, key)
            if user is not None:
                yield Member(files, user)


def _safe(federation: str) -> str:
    """A federation's id as the name of a folder: ids are hexadecimal, whatever a message says."""
    if not federation or not set(federation) <= set("0123456789abcdef"):
        raise ConfigError(f"{federation!r} is not the id of a federation.", "Ids are hexadecimal digits.")
    return federation
