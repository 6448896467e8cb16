"""Dispatcher: carries requests from acceptance to a signed receipt, in a thread of its own.

Each step can be repeated: after a kill the next tick finds from the database and the files of the run what is done.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

from fedforget.attestation.chain import ReceiptChain
from fedforget.attestation.person import Person
from fedforget.attestation.stored import StoredReceipts
from fedforget.attestation.unsigned import sign_stored
from fedforget.erasure_service.batching import Batching
from fedforget.erasure_service.combined import combined
from fedforget.erasure_service.confirmation import confirmation
from fedforget.erasure_service.current_key import CurrentKey
from fedforget.erasure_service.notifications import Notifications
from fedforget.erasure_service.queue_files import Place, QueueFiles
from fedforget.erasure_service.status import RunStatus
from fedforget.erasure_service.subject_requests import (
    RETRY_SECONDS,
    ConflictError,
    State,
    SubjectRequest,
    SubjectRequests,
)
from fedforget.erasure_service.waiting import Waiting
from fedforget.errors import FedForgetError
from fedforget.server.erasure_queue import NO_MEMBER
from fedforget.server.receipt import Receipt
from fedforget.server.request import ErasureRequest

log = logging.getLogger(__name__)
TICK_SECONDS = 0.5
#: Why requests are pending again.
REMOVED = "Its erasure was removed from the queue."
NOT_ALONE = "The run cannot forget these items alone; the whole person can be forgotten."


class Dispatcher:
    """Starts batches of requests when they are due, follows them, signs receipts and finishes requests.

    ``status`` returns what the worker knows of the run. ``wake`` tells the worker that there is something in the queue.
    """

    def __init__(
        self,
        federation: str,
        files: QueueFiles,
        requests: SubjectRequests,
        batching: Batching,
        chain: ReceiptChain,
        key: CurrentKey,
        notifications: Notifications,
        status: Callable[[], RunStatus | None],
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.federation, self.files, self.requests, self.batching = federation, files, requests, batching
        self.chain, self.key, self.notifications = chain, key, notifications
        self.status, self._wake_worker, self.clock = status, wake, clock
        self.warnings: list[str] = []
        self._signed: object = None
        self._seen: dict[str, int] = {}
        self._warned: set[str] = set()
        self._start_now, self._event, self._stop = threading.Event(), threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        for erasure in self.requests.closed_batches(self.files.queue.refused()):
            self.files.queue.forget_refusal(erasure)
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

    def duration(self) -> float:
        """The expected seconds of an erasure: of the longest one, so that it tells nothing about a person."""
        status = self.status()
        return 0.0 if status is None else status.estimate_seconds or 0.0

    def tick(self) -> None:
        """Do whatever can be done now."""
        busy = [self._follow(batch) for batch in self.requests.batches()]
        self._start_due(busy=any(busy))
        self._sign_others()
        self.requests.scrub_if_due()

    def _run(self) -> None:
        while not self._stop:
            try:
                self.tick()
            except ConflictError:
                continue  # a request was cancelled in between
            except Exception as error:  # a full disk, a damaged file: whatever it is, requests stay stored
                text = f"{error.problem} {error.hint}" if isinstance(error, FedForgetError) else type(error).__name__
                log.error("dispatching failed: %s", text)
                self._warn(text)
            else:
                self._warn()
            self._event.wait(TICK_SECONDS)
            self._event.clear()

    def _warn(self, *texts: str) -> None:
        self.warnings = list(texts)

    def _start_due(self, *, busy: bool) -> None:
        """Start what is due. While an erasure is carried out requests collect, as long as their deadlines allow."""
        status, now = self.status(), self.clock()
        if status is None or not status.method or status.estimate_seconds is None:
            return  # nobody's request is carried out, a member's or not
        self._warn_of_deadlines()
        asked = self._start_now.is_set()
        self._start_now.clear()
        at = math.inf if asked else now
        waiting = self.requests.waiting(at)
        why = self._why(waiting, asked=asked, now=now)
        if waiting is None or why is None or (busy and why not in ("operator", "deadline")):
            return
        if why == "deadline":
            log.warning("a deadline is near: %d requests are carried out now", waiting.count)
        try:
            requests = self.requests.ready(at)
            self._start(requests, combined(requests, status.method))
        except BaseException:
            if asked:
                self._start_now.set()
            raise

    def _why(self, waiting: Waiting | None, *, asked: bool, now: float) -> str | None:
        """Why the requests that wait are due; None if they are not."""
        if waiting is None or asked:
            return None if waiting is None else "operator"
        return self.batching.due(waiting, self.requests.last_batch(), now, self.duration())

    def _warn_of_deadlines(self) -> None:
        """Log once of each request that waits for approval near its deadline."""
        near = self.requests.unapproved(self.clock() + self.batching.margin(self.duration()))
        for reference in sorted(set(near) - self._warned):
            log.warning("request %s waits for approval and its deadline is near", reference)
        self._warned = set(near)

    def _start(self, requests: Sequence[SubjectRequest], erasure: ErasureRequest) -> None:
        """Begin an erasure: stored first, then queued, so that a kill in between loses nothing."""
        with self.requests.writing():
            self._store(requests, erasure)
            self.notifications.add(requests)
        self._queue(erasure)
        log.info("erasure %s of %d requests is queued", erasure.id, len(requests))

    def _store(self, requests: Sequence[SubjectRequest], erasure: ErasureRequest) -> None:
        now, references = self.clock(), [request.reference for request in requests]
        self.requests.start(erasure.id, asdict(erasure), references, now, now + self.duration())

    def _queue(self, erasure: ErasureRequest) -> None:
        self.files.add(erasure)
        self._wake_worker()

    def _follow(self, batch: sqlite3.Row) -> bool:
        """Finish a batch whose erasure is done, or queue it again if a kill came before that.

        Returns whether the erasure is still to be carried out.
        """
        erasure, place = batch["id"], self.files.place(batch["id"])
        if place is Place.ABSENT:
            self._find(erasure, batch["content"])
        elif place is Place.DONE:
            self._finish(batch, StoredReceipts.read(self.files.run).receipt(erasure))
        elif place is Place.REFUSED:
            self._refused(batch, self.files.queue.why_refused(erasure) or "")
        else:
            self._seen[erasure] = 0
        return place not in (Place.DONE, Place.REFUSED)

    def _find(self, erasure: str, content: str) -> None:
        """Queue an erasure that is nowhere; if it was there before, somebody removed it.

        Files are looked at one after the other while another process moves them, so it is looked for twice.
        """
        if erasure not in self._seen:
            self._queue(ErasureRequest.from_dict(json.loads(content)))
        elif self._seen[erasure]:
            log.warning("erasure %s was removed from the queue", erasure)
            self._return(erasure, REMOVED)
        else:
            self._seen[erasure] = 1

    def _refused(self, batch: sqlite3.Row, reason: str) -> None:
        """Finish a batch of nobody; try others in halves, so that one request does not hold up the rest."""
        erasure, requests = batch["id"], self.requests.of_batch(batch["id"])
        if reason.startswith(NO_MEMBER):
            self._finish(batch)
            return
        if len(requests) > 1:
            log.warning("erasure %s of %d requests was refused, and is tried in halves", erasure, len(requests))
            self._split(erasure, requests, json.loads(batch["content"])["method"])
        else:
            log.error("erasure %s was refused", erasure)
            self._return(erasure, NOT_ALONE if requests and requests[0].items else reason)
        self.files.queue.forget_refusal(erasure)

    def _split(self, erasure: str, requests: Sequence[SubjectRequest], method: dict[str, object]) -> None:
        middle = (len(requests) + 1) // 2
        halves = [(half, combined(half, method)) for half in (requests[:middle], requests[middle:])]
        with self.requests.writing():
            self.requests.return_batch(erasure, "", 0.0)
            for half, part in halves:
                self._store(half, part)
        for _, part in halves:
            self._queue(part)

    def _return(self, erasure: str, reason: str) -> None:
        """Make the requests of an erasure pending again, for a while."""
        with self.requests.writing():
            requests = self.requests.of_batch(erasure, self.requests.db)
            self.requests.return_batch(erasure, reason, self.clock() + RETRY_SECONDS)
            self.notifications.add(requests)

    def _finish(self, batch: sqlite3.Row, receipt: Receipt | None = None) -> None:
        """Sign the receipt and finish the batch's requests, not before somebody else's would be."""
        requests = self.requests.of_batch(batch["id"])
        if receipt is not None:
            if _open_wipes(receipt) and not any(self._is_late(request) for request in requests):
                return
            persons = [Person(name, len(request.items) or None) for request in requests for name in request.pseudonyms]
            self.chain.append(receipt, persons, self.key.get(), self.federation)
        now = self.clock()
        if batch["created"] <= now < batch["not_before"]:  # otherwise the clock was wrong at the start
            return
        with self.requests.writing(scrubbed=True):
            for request in requests:
                if request.id is None:
                    continue
                signed = confirmation(request, now, self.federation, self.key.get())
                self.requests.finish(request.reference, State.COMPLETED, now, signed)
                self.notifications.add_one(request.reference, request)
            self.requests.close_batch(batch["id"], "done")
        self._seen.pop(batch["id"], None)
        self.files.queue.forget_refusal(batch["id"])
        log.info("erasure %s is done: %d requests are completed", batch["id"], len(requests))

    def _sign_others(self) -> None:
        """Sign receipts of erasures that were not asked for here, and those whose confirmations have grown."""
        ours = frozenset(batch["id"] for batch in self.requests.batches())
        if (state := (self.files.signature(), ours)) != self._signed:
            sign_stored(self.files.run, self.key.get(), without=ours)
            self._signed = state

    def _is_late(self, request: SubjectRequest) -> bool:
        return self.batching.is_near(request.deadline, self.clock(), self.duration())


def _open_wipes(receipt: Receipt) -> bool:
    """Whether devices have not yet confirmed that they removed what was forgotten."""
    return receipt.wiped is not None and receipt.wiped + receipt.given_up < receipt.devices
