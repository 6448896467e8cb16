"""``fedforget bench service``: latency of status reads while an erasure replays, and requests that survive kills."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.data import load
from fedforget.errors import ConfigError
from fedforget.experiments import machine
from fedforget.experiments.service_load import Load, Plan
from fedforget.experiments.service_process import ServiceProcess, make_token, wait_for
from fedforget.experiments.service_requests import PATH, Asked, carried_out, post_all
from fedforget.simulation.federation import Federation

Say = Callable[[str], None]
#: Large enough that an erasure replays for several seconds.
DATA: dict[str, Any] = {"items": 2000, "mean_items": 60.0}
ROUNDS = 20
CONNECTIONS = 8
#: Seconds between looks at what the worker does, and that all requests may take to be completed.
LOOK_SECONDS, COMPLETE_SECONDS = 0.05, 600.0
#: Far above what is measured, so that calls are never refused for their number.
OPTIONS = ("--rate", "100000")
#: Share of the requests that are answered before the first kill.
KILL_AFTER = 0.4


@dataclass
class Replays:
    """Looks at a run folder whether an erasure replays, in a thread; ``on_new`` is called at the start of each."""

    run: Path
    on_new: Callable[[], None]
    looks: list[tuple[float, bool]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look until stopped."""
        newest = None
        while not self._stop.wait(LOOK_SECONDS):
            request = waiting(self.run)
            self.looks.append((time.monotonic(), request is not None))
            if request is not None and request["id"] != newest:
                newest = request["id"]
                self.on_new()

    def stop(self) -> None:
        self._stop.set()

    def at(self, times: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether one replayed at these times."""
        when, replayed = (np.array(column) for column in zip(*self.looks, strict=True))
        return replayed[np.clip(np.searchsorted(when, times), 0, len(when) - 1)].astype(bool)


def bench_service(rate: float, seconds: float, queued: int, users: int, say: Say) -> dict[str, Any]:
    """Both parts, on a simulated run of so many users."""
    result: dict[str, Any] = {"users": users, "rounds": ROUNDS, "machine": machine.describe()}
    with TemporaryDirectory(prefix="fedforget-bench-") as folder:
        run, log = Path(folder) / "run", Path(folder) / "service.log"
        say(f"training {users:,} users for {ROUNDS} rounds")
        leavers = _train(run, users)
        if len(leavers) < 2 * queued:
            raise ConfigError(f"{users} users are too few for {queued} requests.", "Give more with --num-users.")
        token = make_token(run)
        say(f"{rate:g} reads a second for {seconds:g} s while erasures replay")
        result["reads"] = read_while_replaying(run, log, token, iter(leavers[queued:]), rate, seconds)
        say(f"{queued:,} requests at once, with two kills")
        result["queue"] = queue_and_kill(run, log, token, leavers[:queued])
    return result


def read_while_replaying(
    run: Path, log: Path, token: str, users: Iterator[int], rate: float, seconds: float
) -> dict[str, Any]:
    """Read the state of requests at a fixed rate, while requests follow each other so that one always replays."""
    with ServiceProcess(run, log, token, *OPTIONS) as service:
        asked: list[Asked] = []

        def ask() -> None:
            asked.append(Asked.new(next(users)))
            service.post(PATH, asked[-1].body())

        ask()
        before = len(list(run.glob("receipts/*.json")))
        replays = Replays(run, ask)
        thread = threading.Thread(target=replays.watch)
        thread.start()
        try:
            wait_for(lambda: len(asked) > 1, 60.0, "an erasure replays")
            host, port = service.address
            load_ = _load(Plan(host, port, token, [one.path for one in asked], rate, seconds, CONNECTIONS))
        finally:
            replays.stop()
            thread.join()
        finished = len(list(run.glob("receipts/*.json"))) - before
        wait_for(lambda: not _unfinished(service), COMPLETE_SECONDS, "all requests are completed")
    due = np.array(load_.due)
    replayed = replays.at(due + load_.began)
    return {
        "rate": rate,
        "seconds": seconds,
        "connections": CONNECTIONS,
        "achieved_rate": len(due) / load_.elapsed,
        "errors": load_.errors,
        "erasures": finished,
        "replayed_share": float(np.mean(replays.at(np.linspace(0, seconds, 1000) + load_.began))),
        "latency": _quantiles(load_.latencies),
        "latency_while_replaying": _quantiles(np.array(load_.latencies)[replayed]),
        "since_sent": _quantiles(load_.service_seconds),
    }


def queue_and_kill(run: Path, log: Path, token: str, users: Sequence[int]) -> dict[str, Any]:
    """Post requests at once; kill the service and its worker among them, and again in the replay; then count."""
    asked = [Asked.new(user) for user in users]
    bodies, before = [one.body() for one in asked], len(_open_members(run))
    with ServiceProcess(run, log, token, *OPTIONS) as service:
        began, kill_at = time.monotonic(), round(KILL_AFTER * len(asked))

        def kill(answers: int) -> None:
            if answers == kill_at:
                service.kill()

        answered = asyncio.run(post_all(service.address, token, bodies, CONNECTIONS, kill))
        accepted = [place for place, status in answered.items() if status == 201]
        posting = time.monotonic() - began
    with ServiceProcess(run, log, token, *OPTIONS) as service:
        lost = sum(service.get(asked[place].path)[0] != 200 for place in accepted)
        began = time.monotonic()
        again = asyncio.run(post_all(service.address, token, bodies, CONNECTIONS, lambda answers: None))
        reposting = time.monotonic() - began
        wait_for(lambda: len((waiting(run) or {}).get("users", ())) > 1, 120.0, "an erasure of many replays")
        service.kill()
    with ServiceProcess(run, log, token, *OPTIONS) as service:
        wait_for(lambda: not _unfinished(service), COMPLETE_SECONDS, "all requests are completed")
        completing = time.monotonic() - began
        completed = sum(service.get(one.path)[1]["request_status"] == "completed" for one in asked)
        references = list(_references(service))
    found = carried_out(run, asked)
    return {
        "requests": len(asked),
        "answered_before_kill": len(accepted),
        "refused": sum(status != 201 for status in (*answered.values(), *again.values())),
        "repeated": len(again),
        "lost": lost + sum(references.count(one.reference) == 0 for one in asked),
        "stored_twice": sum(references.count(one.reference) > 1 for one in asked),
        "completed": completed,
        "never_carried_out": found["never"],
        "carried_out_twice": found["twice"],
        "members_forgotten": before - len(_open_members(run)),
        "verified": found["verified"],
        "posts_a_second": len(accepted) / posting,
        "repeats_a_second": len(again) / reposting,
        "seconds_to_complete": completing,
    }


def waiting(run: Path) -> dict[str, Any] | None:
    """The erasure that is carried out now."""
    with suppress(OSError, ValueError):
        values: dict[str, Any] = json.loads((run / "request.json").read_bytes())
        return values
    return None


def _train(run: Path, users: int) -> list[int]:
    """Train a federation; the users of its first round, whose erasures take longest."""
    with closing(Federation(load("synthetic", users=users, **DATA), path=run)) as fed:
        fed.fit(ROUNDS)
        return [int(user) for user in fed.cohort(1)]


def _load(plan: Plan) -> Load:
    """Carry out a plan in a process of its own."""
    command = [sys.executable, "-P", "-m", "fedforget.experiments.service_load"]
    given = json.dumps(asdict(plan))
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=plan.seconds + 90)
    return Load(**json.loads(done.stdout))


def _quantiles(seconds: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    if not len(seconds):
        return {}
    points = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: float(np.quantile(seconds, share, method="higher")) for name, share in points.items()}


def _unfinished(service: ServiceProcess) -> bool:
    """Whether a request is not completed yet."""
    answers = [service.get(f"/v1/requests?limit=1&state={state}") for state in ("pending", "in_progress")]
    return any(status != 200 or answer["items"] for status, answer in answers)


def _references(service: ServiceProcess) -> Iterator[str]:
    """The references of all requests, page by page."""
    cursor = ""
    while True:
        _, page = service.get(f"/v1/requests?limit=200{cursor}")
        yield from (item["reference"] for item in page["items"])
        if page["next"] is None:
            return
        cursor = f"&cursor={page['next']}"


def _open_members(run: Path) -> list[Any]:
    with closing(Federation.open(run)) as fed:
        return list(fed.members)
