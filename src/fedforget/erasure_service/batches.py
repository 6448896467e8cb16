"""Batches: requests that are carried out together, as one erasure. They are in ``service/service.sqlite``.

    batch(id TEXT PRIMARY KEY, state TEXT, …)     ``state`` is "queued", "done" or "refused"

``content`` is the erasure, which names users; it is removed when the batch is done or refused. ``estimate`` is that of
the most expensive erasure when the batch was made.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from fedforget.erasure_service.holds import Holds
from fedforget.erasure_service.subject_requests import ConflictError, State, SubjectRequests
from fedforget.server.request import ErasureRequest

SCHEMA = """
CREATE TABLE IF NOT EXISTS batch (
    id TEXT PRIMARY KEY, state TEXT NOT NULL, created REAL NOT NULL, content TEXT, turn REAL, busy_until REAL,
    finish_from REAL, replayed REAL, confirmed REAL, signed INTEGER NOT NULL DEFAULT 0,
    estimate REAL NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS batch_created ON batch (created);
CREATE INDEX IF NOT EXISTS batch_queued ON batch (created) WHERE state = 'queued';
CREATE INDEX IF NOT EXISTS batch_busy ON batch (busy_until);
"""
#: Newest batches of members whose durations count.
MEASURED = 20


@dataclass(frozen=True)
class Batch:
    """A batch that is not finished; its id is that of its erasure.

    ``turn`` is when the erasure was first seen to have begun, or to be refused. Until ``busy_until`` no other batch
    starts, and before ``finish_from`` its requests are not completed. ``replayed`` is the number of seconds from its
    turn until it was seen to be carried out, 0 if it was not watched. ``signed`` is whether its receipt is.
    """

    id: str
    created: float
    turn: float | None
    busy_until: float | None
    finish_from: float | None
    replayed: float | None
    signed: bool

    @classmethod
    def of_row(cls, row: sqlite3.Row) -> Batch:
        return cls(**{**dict(row), "signed": bool(row["signed"])})


_COLUMNS = ", ".join(Batch.__dataclass_fields__)


class Batches:
    """The batches of requests."""

    def __init__(self, requests: SubjectRequests) -> None:
        self.requests = requests

    def open(self) -> list[Batch]:
        """The batches that are not finished, oldest first."""
        rows = self.requests.reader.execute(f"SELECT {_COLUMNS} FROM batch WHERE state = 'queued' ORDER BY created")
        return [Batch.of_row(row) for row in rows]

    def get(self, batch: str) -> Batch:
        """A batch as it is stored now."""
        rows = self.requests.reader.execute(f"SELECT {_COLUMNS} FROM batch WHERE id = ?", (batch,))
        return Batch.of_row(rows.fetchone())

    def erasure(self, batch: str) -> ErasureRequest:
        """The erasure that carries out a batch that is not finished."""
        row = self.requests.reader.execute("SELECT content FROM batch WHERE id = ?", (batch,)).fetchone()
        return ErasureRequest.from_dict(json.loads(row["content"]))

    def start(self, erasure: ErasureRequest, references: Sequence[str], now: float, estimate: float) -> None:
        """Put pending requests into a new batch, and keep the erasure that carries it out until it is done."""
        with self.requests.writing() as db:
            content = json.dumps(asdict(erasure))
            added = "INSERT INTO batch (id, state, created, content, estimate) VALUES (?, 'queued', ?, ?, ?)"
            db.execute(added, (erasure.id, now, content, estimate))
            change = "UPDATE subject_request SET state = ?, batch = ?, note = '' WHERE reference = ? AND state = ?"
            for reference in references:
                done = db.execute(change, (State.IN_PROGRESS, erasure.id, reference, State.PENDING)).rowcount
                if not done:
                    raise ConflictError("A request of the batch is not pending any more.", "It is tried again.")

    def begin(self, batch: str, now: float, holds: Holds) -> None:
        """Store that it is a batch's turn, and what follows from that."""
        change = "UPDATE batch SET turn = ?, busy_until = ?, finish_from = ? WHERE id = ?"
        with self.requests.writing() as db:
            db.execute(change, (now, now + holds.replay, now + holds.completion, batch))

    def replayed(self, batch: str, seconds: float) -> None:
        """Store how long after its turn a batch was carried out."""
        with self.requests.writing() as db:
            db.execute("UPDATE batch SET replayed = ? WHERE id = ?", (seconds, batch))

    def signed(self, batch: str, confirmed: float | None) -> None:
        """Store that the receipt of a batch is signed, and how long after its turn all devices had confirmed."""
        with self.requests.writing() as db:
            db.execute("UPDATE batch SET signed = 1, confirmed = ? WHERE id = ?", (confirmed, batch))

    def close(self, batch: str, state: str) -> None:
        """Mark a batch as done or refused, and remove its erasure."""
        with self.requests.writing(scrubbed=True) as db:
            db.execute("UPDATE batch SET state = ?, content = NULL WHERE id = ?", (state, batch))

    def give_back(self, batch: str, note: str, not_before: float) -> None:
        """Make the requests of a refused batch pending again; they are tried again from a time on."""
        change = (
            "UPDATE subject_request SET state = ?, batch = NULL, note = ?, not_before = ?, returned = 1 "
            "WHERE batch = ? AND state = ?"
        )
        with self.requests.writing(scrubbed=True) as db:
            db.execute(change, (State.PENDING, note, not_before, batch, State.IN_PROGRESS))
            self.close(batch, "refused")

    def closed(self, erasures: Collection[str]) -> list[str]:
        """Those of some erasures that are batches of requests and finished, or refused."""
        query = "SELECT id FROM batch WHERE state != 'queued' AND id IN (SELECT value FROM json_each(?))"
        return [row["id"] for row in self.requests.reader.execute(query, (json.dumps(list(erasures)),))]

    def last(self) -> float | None:
        """When the last batch was made."""
        found: float | None = self.requests.reader.execute("SELECT MAX(created) FROM batch").fetchone()[0]
        return found

    def estimate(self) -> float:
        """The estimate that was stored with the last batch; 0 before the first."""
        row = self.requests.reader.execute("SELECT estimate FROM batch ORDER BY created DESC LIMIT 1").fetchone()
        return 0.0 if row is None else float(row["estimate"])

    def busy_until(self, now: float) -> float:
        """When the holds of all batches have passed that began before now; others began by a clock that was wrong."""
        query = "SELECT MAX(busy_until) FROM batch WHERE busy_until > :now AND turn <= :now"
        found: float | None = self.requests.reader.execute(query, {"now": now}).fetchone()[0]
        return now if found is None else found

    def holds(self, estimate: float, longest: float) -> Holds:
        """The holds of a batch whose turn it is now. Durations above ``longest`` were measured by a wrong clock."""
        query = "SELECT replayed, confirmed FROM batch WHERE replayed IS NOT NULL ORDER BY created DESC LIMIT ?"
        rows = self.requests.reader.execute(query, (MEASURED,)).fetchall()
        replays, confirmations = (
            [row[name] for row in rows if row[name] is not None and row[name] <= longest]
            for name in ("replayed", "confirmed")
        )
        return Holds.of(estimate, replays, confirmations)
