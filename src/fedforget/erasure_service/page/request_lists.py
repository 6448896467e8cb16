"""RequestLists: which requests a page shows, read without loading all of them."""

from __future__ import annotations

from fedforget.erasure_service.subject_requests import State, SubjectRequest, SubjectRequests
from fedforget.erasure_service.waiting import Waiting

OPEN = (State.PENDING, State.IN_PROGRESS)


class RequestLists:
    """Lists of the requests of a service; of one holder if a ``holder`` is given."""

    def __init__(self, requests: SubjectRequests, holder: str | None = None) -> None:
        self._db, self._holder = requests.reader, holder

    def open(self, limit: int) -> list[SubjectRequest]:
        """Requests that are not finished; the nearest deadline first."""
        query = (
            "SELECT * FROM subject_request WHERE state IN (?, ?) AND (? IS NULL OR holder = ?) "
            "ORDER BY deadline, received, reference LIMIT ?"
        )
        rows = self._db.execute(query, (*OPEN, self._holder, self._holder, limit))
        return [SubjectRequest.of_row(row) for row in rows]

    def newest(self, limit: int, before: tuple[float, str] | None = None) -> list[SubjectRequest]:
        """The newest requests, or those that came before one (its time and reference)."""
        query = (
            "SELECT * FROM subject_request WHERE (received, reference) < (?, ?) AND (? IS NULL OR holder = ?) "
            "ORDER BY received DESC, reference DESC LIMIT ?"
        )
        rows = self._db.execute(query, (*(before or (9e18, "")), self._holder, self._holder, limit))
        return [SubjectRequest.of_row(row) for row in rows]

    def counts(self) -> dict[State, int]:
        """The number of requests in each state; for a holder in the state that it is told."""
        query = (
            "SELECT iif(:holder IS NULL OR state != 'pending' OR NOT returned, state, 'in_progress') AS told, COUNT(*) "
            "FROM subject_request WHERE (:holder IS NULL OR holder = :holder) GROUP BY told"
        )
        found = dict(self._db.execute(query, {"holder": self._holder}).fetchall())
        return {state: found.get(state, 0) for state in State}

    def waiting(self) -> Waiting | None:
        """The approved requests that wait for the next batch; None if there are none."""
        query = (
            "SELECT COUNT(*), MIN(MAX(received, not_before)), MIN(deadline) FROM subject_request "
            "WHERE state = ? AND approved"
        )
        count, received, deadline = self._db.execute(query, (State.PENDING,)).fetchone()
        return Waiting(count, received, deadline) if count else None

    def unapproved(self) -> int:
        """The number of requests that wait for approval."""
        query = "SELECT COUNT(*) FROM subject_request WHERE state = ? AND NOT approved"
        count: int = self._db.execute(query, (State.PENDING,)).fetchone()[0]
        return count
