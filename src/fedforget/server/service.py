"""Service: the server of a federation whose devices are on a network."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

from fedforget.errors import ConfigError, FedForgetError, NoAnswerError, RunError
from fedforget.protocol.device_config import DeviceConfig
from fedforget.protocol.invitation import NAME, Invitation, catalogue_digest, read_invitation
from fedforget.protocol.notice import ItemsRequest
from fedforget.protocol.terms import Terms
from fedforget.runtime.files import file_signature, make_folder, only_writer
from fedforget.runtime.randomness import ItemId, UserId
from fedforget.server.backoff import Backoff
from fedforget.server.clients import Clients
from fedforget.server.coordinator import Coordinator
from fedforget.server.erasure import Erasure
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.fleet import Fleet, FleetEvaluation
from fedforget.server.history import OnRound, RoundRecord
from fedforget.server.node_registry import NodeRegistry
from fedforget.server.request import ErasureRequest, PartialErasure
from fedforget.server.roster import Roster
from fedforget.server.run import Run
from fedforget.server.run_config import RunConfig
from fedforget.server.trajectory import Trajectory
from fedforget.server.unlearning import METHODS, default_method

Tell = Callable[[str], None]
#: Seconds between two checks of the request queue when there is nothing to train.
POLL_SECONDS = 1.0


def create_federation(path: Path, config: RunConfig, items: Sequence[ItemId]) -> Invitation:
    """Create a federation on a network in a run folder, unless it exists; returns the invitation for its devices."""
    if config.engine == "simulation" or config.attack is not None:
        raise ConfigError("A federation on a network cannot be simulated.", "Use Federation for that.")
    if config.joins:
        raise ConfigError(
            f"joins names {len(config.joins)} users, who are not registered yet.",
            "Leave it out: on a network users take part from the round after they are registered.",
        )
    data = {"digest": catalogue_digest(items), "items": len(items)}
    with closing(NodeRegistry(path if (path / "config.toml").exists() else None)) as registry:
        on_commit = partial(_on_commit, registry=registry)
        run = Run(path, replace(config, data=data), on_commit=on_commit)
    run.close()
    if (path / NAME).exists():  # items may have been added since
        return Invitation.load(path / NAME)
    shared = {field.name: getattr(run.config, field.name) for field in fields(DeviceConfig)}
    invitation = Invitation(Terms(federation=run.config.id, n_items=len(items), **shared), list(items))
    invitation.save(path / NAME)
    return invitation


class Service(Coordinator):
    """Trains with the devices of a fleet, and carries out erasure requests between rounds."""

    def __init__(self, path: Path, fleet: Callable[[RunConfig, NodeRegistry], Fleet]) -> None:
        config = RunConfig.load(path / "config.toml")
        if config.engine == "simulation":
            raise RunError(
                f"{path} is a simulated run, not one on a network.", "Create one with: fedforget flower create RUN ..."
            )
        self.path = path
        self._wipe_backoff = Backoff()
        self._invitation: tuple[int, int, int] | None = None
        self.registry = NodeRegistry(path)
        self.queue = ErasureQueue(path)
        on_commit = partial(_on_commit, registry=self.registry)
        super().__init__(Run(path, config, on_commit=on_commit))
        self.fleet = fleet(self.config, self.registry)
        with self._run.noting():
            self._load()

    @property
    def members(self) -> list[UserId]:
        """All registered users but those who were forgotten and not readmitted."""
        known = self.history.membership.users()
        return sorted({*known, *self._new_users(known)}, key=lambda user: (isinstance(user, str), user))

    def _new_users(self, known: Sequence[UserId]) -> list[UserId]:
        """The registered users who are no members yet and may become members."""
        new = sorted(set(self.registry.users()).difference(known), key=str)
        refused = set(self.history.membership.suppressed(new)) - self.registry.readmitted()
        return [user for user in new if user not in refused]

    def register(self, key: str, node: int, users: Sequence[UserId], *, readmit: bool = False) -> None:
        """Register users on a node; they take part from the next round on.

        Users who were forgotten are refused unless ``readmit``; a readmitted user starts anew.
        """
        again = self._forgotten_before(users, readmit, "Nobody was registered.", "--readmit")
        self.registry.register(key, node, users, again)

    def catalogue(self) -> list[ItemId]:
        """The ids of all items."""
        return list(Invitation.load(self.path / NAME).items)

    def add_items(self, items: Sequence[ItemId]) -> list[ItemId]:
        """Add items to the catalogue, which count from the next round on; returns those that are new.

        The invitation for new devices is written again. Devices get the new ids with their next message.
        """
        if not items:
            raise ConfigError("There are no items to add.", "Give at least one item id.")
        with only_writer(make_folder(self.queue.folder), wait=True):
            invitation = Invitation.load(self.path / NAME)
            known = set(invitation.items)
            if other := [item for item in items if type(item) is not type(invitation.items[0])]:
                raise ConfigError(
                    f"Item id {other[0]!r} is of another type than {invitation.items[0]!r} in the catalogue.",
                    "In one federation all item ids are whole numbers, or all are strings.",
                )
            if odd := [item for item in items if item == "" or (isinstance(item, int) and abs(item) >= 2**63)]:
                raise ConfigError(f"{odd[0]!r} cannot be an item id.", "Ids are 64-bit whole numbers or text.")
            new = [item for item in dict.fromkeys(items) if item not in known]
            if new:
                replace(invitation, items=[*invitation.items, *new]).save(self.path / NAME)
        return new

    def _grow(self) -> None:
        """Admit new users and items from the next round on; not while an erasure waits, which has branched already."""
        if self.waiting is not None:
            return
        users = self._new_users(self.history.membership.users())
        signature = file_signature(self.path / NAME)
        items = [] if signature == self._invitation else self._new_items()
        if users or items:
            number = self.history.membership.additions() + 1
            self.history.extend(number, self.rounds + 1, users, items)
            self.registry.admitted(users)
        self._invitation = signature

    def _new_items(self) -> list[ItemId]:
        """The items in the invitation that are not in the history yet."""
        path = self.path / NAME
        listed: list[ItemId] = read_invitation(path)["items"]
        base, added = self.n_items, self.history.catalogue.ids()
        if catalogue_digest(listed[:base]) != self.config.data["digest"] or listed[base : base + len(added)] != added:
            raise RunError(
                f"{path} does not list the items of this federation.", "Restore it; items are never removed or moved."
            )
        return listed[base + len(added) :]

    @property
    def n_items(self) -> int:
        """The number of items at the start."""
        return int(self.config.data["items"])

    def clients(self) -> Clients:
        return self.fleet.clients(self.history, self.history)

    def _branch(self, new: Trajectory, erasure: Erasure, done: int) -> Clients:
        """The devices on a new trajectory; each branches by itself when it gets its next order."""
        return self.fleet.clients(new.history, self.history)

    def _digest_without(self, erasure: Erasure) -> str:
        return str(self.config.data["digest"])

    def close(self) -> None:
        super().close()
        self.registry.close()

    def serve(
        self,
        rounds: int,
        *,
        evaluate_every: int | None = None,
        linger: bool = False,
        tell: Tell = lambda line: None,
    ) -> None:
        """Train until ``rounds`` rounds are done, and carry out erasure requests between rounds.

        With ``linger`` the server keeps running after the last round, for later requests. Then it also goes on if too
        few devices answer; otherwise it ends with ``NoAnswerError``, and continues when it is started again.
        """
        needed = max(self.config.server.smallest_sum, 1)
        while True:
            try:
                self._forget_queued(tell)
                self._send_wipes(tell)
                if trains := self.rounds < rounds and len(self.members) >= needed:
                    self._train_round(lambda record: tell(_line(record, rounds)))
                    if evaluate_every and self.rounds % evaluate_every == 0:
                        tell(_accuracy(self.evaluate()))
            except NoAnswerError as error:
                if not linger:
                    raise
                tell(f"{error.problem} Waiting for devices.")
                time.sleep(POLL_SECONDS)
                continue
            if trains:
                continue
            if linger:
                time.sleep(POLL_SECONDS)
            elif self.rounds >= rounds:
                return
            else:
                raise ConfigError(
                    f"{len(self.members)} users are registered, but a round needs {needed}.",
                    f"Register users: fedforget flower register {self.path} --key … --users …",
                )

    def _train_round(self, on_round: OnRound) -> None:
        """Train one round. If nobody of the cohort answers, one is drawn from the others, as long as there are any."""
        round_, server = self.rounds + 1, self.config.server
        silent: set[UserId] = set()
        cohorts = None
        while True:
            try:
                self._train(None, 1, on_round, cohorts)
                return
            except NoAnswerError:
                asked = cohorts[round_] if cohorts else self._roster().drawn(round_, server, self.config.seed)
                silent.update(asked)
                others = [user for user in self.members if user not in silent]
                if len(others) < max(server.smallest_sum, 1):
                    raise
                joined = self.history.membership.joined()
                roster = Roster(others, added={user: since for user, since in joined.items() if user not in silent})
                cohorts = {round_: roster.drawn(round_, server, self.config.seed)}

    def abandon_forgetting(self) -> None:
        """Drop the erasure that was interrupted, or else the oldest request in the queue."""
        request = self._next_request()
        super().abandon_forgetting()
        if request is not None:
            self.queue.remove(request.id)
            self.registry.drop_requests(_items_requests(request))

    def evaluate(self) -> FleetEvaluation:
        """Evaluate the model on the devices; returns the means over their users."""
        measured = self.fleet.evaluate(self.history, self.public, self.members)
        self._run.current.metrics.append({"round": self.rounds, **measured.to_dict()})
        return measured

    def _forget_queued(self, tell: Tell) -> None:
        """Carry out the erasure that was interrupted, then those in the queue."""
        devices_asked = False
        while (request := self._next_request()) is not None:
            if not request.users and request.partial:  # once before each round, so that no device stops the training
                if devices_asked:
                    return
                devices_asked = True
            if self.drop_if_done(request):
                continue
            items = f" and items of {len(request.partial)} users who stay" if request.partial else ""
            tell(f"forgetting {len(request.users)} users{items}, request {request.id}")
            try:
                receipt = self.carry_out(
                    request, lambda record: tell("replay " + _line(record, self.history.last_round))
                )
            except NoAnswerError:
                tell(f"request {request.id} is suspended; it goes on when devices answer, or drop it with --abandon")
                raise
            if receipt is None:
                tell(f"request {request.id} was not carried out: {self.queue.why_refused(request.id)}")
            else:
                tell(str(replace(receipt, salt=None)))

    def _refuse(self, request: ErasureRequest, error: FedForgetError) -> None:
        super()._refuse(request, error)
        self.registry.drop_requests(_items_requests(request))

    def _next_request(self) -> ErasureRequest | None:
        """The erasure that was interrupted, else the oldest request in the queue, without users who are no members.

        Requests of devices to forget items are carried out with it, if its method can, or by themselves.
        """
        if (interrupted := self.waiting) is not None:
            return interrupted
        members = set(self.members)
        asked = [r for r in self.registry.items_requests() if r.user in members]
        if (queued := self.queue.oldest()) is not None:
            users = queued.among(members).users
            method = METHODS.build(queued.method)
            together = users and method.begin(1, self.rounds) == 1 and not method.needs_whole_updates()
            return replace(queued, users=users, partial=_partial(asked, users) if together else ())
        method = default_method(self.model)
        return ErasureRequest.new((), method.settings(), partial=_partial(asked)) if asked else None

    def _send_wipes(self, tell: Tell) -> None:
        """Send open wipe orders to the devices, and count confirmations in the receipts.

        Devices of users whose items were forgotten are asked to remove them.
        """
        orders, open_removals = self.registry.wipe_orders(), self.registry.open_removals()
        waiting = {*(order.pseudonym for order in orders), *map(str, open_removals)}
        if waiting and self._wipe_backoff.allows(waiting):
            with self._wipe_backoff.spent():
                if orders:
                    self.registry.confirm(self.fleet.wipe(orders))
                if open_removals:
                    self.fleet.remove_items(self.history, self.public, open_removals)
        wiped = self.registry.wiped()
        for receipt in self.receipts():
            now = wiped.get(receipt.request)
            if now is not None and now != (receipt.wiped, receipt.to_wipe, receipt.given_up):
                done = replace(receipt, wiped=now.confirmed, to_wipe=now.total, given_up=now.given_up)
                self.history.add_receipt(done.request, done.to_json())
                self._run.write_receipts()
                if now.confirmed > (receipt.wiped or 0):
                    tell(f"request {done.request}: {done.wiped} of {done.devices} devices have wiped the users' data")

    def _after_erasure(self, erasure: Erasure) -> None:
        self._load()
        self._invitation = None  # the new history may lack items that came while the erasure was interrupted

    def _roll_back_devices(self, round_: int) -> None:
        """Each device rolls back by itself when it gets its next order."""

    def _prepare_to_write(self) -> None:
        super()._prepare_to_write()
        self._grow()


def open_service(path: Path) -> Service:
    """The server of a run on a network, for reading: it cannot reach devices."""
    return Service(path, lambda *_: None)  # type: ignore[arg-type]


def _on_commit(request: ErasureRequest, registry: NodeRegistry) -> None:
    """Remove what was forgotten from the registry."""
    registry.remove_users(request.users, request.id)
    done = _items_requests(request)
    registry.drop_requests(done)
    registry.add_removals([each.user for each in done], request.id)


def _partial(asked: Sequence[ItemsRequest], forgotten: Sequence[UserId] = ()) -> tuple[PartialErasure, ...]:
    """The erasures that devices asked for, but for users who are forgotten as a whole."""
    wanted = [request for request in asked if request.user not in forgotten]
    return tuple(PartialErasure(each.user, each.count, each.since, number=each.number) for each in wanted)


def _items_requests(request: ErasureRequest) -> list[ItemsRequest]:
    """The devices' requests that a request carries out."""
    return [ItemsRequest(part.user, part.number, part.since or 1, part.count) for part in request.partial]


def _line(record: RoundRecord, rounds: int) -> str:
    """A line about a round for the server's terminal. It names no users, since printed lines cannot be erased."""
    asked = len(record.participants) + len(record.failures)
    loss = "" if record.loss is None else f"  loss {record.loss:.4f}"
    reasons = "".join(f"\n  {times} × {reason}" for reason, times in Counter(record.failures.values()).items())
    head = f"round {record.round}/{max(rounds, record.round)}  {len(record.participants)} of {asked} users"
    return f"{head}{loss}  {record.sent / 1e6:.2f} MB  {record.seconds:.1f} s{reasons}"


def _accuracy(measured: FleetEvaluation) -> str:
    sampled = "  ".join(f"{name.upper()}@{measured.k} {value:.4f}" for name, value in measured.sampled.items())
    full = "  ".join(f"{name.upper()}@{measured.k} {value:.4f}" for name, value in measured.full.items())
    missing = f" ({len(measured.failures)} did not respond)" if measured.failures else ""
    return f"on {measured.users} users' devices{missing}: sampled {sampled}, full {full}"
