"""SubjectRequests: the requests that came over HTTP, in ``service/service.sqlite`` of the run folder.

    subject_request(reference TEXT PRIMARY KEY, …)   one request; ``reference`` is a hash of its id

``id``, ``users``, ``items`` and ``callbacks`` of a request are removed when it is finished: then only the hash of its
id and a pseudonym remain, which is salted with that id. Whoever made the request knows the id; nobody else can test it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fedforget.erasure_service.readers import Readers
from fedforget.erasure_service.waiting import Waiting
from fedforget.errors import FedForgetError
from fedforget.protocol.pseudonym import pseudonym, request_salt
from fedforget.runtime.database import scrub_if_free, transaction
from fedforget.runtime.ids import ItemId, UserId

SCHEMA = """
CREATE TABLE IF NOT EXISTS subject_request (
    reference TEXT PRIMARY KEY, id TEXT, users TEXT, items TEXT, callbacks TEXT, pseudonyms TEXT NOT NULL,
    digest TEXT NOT NULL, holder TEXT NOT NULL, regulation TEXT NOT NULL, received REAL NOT NULL,
    submitted REAL NOT NULL, deadline REAL NOT NULL, expected REAL NOT NULL, state TEXT NOT NULL,
    approved INTEGER NOT NULL, batch TEXT, finished REAL, note TEXT NOT NULL DEFAULT '', statement TEXT,
    not_before REAL NOT NULL DEFAULT 0, returned INTEGER NOT NULL DEFAULT 0, num_items INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS subject_request_state ON subject_request (state, received);
CREATE INDEX IF NOT EXISTS subject_request_received ON subject_request (received, reference);
CREATE INDEX IF NOT EXISTS subject_request_batch ON subject_request (batch, state, deadline);
CREATE INDEX IF NOT EXISTS subject_request_waiting ON subject_request
    (state, approved, deadline, received, not_before);
"""
#: Seconds after which requests are tried again whose erasure was refused.
RETRY_SECONDS = 600.0
#: Requests that a batch may carry out at a time; further ahead ``not_before`` was set by a clock that was wrong.
_READY = f"state = 'pending' AND approved = 1 AND NOT (:now < not_before AND not_before <= :now + {RETRY_SECONDS})"
#: The notes of a request by which nobody, or no item, was forgotten. Only operators and auditors see them.
UNKNOWN = "No member had this id: nobody was forgotten."
UNKNOWN_ITEMS = "No member with this id had one of the items: nothing was forgotten."
#: Characters of a reference: it is shown in pages, logs and lists.
REFERENCE = 16


class State(StrEnum):
    """The states of a request, as in OpenDSR."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


#: States that a request stays in.
FINISHED = (State.COMPLETED, State.CANCELLED)


class ConflictError(FedForgetError):
    """A request cannot be stored or changed in its state."""


@dataclass(frozen=True)
class SubjectRequest:
    """A request to forget a person, or ``num_items`` items of a person. Times are seconds since 1970."""

    reference: str
    id: str | None
    users: tuple[str, ...]
    items: tuple[ItemId, ...]
    callbacks: tuple[str, ...]
    pseudonyms: tuple[str, ...]
    digest: str
    holder: str
    regulation: str
    received: float
    submitted: float
    deadline: float
    expected: float
    state: State
    approved: bool
    batch: str | None = None
    finished: float | None = None
    note: str = ""
    statement: str | None = None
    not_before: float = 0.0
    returned: bool = False
    num_items: int = 0

    @classmethod
    def of_row(cls, row: sqlite3.Row) -> SubjectRequest:
        values = {**dict(row), "state": State(row["state"])}
        lists = {name: tuple(json.loads(row[name] or "[]")) for name in ("users", "items", "callbacks", "pseudonyms")}
        return cls(**{**values, **lists, **{name: bool(row[name]) for name in ("approved", "returned")}})

    @property
    def told(self) -> State:
        """The state for whoever made the request: in progress, even if it waits again since its erasure was refused.

        That happens to members only.
        """
        return State.IN_PROGRESS if self.returned and self.state is State.PENDING else self.state

    def again(self, holder: str, digest: str) -> SubjectRequest:
        """This request, if the one that came with its id is the same; else an error."""
        if self.holder != holder or not hmac.compare_digest(self.digest, digest):
            raise ConflictError("Another request has this subject_request_id.", "Use a new UUID.")
        if self.state is State.CANCELLED:
            raise ConflictError("This request was cancelled.", "To ask again, use a new UUID.")
        return self


def reference_of(id_: str) -> str:
    """The hash that stands for a request id in lists and logs."""
    return hashlib.sha256(uuid.UUID(id_).bytes).hexdigest()[:REFERENCE]


def digest_of(id_: str, content: bytes) -> str:
    """A digest of what a request says, which only those can test who know its id."""
    return hmac.new(uuid.UUID(id_).bytes, content, hashlib.sha256).hexdigest()


def pseudonyms_of(id_: str, users: Sequence[str]) -> tuple[str, ...]:
    """The pseudonyms of the persons of a request."""
    return tuple(pseudonym(user, request_salt(id_)) for user in users)


def ids_like(text: str) -> list[UserId]:
    """The ids that a text may stand for: a federation has whole numbers or text as ids, and never both."""
    number = text.isascii() and text.removeprefix("-").isdecimal() and str(int(text)) == text
    return [int(text), text] if number and -(2**63) <= int(text) < 2**63 else [text]


class SubjectRequests:
    """The requests of a run. One thread at a time writes; each thread reads by a connection of its own."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self.db, self._lock = db, threading.RLock()
        self.db.row_factory = sqlite3.Row
        self._readers = Readers(path)
        self._deleted = True  # a process before this one may have been killed between deleting and scrubbing

    @property
    def reader(self) -> sqlite3.Connection:
        """The connection by which the current thread reads what is committed."""
        return self._readers.get()

    def close(self) -> None:
        """Close the connections that read."""
        self._readers.close()

    @contextmanager
    def writing(self, *, scrubbed: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction; nested ones are part of the outer one.

        With ``scrubbed``, what it deletes is removed from the write-ahead log too, at once or by ``scrub_if_due``.
        """
        with self._lock:
            self._deleted |= scrubbed
            if self.db.in_transaction:
                yield self.db
                return
            with transaction(self.db):
                self.db.execute("BEGIN IMMEDIATE")
                yield self.db
            if scrubbed:
                self.scrub_if_due()

    def add(self, request: SubjectRequest) -> SubjectRequest:
        """Store a request. The same request again is returned as it is stored; another one with its id is refused."""
        with self.writing() as db:
            if (known := self.find(request.reference, db)) is not None:
                return known.again(request.holder, request.digest)
            columns = {name: getattr(request, name) for name in SubjectRequest.__dataclass_fields__}
            for name in ("users", "items", "callbacks", "pseudonyms"):
                columns[name] = json.dumps(columns[name])
            names = ", ".join(columns)
            marks = ", ".join("?" * len(columns))
            db.execute(f"INSERT INTO subject_request ({names}) VALUES ({marks})", tuple(columns.values()))
        return request

    def find(self, reference: str, db: sqlite3.Connection | None = None) -> SubjectRequest | None:
        """The request with a reference."""
        row = (db or self.reader).execute("SELECT * FROM subject_request WHERE reference = ?", (reference,)).fetchone()
        return None if row is None else SubjectRequest.of_row(row)

    def in_state(self, *states: State, db: sqlite3.Connection | None = None) -> list[SubjectRequest]:
        """The requests in some states, oldest first."""
        query = "SELECT * FROM subject_request WHERE state IN (SELECT value FROM json_each(?)) ORDER BY received"
        return [SubjectRequest.of_row(row) for row in (db or self.reader).execute(query, (json.dumps(states),))]

    def of_batch(self, batch: str, db: sqlite3.Connection | None = None) -> list[SubjectRequest]:
        """The requests of a batch."""
        query = "SELECT * FROM subject_request WHERE batch = ? ORDER BY received"
        return [SubjectRequest.of_row(row) for row in (db or self.reader).execute(query, (batch,))]

    def unfinished(self, batch: str, limit: int) -> list[SubjectRequest]:
        """Some requests of a batch that are not completed."""
        query = "SELECT * FROM subject_request WHERE batch = ? AND state = ? LIMIT ?"
        return [SubjectRequest.of_row(row) for row in self.reader.execute(query, (batch, State.IN_PROGRESS, limit))]

    def nearest_deadline(self, batch: str) -> float | None:
        """The nearest deadline of the requests of a batch that are not completed; None without any."""
        query = "SELECT MIN(deadline) FROM subject_request WHERE batch = ? AND state = ?"
        found: float | None = self.reader.execute(query, (batch, State.IN_PROGRESS)).fetchone()[0]
        return found

    def page(self, limit: int, before: tuple[float, str] | None, state: State | None) -> list[SubjectRequest]:
        """The newest requests, or those that came before one (its time and reference)."""
        query = (
            "SELECT * FROM subject_request WHERE (received, reference) < (?, ?) AND (? IS NULL OR state = ?) "
            "ORDER BY received DESC, reference DESC LIMIT ?"
        )
        rows = self.reader.execute(query, (*(before or (9e18, "")), state, state, limit))
        return [SubjectRequest.of_row(row) for row in rows]

    def waiting(self, now: float) -> Waiting | None:
        """The requests that may be carried out at a time; None if there are none."""
        query = f"SELECT COUNT(*), MIN(received), MIN(deadline) FROM subject_request WHERE {_READY}"
        count, received, deadline = self.reader.execute(query, {"now": now}).fetchone()
        return Waiting(count, received, deadline) if count else None

    def ready(self, now: float) -> list[SubjectRequest]:
        """The requests that may be carried out at a time, oldest first."""
        query = f"SELECT * FROM subject_request WHERE {_READY} ORDER BY received"
        return [SubjectRequest.of_row(row) for row in self.reader.execute(query, {"now": now})]

    def unapproved(self, before: float) -> list[str]:
        """The references of the requests that wait for approval and have a deadline before a time."""
        query = "SELECT reference FROM subject_request WHERE state = 'pending' AND approved = 0 AND deadline < ?"
        return [row["reference"] for row in self.reader.execute(query, (before,))]

    def counts(self) -> dict[State, int]:
        """The number of requests in each state."""
        found = dict(self.reader.execute("SELECT state, COUNT(*) FROM subject_request GROUP BY state").fetchall())
        return {state: found.get(state, 0) for state in State}

    def approve(self, reference: str) -> None:
        """Let a pending request be carried out."""
        self._change_pending(reference, "approved = 1")

    def _change_pending(self, reference: str, change: str) -> None:
        query = f"UPDATE subject_request SET {change} WHERE reference = ? AND state = ?"
        with self.writing() as db:
            if not db.execute(query, (reference, State.PENDING)).rowcount:
                raise ConflictError("The request is not pending any more.", "Look at its state.")

    def finish(self, reference: str, state: State, now: float, statement: str | None = None) -> None:
        """Finish a request, and remove what names the person."""
        change = (
            "UPDATE subject_request SET state = ?, finished = ?, statement = ?, note = IIF(note IN (?, ?), note, ''), "
            "id = NULL, users = NULL, items = NULL, callbacks = NULL WHERE reference = ? AND state NOT IN (?, ?)"
        )
        with self.writing() as db:
            if not db.execute(change, (state, now, statement, UNKNOWN, UNKNOWN_ITEMS, reference, *FINISHED)).rowcount:
                raise ConflictError("The request is finished already.", "Look at its state.")

    def mark_unknown(self, references: Sequence[str]) -> None:
        """Note that by some requests nothing was forgotten, for whoever may have misspelt an id."""
        change = "UPDATE subject_request SET note = IIF(num_items, ?, ?)"
        with self.writing() as db:
            query = f"{change} WHERE reference IN (SELECT value FROM json_each(?))"
            db.execute(query, (UNKNOWN_ITEMS, UNKNOWN, json.dumps(list(references))))

    def scrub_if_due(self) -> None:
        """Remove deleted content from the write-ahead log too, if there may be any and nobody else uses it now."""
        with self._lock:
            if self._deleted:
                self._deleted = not scrub_if_free(self.db)
