"""Notifications: callbacks for every change of a request's state, in the same transaction as the change."""

from __future__ import annotations

from collections.abc import Iterable

from fedforget.erasure_service.callbacks import CallbackStore
from fedforget.erasure_service.opendsr import status_of
from fedforget.erasure_service.subject_requests import SubjectRequest, SubjectRequests


class Notifications:
    """Adds callbacks to the store; ``base`` is the address of the service."""

    def __init__(self, requests: SubjectRequests, callbacks: CallbackStore, base: str) -> None:
        self.requests, self.callbacks, self.base = requests, callbacks, base

    def add(self, requests: Iterable[SubjectRequest]) -> None:
        """Tell the new state of requests; they are as they were before or after the change."""
        for request in requests:
            self.add_one(request.reference, request)

    def add_one(self, reference: str, known: SubjectRequest) -> None:
        """Tell the new state of a request; ``known`` has its id and addresses, which may be removed by now."""
        if known.id is None or not known.callbacks:
            return
        now = self.requests.find(reference, self.requests.db)
        assert now is not None
        body = status_of(now, known.id, self.base).model_dump_json(exclude_none=True).encode()
        for url in known.callbacks:
            self.callbacks.add(reference, url, body, {"Content-Type": "application/json"})
