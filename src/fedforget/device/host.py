"""Host: the users of one device on a network, and the tasks that a federation can ask of them.

Orders may arrive late, twice or not at all. A device continues from the last round that counted (``Order.since``) and
undoes everything after it. So asking again gives the same result, and a lost response has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedforget.data import Interactions
from fedforget.device.compute import Compute
from fedforget.device.devices import Devices
from fedforget.device.local_evaluation import evaluate_locally, no_users
from fedforget.device.log.device_log import LAST
from fedforget.device.log.user_files import DamagedError, UserFiles
from fedforget.device.member import TEST, Member, sweep
from fedforget.device.member_devices import (
    all_rounds,
    build_devices,
    devices_of,
    interactions_of,
    keep_pending,
    roll_back,
)
from fedforget.device.model_file import ModelFile, ReceivedModel
from fedforget.device.wiping import keep_last_wipe, last_wipe, readable_users, remove_users
from fedforget.errors import ConfigError, MissingComponentError, RunError
from fedforget.models import GlobalParameters
from fedforget.protocol import reasons
from fedforget.protocol.fixed_point import encode_fractions
from fedforget.protocol.notice import ItemsRequest, Notice
from fedforget.protocol.order import Order
from fedforget.protocol.pseudonym import pseudonym
from fedforget.protocol.tasks import Asked, Recall, RemoveItems, Replay, Task
from fedforget.protocol.terms import Parameters, RefusedError, Terms
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime.files import make_folder, only_writer
from fedforget.runtime.randomness import UserId

if TYPE_CHECKING:
    from fedforget.device.secure_sums import MaskedResults
    from fedforget.protocol.masking import RevealOrder


class Host:
    """The files of a device's users, in one folder for each federation."""

    def __init__(self, folder: Path, compute: Compute | None = None) -> None:
        self.folder = folder
        self.compute = compute or Compute(workers=1)

    def enrol(
        self,
        terms: Terms,
        user: UserId,
        train: Sequence[int],
        test: Sequence[int] = (),
        n_items: int | None = None,
        secret: str | None = None,
    ) -> None:
        """Add a user of this device to a federation; see ``Member.enrol``."""
        with self._files(terms.federation) as files:
            Member.enrol(files, terms, user, train, test, n_items, secret)

    def run(self, task: Task, order: Order, received: Parameters | None = None) -> dict[int, CohortResult]:
        """Carry out a task for the users of an order; the result of each round."""
        with self._files(order.federation) as files:
            return self._run(files, task, order, received)[1]

    def run_masked(self, task: Task, order: Order, received: Parameters | None = None) -> MaskedResults:
        """Carry out a task for the users of an order; their masked parts of the secure sum of each round."""
        from fedforget.device.secure_sums import masked_updates

        with self._files(order.federation) as files:
            members, results, public = self._run(files, task, order, received)
            sizes = {}
            if members:
                catalogue = members[0].terms.catalogue(order.sizes)
                sizes = {
                    round_: catalogue.in_round(round_) if public is None else public.items.shape[0]
                    for round_ in results
                }
            digest = "" if public is None else public.digest
            return masked_updates(members, order, task.settings(), digest, results, sizes)

    def _run(
        self, files: UserFiles, task: Task, order: Order, received: Parameters | None
    ) -> tuple[list[Member], dict[int, CohortResult], GlobalParameters | None]:
        """Carry out a task; the members who did, the result of each round, and the parameters that came with it."""
        members, refused = self._load(files, order)
        trains = not isinstance(task, RemoveItems)
        if not order.branches and trains:
            refused |= {member.user: reasons.WAITS for member in members if member.request() is not None}
        if trains:
            refused |= _refused_sums([member for member in members if member.user not in refused], order)
        members = [member for member in members if member.user not in refused]
        loaded = {member.user for member in members}
        asked = {round_: [user for user in users if user in loaded] for round_, users in order.asked.items()}
        results = {round_: CohortResult(Updates.none()) for round_ in asked}
        public = None
        if members:
            try:
                last = max(order.asked) if trains else 0
                public = None if received is None else _accepted(files, members, order, received, last)
                if trains:
                    results = self._carry_out(task, order, members, asked, public)
            except RefusedError as error:
                refused |= dict.fromkeys(loaded, error.reason)
        for round_, users in order.asked.items():
            failures = {user: refused[user] for user in users if user in refused}
            results[round_] = replace(results[round_], failures={**failures, **results[round_].failures})
        return members, results, public

    def reveal(
        self, federation: str, number: int, orders: Sequence[RevealOrder]
    ) -> dict[tuple[int, UserId], list[bytes]]:
        """What users reveal about their neighbours in secure sums of an order; nothing for those who refuse."""
        from fedforget.device.secure_sums import revealed

        answers = {}
        with self._files(federation) as files:
            for order in orders:
                with suppress(RunError):
                    answers[order.round, order.user] = revealed(Member(files, order.user), number, order)
        return answers

    def public_keys(self, federation: str, users: Sequence[UserId]) -> dict[UserId, bytes]:
        """The public keys of users for secure sums; nothing for those who are not enrolled here."""
        keys = {}
        with self._files(federation) as files:
            for user in users:
                with suppress(RunError):
                    keys[user] = Member(files, user).key_pair.public
        return keys

    def _carry_out(
        self, task: Task, order: Order, members: list[Member], asked: Asked, public: GlobalParameters | None
    ) -> dict[int, CohortResult]:
        """Carry out a task for members who are in the order's state."""
        devices = devices_of(members, order, self.compute)
        _check(task, devices, members[0].terms, asked)
        for member in members:
            member.reached(order.round, max([*order.asked, getattr(task, "counted_in", 0)]))
        results = devices.run(task, asked, public)
        if devices.pending is not None:
            keep_pending(devices.pending, devices.log, members, order)
        return results

    def evaluate(self, order: Order, received: Parameters) -> tuple[int, dict[str, float]]:
        """The number of users with test items, and the sums of their metrics with the model received."""
        with self._files(order.federation) as files:
            members, public = self._load_to_evaluate(files, order, received)
            if public is None:
                return no_users()
            return self._evaluated(members, order, public)

    def evaluate_masked(self, order: Order, received: Parameters) -> MaskedResults:
        """For each user, whether it has test items, and its metrics, masked as its part of a secure sum."""
        from fedforget.device.secure_sums import MaskedResults, masked_vector

        with self._files(order.federation) as files:
            members, public = self._load_to_evaluate(files, order, received)
            contributions = {}
            if public is None:
                return MaskedResults()
            for member in members:
                count, sums = self._evaluated([member], order, public)
                words = encode_fractions([count, *sums.values()], len(order.cohorts[order.round]))
                with suppress(RefusedError):
                    masked = masked_vector(member, order, order.round, public.digest, words)
                    contributions[order.round, member.user] = masked
            return MaskedResults(contributions)

    def _load_to_evaluate(
        self, files: UserFiles, order: Order, received: Parameters
    ) -> tuple[list[Member], GlobalParameters | None]:
        """The members who can evaluate, and the model; None without any."""
        members, _ = self._load(files, order)
        refused = _refused_sums(members, order)
        members = [member for member in members if member.user not in refused]
        return members, _accepted(files, members, order, received) if members else None

    def _evaluated(self, members: list[Member], order: Order, public: GlobalParameters) -> tuple[int, dict[str, float]]:
        sizes = members[0].terms.catalogue(order.sizes)
        return evaluate_locally(devices_of(members, order, self.compute), interactions_of(members, TEST, sizes), public)

    def notice(self, order: Order) -> Notice:
        """What to tell the server after an order: requests to forget items, and whose erased items are gone."""
        requests: list[ItemsRequest] = []
        done: list[UserId] = []
        with self._files(order.federation) as files:
            for user, number in order.erased_of().items():
                with suppress(RunError):  # damaged: the next order may find the file restored
                    member = _enrolled(files, user)
                    if member is not None and (request := member.request(number)) is not None:
                        requests.append(request)
                    if (
                        number
                        and not order.branches
                        and (member is None or member.is_without(number, order.in_service))
                    ):
                        done.append(user)
            added = 0
            with suppress(RunError):  # a damaged catalogue: its ids are needed to recommend, not to train
                added = ModelFile(files.folder).catalogue_size() - order.sizes[0][1] if order.sizes else 0
        return Notice(max(added, 0), tuple(requests), tuple(done))

    def wipe_all(self, federation: str, number: int, orders: Sequence[tuple[str, str]]) -> list[str]:
        """Wipe the users with these pseudonyms and salts; returns the pseudonyms of which nothing is left.

        An order with the number of an earlier one, or a lower one, is out of date: a user may have joined again since.
        """
        folder = self.folder / _safe(federation)
        if folder.is_dir():
            with self._files(federation):
                if number <= last_wipe(folder):
                    return []
                keep_last_wipe(folder, number)
        return [name for name, salt in orders if self.wipe(federation, salt, name)]

    def wipe(self, federation: str, salt: str, name: str) -> bool:
        """Remove everything about the user with this pseudonym; whether nothing of it is left.

        The answer is False if a file cannot be read, since it may be this user's.
        """
        if not (self.folder / _safe(federation)).is_dir():
            return True
        with self._files(federation) as files:
            sweep(files.folder)
            _, all_readable = remove_users(files, lambda user: pseudonym(user, salt) == name)
        return all_readable

    def remove(self, federation: str, name: str) -> bool:
        """Remove everything about a user, named by its id as text; whether there was anything."""
        if not (self.folder / _safe(federation)).is_dir():
            return False
        with self._files(federation) as files:
            removed, _ = remove_users(files, lambda user: str(user) == name)
        return bool(removed)

    def federations(self) -> list[str]:
        """The federations that have a folder on this device."""
        return sorted(path.name for path in self.folder.glob("*") if path.is_dir() and any(path.glob("*.sqlite")))

    def users(self, files: UserFiles) -> list[UserId]:
        """The users whose files can be read."""
        return readable_users(files)[0]

    def scoring(self, member: Member, received: ReceivedModel) -> tuple[Devices, list[Interactions]]:
        """A user's device in its newest state, and its training and test items."""
        stored = member.trajectories()
        trajectory = received.trajectory if received.trajectory in stored else stored[-1]
        devices = build_devices([member], trajectory, self.compute)
        devices.restore(LAST)
        return devices, [devices.interactions, interactions_of([member], TEST, all_rounds(member))]

    @contextmanager
    def opened(self, federation: str) -> Iterator[tuple[UserFiles, ModelFile]]:
        """The users' files and the model of a federation that has a folder here."""
        with self._files(federation) as files:
            yield files, ModelFile(files.folder)

    def _load(self, files: UserFiles, order: Order) -> tuple[list[Member], dict[UserId, str]]:
        """Bring the users of an order to its state; users for whom that fails are returned with the reason."""
        members: list[Member] = []
        refused: dict[UserId, str] = {}
        erased, in_service = order.erased_of(), order.erased_of(in_service=True)
        for user, since, served in zip(order.users, order.since, order.served, strict=True):
            try:
                member = Member(files, user)
                member.check()
                if members and member.terms != members[0].terms:
                    raise RefusedError(reasons.DIFFERENT_TERMS)
                member.accept(order.number, member.terms.catalogue(order.sizes).largest)
                member.learn_requests(max(erased[user], in_service[user]))
                self._bring(member, order, since, served)
                if not order.branches:
                    member.erase(erased[user])
                members.append(member)
            except RefusedError as error:
                refused[user] = error.reason
            except RunError as error:
                damaged = isinstance(error, DamagedError)
                refused[user] = reasons.FILE_DAMAGED if damaged else reasons.FILE_UNUSABLE
            except MissingComponentError:
                refused[user] = reasons.MISSING_COMPONENT
            except (ConfigError, ValueError, KeyError, TypeError):  # the file's content is not valid
                refused[user] = reasons.FILE_DAMAGED
        return members, refused

    def _bring(self, member: Member, order: Order, since: int, served: int) -> None:
        """Bring one user to the order's trajectory, after its last round that counted.

        The trajectory in service comes first, since a new one must not contain rounds that did not count.
        """
        names = [name for name, _ in order.lineage]
        in_service = order.lineage[: names.index(order.in_service) + 1]
        for lineage, counted in dict.fromkeys(((in_service, served), (order.lineage, since))):
            trajectory = lineage[-1][0]
            until = member.follow(lineage, counted)
            if until is not None:
                devices = build_devices([member], trajectory, self.compute)
                devices.restore(until)
                devices.set_private(until)
                member.followed(trajectory)
            roll_back(member, order, trajectory, counted)
        member.drop_all_but([order.in_service, order.trajectory])

    @contextmanager
    def _files(self, federation: str) -> Iterator[UserFiles]:
        """The files of one federation, locked while one message is handled."""
        folder = make_folder(self.folder / _safe(federation))
        files = UserFiles(folder, federation)
        with only_writer(folder, wait=True):
            try:
                yield files
            finally:
                files.close()


