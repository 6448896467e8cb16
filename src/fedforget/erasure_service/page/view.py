"""Overview: everything that the first page shows, read from an ``ErasureService``. It reads no file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from fedforget.erasure_service.page.audits import Audit, NewestAudit
from fedforget.erasure_service.page.federation_view import FederationView, duration, federation_view
from fedforget.erasure_service.page.receipt_book import ReceiptBook, Receipts
from fedforget.erasure_service.page.request_lists import RequestLists
from fedforget.erasure_service.page.request_view import LABELS, RequestRow, request_row
from fedforget.erasure_service.page.times import Moment
from fedforget.erasure_service.page.visitors import Visitor
from fedforget.erasure_service.service import ErasureService
from fedforget.erasure_service.status import RunStatus
from fedforget.erasure_service.subject_requests import State, SubjectRequest
from fedforget.erasure_service.waiting import Waiting

#: Requests that are listed on the first page.
MOST_OPEN, MOST_FINISHED, MOST_RECEIPTS = 25, 5, 10


@dataclass(frozen=True)
class Erasures:
    """What is carried out now and next. ``done`` and ``total`` count replayed rounds."""

    running: str | None
    being_erased: int
    done: int
    total: int
    waiting: int
    unapproved: int
    next: Moment | None
    rule: str
    duration: str


@dataclass(frozen=True)
class Overview:
    """The first page. What only lookers see is None or empty for others."""

    ready: bool
    problems: Sequence[str]
    counts: Sequence[tuple[str, int]]
    erasures: Erasures | None
    open: Sequence[RequestRow]
    more: int
    finished: Sequence[RequestRow]
    federation: FederationView | None
    receipts: Receipts | None
    checked: Moment | None
    shown: int
    audit: Audit | None
    callbacks: Sequence[tuple[str, int]]
    updated: Moment


class Pages:
    """What pages show; made once for a service. Receipts and audits are read in threads of their own."""

    def __init__(self, service: ErasureService) -> None:
        self.service = service
        self.receipts = ReceiptBook(service.run)
        self._audits: NewestAudit | None = None

    def overview(self, visitor: Visitor) -> Overview:
        """The first page for a visitor."""
        service, now = self.service, time.time()
        lists = self._lists(visitor)
        counts = lists.counts()
        shown = lists.open(MOST_OPEN)
        done = [one for one in lists.newest(MOST_OPEN) if one.finished is not None][:MOST_FINISHED]
        looks, status = visitor.looks, service.worker.status
        receipts, problems = self.receipts.get() if looks else None, service.problems()
        return Overview(
            ready=not problems,
            problems=problems if looks else [],
            counts=[(LABELS[state], count) for state, count in counts.items()],
            erasures=self._erasures(status, counts, now) if looks else None,
            open=[self.row(one, visitor, now) for one in shown],
            more=counts[State.PENDING] + counts[State.IN_PROGRESS] - len(shown),
            finished=[self.row(one, visitor, now) for one in done],
            federation=federation_view(status) if looks and status is not None else None,
            receipts=receipts,
            checked=None if receipts is None else Moment.of(receipts.checked, now),
            shown=MOST_RECEIPTS,
            audit=self._audit(status) if looks else None,
            callbacks=self._callback_counts() if looks else [],
            updated=Moment.of(now, now),
        )

    def page(self, visitor: Visitor, limit: int, before: tuple[float, str] | None) -> tuple[list[RequestRow], str]:
        """Requests that a visitor may see, newest first, and the cursor of the following page ('' without one)."""
        found, now = self._lists(visitor).newest(limit + 1, before), time.time()
        last = found[limit - 1] if len(found) > limit else None
        cursor = "" if last is None else f"{last.received!r}_{last.reference}"
        return [self.row(one, visitor, now) for one in found[:limit]], cursor

    def row(self, request: SubjectRequest, visitor: Visitor, now: float | None = None) -> RequestRow:
        """A request as a visitor may see it."""
        batching, seconds = self.service.settings.batching, self.service.dispatcher.duration()
        asked_by = self.service.tokens.name_of(request.holder) if visitor.looks else ""
        return request_row(request, visitor, batching, seconds, time.time() if now is None else now, asked_by)

    def _lists(self, visitor: Visitor) -> RequestLists:
        return RequestLists(self.service.requests, None if visitor.looks else visitor.holder.id)

    def _erasures(self, status: RunStatus | None, counts: dict[State, int], now: float) -> Erasures:
        lists = RequestLists(self.service.requests)
        waiting, progress = lists.waiting(), None if status is None else status.progress
        return Erasures(
            running=None if status is None else status.waiting,
            being_erased=counts[State.IN_PROGRESS],
            done=0 if progress is None else progress.done,
            total=0 if progress is None else progress.total,
            waiting=0 if waiting is None else waiting.count,
            unapproved=lists.unapproved(),
            next=None if waiting is None else self._next(waiting, now),
            rule=self._rule(),
            duration="" if status is None or status.estimate_seconds is None else duration(status.estimate_seconds),
        )

    def _next(self, waiting: Waiting, now: float) -> Moment | None:
        """When those who wait are carried out at the latest."""
        batching, seconds = self.service.settings.batching, self.service.dispatcher.duration()
        last = self.service.batches.last()
        when = batching.latest_start(waiting.received, waiting.deadline, last, now, seconds)
        return Moment.of(when, now) if isfinite(when) else None

    def _rule(self) -> str:
        """When requests are carried out, in words."""
        settings = self.service.settings
        parts = [f"every {settings.batch_every}"] if settings.batch_every and not settings.batch_at else []
        parts += [f"daily at {settings.batch_at}"] if settings.batch_at else []
        parts += [f"when {settings.batch_size} requests wait"] if settings.batch_size else []
        approval = ", after an operator has approved them" if settings.approval else ""
        return (" or ".join(parts) or "as soon as they arrive") + approval

    def _callback_counts(self) -> list[tuple[str, int]]:
        """How callbacks ended, in words, and how many wait."""
        callbacks = self.service.callbacks
        counts = [(outcome.replace("_", " "), count) for outcome, count in callbacks.counts().items()]
        waiting = callbacks.waiting()
        return [*counts, *([("waiting", waiting)] if waiting else [])]

    def _audit(self, status: RunStatus | None) -> Audit | None:
        if status is None or not status.method:
            return None
        if self._audits is None:
            folders = [Path(name) for name in self.service.settings.audits]
            self._audits = NewestAudit(self.service.run, folders, status.method)
        return self._audits.get()
