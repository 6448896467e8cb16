"""Completion: from an erasure that is carried out to a signed receipt and to requests that are completed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fedforget.attestation.chain import ReceiptChain
from fedforget.attestation.objection import check_signable
from fedforget.attestation.person import Person
from fedforget.attestation.stored import StoredReceipts
from fedforget.erasure_service.batches import Batch, Batches
from fedforget.erasure_service.combined import users_of
from fedforget.erasure_service.confirmation import confirmation
from fedforget.erasure_service.current_key import CurrentKey
from fedforget.erasure_service.notifications import Notifications
from fedforget.erasure_service.once import Once
from fedforget.erasure_service.queue_files import QueueFiles
from fedforget.erasure_service.subject_requests import State, SubjectRequest
from fedforget.server.receipt import Receipt

log = logging.getLogger(__name__)
#: Requests that are completed in one transaction; calls are answered in between.
CHUNK = 100


class Completion:
    """Signs the receipts of batches and completes their requests, those of nobody not before those of members."""

    def __init__(
        self,
        federation: str,
        files: QueueFiles,
        batches: Batches,
        chain: ReceiptChain,
        key: CurrentKey,
        notifications: Notifications,
    ) -> None:
        self.federation, self.files, self.batches, self.requests = federation, files, batches, batches.requests
        self.chain, self.key, self.notifications = chain, key, notifications
        self._once = Once()

    def sign(self, batch: Batch, now: float, *, late: bool) -> bool:
        """Sign the receipt of a batch once all devices have confirmed, or if it is late; returns whether it is."""
        if batch.signed:
            return True
        return self._once(batch.id, (self.files.signature(), late), lambda: self._sign_now(batch, now, late=late))

    def _sign_now(self, batch: Batch, now: float, *, late: bool) -> bool:
        stored = StoredReceipts.read(self.files.run)
        receipt = stored.receipt(batch.id)
        confirmed = _confirmed(receipt)
        if confirmed is False and not late:
            return False
        check_signable(receipt, self.chain.newest(batch.id), self.files.run, simulated=stored.simulated)
        requests = self.requests.of_batch(batch.id)
        persons = [Person(name, len(request.items) or None) for request in requests for name in request.pseudonyms]
        self.chain.append(receipt, persons, self.key.get(), self.federation)
        salt = self.batches.erasure(batch.id).salt
        unknown = [one for one in requests if not any(receipt.names(user, salt) for user in users_of(one))]
        measured = confirmed and not receipt.given_up  # a device that was lost says nothing about others
        self._signed(batch, unknown, now - (batch.turn or now) if measured else None)
        return True

    def nothing_to_sign(self, batch: Batch) -> None:
        """Note that an erasure was of nobody."""
        if not batch.signed:
            self._signed(batch, self.requests.of_batch(batch.id), None)

    def _signed(self, batch: Batch, unknown: Sequence[SubjectRequest], confirmed: float | None) -> None:
        with self.requests.writing():
            self.requests.mark_unknown([request.reference for request in unknown])
            self.batches.signed(batch.id, confirmed)
        if unknown:
            log.warning("erasure %s: requests by which nothing was forgotten: %d", batch.id, len(unknown))

    def finish(self, batch: Batch, now: float, *, late: bool) -> bool:
        """Complete the requests of a batch, unless that is held back; returns whether it is finished."""
        if _holds(batch, batch.busy_until, now) or (_holds(batch, batch.finish_from, now) and not late):
            return False
        count = sum(iter(lambda: self._complete_some(batch.id, now), 0))
        self.batches.close(batch.id, "done")
        self.files.forget(batch.id)
        log.info("erasure %s is done: %d requests are completed", batch.id, count)
        return True

    def _complete_some(self, batch: str, now: float) -> int:
        """Complete the next requests of a batch; returns their number."""
        requests = self.requests.unfinished(batch, CHUNK)
        signed = [confirmation(request, now, self.federation, self.key.get()) for request in requests]
        with self.requests.writing(scrubbed=True):
            for request, statement in zip(requests, signed, strict=True):
                self.requests.finish(request.reference, State.COMPLETED, now, statement)
                self.notifications.add_one(request.reference, request)
        return len(requests)


def _holds(batch: Batch, until: float | None, now: float) -> bool:
    """Whether a hold is in force; a turn that is later than now was stored by a clock that was wrong."""
    return batch.turn is not None and until is not None and batch.turn <= now < until


def _confirmed(receipt: Receipt) -> bool | None:
    """Whether all devices have confirmed that they removed what was forgotten; None if there are no devices."""
    return None if receipt.wiped is None else receipt.wiped + receipt.given_up >= receipt.devices
