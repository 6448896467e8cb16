"""Dispatcher: carries requests from acceptance to a signed receipt, in a thread of its own.

Each step can be repeated: after a kill the next tick finds from the database and the files of the run what is done.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fedforget.attestation.unsigned import sign_stored
from fedforget.erasure_service.batches import Batch
from fedforget.erasure_service.batching import Batching
from fedforget.erasure_service.combined import combined
from fedforget.erasure_service.completion import Completion
from fedforget.erasure_service.holds import Holds
from fedforget.erasure_service.once import Once
from fedforget.erasure_service.queue_files import Place
from fedforget.erasure_service.status import RunStatus
from fedforget.erasure_service.subject_requests import RETRY_SECONDS, ConflictError, SubjectRequest
from fedforget.erasure_service.waiting import Waiting
from fedforget.errors import FedForgetError
from fedforget.server.erasure_queue import NO_ITEMS_LEFT, NO_MEMBER
from fedforget.server.request import ErasureRequest

log = logging.getLogger(__name__)
TICK_SECONDS = 0.5
#: Seconds that usually pass at most until it is the turn of an erasure that was queued: the run is opened for it.
QUEUE_SECONDS = 10.0
#: Why requests are pending again.
REMOVED = "Its erasure is neither in the queue nor in the history."
NOT_ALONE = "The run cannot forget these items alone; the whole person can be forgotten."
UNNAMED = "The run refused its erasure. The reason is not shown, since it may name the person."


class Dispatcher:
    """Starts batches of requests when they are due, follows them, and has them completed.

    ``status`` returns what the worker knows of the run. ``wake`` tells the worker that there is something in the queue.
    """

    def __init__(
        self,
        completion: Completion,
        batching: Batching,
        status: Callable[[], RunStatus | None],
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.completion, self.batching = completion, batching
        self.files, self.batches, self.requests = completion.files, completion.batches, completion.requests
        self.notifications = completion.notifications
        self.status, self._wake_worker, self.clock, self.monotonic = status, wake, clock, monotonic
        self.warnings: list[str] = []
        self._problems: list[str] = []
        self._once = Once()
        self._cleaned = False
        self._seen: dict[str, int] = {}
        self._begun: dict[str, float] = {}
        self._warned: set[str] = set()
        self._compared = False
        self._start_now, self._event, self._stop = threading.Event(), threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the current step."""
        self._stop = True
        self._event.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def wake(self, *, start_now: bool = False) -> None:
        """Look for work at once; with ``start_now`` whatever waits is carried out."""
        if start_now:
            self._start_now.set()
        self._event.set()

    def holds(self) -> Holds:
        """The holds of a batch whose turn it is now: the same for everybody."""
        return self.batches.holds(self._estimate(), self.batching.deadline.total_seconds())

    def _estimate(self) -> float:
        """The estimate of the most expensive erasure; while the worker reports none, that of the last batch."""
        status = self.status()
        known = None if status is None else status.estimate_seconds
        return self.batches.estimate() if known is None else known

    def duration(self) -> float:
        """The seconds that an erasure takes at most: of the longest one, so that it tells nothing about a person."""
        return self.holds().replay

    def expected(self, deadline: float) -> float:
        """When a request that comes now is completed at the latest: the same for everybody.

        The batch before it may take longer than any before, and so prolong the holds of its own.
        """
        now, holds = self.clock(), self.holds()
        free = self.batches.busy_until(now)
        if any(batch.turn is None for batch in self.batches.open()):
            free = max(free, now + QUEUE_SECONDS + holds.replay)
        start = max(self.batching.latest_start(now, deadline, self.batches.last(), now, holds.replay), free)
        own, late = holds.grown(), deadline - self.batching.margin(holds.replay)
        return max(start + own.replay, min(start + own.completion, late)) + QUEUE_SECONDS

    def tick(self) -> None:
        """Do whatever can be done now. What fails becomes a warning and does not hold up the rest."""
        self._problems = []
        with self._reporting("Queue"):
            self._clean()
        with self._reporting("Requests"):
            busy = [self._try_to_follow(batch) for batch in self.batches.open()]
            self._start_due(busy=any(busy))
        with self._reporting("Receipts"):
            self._sign_others()
        with self._reporting("Deleted content"):
            self.requests.scrub_if_due()
        for problem in self._problems:
            if problem not in self.warnings:
                log.error("dispatching failed: %s", problem)
        self.warnings = self._problems

    def _run(self) -> None:
        while not self._stop:
            self.tick()
            self._event.wait(TICK_SECONDS)
            self._event.clear()

    @contextmanager
    def _reporting(self, name: str) -> Iterator[None]:
        """Turn what fails into a warning: a full disk, a damaged file; whatever it is, requests stay stored."""
        try:
            yield
        except ConflictError:
            self._event.set()  # a request was cancelled in between
        except Exception as error:
            text = f"{error.problem} {error.hint}" if isinstance(error, FedForgetError) else type(error).__name__
            self._problems.append(f"{name}: {text}")

    def _clean(self) -> None:
        """Remove files of erasures that a process before this one has closed."""
        if not self._cleaned:
            for erasure in self.batches.closed(self.files.known()):
                self.files.forget(erasure)
            self._cleaned = True

    def _start_due(self, *, busy: bool) -> None:
        """Start what is due. While a batch is busy requests collect, unless the operator starts them."""
        status, now = self.status(), self.clock()
        if status is None or not status.method or status.estimate_seconds is None:
            return  # nobody's request is carried out, a member's or not
        self._warn_of_a_long_hold()
        self._warn_of_deadlines()
        asked = self._start_now.is_set()
        self._start_now.clear()
        at = math.inf if asked else now
        waiting = self.requests.waiting(at)
        if waiting is None or not (asked or self._is_due(waiting, now, busy=busy)):
            return
        try:
            self._start(self.requests.ready(at), status.method)
        except BaseException:
            if asked:
                self._start_now.set()
            raise

    def _is_due(self, waiting: Waiting, now: float, *, busy: bool) -> bool:
        if busy or self.batches.busy_until(now) > now:
            return False
        why = self.batching.due(waiting, self.batches.last(), now, self.duration())
        if why == "deadline":
            log.warning("a deadline is near: %d requests are carried out now", waiting.count)
        return why is not None

    def _warn_of_a_long_hold(self) -> None:
        """Log at the first estimate if the replay hold, which is always kept, is longer than the deadline."""
        hold, deadline = self.duration(), self.batching.deadline.total_seconds()
        if hold > deadline and not self._compared:
            text = "requests miss their deadlines: the replay hold is %.0f s, and the deadline %.0f s"
            log.warning(text, hold, deadline)
        self._compared = True

    def _warn_of_deadlines(self) -> None:
        """Log once of each request that waits for approval near its deadline."""
        near = self.requests.unapproved(self.clock() + self.batching.margin(self.duration()))
        for reference in sorted(set(near) - self._warned):
            log.warning("request %s waits for approval and its deadline is near", reference)
        self._warned = set(near)

    def _start(self, requests: Sequence[SubjectRequest], method: Mapping[str, Any]) -> None:
        """Begin an erasure: stored first, then queued, so that a kill in between loses nothing."""
        erasure = combined(requests, method)
        with self.requests.writing():
            self._store(requests, erasure)
            self.notifications.add(request for request in requests if not request.returned)
        self._queue(erasure)
        log.info("erasure %s of %d requests is queued", erasure.id, len(requests))

    def _store(self, requests: Sequence[SubjectRequest], erasure: ErasureRequest) -> None:
        references = [request.reference for request in requests]
        self.batches.start(erasure, references, self.clock(), self._estimate())

    def _queue(self, erasure: ErasureRequest) -> None:
        self.files.add(erasure)
        self._wake_worker()

    def _try_to_follow(self, batch: Batch) -> bool:
        """Follow a batch; returns whether its erasure is still to be carried out. One that fails is not waited for."""
        with self._reporting(f"Erasure {batch.id}"):
            return self._follow(batch)
        return False

    def _follow(self, batch: Batch) -> bool:
        """Take a batch as far as it can go now; returns whether its erasure is still to be carried out."""
        place, now = self.files.place(batch.id), self.clock()
        if batch.turn is None and place in (Place.RUNNING, Place.DONE, Place.REFUSED):
            self.batches.begin(batch.id, now, self.holds())
            batch = self.batches.get(batch.id)
            self._begun[batch.id] = self.monotonic()
        if place is Place.ABSENT:
            self._find(batch.id)
        elif place is Place.DONE:
            self._complete(batch, now)
        elif place is Place.REFUSED:
            self._refused(batch, now)
        else:
            self._seen[batch.id] = 0
        return place not in (Place.DONE, Place.REFUSED)

    def _find(self, erasure: str) -> None:
        """Queue an erasure that is nowhere; if it was there before, somebody removed it, or restored an older history.

        Files are looked at one after the other while another process moves them, so it is looked for twice.
        """
        if erasure not in self._seen:
            self._queue(self.batches.erasure(erasure))
        elif self._seen[erasure]:
            log.warning("erasure %s is neither in the queue nor in the history", erasure)
            self._return(erasure, REMOVED)
        else:
            self._seen[erasure] = 1

    def _complete(self, batch: Batch, now: float) -> None:
        """Have the receipt of a batch signed and its requests completed.

        A replay is measured by one process and by a clock that is never set; time when nothing ran does not count.
        """
        if batch.replayed is None:
            ended = self.monotonic()
            self.batches.replayed(batch.id, ended - self._begun.pop(batch.id, ended))
        late = self._is_late(batch, now)
        if self.completion.sign(batch, now, late=late):
            self._finish(batch, now, late=late)

    def _finish(self, batch: Batch, now: float, *, late: bool) -> None:
        if self.completion.finish(batch, now, late=late):
            self._seen.pop(batch.id, None)
            self._begun.pop(batch.id, None)

    def _refused(self, batch: Batch, now: float) -> None:
        """Finish a batch of nobody; try others in halves, so that one request does not hold up the rest."""
        reason = self.files.queue.why_refused(batch.id) or ""
        if reason.startswith(NO_MEMBER):
            self.completion.nothing_to_sign(batch)
            self._finish(batch, now, late=self._is_late(batch, now))
            return
        requests = self.requests.of_batch(batch.id)
        if len(requests) > 1:
            log.warning("erasure %s of %d requests was refused, and is tried in halves", batch.id, len(requests))
            self._split(batch.id, requests)
        else:
            log.error("erasure %s was refused", batch.id)
            self._return(batch.id, _note(reason, requests))

    def _split(self, batch: str, requests: Sequence[SubjectRequest]) -> None:
        middle, method = (len(requests) + 1) // 2, self.batches.erasure(batch).method
        halves = [(half, combined(half, method)) for half in (requests[:middle], requests[middle:])]
        with self.requests.writing():
            self.batches.give_back(batch, "", 0.0)
            for half, part in halves:
                self._store(half, part)
        for _, part in halves:
            self._queue(part)
        self.files.forget(batch)

    def _return(self, batch: str, reason: str) -> None:
        """Keep the requests of an erasure for a later batch. Whoever made them is not told that they wait again."""
        self.batches.give_back(batch, reason, self.clock() + RETRY_SECONDS)
        self.files.forget(batch)

    def _sign_others(self) -> None:
        """Sign receipts of erasures that were not asked for here, and those whose confirmations have grown."""
        ours = frozenset(batch.id for batch in self.batches.open())
        key = self.completion.key.get
        self._once("others", (self.files.signature(), ours), lambda: bool(sign_stored(self.files.run, key(), ours)))

    def _is_late(self, batch: Batch, now: float) -> bool:
        """Whether a deadline is so near that a batch no longer waits for devices, or for the time they might take."""
        deadline = self.requests.nearest_deadline(batch.id)
        return deadline is not None and self.batching.is_near(deadline, now, self.duration())


def _note(reason: str, requests: Sequence[SubjectRequest]) -> str:
    """Why an erasure was refused, in words that name no person."""
    if NO_ITEMS_LEFT in reason:
        return NOT_ALONE
    names = (re.escape(user) for request in requests for user in request.users)
    return UNNAMED if any(re.search(rf"(?<!\w){name}(?!\w)", reason) for name in names) else reason
