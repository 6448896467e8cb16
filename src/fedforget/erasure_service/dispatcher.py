"""Dispatcher: carries requests from acceptance to a signed receipt, in a thread of its own.

Each step can be repeated: after a kill the next tick finds from the database and the files of the run what is done.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from fedforget.attestation.chain import ReceiptChain
from fedforget.attestation.person import Person
from fedforget.attestation.stored import StoredReceipts
from fedforget.attestation.unsigned import sign_stored
from fedforget.erasure_service.batching import Batching
from fedforget.erasure_service.confirmation import confirmation
from fedforget.erasure_service.current_key import CurrentKey
from fedforget.erasure_service.notifications import Notifications
from fedforget.erasure_service.queue_files import Place, QueueFiles
from fedforget.erasure_service.status import RunStatus
from fedforget.erasure_service.subject_requests import ConflictError, State, SubjectRequest, SubjectRequests, ids_like
from fedforget.errors import FedForgetError
from fedforget.runtime.ids import ItemId
from fedforget.server.erasure_queue import NO_MEMBER
from fedforget.server.receipt import Receipt
from fedforget.server.request import ErasureRequest, PartialErasure

log = logging.getLogger(__name__)
TICK_SECONDS = 0.5
#: Seconds after which requests are tried again whose erasure was refused.
RETRY_SECONDS = 600.0


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
        self._start_now = False
        self._event, self._stop = threading.Event(), False
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
        self._start_now = self._start_now or start_now
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
        if status is None or not status.method:
            return
        waiting = [
            request
            for request in self.requests.in_state(State.PENDING)
            if request.approved and (request.not_before <= now or self._start_now)
        ]
        last = self.requests.last_batch()
        times = [(request.received, request.deadline) for request in waiting]
        why = "operator" if waiting and self._start_now else self.batching.due(times, last, now, self.duration())
        self._start_now = False
        if why is None or (busy and why not in ("operator", "deadline")):
            return
        if why == "deadline":
            log.warning("a deadline is near: %d requests are carried out now", len(waiting))
        self._start([request for request in waiting if not request.items], status.method, now)
        for request in waiting:
            if request.items:
                self._start([request], status.method, now)

    def _start(self, requests: Sequence[SubjectRequest], method: dict[str, Any], now: float) -> None:
        """Begin an erasure: stored first, then queued, so that a kill in between loses nothing."""
        if not requests:
            return
        whole = [user for request in requests if not request.items for text in request.users for user in ids_like(text)]
        partial = [
            PartialErasure(user, len(request.items), None, _forms_of(request.items))
            for request in requests
            if request.items
            for text in request.users
            for user in ids_like(text)
        ]
        erasure = ErasureRequest.new(list(dict.fromkeys(whole)), method, partial=partial)
        references = [request.reference for request in requests]
        with self.requests.writing():
            self.requests.start(erasure.id, asdict(erasure), references, now, now + self.duration())
            self.notifications.add(self.requests.of_batch(erasure.id))
        self.files.add(asdict(erasure))
        self._wake_worker()
        log.info("erasure %s of %d requests is queued", erasure.id, len(requests))

    def _follow(self, batch: sqlite3.Row) -> bool:
        """Finish a batch whose erasure is done, or queue it again if a kill came before that.

        Returns whether the erasure is still to be carried out.
        """
        erasure, place = batch["id"], self.files.place(batch["id"])
        if place is Place.ABSENT:
            self.files.add(json.loads(batch["content"]))
            self._wake_worker()
        elif place is Place.DONE:
            self._finish(batch, StoredReceipts.read(self.files.run).receipt(erasure))
        elif place is Place.REFUSED:
            reason = self.files.why_refused(erasure)
            if reason.startswith(NO_MEMBER):
                self._finish(batch)
            else:
                log.error("erasure %s was refused; the reason is in queue/%s.refused", erasure, erasure)
                self._return(erasure, reason)
        return place not in (Place.DONE, Place.REFUSED)

    def _return(self, erasure: str, reason: str) -> None:
        with self.requests.writing():
            requests = self.requests.of_batch(erasure)
            if any(request.items for request in requests):  # such a reason may name the person
                reason = f"The run refused it: see queue/{erasure}.refused in its folder."
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
        if self.clock() < batch["not_before"]:
            return
        now = self.clock()
        with self.requests.writing(scrubbed=True):
            for request in requests:
                if request.id is None:
                    continue
                signed = confirmation(request, now, self.federation, self.key.get())
                self.requests.finish(request.reference, State.COMPLETED, now, signed)
                self.notifications.add_one(request.reference, request)
            self.requests.close_batch(batch["id"], "done")
        log.info("erasure %s is done: %d requests are completed", batch["id"], len(requests))

    def _sign_others(self) -> None:
        """Sign receipts of erasures that were not asked for here, and those whose confirmations have grown."""
        if (signature := self.files.signature()) == self._signed:
            return
        ours = {batch["id"] for batch in self.requests.batches()}
        sign_stored(self.files.run, self.key.get(), without=ours)
        if not ours:
            self._signed = signature

    def _is_late(self, request: SubjectRequest) -> bool:
        return self.batching.is_near(request.deadline, self.clock(), self.duration())


def _forms_of(items: Sequence[ItemId]) -> tuple[ItemId, ...]:
    """Items in all forms that their ids may have; those that the person does not have are ignored."""
    return tuple(dict.fromkeys(form for item in items for form in ids_like(str(item))))


def _open_wipes(receipt: Receipt) -> bool:
    """Whether devices have not yet confirmed that they removed what was forgotten."""
    return receipt.wiped is not None and receipt.wiped + receipt.given_up < receipt.devices
