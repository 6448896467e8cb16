"""Service: a federation whose devices are on a network; this is the server, and it never sees their data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fedforget.coordinator import Coordinator
from fedforget.data.ids import Id
from fedforget.errors import ConfigError, QuorumError, RunError
from fedforget.invitation import NAME, Invitation, catalogue_digest
from fedforget.patience import Patience
from fedforget.queue import Queue
from fedforget.randomness import UserId
from fedforget.request import Request
from fedforget.run import Run
from fedforget.server.clients import Clients
from fedforget.server.fleet import Fleet, Measured
from fedforget.server.history import RoundRecord
from fedforget.server.registry import Registry
from fedforget.server.unlearning import build_method
from fedforget.server.unlearning.receipt import Receipt
from fedforget.settings import Settings
from fedforget.trajectory import Trajectory

Tell = Callable[[str], None]
#: How often a server that has nothing to train looks for requests, in seconds.
LOOK_EVERY = 1.0


def found(path: Path, settings: Settings, items: Sequence[Id]) -> Invitation:
    """Begin a federation on a network in a run folder (or find it there); what to hand to those who join."""
    if settings.engine == "simulation" or settings.attack is not None:
        raise ConfigError("A federation on a network cannot be simulated.", "Use Federation for that.")
    data = {"digest": catalogue_digest(items), "items": len(items)}
    run = Run(path, replace(settings, data=data))
    run.close()
    invitation = Invitation.of(run.settings, items)
    invitation.save(path / NAME)
    return invitation


class Service(Coordinator):
    """Trains with the devices of a fleet, and forgets users as requests come, until it is told to stop."""

    def __init__(self, path: Path, fleet: Callable[[Settings, Registry], Fleet]) -> None:
        settings = Settings.load(path / "config.toml")
        if settings.engine == "simulation":
            raise RunError(
                f"{path} is a simulated run, not one on a network.", "Begin one with: fedforget flower found RUN ..."
            )
        self.path = path
        self._patience = Patience()
        self.registry = Registry(path)
        self.queue = Queue(path)
        super().__init__(Run(path, settings, self._committed))
        self.fleet = fleet(self.settings, self.registry)
        self._take_up()

    @property
    def members(self) -> list[UserId]:
        """Everyone who was registered and not forgotten."""
        return sorted({*self.registry.users(), *self.history.members()}, key=lambda user: (isinstance(user, str), user))

    @property
    def n_items(self) -> int:
        """How many items the catalogue has."""
        return int(self.settings.data["items"])

    def clients(self) -> Clients:
        """The devices on the trajectory in service."""
        return self.fleet.clients(self.history, self.history)

    def branch(self, new: Trajectory, leavers: Sequence[UserId], start: int, done: int) -> Clients:
        """The devices on a new trajectory; each branches off by itself when it is next asked."""
        return self.fleet.clients(new.history, self.history)

    def settings_without(self, leavers: Sequence[UserId]) -> Settings:
        """The settings once these users have left."""
        return self.settings.without(set(leavers), self.settings.data["digest"])

    def receipt(self, receipt: Receipt) -> Receipt:
        """No device has confirmed yet that it has wiped what it kept."""
        return replace(receipt, wiped=0)

    def close(self) -> None:
        """Let go of the run's files."""
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
        """Train until ``rounds`` rounds are done, and between rounds forget whoever asked to be.

        With ``linger`` it stays after the last round, to carry out requests as they come.
        """
        while True:
            self._forget_queued(tell)
            self._send_wipes(tell)
            if self.rounds < rounds and self._anyone(linger, tell):
                self._train(None, 1, lambda record: tell(_line(record, rounds)))
                if evaluate_every and self.rounds % evaluate_every == 0:
                    tell(_accuracy(self.evaluate()))
            elif not linger:
                return
            else:
                time.sleep(LOOK_EVERY)

    def _anyone(self, linger: bool, tell: Tell) -> bool:
        """Whether there is anyone to train with: a round without members would count for nothing."""
        if self.members:
            return True
        if not linger:
            raise ConfigError(
                "Nobody is registered in this federation.", f"fedforget flower register {self.path} --key … --users …"
            )
        return False

    def abandon_forgetting(self) -> None:
        """Give up an erasure that was interrupted, or the oldest that waits; its users stay."""
        request = self.waiting or next(iter(self.queue.waiting()), None)
        super().abandon_forgetting()
        if request is not None:
            self.queue.remove(request.id)

    def evaluate(self) -> Measured:
        """Let every device evaluate the model in service, and average what they find."""
        measured = self.fleet.measure(self.history, self.public, self.members)
        self._run.current.metrics.append({"round": self.rounds, **measured.to_dict()})
        return measured

    def _forget_queued(self, tell: Tell) -> None:
        """Carry out an erasure that was interrupted, then those that wait."""
        while (request := self.waiting) is not None or (request := next(iter(self.queue.waiting()), None)) is not None:
            request = self._still_wanted(request)
            if not request.users:
                self.queue.refuse(request.id, "Nobody that it names is a member (any more).")
                continue
            tell(f"forgetting {len(request.users)} users, request {request.id}")
            try:
                receipt = self._forget(
                    list(request.users),
                    build_method(**request.method),
                    request.require,
                    lambda record: tell("again " + _line(record, self.history.last_round)),
                    request,
                )
            except (ConfigError, QuorumError) as error:  # anything else may pass: the request waits on
                super().abandon_forgetting()
                self.queue.refuse(request.id, f"{error.problem} {error.hint}")
                tell(f"request {request.id} was not carried out: {error.problem}")
            else:
                self.queue.remove(request.id)
                tell(str(replace(receipt, salt=None)))

    def _still_wanted(self, request: Request) -> Request:
        """A request without those whom an earlier one has had forgotten already: no reason may name them again."""
        if self.waiting is not None:
            return request
        members = set(self.members)
        return replace(request, users=tuple(user for user in request.users if user in members))

    def _send_wipes(self, tell: Tell) -> None:
        """Tell the devices of those who left to wipe what they keep; who confirms goes into the receipt."""
        orders = self.registry.wipe_orders()
        if orders and self._patience.allows({order.pseudonym for order in orders}):
            with self._patience.spent():
                self.registry.confirm(self.fleet.wipe(orders))
        wiped = self.registry.wiped()
        for receipt in self.receipts():
            if wiped.get(receipt.request, 0) > (receipt.wiped or 0):
                done = replace(receipt, wiped=wiped[receipt.request])
                self.history.add_receipt(done.request, done.to_json())
                self._run.write_receipts()
                tell(f"request {done.request}: {done.wiped} of {len(done.users)} devices have wiped what they had")

    def _committed(self, request: Request) -> None:
        """Users are forgotten: so do the registry and the queue."""
        self.registry.let_go(request.users, request.id)
        self.queue.remove(request.id)

    def _let_go(self, leavers: Sequence[UserId]) -> None:
        self._take_up()

    def _roll_back(self, round_: int) -> None:
        """Each device does so by itself when it is next asked."""

    def _make_sound(self) -> None:
        super()._make_sound()
        self.history.admit(self.members)


def _line(record: RoundRecord, rounds: int) -> str:
    """One round, for the server's terminal; who did not answer is in the history, which users can be erased from."""
    asked = len(record.participants) + len(record.failures)
    loss = "" if record.loss is None else f"  loss {record.loss:.4f}"
    reasons = "".join(f"\n  {times} × {reason}" for reason, times in Counter(record.failures.values()).items())
    head = f"round {record.round}/{max(rounds, record.round)}  {len(record.participants)} of {asked} users"
    return f"{head}{loss}  {record.sent / 1e6:.2f} MB  {record.seconds:.1f} s{reasons}"


def _accuracy(measured: Measured) -> str:
    sampled = "  ".join(f"{name.upper()}@{measured.k} {value:.4f}" for name, value in measured.sampled.items())
    full = "  ".join(f"{name.upper()}@{measured.k} {value:.4f}" for name, value in measured.full.items())
    missing = f" ({len(measured.failures)} did not answer)" if measured.failures else ""
    return f"on {measured.users} users' devices{missing}: sampled {sampled}, full {full}"
