"""Service: the server of a federation whose devices are on a network."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from fedforget.errors import ConfigError, QuorumError, RunError
from fedforget.protocol.device_config import DeviceConfig
from fedforget.protocol.invitation import NAME, Invitation, ItemId, catalogue_digest
from fedforget.protocol.terms import Terms
from fedforget.runtime.randomness import UserId
from fedforget.server.backoff import Backoff
from fedforget.server.clients import Clients
from fedforget.server.coordinator import Coordinator
from fedforget.server.erasure import Erasure
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.fleet import Fleet, FleetEvaluation
from fedforget.server.history import RoundRecord
from fedforget.server.node_registry import NodeRegistry
from fedforget.server.request import ErasureRequest
from fedforget.server.run import Run
from fedforget.server.run_config import RunConfig
from fedforget.server.trajectory import Trajectory
from fedforget.server.unlearning import METHODS

Tell = Callable[[str], None]
#: Seconds between two checks of the request queue when there is nothing to train.
POLL_SECONDS = 1.0


def create_federation(path: Path, config: RunConfig, items: Sequence[ItemId]) -> Invitation:
    """Create a federation on a network in a run folder, unless it exists; returns the invitation for its devices."""
    if config.engine == "simulation" or config.attack is not None:
        raise ConfigError("A federation on a network cannot be simulated.", "Use Federation for that.")
    data = {"digest": catalogue_digest(items), "items": len(items)}
    run = Run(path, replace(config, data=data))
    run.close()
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
        self.registry = NodeRegistry(path)
        self.queue = ErasureQueue(path)
        super().__init__(Run(path, config, on_commit=self._on_commit))
        self.fleet = fleet(self.config, self.registry)
        self._load()

    @property
    def members(self) -> list[UserId]:
        """All registered users who were not forgotten."""
        return sorted({*self.registry.users(), *self.history.members()}, key=lambda user: (isinstance(user, str), user))

    @property
    def n_items(self) -> int:
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

        With ``linger`` the server keeps running after the last round, for later requests.
        """
        while True:
            self._forget_queued(tell)
            self._send_wipes(tell)
            if self.rounds < rounds and self.members:
                self._train(None, 1, lambda record: tell(_line(record, rounds)))
                if evaluate_every and self.rounds % evaluate_every == 0:
                    tell(_accuracy(self.evaluate()))
            elif linger:
                time.sleep(POLL_SECONDS)
            elif self.rounds >= rounds:
                return
            else:
                raise ConfigError(
                    "Nobody is registered in this federation.",
                    f"Register users: fedforget flower register {self.path} --key … --users …",
                )

    def abandon_forgetting(self) -> None:
        """Drop the erasure that was interrupted, or else the oldest request in the queue."""
        request = self._next_request()
        super().abandon_forgetting()
        if request is not None:
            self.queue.remove(request.id)

    def evaluate(self) -> FleetEvaluation:
        """Evaluate the model on the devices; returns the means over their users."""
        measured = self.fleet.evaluate(self.history, self.public, self.members)
        self._run.current.metrics.append({"round": self.rounds, **measured.to_dict()})
        return measured

    def _forget_queued(self, tell: Tell) -> None:
        """Carry out the erasure that was interrupted, then those in the queue."""
        while (request := self._next_request()) is not None:
            if not request.users:
                self.queue.refuse(request.id, "None of its users is a member.")
                continue
            tell(f"forgetting {len(request.users)} users, request {request.id}")
            try:
                receipt = self._forget(
                    list(request.users),
                    METHODS.build(request.method),
                    request.require,
                    lambda record: tell("replay " + _line(record, self.history.last_round)),
                    request,
                )
            except (ConfigError, QuorumError) as error:  # after any other error the request stays in the queue
                super().abandon_forgetting()
                self.queue.refuse(request.id, f"{error.problem} {error.hint}")
                tell(f"request {request.id} was not carried out: {error.problem}")
            else:
                self.queue.remove(request.id)
                tell(str(replace(receipt, salt=None)))

    def _next_request(self) -> ErasureRequest | None:
        """The erasure that was interrupted, else the oldest request in the queue, without users who are no members."""
        if (interrupted := self.waiting) is not None:
            return interrupted
        members = set(self.members)
        for request in self.queue.waiting():
            return replace(request, users=tuple(user for user in request.users if user in members))
        return None

    def _send_wipes(self, tell: Tell) -> None:
        """Send open wipe orders to the devices, and count confirmations in the receipts."""
        orders = self.registry.wipe_orders()
        if orders and self._wipe_backoff.allows({order.pseudonym for order in orders}):
            with self._wipe_backoff.spent():
                self.registry.confirm(self.fleet.wipe(orders))
        wiped = self.registry.wiped()
        for receipt in self.receipts():
            if wiped.get(receipt.request, 0) > (receipt.wiped or 0):
                done = replace(receipt, wiped=wiped[receipt.request])
                self.history.add_receipt(done.request, done.to_json())
                self._run.write_receipts()
                tell(f"request {done.request}: {done.wiped} of {len(done.users)} devices have wiped the users' data")

    def _on_commit(self, request: ErasureRequest) -> None:
        """Remove forgotten users from the registry and their request from the queue."""
        self.registry.remove_users(request.users, request.id)
        self.queue.remove(request.id)

    def _after_erasure(self, erasure: Erasure) -> None:
        self._load()

    def _roll_back_devices(self, round_: int) -> None:
        """Each device rolls back by itself when it gets its next order."""

    def _prepare_to_write(self) -> None:
        super()._prepare_to_write()
        self.history.admit(self.members)


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
