"""RunReader: reads the status of a run, also while another process writes to it.

It changes nothing, except that opening a run finishes an erasure that is committed. It belongs to the worker process:
it loads what the HTTP process must not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from fedforget.erasure_service.status import RECENT, Accuracy, Progress, RoundSummary, RunStatus, now
from fedforget.errors import ConfigError
from fedforget.runtime.fallbacks import Fallback
from fedforget.runtime.files import file_signature
from fedforget.runtime.randomness import UserId
from fedforget.server.config_file import on_network
from fedforget.server.erasure import Erasure
from fedforget.server.history import History, RoundRecord
from fedforget.server.metrics import MetricsFile
from fedforget.server.request import ErasureRequest
from fedforget.server.run import Run
from fedforget.server.run_config import RunConfig
from fedforget.server.service import Service, open_service
from fedforget.server.unlearning import METHODS, default_method
from fedforget.server.unlearning.estimate import Estimate

#: Growth of the history after which the duration of an erasure is estimated again.
GROWTH = 1.05
#: Files whose change is a change of the status, in the run folder and in the folder of a trajectory.
RUN_FILES = ("config.toml", "request.json", "registry.sqlite", "registry.sqlite-wal", "invitation.json")
TRAJECTORY_FILES = ("history.sqlite", "history.sqlite-wal", "metrics.jsonl")


class StoredRun:
    """A simulated run, without its devices and their data: what ``Service`` has of a run on a network."""

    def __init__(self, path: Path) -> None:
        self._run = Run(path, RunConfig.load(path / "config.toml"))
        self.config: RunConfig = self._run.config
        self.history: History = self._run.current.history

    @property
    def members(self) -> list[UserId]:
        """The users; none before the first round."""
        return self.history.membership.users()

    @property
    def n_items(self) -> int:
        """The number of items at the start; 0 before the first round."""
        return self.history.base_size()

    def estimate(self, users: Sequence[UserId]) -> Estimate:
        """The cost of forgetting users."""
        public = self.history.snapshot(self.history.usable_rounds()[0])
        return Erasure(self._run, self.members, users).estimate(public)

    def fallbacks(self) -> list[Fallback]:
        """What was damaged or missing in files of the run."""
        return self._run.fallbacks()

    def close(self) -> None:
        """Close the run's files."""
        self._run.close()


class RunReader:
    """Opens a run each time, so that it holds nothing of users who have been forgotten meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._estimated: tuple[int, int, float | str] = (0, 0, "")

    def signature(self, trajectory: int) -> list[object]:
        """What changes whenever the status may have changed, except for ``progress``."""
        folder = self.path / f"trajectory-{trajectory}"
        paths = [self.path / name for name in RUN_FILES] + [folder / name for name in TRAJECTORY_FILES]
        return [file_signature(path) for path in paths]

    def read(self) -> RunStatus:
        """The status of the run; an error of this package or of SQLite if it cannot be read."""
        with closing(open_service(self.path) if on_network(self.path) else StoredRun(self.path)) as run:
            config, history = run.config, run.history
            rounds = max(history.last_round, 0)
            waiting, estimate = self.waiting(), self._estimate(run, rounds)
            return RunStatus(
                engine=config.engine,
                federation=config.id,
                model=config.model.name,
                method=default_method(config.model).settings(),
                rounds=rounds,
                members=len(run.members),
                items=run.n_items + history.catalogue.added(rounds + 1),
                nodes=len(run.registry.by_node()) if isinstance(run, Service) else None,
                trajectory=config.trajectory,
                waiting=None if waiting is None else waiting.id,
                progress=None if waiting is None else self.progress(waiting, rounds),
                estimate_seconds=None if isinstance(estimate, str) else estimate,
                obstacle=estimate if isinstance(estimate, str) else None,
                recent=tuple(
                    _summary(history.record(round_)) for round_ in range(max(rounds - RECENT, 0) + 1, rounds + 1)
                ),
                accuracy=_accuracies(history),
                fallbacks=len(run.fallbacks()),
                updated=now(),
            )

    def waiting(self) -> ErasureRequest | None:
        """The erasure that is being carried out or was interrupted."""
        return ErasureRequest.load(self.path / "request.json")

    def progress(self, request: ErasureRequest, rounds: int) -> Progress:
        """The progress of the replay of a request in a run with so many rounds."""
        folder = self.path / f"trajectory-{request.trajectory}"
        if not folder.exists():
            return Progress(0, 0)
        start, last = History.replayed(folder)
        added = METHODS.build(request.method).more_rounds(rounds)
        return Progress(last - start, max(rounds + added - start, last - start))

    def _estimate(self, run: Service | StoredRun, rounds: int) -> float | str:
        """The expected duration of an erasure that replays every round, or why there can be none.

        A duration is kept until the history has grown.
        """
        trajectory, before, found = self._estimated
        if trajectory != run.config.trajectory or isinstance(found, str) or rounds > GROWTH * before:
            found = _worst_case(run, rounds)
            self._estimated = run.config.trajectory, rounds, found
        return found


def _worst_case(run: Service | StoredRun, rounds: int) -> float | str:
    """The expected duration of an erasure of a user of the first round that had any, or why it would be refused."""
    taken = (run.history.record(round_).participants for round_ in range(1, rounds + 1))
    first = next((users for users in taken if users), None)
    if first is None:
        return 0.0
    try:
        return run.estimate([first[0]]).seconds
    except ConfigError as error:  # too few users, or the devices' logs do not have what the default method needs
        return error.problem


def _summary(record: RoundRecord) -> RoundSummary:
    """A round, without its users."""
    answered, failures = len(record.participants), Counter(record.failures.values())
    asked = answered + len(record.failures)
    return RoundSummary(record.round, asked, answered, dict(failures), record.seconds, record.loss)


def _accuracies(history: History) -> tuple[Accuracy, ...]:
    """The evaluations in ``metrics.jsonl``, one a round: the last one."""
    lines = [] if history.folder is None else MetricsFile(history.folder / "metrics.jsonl").read()
    found = {line["round"]: line for line in lines if line.keys() >= {"k", "users", "sampled", "full"}}
    return tuple(
        Accuracy(round_, line["k"], line["users"], line["sampled"], line["full"])
        for round_, line in sorted(found.items())
    )
