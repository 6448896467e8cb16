"""CallbackStore: callbacks that wait to be delivered. They outlive the process until they are.

    callback(number INTEGER PRIMARY KEY, reference TEXT, url TEXT, body BLOB, headers TEXT, created REAL,
        attempts INTEGER, due REAL, problem TEXT)              one row for each callback that waits; times in seconds
    callback_outcome(reference TEXT, outcome TEXT, count INTEGER)       how the others ended, for each request

URL and body may identify somebody, so a row is deleted when its callback ends, and only counts remain. All states of a
request are sent, not only the newest: each is a signed statement that the receiver may have to keep. Those of one
request to one URL are sent in the order in which they were added, each after the one before has ended.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fedforget.erasure_service.callback_address import CallbackError, validate
from fedforget.runtime.database import scrub_if_free, transaction

__all__ = ["ENDS", "SCHEMA", "Callback", "CallbackError", "CallbackStore", "Outcome", "validate"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS callback (
    number INTEGER PRIMARY KEY AUTOINCREMENT, reference TEXT NOT NULL, url TEXT NOT NULL, body BLOB NOT NULL,
    headers TEXT NOT NULL, created REAL NOT NULL, attempts INTEGER NOT NULL, due REAL NOT NULL, problem TEXT
);
CREATE INDEX IF NOT EXISTS callback_order ON callback (reference, url, number);
CREATE TABLE IF NOT EXISTS callback_outcome (
    reference TEXT NOT NULL, outcome TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (reference, outcome)
) WITHOUT ROWID;
"""
_NEXT = "SELECT min(number) FROM callback GROUP BY reference, url"


class Outcome(StrEnum):
    """What came of an attempt. Only ``FAILED`` is followed by another one."""

    DELIVERED = "delivered"
    #: The receiver says that the signature is wrong (403). Later callbacks of the request are still sent.
    REFUSED = "refused"
    GIVEN_UP = "given_up"
    FAILED = "failed"


#: The outcomes after which a callback is not tried again.
ENDS = (Outcome.DELIVERED, Outcome.REFUSED, Outcome.GIVEN_UP)


@dataclass(frozen=True)
class Callback:
    """A callback that waits. ``due`` is when it is tried next, ``problem`` why it was not delivered before."""

    number: int
    reference: str
    url: str
    body: bytes
    headers: Mapping[str, str]
    created: float
    attempts: int
    due: float
    problem: str | None


class CallbackStore:
    """The callbacks in a database. Threads need a store each, with a connection of their own."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(
        self, reference: str, url: str, body: bytes, headers: Mapping[str, str] | None = None, now: float | None = None
    ) -> None:
        """Queue a callback within the caller's transaction: it is sent if and only if that is committed."""
        now = time.time() if now is None else now
        self._db.execute(
            "INSERT INTO callback (reference, url, body, headers, created, attempts, due) VALUES (?, ?, ?, ?, ?, 0, ?)",
            (reference, url, body, json.dumps(dict(headers or {})), now, now),
        )

    def next_ones(self) -> list[tuple[int, float, str]]:
        """Number, due time and URL of the first callback of each request and URL, the one due first at the front."""
        query = f"SELECT number, due, url FROM callback WHERE number IN ({_NEXT}) ORDER BY due, number"
        return self._db.execute(query).fetchall()

    def get(self, number: int) -> Callback:
        columns = "number, reference, url, body, headers, created, attempts, due, problem"
        row = self._db.execute(f"SELECT {columns} FROM callback WHERE number = ?", (number,)).fetchone()
        number, reference, url, body, headers, *rest = row
        return Callback(number, reference, url, body, json.loads(headers), *rest)

    def postpone(self, callback: Callback, due: float, problem: str) -> None:
        """Try it again at ``due``."""
        with transaction(self._db):
            self._db.execute(
                "UPDATE callback SET attempts = attempts + 1, due = ?, problem = ? WHERE number = ?",
                (due, problem, callback.number),
            )

    def end(self, callback: Callback, outcome: Outcome) -> None:
        """Delete it and count its outcome."""
        with transaction(self._db):
            self._db.execute("DELETE FROM callback WHERE number = ?", (callback.number,))
            self._db.execute(
                "INSERT INTO callback_outcome VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
                (callback.reference, outcome.value),
            )

    def waiting(self, reference: str | None = None) -> int:
        """How many callbacks wait, for one request or all."""
        query = "SELECT count(*) FROM callback WHERE ?1 IS NULL OR reference = ?1"
        return int(self._db.execute(query, (reference,)).fetchone()[0])

    def counts(self, reference: str | None = None) -> dict[Outcome, int]:
        """How many callbacks ended in which way, for one request or all."""
        query = "SELECT outcome, sum(count) FROM callback_outcome WHERE ?1 IS NULL OR reference = ?1 GROUP BY outcome"
        return {Outcome(outcome): count for outcome, count in self._db.execute(query, (reference,))}

    def scrub(self) -> bool:
        """Remove deleted callbacks from the write-ahead log too; false if others use it now: call it again later."""
        return scrub_if_free(self._db)