def _refused_sums(members: Sequence[Member], order: Order) -> dict[UserId, str]:
    """Members whose terms do not allow the sums of an order, or updates without any, with the reason."""
    refused: dict[UserId, str] = {}
    if not order.cohorts:
        return {member.user: reasons.NOT_SECURE for member in members if member.terms.training.sum_over}
    from fedforget.device.secure_sums import check_cohorts

    rounds = {user: [round_ for round_, users in order.asked.items() if user in users] for user in order.users}
    for member in members:
        try:
            check_cohorts(member, order, rounds[member.user])
        except RefusedError as error:
            refused[member.user] = error.reason
    return refused


def _accepted(
    files: UserFiles, members: list[Member], order: Order, received: Parameters, round_: int = 0
) -> GlobalParameters:
    """The global parameters that came with an order, checked and stored, with the size of the catalogue and new ids."""
    terms = members[0].terms
    sizes = terms.catalogue(order.sizes)
    public = terms.parameters(received, sizes, round_)
    model = ModelFile(files.folder)
    if order.new_items:
        model.extend_catalogue(sizes.largest, order.new_items)
    model.save(public, order)
    for member in members:
        member.set_n_items(public.items.shape[0])
    return public


def _check(task: Task, devices: Devices, terms: Terms, asked: Asked) -> None:
    """Refuse a task that the terms do not allow or that the log does not support."""
    terms.check_task(task)
    stored = isinstance(task, Recall) or (isinstance(task, Replay) and task.stored)
    if stored and len(asked) > 1:
        raise RefusedError(reasons.ONE_ROUND_ONLY)
    if isinstance(task, Replay | Recall) and devices.previous is None:
        raise RefusedError(reasons.NO_PAST)
    if stored and not terms.log.whole_updates:
        raise RefusedError(reasons.NO_WHOLE_UPDATES)


def _enrolled(files: UserFiles, user: UserId) -> Member | None:
    """A user, if it is enrolled on this device."""
    try:
        return Member(files, user)
    except RefusedError:
        return None


def _safe(federation: str) -> str:
    """A federation's id, which is the name of its folder; refused if it is not hexadecimal."""
    if not federation or not set(federation) <= set("0123456789abcdef"):
        raise ConfigError(f"{federation!r} is not the id of a federation.", "Ids are hexadecimal digits.")
    return federation
